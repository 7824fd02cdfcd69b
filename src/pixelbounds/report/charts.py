"""Charts, each drawn into axes once: the page shows them as inline SVG, papers as PDF and SVG.

Blue is what was observed, red a bound or what lies beyond the level, black the level and what other images say. Which
side the truth lies on is said in pictures only, in the colours ABOVE and BELOW of `style.py`. Lengths are in the unit
of the calibration's measure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calibration.calibration import Calibration
from ..calibration.sentence import plural
from ..evaluation.evaluation import Evaluation, SeenPromise, Strata
from .example import Row
from .style import BLACK, BLUE, QUIET, RED
from .words import LengthWords, level_text, strata_heading, strata_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)  # widths of a bar, of which the least that gives at most 40 bars
_SOFT: dict[str, Any] = {"linewidth": 1.5, "alpha": 0.45, "color": BLUE}  # of confidence intervals


def draw_path(axes: Axes, calibration: Calibration, evaluation: Evaluation | None) -> None:
    """Observed risk along the path with a bound of each point, the chosen point, and the evaluated risk beside it.

    Each bound is valid for a point chosen beforehand; the data chose this one, so no bound is marked there. Where each
    image counts, units are weighed around the level, and only that mean is drawn. Of several promises it is the first.
    """
    words = LengthWords.of(calibration.measure) if calibration.family.name == "additive" else LengthWords()
    widening, risk, bound = calibration.curve.T
    widening = words.width * widening
    chosen = words.width * float(calibration.widening.mean())
    level = calibration.risk_level
    near = (risk <= 2.5 * level) & (risk >= level / 8)
    ends = [*widening[near], chosen]
    margin = 0.06 * (max(ends) - min(ends)) or 1.0
    axes.set_xlim(min(ends), max(ends) + margin)
    axes.set_ylim(0, 2.5 * level)
    _draw_level(axes, level)
    axes.plot(widening, bound, color=RED, dashes=(3.5, 2), label="confidence bound, valid one point at a time")
    axes.plot(widening, risk, color=BLUE, label="observed risk")
    axes.axvline(chosen, color=QUIET, linewidth=0.6, linestyle=":")
    _note(axes, "chosen", (chosen, 1), ("data", "axes fraction"), (-3, -2), va="top", ha="right")
    first = calibration.promises[0]
    if first.weighting == "units":
        axes.plot(chosen, calibration.risk, "o", color=BLUE)
        if evaluation is not None and (evaluation.promises or calibration.of_all_pixels):
            _draw_evaluated(axes, chosen, evaluation if calibration.of_all_pixels else evaluation.promises[0])
    counted = "images that miss too much" if first.kind == "tail" else "pixels outside"
    below = words.beside("mean widening over groups")
    _names(axes, below, f"{_plain(first.name)}: {counted}" if not calibration.of_all_pixels else counted)
    axes.xaxis.set_major_formatter("{x:g}")
    _percent(axes.yaxis)
    _upright(axes)


def _draw_evaluated(axes: Axes, chosen: float, evaluation: Evaluation | SeenPromise) -> None:
    """A diamond with its interval a little to the right of the chosen point, which it would hide."""
    from matplotlib.transforms import ScaledTranslation

    beside = axes.transData + ScaledTranslation(6 / 72, 0, axes.figure.dpi_scale_trans)
    ends = evaluation.interval if isinstance(evaluation, SeenPromise) else evaluation.risk_interval
    axes.plot([chosen, chosen], ends, color=BLACK, transform=beside)
    edge: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.6, "linestyle": "none"}
    axes.plot(chosen, evaluation.risk, "D", color=BLACK, label="risk on the images evaluated", transform=beside, **edge)


def draw_units(axes: Axes, evaluation: Evaluation, level: float | None) -> None:
    """How many units miss what share of their pixels; bars beyond the level, where there is one, are red."""
    each = evaluation.each
    most = max(float(evaluation.by_unit.max()), 1.2 * (level or 0.0), _STEPS[0])
    step = next((s for s in _STEPS if most / s <= 40), _STEPS[-1])
    edges = np.arange(ceil(most / step + 1e-9) + 1) * step
    counts = np.histogram(evaluation.by_unit, edges)[0]
    filled = np.flatnonzero(counts)
    left = edges[filled]
    colours = [RED if level is not None and start >= level - 1e-12 else BLUE for start in left]
    axes.bar(left, counts[filled], 0.94 * step, align="edge", color=colours)
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(0, 1.15 * counts.max())
    if level is not None:
        axes.axvline(level, color=BLACK, linewidth=0.6)
        at_left = level >= 0.6 * edges[-1]
        _note(
            axes, f"risk level {level_text(level)}", (level, 1), ("data", "axes fraction"), (-3 if at_left else 3, -2),
            va="top", ha="right" if at_left else "left",
        )  # fmt: skip
    _names(axes, f"share of {evaluation.entries} outside, per {each}", plural(each))
    _percent(axes.xaxis)
    axes.locator_params(axis="y", integer=True)
    _upright(axes)


def draw_groups(axes: Axes, strata: Strata, level: float | None) -> None:
    """Risk of every group with its interval, the riskiest first."""
    order = np.argsort(-strata.risk, kind="stable")
    top = max(1.5 * (level or 0.0), min(float(strata.high.max()), 2 * float(strata.risk.max())), _STEPS[0])
    at = np.arange(len(order))
    axes.vlines(at, strata.low[order], strata.high[order], **_SOFT)
    axes.plot(at, strata.risk[order], "o", color=BLUE, markersize=4 if len(order) <= 40 else 2.5, clip_on=False)
    _draw_level(axes, level)
    axes.set_xlim(-0.7, len(order) - 0.3)
    axes.set_ylim(0, 1.08 * top)
    axes.set_xticks([])
    _names(axes, f"{len(order)} groups, riskiest first", "pixels outside")
    _percent(axes.yaxis)
    _upright(axes)


def draw_strata(
    axes: Axes,
    strata: Strata,
    kind: str,
    level: float | None,
    names: Mapping[int, str] | None = None,
    lengths: LengthWords | None = None,
) -> None:
    """Risk of each stratum of a kind, as in `Evaluation.strata`, with its interval, one below the other."""
    rows = strata_rows(strata, names, lengths)
    chosen = [i for i, _ in rows]
    _draw_dots(axes, [name for _, name in rows], strata.risk[chosen], strata.low[chosen], strata.high[chosen])
    if level is not None:
        axes.axvline(level, color=BLACK, linewidth=0.6)
    axes.set_xlim(left=0)
    _names(axes, "pixels outside", strata_heading(kind, lengths))
    _percent(axes.xaxis)


def draw_promises(axes: Axes, promises: Sequence[Any]) -> None:
    """What was seen of each promise, with its interval where there is one, and its level as a bar across its row."""
    names = [f"{p.name}, bad above {level_text(p.above)}" if p.kind == "tail" else p.name for p in promises]
    ends = np.array([getattr(p, "interval", (np.nan, np.nan)) for p in promises])
    _draw_dots(axes, names, [p.risk for p in promises], ends[:, 0], ends[:, 1])
    for row, promise in enumerate(promises):
        axes.plot([promise.at_most] * 2, [row - 0.32, row + 0.32], color=BLACK, linewidth=1.2)
    axes.plot([], [], color=BLACK, linewidth=1.2, label="at most, as promised")
    axes.plot([], [], "o", color=BLUE, label="seen")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    axes.set_xlim(left=0)
    axes.set_xlabel("share missed, or of bad images")
    _percent(axes.xaxis)


def draw_comparison(lengths: Axes, risks: Axes, rows: Sequence[Row]) -> None:
    """Mean length and risk of each method, side by side."""
    names = [row.name for row in rows]
    found = [row.evaluation for row in rows]
    words = LengthWords.of(rows[0].calibration.measure)
    length_ends = words.width * np.array([ev.mean_length_interval for ev in found])
    risk_ends = np.array([ev.risk_interval for ev in found])
    _draw_dots(lengths, names, [words.width * ev.mean_length for ev in found], length_ends[:, 0], length_ends[:, 1])
    _draw_dots(risks, names, [ev.risk for ev in found], risk_ends[:, 0], risk_ends[:, 1])
    for level in sorted({row.calibration.risk_level for row in rows if row.calibration.of_all_pixels}):
        risks.axvline(level, color=BLACK, linewidth=0.6)
    lengths.set_xlim(left=0)
    lengths.set_xlabel(words.beside("mean interval length"))
    risks.set_xlim(left=0)
    risks.set_xlabel("pixels outside")
    _percent(risks.xaxis)


def _draw_dots(axes: Axes, names: Sequence[str], values: Any, low: Any, high: Any) -> None:
    """One row per name, the first on top, with its interval."""
    at = np.arange(len(names))
    known = np.isfinite(low)
    axes.hlines(at[known], low[known], high[known], **_SOFT)
    axes.plot(values, at, "o", color=BLUE)
    axes.set_yticks(at, [_plain(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


def _draw_level(axes: Axes, level: float | None) -> None:
    """A line across, with its name, where there is a level."""
    if level is None:
        return
    axes.axhline(level, color=BLACK, linewidth=0.6)
    _note(axes, f"risk level {level_text(level)}", (1, level), ("axes fraction", "data"), (0, 3), ha="right")


def _names(axes: Axes, below: str, above: str) -> None:
    """Names of both axes, that of the upright one on top of it, where it is read without turning the head."""
    axes.set_xlabel(below)
    axes.set_title(above, loc="left")


def _upright(axes: Axes) -> None:
    """Lines across at a few heights, instead of an upright axis."""
    axes.locator_params(axis="y", nbins=5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="x")


def _note(axes: Axes, text: str, at: tuple[float, float], of: tuple[str, str], by: tuple[int, int], **how: Any) -> None:
    """Words at a place, moved by some points."""
    axes.annotate(text, at, by, of, "offset points", **how)


def _percent(axis: Any) -> None:
    axis.set_major_formatter(lambda share, _: f"{100 * share:g}%")


def _plain(name: str) -> str:
    """A name that a font can draw on one line."""
    return "".join(c if c.isprintable() else "?" for c in name)
