"""Numbers and names as a report says them: shares, levels, confidence intervals, strata."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import isfinite

from ..evaluation.evaluation import Strata, length_ends, share_ends

MOST_ROWS = 12  # of a table of groups; a chart shows the others
_TINY = 1e-30  # lengths and slopes that are 0 but for rounding


STRATA = {"length": "interval length", "edge": "edge strength", "group": "group"}  # what `Evaluation.strata` are by


def percent(share: float, digits: int = 2) -> str:
    """A share as a percentage; what is not known is a dash."""
    return f"{100 * share:.{digits}f}%" if isfinite(share) else "–"  # noqa: RUF001


def level_text(share: float) -> str:
    """A level as it was asked for: 10%, 2.5%."""
    return f"{100 * share:.6g}%"


def number(value: float) -> str:
    """Four significant digits."""
    return f"{value:#.4g}".rstrip(".") if isfinite(value) else "–"  # noqa: RUF001


def span(low: float, high: float) -> str:
    """The confidence interval of a share in words, rounded outward."""
    return " to ".join(share_ends(low, high))


def length_span(low: float, high: float) -> str:
    """The same of a length; empty where it is not known."""
    return " to ".join(length_ends(low, high)) if isfinite(low) else ""


def strata_rows(strata: Strata, names: Mapping[int, str] | None = None) -> list[tuple[int, str]]:
    """Rows to show of a stratification, with their names: all where they are ordered, else the riskiest."""
    ends = strata.edge_texts(3, _TINY)
    if ends:
        return [(i, low if low == high else f"{low} to {high}") for i, (low, high) in enumerate(pairwise(ends))]
    known = names or {}
    chosen = strata.riskiest(MOST_ROWS).tolist()
    return [(i, str(known.get(int(strata.label[i]), f"group {strata.label[i]}"))) for i in chosen]
