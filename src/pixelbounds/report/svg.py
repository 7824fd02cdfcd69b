"""Charts as SVG inside the page.

Matplotlib's SVG has style attributes and a style element, which the page's Content-Security-Policy forbids, and ids
that would occur once per chart. Here styles become presentation attributes, which rank below every rule of the page's
style: its rules by colour, such as [stroke="#0072b2"], make a chart follow light, dark and print. Text stays text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup

from .style import figure_bytes, house_style, new_figure

_SIZE = (4.0, 2.55)  # inches, for which 8 points are as large as the page's small print
_AS_TEXT = {"svg.fonttype": "none", "text.parse_math": False, "xtick.labelsize": 8, "ytick.labelsize": 8}
_NUMBER = re.compile(r"-?\d+\.\d+")
_CELL = (130, 18)  # pixels of a chart in a table
_LEFT_TO_PAGE = ("font", "font-family", "stroke-linejoin", "stroke-linecap", "stroke-dashoffset")


def inline_chart(name: str, label: str, draw: Callable[..., None], *given: Any) -> Markup:
    """What `draw(axes, *given)` draws; no other chart of the page has the name, screen readers say the label."""
    with house_style(_AS_TEXT):
        figure, axes = new_figure(*_SIZE)
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        draw(axes, *given)
        drawn = ElementTree.fromstring(figure_bytes(figure, "svg"))
    about = {"class": "chart", "viewBox": drawn.attrib["viewBox"], "role": "img", "aria-label": label}
    root = ElementTree.Element("svg", about)
    for child in drawn:
        root.extend(list(_plain_elements(child, name)))
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _plain_elements(element: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    """An element without style, or what is inside where it says nothing itself."""
    tag = element.tag.rpartition("}")[2]
    if tag in ("metadata", "style"):
        return
    inside = [x for child in element for x in _plain_elements(child, name)]
    attributes = dict(_plain_attributes(element, name))
    if tag == "g":
        attributes.pop("id", None)  # nobody asks for it
    if tag == "g" and not attributes:
        yield from inside
        return
    if tag == "defs" and not inside:
        return
    if tag == "path" and "id" in attributes:  # a marker: each use of it says how it looks
        attributes = {key: attributes[key] for key in ("id", "d")}
    plain = ElementTree.Element(tag, attributes)
    plain.text = element.text if tag == "text" else None
    plain.extend(inside)
    yield plain


def _plain_attributes(element: ElementTree.Element, name: str) -> Iterator[tuple[str, str]]:
    """Attributes with each property of a style as one of its own, ids that are the chart's own, and few digits."""
    for key, value in element.attrib.items():
        key = key.rpartition("}")[2]
        if key == "style":
            pairs = [part.split(": ", 1) for part in value.split("; ")]
            yield from ((what, how) for what, how in pairs if what not in _LEFT_TO_PAGE)
        elif key == "id":
            yield key, f"{name}-{value}"
        elif key in ("href", "clip-path"):
            yield key, value.replace("#", f"#{name}-")
        elif not value.startswith("rotate(-0 "):
            few = _NUMBER.sub(lambda number: f"{float(number[0]):.2f}", value)
            yield key, " ".join(few.split())


def whisker(value: float, low: float, high: float, most: float, level: float | None = None) -> Markup:
    """A value with its interval on a scale 0..most, as one cell of a table."""
    width, height = _CELL

    def at(x: float) -> float:
        return round(3 + min(max(x / most, 0.0), 1.0) * (width - 6), 2)

    parts = [_line("grid", 3, width - 3, 9, 9)]
    if level is not None:
        parts.append(_line("level", at(level), at(level), 1, 17))
    if isfinite(low):
        parts.append(_line("whisker", at(low), at(high), 9, 9))
    parts.append(Markup('<circle class="risk-dot" cx="{}" cy="9" r="3.5"/>').format(at(value)))
    cell = Markup('<svg class="cell" width="{0}" height="{1}" viewBox="0 0 {0} {1}" aria-hidden="true">{2}</svg>')
    return cell.format(width, height, Markup("").join(parts))


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> Markup:
    return Markup('<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(kind, x1, x2, y1, y2)
