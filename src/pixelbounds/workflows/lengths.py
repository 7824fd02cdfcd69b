"""Lengths of intervals: of those seen through a window which are within it, and which are within a tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from ..images.ends import Interval
from ..images.library import Array
from ..images.tolerance import Tolerance, open_ends

CLOSED = ("open_share", "closed_length")  # of each image seen through a window
TRUSTED_SHARE = "trusted_share"  # of each image, where there is a tolerance


def within_tolerance(interval: Interval, tolerance: Tolerance) -> dict[str, Array]:
    """The mask of intervals within a tolerance, (n, *pixels) bool, and its share of each image, (n,)."""
    mask = tolerance.holds(interval.lower, interval.upper)
    return {"trusted": mask, TRUSTED_SHARE: mask.reshape(len(mask), -1).mean(axis=1)}


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
