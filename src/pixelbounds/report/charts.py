"""Charts, each drawn into axes once: the page shows them as inline SVG, papers as PDF and SVG.

Blue is what was observed, red a bound or what lies beyond the level, black the level and what other images say. Which
side the truth lies on is said in pictures only, in the colours ABOVE and BELOW of `style.py`. Lengths are in the unit
of the calibration's measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from ..calibration.calibration import Calibration
from ..calibration.text import promise_in_words
from ..calibration.words import level_in_words, plural
from ..evaluation.evaluation import Evaluation, SeenPromise, Strata
from ..evaluation.guarantee_check import judge
from .cells import PLAIN, LengthWords, strata_heading, strata_rows
from .promise_table import seen_of
from .style import BLACK, BLUE, QUIET, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)  # widths of a bar, of which the least that gives at most 40 bars
_SOFT: dict[str, Any] = {"linewidth": 1.5, "alpha": 0.45, "color": BLUE}  # of confidence intervals


def level_of_all(calibration: Calibration) -> float | None:
    """The level that a share of all pixels outside can be held against; none where something else was certified."""
    of_all = [p.at_most for p in calibration.promises if (p.kind, p.place, p.cap) == ("share", "all", 1)]
    return of_all[0] if of_all else None


def draw_path(axes: Axes, calibration: Calibration, evaluation: Evaluation | None) -> None:
    """Observed risk of the first promise along the path with a bound of each point, and the chosen point.

    Each bound is valid for a point chosen beforehand; the data chose this one, so no bound is marked there. Beside it
    is what the promise came to on other images, where some were evaluated. Where each image counts, units are weighed
    around the level, and only that mean is drawn.
    """
    words = LengthWords.of(calibration.measure) if calibration.family.name == "additive" else PLAIN
    widening, risk, bound = calibration.curve.T
    widening = words.width * widening
    chosen = words.width * float(calibration.widening.mean())
    promise = calibration.promises[0]
    level = promise.at_most
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
    if promise.weighting == "units":
        axes.plot(chosen, promise.risk, "o", color=BLUE)
        seen = None if evaluation is None else seen_of(promise, evaluation, judge(evaluation, calibration))
        if seen is not None:
            _draw_seen(axes, chosen, seen)
    counted = "images that miss too much" if promise.kind == "tail" else "pixels outside"
    name_axes(axes, words.beside("mean widening over groups"), f"{promise.name}: {counted}")
    axes.xaxis.set_major_formatter("{x:g}")
    _percent(axes.yaxis)
    _upright(axes)


def _draw_seen(axes: Axes, chosen: float, seen: SeenPromise) -> None:
    """A diamond with its interval a little to the right of the chosen point, which it would hide."""
    from matplotlib.transforms import ScaledTranslation

    beside = axes.transData + ScaledTranslation(6 / 72, 0, axes.figure.dpi_scale_trans)
    axes.plot([chosen, chosen], seen.interval, color=BLACK, transform=beside)
    edge: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.6, "linestyle": "none"}
    axes.plot(chosen, seen.risk, "D", color=BLACK, label="risk on the images evaluated", transform=beside, **edge)


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
        side, by = ("right", -3) if level >= 0.6 * edges[-1] else ("left", 3)
        words = f"risk level {level_in_words(level)}"
        _note(axes, words, (level, 1), ("data", "axes fraction"), (by, -2), va="top", ha=side)
    name_axes(axes, f"share of {evaluation.entries} outside, per {each}", plural(each))
    _percent(axes.xaxis)
    axes.locator_params(axis="y", integer=True)
    _upright(axes)


def draw_strata(axes: Axes, strata: Strata, kind: str) -> None:
    """Risk of each stratum of a kind, as in `Evaluation.strata`, with its interval, one below the other."""
    rows = strata_rows(strata)
    chosen = [i for i, _ in rows]
    _draw_dots(axes, [name for _, name in rows], strata.risk[chosen], strata.low[chosen], strata.high[chosen])
    axes.set_xlim(left=0)
    name_axes(axes, "pixels outside", strata_heading(kind))
    _percent(axes.xaxis)


def draw_promises(axes: Axes, promises: Sequence[Any]) -> None:
    """What was seen of each promise, with its interval where there is one, and its level as a bar across its row."""
    names = [promise_in_words(p) for p in promises]
    ends = np.array([getattr(p, "interval", (np.nan, np.nan)) for p in promises])
    _draw_dots(axes, names, [p.risk for p in promises], ends[:, 0], ends[:, 1])
    for row, promise in enumerate(promises):
        axes.plot([promise.at_most] * 2, [row - 0.32, row + 0.32], color=BLACK, linewidth=1.2)
    axes.plot([], [], color=BLACK, linewidth=1.2, label="promised level")
    axes.plot([], [], "o", color=BLUE, label="seen")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2)
    axes.set_xlim(left=0)
    axes.set_xlabel("risk: share missed, or share of images that miss too much")
    _percent(axes.xaxis)


def _draw_dots(axes: Axes, names: Sequence[str], values: Any, low: Any, high: Any) -> None:
    at = np.arange(len(names))
    finite = np.isfinite(low)
    axes.hlines(at[finite], low[finite], high[finite], **_SOFT)
    axes.plot(values, at, "o", color=BLUE)
    axes.set_yticks(at, [_plain(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


def _draw_level(axes: Axes, level: float | None) -> None:
    if level is None:
        return
    axes.axhline(level, color=BLACK, linewidth=0.6)
    _note(axes, f"risk level {level_in_words(level)}", (1, level), ("axes fraction", "data"), (0, 3), ha="right")


def name_axes(axes: Axes, below: str, above: str) -> None:
    """Names of both axes, that of the upright one on top of it, where it is read without turning the head."""
    axes.set_xlabel(below)
    axes.set_title(_plain(above), loc="left")


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
    """A name that a font can draw."""
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in name)
