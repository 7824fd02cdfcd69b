"""How things look in a notebook: a small table, and pictures of the first image where it is in memory."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from .library import Array, channel_axis, in_memory, rows_of

_SIDE = 96  # of a picture on the page, in pixels
_MOST_VALUES = 2**22  # of an image that is drawn


def facts_html(title: str, facts: Mapping[str, Any], below: str = "") -> str:
    """A title, names and values, and what stands below as it is.

    >>> facts_html("Band", {"images": "2 < 3"})
    '<div><b>Band</b><table><tr><th style="text-align:left">images</th><td>2 &lt; 3</td></tr></table></div>'
    """
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th><td>{escape(str(value))}</td></tr>'
        for name, value in facts.items()
    )
    return f"<div><b>{escape(title)}</b><table>{rows}</table>{below}</div>"


def rows_html(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a head."""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def first_images_html(images: Mapping[str, Any]) -> str:
    """Pictures of the first image of each array (n, *pixels), by name; nothing where they are not in memory, or large.

    Those called "length" or "width" are drawn from 0 to their most, the others alike from the least to the greatest.
    """
    planes = {name: _plane(x) if in_memory(x) else None for name, x in images.items()}
    shown = {name: x for name, x in planes.items() if x is not None}
    if not shown or len(shown) < len(images):
        return ""
    ends = [x for name, x in shown.items() if name not in ("length", "width")]
    low, high = min(float(x.min()) for x in ends), max(float(x.max()) for x in ends)
    parts = []
    for name, x in shown.items():
        least, most = (0.0, float(x.max())) if name in ("length", "width") else (low, high)
        parts.append(
            f'<figure style="display:inline-block;margin:4px"><img width="{_SIDE}" style="image-rendering:pixelated" '
            f'alt="{name} of the first image" src="data:image/png;base64,{_png(x, least, most)}">'
            f"<figcaption>{name}</figcaption></figure>"
        )
    return "".join(parts)


def _plane(images: Any) -> Array | None:
    if not len(images):
        return None
    x = rows_of(images, 0, 1)[0]
    if x.ndim not in (2, 3) or x.size > _MOST_VALUES or not np.isfinite(x).all():
        return None
    channels = channel_axis(x.shape)
    if channels is not None:
        return np.asarray(x.mean(axis=channels))
    return x if x.ndim == 2 else x[len(x) // 2]


def _png(x: Array, least: float, most: float) -> str:
    from PIL import Image

    gray = ((x.astype(np.float64) - least) / ((most - least) or 1.0)).clip(0, 1)
    content = io.BytesIO()
    Image.fromarray((255 * gray).round().astype(np.uint8)).save(content, "png")
    return base64.b64encode(content.getvalue()).decode()
