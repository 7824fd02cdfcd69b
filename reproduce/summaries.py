"""Results to summaries, paired differences, Markdown and LaTeX.

Seconds are medians over the draws, of one calibration with the arrays in memory; what rows share is counted for each.
Rows that pick a cell of the grid count what the pick costs: all cells for the best, the choice for the chosen.
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import groupby
from typing import Any

import numpy as np
from scipy.stats import t

from pixelbounds.images.library import Array

from .rows import CELLS, REFERENCE, SHORTEST, TableRow, all_rows

LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class Summary:
    """A row over all draws: lengths and risks (draws,), median seconds, and the cell where cells were searched."""

    row: TableRow
    length: Array
    risk: Array
    fresh: float | None
    above: float
    seconds: float
    uncertified: int
    moved: bool = True  # whether any draw widened the band
    single: bool = False  # whether all draws had one group
    cell: str = ""

    @property
    def deviation(self) -> float:
        """Of the mean length over the draws."""
        return _deviation(self.length)

    @property
    def risk_deviation(self) -> float:
        """Of the risk on the validation images over the draws."""
        return _deviation(self.risk)


def _deviation(values: Array) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


@dataclass(frozen=True)
class Difference:
    """Relative difference in mean length of a row to a reference over the same draws, with its interval."""

    row: TableRow
    reference: TableRow
    value: float
    low: float
    high: float
    shorter: int
    draws: int
    uncertified: int = 0  # draws in which one of the two has no length


def summaries(results: dict[str, Any]) -> list[Summary]:
    """Every row that the results hold, in the order of the table."""
    level = results["configuration"]["task"]["risk_level"]
    scans = results["configuration"]["scans"] or {"risk_levels": []}
    by_row: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in results["records"]:
        by_row[record["row"]].append(record)
    out = []
    for row in all_rows(scans["risk_levels"], scans.get("unit", "scan"), scans.get("cap")):
        if row.procedure in CELLS:
            found = _best_cell(row, by_row[f"{row.band}/{CELLS[row.procedure]}/{row.bound}"], level)
            out += [found] if found else []
        elif by_row[row.key]:
            out.append(_summary(row, by_row[row.key], row.scan_level or level))
    return out


def _summary(row: TableRow, records: list[dict[str, Any]], level: float) -> Summary:
    records = sorted(records, key=lambda r: r["draw"])
    length = np.array([r["length"] for r in records])
    risk = np.array([r["risk"] for r in records])
    fresh = float(np.mean([r["fresh"] for r in records])) if "fresh" in records[0] else None
    return Summary(
        row, length, risk, fresh, float((risk > level + 1e-12).mean()),
        float(np.median([r["seconds"] for r in records])),
        sum(not r["certified"] for r in records), any(r["moved"] for r in records),
        all(r["groups"].endswith(" single") for r in records),
        _most_chosen(records) if row.procedure == "krcps_chosen" else "",
    )  # fmt: skip


def _best_cell(row: TableRow, records: list[dict[str, Any]], level: float) -> Summary | None:
    """The one cell of the grid with the least mean length over the draws, as the paper reports it."""
    cells: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        cells[_cell(record["cell"])].append(record)
    if not cells:
        return None
    name, best = min(cells.items(), key=lambda item: np.mean([r["length"] for r in item[1]]))
    seconds = sum(float(np.median([r["seconds"] for r in cell])) for cell in cells.values())
    return replace(_summary(row, best, level), seconds=seconds, cell=name)


def _cell(cell: dict[str, Any]) -> str:
    return f"n_opt {cell['n_opt']}, d_opt {cell['d_opt']}, K {cell['k']}"


def _most_chosen(records: list[dict[str, Any]]) -> str:
    names = [_cell(r["cell"]) for r in records]
    often = max(sorted(set(names)), key=names.count)
    return f"{often} in {names.count(often)} of {len(names)} draws"


def length_differences(results: dict[str, Any], reference: str = REFERENCE) -> list[Difference]:
    """Mean length of each row against the reference, draw by draw; rows of scans are of other draws."""
    found = summaries(results)
    base = next((s for s in found if s.row.key == reference), None)
    if base is None:
        return []
    return [_difference(s, base, results) for s in found if s is not base and s.row.scan_level == base.row.scan_level]


def gains(results: dict[str, Any]) -> list[Difference]:
    """The frontier with betting against each row with calibrated quantiles that is not ours, scans among scans."""
    found = summaries(results)
    ours = {s.row.scan_level: s for s in found if s.row.key.startswith(SHORTEST)}
    others = [s for s in found if s.row.band == "calibrated" and s.row.procedure.startswith(("rcps", "krcps"))]
    return [_difference(ours[s.row.scan_level], s, results) for s in others if s.row.scan_level in ours]


def _difference(s: Summary, base: Summary, results: dict[str, Any]) -> Difference:
    """With a t interval over the draws.

    Draws are splits of the same images and overlap. As Nadeau and Bengio (2003) do, the variance of their mean is taken
    as (1 / draws + validation / calibration) times that of a draw, not as 1 / draws of it.
    """
    draws = results["configuration"]["draws"]
    gain = s.length - base.length
    n = len(gain)
    value = gain.mean() / base.length.mean()
    half = np.nan
    if n > 1:
        spread = np.std(gain - value * base.length, ddof=1) / base.length.mean()
        half = t.ppf((1 + LEVEL) / 2, n - 1) * spread * np.sqrt(1 / n + draws["validation"] / draws["calibration"])
    return Difference(
        s.row, base.row, float(value), float(value - half), float(value + half), int((gain < 0).sum()), n,
        max(s.uncertified, base.uncertified),
    )  # fmt: skip


def published(row: TableRow, data: str) -> tuple[float, float] | None:
    """Mean length and deviation that the paper prints for a row."""
    table = tomllib.loads((files(__package__) / "published.toml").read_text())["rows"]
    found = table.get(row.key)
    return None if found is None else tuple(found[("celeba", "abdomen").index(data)])


# ---------------------------------------------------------------- Markdown and LaTeX

HEADINGS = (
    "uncertainty", "procedure", "bound", "diffusion model?", "entrywise coverage?", "risk control?", "mean length",
    "risk", "draws above", "fresh sample held", "seconds", "the paper",
)  # fmt: skip


def _cells(s: Summary, data: str) -> list[str]:
    """The texts of a row, plain."""
    paper = published(s.row, data)
    length = f"{s.length.mean():.4f} ± {s.deviation:.4f}"
    length += f" ({s.uncertified} not certified)" if s.uncertified else ""
    length += "" if s.moved else " (nothing to widen)"
    length += " (one group: as RCPS)" if s.single and s.row.procedure == "frontier" else ""
    controlled = "each cell" if s.row.procedure in CELLS else "yes" if s.row.controlled else "no"
    return [
        *s.row.names, *("yes" if x else "no" for x in (s.row.diffusion, s.row.entrywise)), controlled,
        length, f"{s.risk.mean():.4f}", f"{s.above:.0%}", "" if s.fresh is None else f"{s.fresh:.1%}",
        f"{s.seconds:.2g}", "" if paper is None else f"{paper[0]:.4f} ± {paper[1]:.4f}",
    ]  # fmt: skip


def _sections(results: dict[str, Any]) -> Iterator[tuple[str, list[tuple[list[str], bool]]]]:
    """Each part of the table: its name, the texts of its rows, and whether a row is the shortest of the part."""
    data = results["configuration"]["published"]
    for section, rows in groupby(summaries(results), key=lambda s: s.row.section):
        part = list(rows)
        least = min(s.length.mean() for s in part)
        yield section, [(_cells(s, data), s.length.mean() == least) for s in part]


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown(results: dict[str, Any]) -> str:
    """The table in Markdown; the shortest of each part in bold."""
    lines = [_markdown_row(HEADINGS), "|" + "---|" * 6 + "---:|" * 6]
    for section, rows in _sections(results):
        lines.append(f"| *{section}* |" + " |" * (len(HEADINGS) - 1))
        for cells, shortest in rows:
            if shortest:
                cells[6] = f"**{cells[6]}**"
            lines.append(_markdown_row(cells))
    return "\n".join(lines)


def latex(results: dict[str, Any]) -> str:
    """The table as a LaTeX tabular (booktabs, amssymb)."""
    marks = {"yes": r"\checkmark", "no": r"$\times$"}
    heads = " & ".join(h.capitalize() for h in HEADINGS)
    lines = [r"\begin{tabular}{lllccccccrrc}", r"\toprule", heads + r" \\"]
    for section, rows in _sections(results):
        lines += [r"\midrule", rf"\multicolumn{{{len(HEADINGS)}}}{{l}}{{\emph{{{section}}}}} \\"]
        for texts, shortest in rows:
            cells = [marks.get(c, c).replace("±", r"$\pm$").replace("%", r"\%") for c in texts]
            if shortest:
                cells[6] = rf"\textbf{{{cells[6]}}}"
            lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


_PAIRED = "difference in mean length | 95% interval | shorter in |\n|---|---|---|---:|---:|---:|"


def difference_markdown(results: dict[str, Any]) -> str:
    """Paired differences of all rows to the paper's in Markdown."""
    rows = [_markdown_row([*d.row.names, *_paired(d)]) for d in length_differences(results)]
    return "\n".join([f"| uncertainty | procedure | bound | {_PAIRED}", *rows])


def gain_markdown(results: dict[str, Any]) -> str:
    """Paired differences of the frontier with betting to each other procedure in Markdown."""
    lines = [f"| frontier with betting against | bound | unit | {_PAIRED}"]
    for d in gains(results):
        lines.append(_markdown_row([*d.reference.names[1:], d.reference.counted, *_paired(d)]))
    return "\n".join(lines)


def _paired(d: Difference) -> list[str]:
    if d.uncertified:
        return [f"not certified in {d.uncertified} of {d.draws} draws | |"]
    ends = "" if np.isnan(d.low) else f"{d.low:+.1%} to {d.high:+.1%}"
    return [f"{d.value:+.1%}", ends, f"{d.shorter} of {d.draws}"]


def grid_markdown(results: dict[str, Any]) -> str:
    """Which cell of the K-RCPS grid was best, and which was chosen."""
    rows = [_markdown_row([*s.row.names, s.cell]) for s in summaries(results) if s.cell]
    return "\n".join(["| uncertainty | procedure | bound | cell |", "|---|---|---|---|", *rows])
