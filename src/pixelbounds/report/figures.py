"""Figures for a paper, drawn with matplotlib from what the page is made of.

Charts are written as PDF and SVG, examples as PNG. Files are named by what they show, never by names from the data, and
the same arguments give the same bytes.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calibration.result import Calibration
from ..evaluation import Evaluation, Strata
from ..storage.files import replace_file
from .charts import level_text
from .example import Example, Row
from .pack import is_colour, widening_of, window_of
from .page import check_parts, strata_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GRAY = "#1f5f99", "#b85500", "#5b646b"
_STYLE: dict[Any, Any] = {
    "font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "figure.dpi": 200,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "legend.frameon": False, "pdf.fonttype": 42,
    "svg.hashsalt": "pixelbounds", "svg.fonttype": "path", "text.usetex": False, "text.parse_math": False,
}  # fmt: skip
_WIDTH = 3.4  # inches: one column


def save_figures(
    folder: str | os.PathLike[str],
    *,
    calibration: Calibration,
    evaluation: Evaluation | None,
    examples: Sequence[Example] = (),
    comparison: Sequence[Row] = (),
    group_names: Mapping[int, str] | None = None,
) -> list[Path]:
    """Write path, strata, units and comparison as PDF and SVG and each example as PNG; return their paths."""
    from matplotlib import rc_context

    check_parts(calibration, evaluation, examples, comparison)
    target, out = Path(folder), []
    if target.exists() and not target.is_dir():
        raise ValueError(f"{str(target)!r} is a file; give a folder for the figures")
    target.mkdir(parents=True, exist_ok=True)
    with rc_context(_STYLE):
        figures = {}
        if len(calibration.curve):
            figures["path"] = _path(calibration, evaluation)
        if evaluation is not None:
            figures["units"] = _units(evaluation, calibration.risk_level)
            parts = (
                ("length", evaluation.size_stratified),
                ("edge", evaluation.by_edge),
                ("group", evaluation.by_group),
            )
            for name, strata in parts:
                if strata is not None:
                    figures[f"by-{name}"] = _strata(strata, name, calibration.risk_level, group_names)
        if comparison:
            figures["comparison"] = _comparison(comparison)
        for name, figure in figures.items():
            for kind in ("pdf", "svg"):
                out.append(_save(figure, target / f"{name}.{kind}"))
        for i, example in enumerate(examples):
            out.append(_save(_example(example, calibration), target / f"example-{i + 1:02d}.png"))
    return out


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _save(figure: Figure, path: Path) -> Path:
    """Write aside, then rename; without dates, so that equal figures are equal files."""
    content = io.BytesIO()
    dated: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}
    figure.savefig(content, format=path.suffix[1:], metadata=dated[path.suffix])
    replace_file(path, content.getvalue())
    return path


def _percent_axis(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:g}%"))


def _path(cal: Calibration, ev: Evaluation | None) -> Figure:
    """Observed risk and its bound along the path, with the chosen point."""
    figure, axes = _figure(_WIDTH, 2.4)
    widening, risk, bound = cal.curve.T
    chosen = float(cal.widening.mean())
    axes.plot(widening, bound, color=ORANGE, dashes=(5, 2), linewidth=1.3, label="confidence bound")
    axes.plot(widening, risk, color=BLUE, linewidth=1.3, label="observed risk")
    axes.axhline(cal.risk_level, color="black", linewidth=0.6)
    axes.axvline(chosen, color=GRAY, linewidth=0.6, linestyle=":")
    axes.plot([chosen, chosen], [cal.bound, cal.risk], ".", color=BLUE, markersize=6)
    if ev is not None:
        low, high = ev.risk_interval
        error = [[ev.risk - low], [high - ev.risk]] if isfinite(low) else None
        axes.errorbar(
            [chosen], [ev.risk], error, fmt="D", color="black", markersize=3, linewidth=1, label="held-out risk"
        )
    visible = [*widening[(risk <= 2.5 * cal.risk_level) & (risk >= cal.risk_level / 8)], chosen]
    axes.set_xlim(min(visible), max(visible) + (0.05 * (max(visible) - min(visible)) or 1.0))
    axes.set_ylim(0, 2.5 * cal.risk_level)
    _percent_axis(axes.yaxis)
    axes.set(xlabel="mean widening over groups", ylabel="pixels outside")
    axes.legend()
    return figure


def _units(ev: Evaluation, level: float) -> Figure:
    """Histogram of the share of missed pixels per unit."""
    each = "unit" if len(ev.by_unit) < len(ev.by_image) else "image"
    figure, axes = _figure(_WIDTH, 2.0)
    axes.hist(ev.by_unit, bins=30, color=BLUE)
    axes.axvline(level, color="black", linewidth=0.8)
    axes.annotate(f" {level_text(level)}", (level, 1), xycoords=("data", "axes fraction"), va="top")
    axes.set(xlabel=f"share of pixels outside, per {each}", ylabel=f"{each}s")
    _percent_axis(axes.xaxis)
    return figure


def _dots(axes: Axes, names: list[str], values: Any, low: Any, high: Any) -> None:
    """One row per name, the first on top, with its interval."""
    rows = np.arange(len(names))
    known = np.isfinite(low)
    axes.hlines(rows[known], np.asarray(low)[known], np.asarray(high)[known], color=BLUE, linewidth=2.5, alpha=0.45)
    axes.plot(values, rows, "o", color=BLUE, markersize=3.5)
    axes.set_yticks(rows, names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x", linewidth=0.3)


def _strata(strata: Strata, of: str, level: float, names: Mapping[int, str] | None) -> Figure:
    """Risk of each stratum with its interval."""
    rows = strata_rows(strata, names)
    chosen = [i for i, _ in rows]
    figure, axes = _figure(_WIDTH, 0.9 + 0.2 * len(rows))
    _dots(axes, [_plain(name) for _, name in rows], strata.risk[chosen], strata.low[chosen], strata.high[chosen])
    axes.axvline(level, color="black", linewidth=0.8)
    axes.set_xlim(left=0)
    _percent_axis(axes.xaxis)
    axes.set(xlabel="pixels outside", ylabel={"length": "interval length", "edge": "edge strength"}.get(of, of))
    return figure


def _comparison(rows: Sequence[Row]) -> Figure:
    """Mean length and held-out risk of each method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * _WIDTH, 0.8 + 0.24 * len(rows)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    names, found = [_plain(row.name) for row in rows], [row.evaluation for row in rows]
    for axes, value, ends in ((left, "mean_length", "mean_length_interval"), (right, "risk", "risk_interval")):
        low, high = np.array([getattr(ev, ends) for ev in found]).T
        _dots(axes, names, [getattr(ev, value) for ev in found], low, high)
    for level in sorted({row.calibration.risk_level for row in rows}):
        right.axvline(level, color="black", linewidth=0.8)
    for axes, name in ((left, "mean interval length"), (right, "pixels outside")):
        axes.set_xlim(left=0)
        axes.set_xlabel(name)
    _percent_axis(right.xaxis)
    return figure


def _example(example: Example, cal: Calibration) -> Figure:
    """Pictures of one example side by side, with maps of length and widening and their scales."""
    from matplotlib.figure import Figure

    widening = widening_of(example, cal.limits)
    pictures = {
        "observation": example.observation, "lower": example.lower, "estimate": example.estimate,
        "upper": example.upper, "truth": example.truth, "length": example.length, "widening": widening,
    }  # fmt: skip
    shown = {name: x for name, x in pictures.items() if x is not None}
    low, high = window_of(example, cal.limits)
    tall = example.pixels[-2] / example.pixels[-1]
    figure = Figure(figsize=(1.3 * len(shown), 1.2 * tall + 0.65), layout="constrained")
    for axes, (name, x) in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown.items(), strict=True):
        axes.set_title(name, fontsize=8)
        axes.set_axis_off()
        axes.set_anchor("N")
        colour = is_colour(tuple(x.shape))
        if x.ndim == 3 and not colour:
            x = x[len(x) // 2]
        if name in ("length", "widening"):
            drawn = axes.imshow(x.mean(axis=0) if colour else x, cmap="cividis", vmin=0)
            figure.colorbar(drawn, ax=axes, orientation="horizontal", shrink=0.9, pad=0.02)
        elif colour:
            axes.imshow(np.clip((x.transpose(1, 2, 0) - low) / (high - low), 0, 1))
        else:
            axes.imshow(x, cmap="gray", vmin=low, vmax=high)
    return figure


def _plain(name: str) -> str:
    """A name that a font can draw on one line."""
    return "".join(c if c.isprintable() else "?" for c in name)
