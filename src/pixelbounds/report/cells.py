"""Numbers and names as a report says them: shares, levels, confidence intervals, strata."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

from ..evaluation.evaluation import Strata, length_ends, share_ends
from ..images.measure import Measure

_MOST_ROWS = 12  # of a table of groups
STRATA = {"length": "interval length", "edge": "edge strength", "group": "group"}  # what `Evaluation.strata` are by


def percent(share: float, digits: int = 2) -> str:
    """A share as a percentage; unknown is a dash."""
    return f"{100 * share:.{digits}f}%" if isfinite(share) else "–"  # noqa: RUF001


def number(value: float) -> str:
    """Four significant digits."""
    return f"{value:#.4g}".rstrip(".") if isfinite(value) else "–"  # noqa: RUF001


def span(low: float, high: float) -> str:
    """The confidence interval of a share in words, rounded outward."""
    return " to ".join(share_ends(low, high))


@dataclass(frozen=True)
class LengthWords:
    """Lengths in the unit of the files: those of numbers between 0 and 1 are shares of the window's width.

    >>> words = LengthWords.of(Measure.of_window((400, 40)))
    >>> words.number(0.159), words.span(0.15, 0.17), words.beside("interval length")
    ('63.60 HU', '60 to 68 HU', 'interval length, in HU')
    """

    width: float = 1.0
    unit: str = ""

    @classmethod
    def of(cls, measure: Measure | None) -> LengthWords:
        """As a calibration's measure says; plain numbers where it says nothing."""
        if measure is None:
            return cls()
        return cls(1.0 if measure.window is None else measure.window[0], measure.unit)

    def number(self, length: float) -> str:
        """To four digits, with its unit; a dash where it is not known."""
        return self._with_unit(number(self.width * length)) if isfinite(length) else number(length)

    def span(self, low: float, high: float) -> str:
        """A confidence interval, rounded outward; empty where it is not known."""
        return self._with_unit(" to ".join(length_ends(self.width * low, self.width * high))) if isfinite(low) else ""

    def beside(self, what: str) -> str:
        """What numbers without a unit are, such as the name of an axis."""
        return f"{what}, in {self.unit}" if self.unit else what

    def _with_unit(self, text: str) -> str:
        return f"{text} {self.unit}" if self.unit else text


PLAIN = LengthWords()  # numbers without a unit


def strata_rows(strata: Strata, lengths: LengthWords = PLAIN) -> list[tuple[int, str]]:
    """Rows to show of a stratification, with their names: all where they are ordered, else the riskiest."""
    if strata.edges is not None:
        ends = strata.edge_texts(3, lengths.width)
        return [(i, low if low == high else f"{low} to {high}") for i, (low, high) in enumerate(pairwise(ends))]
    return [(i, f"group {strata.label[i]}") for i in strata.riskiest(_MOST_ROWS).tolist()]


def strata_heading(kind: str, lengths: LengthWords = PLAIN) -> str:
    """What the rows of a stratification are by, with its unit where they are numbers."""
    if kind == "group" or not lengths.unit:
        return STRATA[kind]
    return f"{STRATA[kind]}, in {lengths.unit}{' per pixel' if kind == 'edge' else ''}"
