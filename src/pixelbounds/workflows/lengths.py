"""Mean lengths of bands and intervals: what a calibration did to a few images, and what lies beyond a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from ..calibration.result import Calibration
from ..formats.maps import open_ends
from ..images.ends import Band, Interval
from ..images.library import Array, rows_of, sizes_of

CLOSED = ("open_share", "closed_length")  # of each image seen through a window
_MOST_IMAGES = 32
_MOST_PIXELS = 2**24


@dataclass(frozen=True)
class Lengths:
    """Mean length of the bands and of their intervals on some calibration images, (`images` of them): no promise."""

    band: float
    interval: float
    images: int


def lengths_of(calibration: Calibration, band: Band, features: Any, labels: Any) -> Lengths:
    """Lengths on a few of the images of a band, evenly among them; `labels` where the groups are a segmentation."""
    sizes = sizes_of(band.lower)
    count = int(np.clip(_MOST_PIXELS // max(1, int(sizes.mean())), 1, min(_MOST_IMAGES, len(band))))
    numbers = np.unique(np.linspace(0, len(band) - 1, count).round().astype(int)).tolist()
    kind = calibration.grouping.kind
    known = {"features": features if kind == "learned" else None, "groups": labels if kind == "segmentation" else None}
    before: list[float] = []
    after: list[float] = []
    for i in numbers:
        one = band.map(lambda x, i=i: rows_of(x, i, i + 1), checked=True)  # type: ignore[misc]
        now = {name: None if x is None else np.asarray(x[i : i + 1]) for name, x in known.items()}
        interval = calibration.apply(one, threads=False, **now)
        before.append(_mean(one.map(lambda x: np.clip(x, *calibration.limits), checked=True)))
        after.append(_mean(interval))
    return Lengths(float(np.mean(before)), float(np.mean(after)), len(numbers))


def _mean(ends: Band | Interval) -> float:
    return float(np.mean(ends.upper, dtype=np.float64) - np.mean(ends.lower, dtype=np.float64))


def beyond_the_window(interval: Interval) -> dict[str, Array]:
    """Of intervals (n, *pixels) between 0 and 1: share of pixels with an open end, and mean length of the others."""
    n = len(interval)
    closed = (open_ends(interval.lower, interval.upper) == 0).reshape(n, prod(interval.lower.shape[1:]))
    length = (interval.upper.astype(np.float64) - interval.lower).reshape(closed.shape)
    held = closed.sum(axis=1)
    share, mean = CLOSED
    return {share: 1 - held / closed.shape[1], mean: (length * closed).sum(axis=1) / np.maximum(held, 1)}


def closed_mean(lengths: Mapping[str, Array]) -> tuple[float, float] | tuple[None, None]:
    """Of all images together: share of pixels with an open end, and mean length of the others, NaN for none."""
    share, mean = CLOSED
    if share not in lengths:
        return None, None
    weight = 1 - lengths[share]
    total = float(weight.sum())
    closed = float((weight * lengths[mean]).sum()) / total if total else float("nan")
    return float(lengths[share].mean()), closed
