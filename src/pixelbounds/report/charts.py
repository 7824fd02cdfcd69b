"""Small charts as inline SVG; colours are classes, so that the page's style decides them for light, dark and print."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

import numpy as np
from markupsafe import Markup

from ..calibration.result import Calibration
from ..evaluation import Evaluation, Strata
from ..images import Array

_WIDTH, _HEIGHT = 440, 280


def percent(share: float, digits: int = 2) -> str:
    """A share as a percentage; what is not known is a dash."""
    return f"{100 * share:.{digits}f}%" if isfinite(share) else "–"  # noqa: RUF001


def level_text(share: float) -> str:
    """A level as it was asked for: 10%, 2.5%."""
    return f"{100 * share:.6g}%"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers between two ends."""
    span = high - low
    if not (isfinite(span) and span > 0):
        return [low]
    size = 10.0 ** floor(log10(span / count))
    step = next(size * k for k in (1, 2, 5, 10) if span / (size * k) <= count)
    return [round(i * step, 12) for i in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Frame:
    """A chart's scales: values x0..x1 and y0..y1 (from 0 up) inside margins."""

    x: tuple[float, float]
    y: tuple[float, float]
    left: int = 46
    right: int = 14
    top: int = 26
    bottom: int = 42

    def at_x(self, value: float) -> float:
        """Pixels from the left."""
        part = (value - self.x[0]) / (self.x[1] - self.x[0])
        return round(self.left + part * (_WIDTH - self.left - self.right), 2)

    def at_y(self, value: float) -> float:
        """Pixels from the top."""
        part = (value - self.y[0]) / (self.y[1] - self.y[0])
        return round(_HEIGHT - self.bottom - part * (_HEIGHT - self.top - self.bottom), 2)

    def axes(self, x_label: str, y_label: str, *, x_ticks: bool = True, y_percent: bool = True) -> Markup:
        """Grid lines, ticks and names of both axes."""
        out, base = [], _HEIGHT - self.bottom
        for value in ticks(*self.y):
            y, text = self.at_y(value), f"{100 * value:g}%" if y_percent else f"{value:g}"
            out.append(_element("line", "grid", x1=self.left, x2=_WIDTH - self.right, y1=y, y2=y))
            out.append(_text(text, self.left - 7, y + 4, "end"))
        for value in ticks(*self.x) if x_ticks else ():
            text = f"{100 * value:g}%" if not y_percent else f"{value:g}"
            out.append(_element("line", "tick", x1=self.at_x(value), x2=self.at_x(value), y1=base, y2=base + 4))
            out.append(_text(text, self.at_x(value), base + 17))
        out.append(_element("line", "axis", x1=self.left, x2=_WIDTH - self.right, y1=base, y2=base))
        out.append(_text(x_label, (self.left + _WIDTH - self.right) / 2, _HEIGHT - 6))
        out.append(_text(y_label, self.left - 40, 11, "start"))
        return Markup("").join(out)

    def line(self, xs: Array, ys: Array, kind: str) -> Markup:
        """A line through points."""
        points = " ".join(f"{self.at_x(a)},{self.at_y(b)}" for a, b in zip(xs, ys, strict=True))
        return _element("polyline", kind, points=points)

    def level(self, value: float, label: str, x: float | None = None) -> Markup:
        """A horizontal line with its name."""
        y = self.at_y(value)
        line = _element("line", "level", x1=self.left, x2=_WIDTH - self.right, y1=y, y2=y)
        return line + _text(label, _WIDTH - self.right if x is None else x, y - 5, "end", "note")


def path_chart(calibration: Calibration, evaluation: Evaluation | None) -> Markup | None:
    """Risk and bound along the path with the chosen point, the held-out risk beside it; None without a curve."""
    if not len(calibration.curve):
        return None
    widening, risk, bound = calibration.curve.T
    chosen = float(calibration.widening.mean())
    level = calibration.risk_level
    shown = (risk <= 2.5 * level) & (risk >= level / 8)
    ends = [*widening[shown], chosen]
    frame = Frame((min(ends), max(ends) + (0.06 * (max(ends) - min(ends)) or 1.0)), (0.0, 2.5 * level))
    visible = [shown & (curve <= 2.5 * level) for curve in (risk, bound)]
    x = frame.at_x(chosen)
    parts = [
        frame.axes("mean widening over groups", "pixels outside"),
        frame.level(level, f"risk level {level_text(level)}"),
        frame.line(widening[visible[1]], bound[visible[1]], "bound"),
        frame.line(widening[visible[0]], risk[visible[0]], "risk"),
        _element("line", "chosen", x1=x, x2=x, y1=frame.at_y(0), y2=frame.at_y(2.3 * level)),
        _text("chosen", x + 5, frame.at_y(2.3 * level) + 8, "start", "note"),
        _element("circle", "bound-dot", cx=x, cy=frame.at_y(calibration.bound), r=4),
        _element("circle", "risk-dot", cx=x, cy=frame.at_y(calibration.risk), r=4),
    ]
    if evaluation is not None:
        low, high = evaluation.risk_interval
        if isfinite(low):
            parts.append(_element("line", "held", x1=x + 9, x2=x + 9, y1=frame.at_y(low), y2=frame.at_y(high)))
        y = frame.at_y(evaluation.risk)
        parts.append(_element("path", "held-dot", d=f"M{x + 9} {y - 5}l5 5l-5 5l-5 -5z"))
    return _svg(parts, "Share of pixels outside and its confidence bound along the path, with the chosen point")


def unit_chart(evaluation: Evaluation, level: float, each: str) -> Markup:
    """How many units miss what share of their pixels."""
    shares = evaluation.by_unit
    most = max(float(shares.max()), 1.2 * level)
    step = next(s for s in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05) if most / s <= 40 or s == 0.05)
    bins = np.arange(ceil(most / step + 1e-9) + 1) * step
    counts = np.histogram(shares, bins)[0]
    frame = Frame((0.0, float(bins[-1])), (0.0, 1.15 * float(counts.max())))
    parts = [frame.axes(f"share of pixels outside, per {each}", f"{each}s", y_percent=False)]
    for count, left, right in zip(counts, bins[:-1], bins[1:], strict=True):
        if count:
            x, y = frame.at_x(left), frame.at_y(float(count))
            size = {"width": round(max(frame.at_x(right) - x - 1, 1), 2), "height": round(frame.at_y(0) - y, 2)}
            kind = "bar over" if left >= level - 1e-12 else "bar"
            parts.append(_element("rect", kind, x=x, y=y, **size))
    x = frame.at_x(level)
    parts.append(_element("line", "level", x1=x, x2=x, y1=frame.at_y(0), y2=frame.top))
    anchor, x = ("start", x + 5) if level < 0.6 * bins[-1] else ("end", x - 5)
    parts.append(_text(f"risk level {level_text(level)}", x, frame.top + 8, anchor, "note"))
    return _svg(parts, f"Histogram of the share of pixels outside, per {each}")


def group_chart(strata: Strata, level: float) -> Markup:
    """Risk of every group with its interval, the riskiest first."""
    order = np.argsort(-strata.risk, kind="stable")
    high = np.where(np.isfinite(strata.high), strata.high, strata.risk)[order]
    top = max(1.5 * level, min(float(high.max()), 2 * float(strata.risk.max())))
    frame = Frame((-0.7, len(order) - 0.3), (0.0, 1.08 * top))
    radius = 3.5 if len(order) <= 40 else 2
    parts = [frame.axes(f"{len(order)} groups, riskiest first", "pixels outside", x_ticks=False)]
    parts.append(frame.level(level, f"risk level {level_text(level)}"))
    for i, k in enumerate(order):
        x = frame.at_x(i)
        if isfinite(strata.low[k]):
            upper = max(frame.at_y(float(strata.high[k])), 0)
            parts.append(_element("line", "whisker", x1=x, x2=x, y1=frame.at_y(float(strata.low[k])), y2=upper))
        parts.append(_element("circle", "risk-dot", cx=x, cy=frame.at_y(float(strata.risk[k])), r=radius))
    return _svg(parts, "Share of pixels outside by group, with confidence intervals")


def whisker(value: float, low: float, high: float, most: float, level: float | None = None) -> Markup:
    """A value with its interval on a scale 0..most, as one cell of a table."""
    width, height = 130, 18

    def at(x: float) -> float:
        return round(3 + min(max(x / most, 0.0), 1.0) * (width - 6), 2)

    parts = [_element("line", "grid", x1=3, x2=width - 3, y1=9, y2=9)]
    if level is not None:
        parts.append(_element("line", "level", x1=at(level), x2=at(level), y1=1, y2=17))
    if isfinite(low):
        parts.append(_element("line", "whisker", x1=at(low), x2=at(high), y1=9, y2=9))
    parts.append(_element("circle", "risk-dot", cx=at(value), cy=9, r=3.5))
    return Markup('<svg class="cell" width="130" height="18" viewBox="0 0 {} {}" aria-hidden="true">{}</svg>').format(
        width, height, Markup("").join(parts)
    )


def _svg(parts: Iterable[Markup], label: str) -> Markup:
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, _HEIGHT, label, Markup("").join(parts)
    )


def _element(tag: str, kind: str, **attributes: object) -> Markup:
    """An empty element; every value is escaped."""
    written = Markup(" ").join(Markup('{}="{}"').format(name, value) for name, value in attributes.items())
    return Markup('<{} class="{}" {}/>').format(tag, kind, written)


def _text(text: str, x: float, y: float, anchor: str = "middle", kind: str = "label") -> Markup:
    return Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(
        kind, round(x, 2), round(y, 2), anchor, text
    )
