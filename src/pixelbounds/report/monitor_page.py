"""The page of a monitor: evidence over time, risk with its confidence sequence, statistics of bands, what changed."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from ..calibration.text import promise_in_words
from ..calibration.words import level_in_words
from ..images.library import Array
from ..monitoring.monitor import Monitor
from ..storage.files import check_new_file
from .charts import name_axes
from .render import render_page
from .style import BLACK, BLUE, QUIET, RED
from .svg import inline_chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMES = {
    "width": "mean width of bands",
    "length": "mean length of intervals",
    "level": "mean level of bands",
    "limits": "share of ends at the limits",
    "groups": "distance of group shares from the calibration",
}


def write_monitor_page(path: str | os.PathLike[str], monitor: Monitor, title: str = "Monitor") -> Path:
    """Write the page of a monitor and return its path; the same monitor gives the same page."""
    return render_page(
        check_new_file(path, "page"), "monitor.html", title=title, status=monitor.status(), span=_span(monitor.history),
        guarantee=monitor.calibration.guarantee, threshold=f"{1 / monitor.shares[0]:.4g}",
        promises=_promise_charts(monitor), statistics=_statistic_charts(monitor),
    )  # fmt: skip


def _span(history: Array) -> str:
    times = history[history[:, 0] > 0, 0]
    if not len(times):
        return ""
    first, last = (datetime.fromtimestamp(float(x), UTC).strftime("%Y-%m-%d") for x in (times[0], times[-1]))
    return f"From {first} to {last}."


def _makes_a_line(at: Array) -> bool:
    return len(np.unique(at[at > 0])) > 1


def _promise_charts(monitor: Monitor) -> list[Markup]:
    charts, at = [], monitor.history[:, 1]
    if not _makes_a_line(at):
        return []
    threshold = np.log10(1 / monitor.shares[0])
    for i, (one, columns) in enumerate(zip(monitor.promises, monitor.histories[0], strict=True)):
        name = promise_in_words(one.promise)
        label = f"evidence that {name} is broken"
        charts.append(inline_chart(f"evidence-{i}", label, _draw_evidence, at, columns[4], threshold, name))
        charts.append(inline_chart(f"risk-{i}", f"risk of {name}", _draw_risk, at, columns, one.promise, name))
    return charts


def _statistic_charts(monitor: Monitor) -> list[Markup]:
    charts, e_values, at = [], [], monitor.history[:, 2]
    if not _makes_a_line(at):
        return []
    for i, (martingale, columns) in enumerate(zip(monitor.drift, monitor.histories[1], strict=True)):
        name = _NAMES[martingale.name]
        usual = float(martingale.ranks.values.mean())
        charts.append(inline_chart(f"mean-{i}", name, _draw_mean, at, columns, usual, name))
        e_values.append(columns[2])
    if e_values:
        threshold, evidence = np.log10(len(e_values) / monitor.shares[1]), np.stack(e_values, axis=1)
        label = "evidence of a change"
        charts.append(inline_chart("change", label, _draw_evidence, at, evidence, threshold, "change of the source"))
    return charts


def _draw_evidence(axes: Axes, at: Array, log_e_value: Array, threshold: float, name: str) -> None:
    axes.axhline(threshold, color=RED, dashes=(3.5, 2), linewidth=0.9)
    axes.plot(at, log_e_value / np.log(10), color=BLUE)
    _finish(axes, f"{name}: log10 of the e-value")


def _draw_risk(axes: Axes, at: Array, columns: Array, promise: Any, name: str) -> None:
    losses, weights, low, high, _ = columns
    seen = weights > 0
    axes.axhline(promise.at_most, color=BLACK, linewidth=0.6)
    axes.fill_between(at[seen], low[seen], high[seen], color=BLUE, alpha=0.2, linewidth=0)
    axes.plot(at[seen], losses[seen] / weights[seen], color=BLUE)
    _draw_recent(axes, at, losses, weights, QUIET, 0.5)
    axes.set_ylim(0, None)
    _finish(axes, f"{name}: risk, at most {level_in_words(promise.at_most)} promised")


def _draw_mean(axes: Axes, at: Array, columns: Array, usual: float, name: str) -> None:
    axes.axhline(usual, color=BLACK, linewidth=0.6)
    _draw_recent(axes, at, columns[1], columns[0], BLUE, 0.8)
    _finish(axes, name)


def _draw_recent(axes: Axes, at: Array, total: Array, count: Array, colour: str, width: float) -> None:
    """Means since the call before, from running totals."""
    more = np.diff(count, prepend=0.0)
    fresh = more > 0
    means = np.diff(total, prepend=0.0)[fresh] / more[fresh]
    axes.plot(at[fresh], means, ".-", color=colour, linewidth=width)


def _finish(axes: Axes, title: str) -> None:
    name_axes(axes, "images", "\n".join(wrap(title, 52)))
    axes.locator_params(axis="y", nbins=5)
