"""Losses of images: what intervals cost where they miss, truth, interval -> one number per image (Section 2.3).

A loss must be entrywise nonincreasing, so that widening never raises it, and lie in [0, 1] for the confidence bounds.
`l01` is the share of pixels outside; what it counts is counted at all points of a path in one pass (`paths/path.py`),
and so is what `any_channel` counts.

A loss of a user's own that sees images costs a pass for each point, so it is tested at some of the points alone, fixed
before by the fitting images. If it is the one that is broken at the widest point t* at which some promise is, it is
broken at the last of its own points up to t*, too, as losses do not rise; and ending at or before t* needs that point
to have passed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..images.checks import check_same_shape, check_values
from ..images.ends import Interval
from ..images.library import Array, as_array, channel_axis, to_numpy
from ..kernels.entry_scores import weigh_missed
from .block import Block
from .data import ROWS, CalibrationData, CertifyingImages, statistic
from .families import Family
from .paths.path import Path
from .promises import RiskTarget
from .target import RiskTest

OWN_POINTS = 256  # points at which a loss that sees images is tested where no image fits
_SHARES = (0.0, 0.25, *(x / 20 for x in range(10, 31)), 1.75, 2.0, 3.0)  # of the level, about which it is tested
Column = Callable[[int], Array]  # losses of the units at a point, (units,)

Loss = Callable[[Array, Interval], Array]  # truth (n, *pixels), interval -> losses (n,)


def _parts(truth: Any, interval: Interval) -> tuple[Array, Array, Array]:
    if not isinstance(interval, Interval):
        raise TypeError(f"interval is a {type(interval).__name__}; give a pixelbounds.Interval(lower, upper)")
    truth = as_array(truth, "truth")
    check_same_shape(interval=interval.lower, truth=truth)
    x, lower, upper = to_numpy(truth), to_numpy(interval.lower), to_numpy(interval.upper)
    check_values("truth", np.ascontiguousarray(x), 0)
    if np.isnan(lower).any() or np.isnan(upper).any():
        raise ValueError("interval has ends that are NaN; correct or drop those images")
    return x, lower, upper


def l01(truth: Any, interval: Interval) -> Array:
    """Share of pixels outside the interval, per image: (n, *pixels) -> (n,).

    >>> l01(np.array([[0.2, 0.9]]), Interval(np.zeros((1, 2)), np.full((1, 2), 0.5)))
    array([0.5])
    """
    x, lower, upper = _parts(truth, interval)
    missed = (x < lower) | (x > upper)
    return missed.reshape(len(missed), -1).mean(axis=1)


@dataclass(frozen=True)
class AnyChannel:
    """The share of pixels of which any channel lies outside; `axis` of (n, *pixels) holds the channels, None: found."""

    axis: int | None = None
    __name__ = "pixels missed in any channel"

    def __call__(self, truth: Any, interval: Interval) -> Array:
        """Losses of n images, (n,)."""
        x, lower, upper = _parts(truth, interval)
        missed = np.asarray(((x < lower) | (x > upper)).any(axis=self.of(x.shape)))
        return missed.reshape(len(missed), -1).mean(axis=1)

    def of(self, shape: tuple[int, ...]) -> int:
        """The axis of images of this shape, (n, *pixels), that holds channels."""
        found = channel_axis(shape[1:])
        if self.axis is None and found is not None:
            return found + 1
        if self.axis is None or not -len(shape) < self.axis < len(shape):
            raise ValueError(f"axis is {self.axis}, but images have shape {shape}; give the axis of the channels")
        axis = self.axis % len(shape)
        if found is not None and axis != found + 1:
            raise ValueError(f"axis {axis} of {shape} holds no channels, axis {found + 1} does: give any_channel()")
        return axis


def any_channel(axis: int | None = None) -> AnyChannel:
    """The loss for images with channels: the share of pixels of which any channel lies outside.

    It is certified as fast as a share. The axis of (n, *pixels) that holds channels is found where it is of 2 to 4.

    >>> interval = Interval(np.zeros((1, 2, 3)), np.full((1, 2, 3), 0.5))
    >>> any_channel(-1)(np.array([[[0.1, 0.1, 0.9], [0.2, 0.3, 0.4]]]), interval)
    array([0.5])
    """
    if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int) or axis == 0):
        raise ValueError(f"axis is {axis!r}; give the axis of (n, *pixels) that holds the channels, such as -1 or 1")
    return AnyChannel(axis)


@statistic(ROWS, ROWS)
def any_channel_misses(truth: Array, block: Block, family: Family, path: Path, loss: AnyChannel) -> tuple[Array, ...]:
    """How many pixels of each image are missed in any channel at each point, and how many it has."""
    entry, side, need = block.missed(truth, family)
    score = path.entry_scores(path.grouping.at(block, entry, side), need)
    axis, shape = loss.of(block.band.shape), list(block.band.shape)
    at = list(np.unravel_index(entry, shape))
    del at[axis], shape[axis]
    last = np.zeros(shape, np.int32)  # the point from which on all channels are covered
    np.maximum.at(last, tuple(at), score)
    image = np.arange(len(block)).repeat(last[0].size)
    rows = weigh_missed(image, last.reshape(-1), np.ones(last.size, np.int32), len(block), len(path))
    return rows, np.full(len(block), float(last[0].size))


class ImageLosses:
    """Losses of the units, (units,), at points of the path, for a promise that sees images: a pass for each point."""

    def __init__(self, test: RiskTest, data: CalibrationData, path: Path) -> None:
        self.test = test
        self.seen: dict[int, Array] = {}
        self._at = _image_losses(test.risk, data, path)

    def __call__(self, point: int) -> Array:
        """Losses at a point, which are kept."""
        if point not in self.seen:
            self.seen[point] = self.test.losses(self._at(point))
        return self.seen[point]


def _image_losses(risk: RiskTarget, data: CalibrationData, path: Path) -> Column:
    if not data.at_hand:
        raise TypeError("a loss of your own is evaluated on the images themselves, and these are elsewhere")
    labels: dict[int, Array] = {}  # groups of all ends of each block, kept as far as memory allows

    def labels_of(block: Block) -> Array:
        if block.start in labels:
            return labels[block.start]
        path.grouping.check(block)
        label = path.grouping.every(block)
        if sum(x.nbytes for x in list(labels.values())) + label.nbytes <= data.runner.table_bytes:
            labels[block.start] = label
        return label

    def at(point: int) -> Array:
        def work(truth: Array, block: Block) -> Array:
            lower, upper = block.widen(data.family, path.grouping, path.points[:, point], labels_of(block))
            return risk.losses_of(truth, Interval(lower, upper), block.start)

        return np.concatenate(list(data.over_blocks(work)))

    return at


def points_to_test(risk: RiskTarget, certifying: CertifyingImages, path: Path) -> Array:
    """Points at which a loss that sees images is tested, ascending, the last one among them: many near its level.

    They are where its mean over the fitting images is about certain shares of its level; without such images they are
    spread evenly.
    """
    fitting, last = certifying.fitting, len(path) - 1
    here = risk.take(np.flatnonzero(~certifying.images))
    if not len(fitting.images) or not here.subgroup.any():
        return np.unique(np.linspace(0, last, min(OWN_POINTS, len(path))).round().astype(int))
    at = _image_losses(here, fitting.data, path)

    @cache
    def mean(point: int) -> float:
        return float(at(point)[here.subgroup].mean())

    def first_below(value: float) -> int:
        return bisect_left(range(last), True, key=lambda point: mean(point) <= value)

    return np.unique([last, *(first_below(share * risk.level) for share in _SHARES)])
