"""What the band of an image is like, in five numbers, so that new bands can be compared without truth (monitoring).

width     mean width of the band
length    mean length of the interval, at a point of the path that was fixed before any image certified
level     mean of the band's middle
limits    share of the band's ends that lie at a limit
groups    how far the image's shares of groups lie from those of the fitting images: half the sum of differences

They are taken at up to 128 pixels of an image, the same in all images of a size, in the pass that counts losses.
Nothing that they depend on (groups, widening, shares) knows the certifying images, so while images come from the same
source, those of certifying and of new images are exchangeable. That is no statement about risk.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..images.library import Array
from ..kernels.entry_scores import LOWER, UPPER
from .block import Block
from .data import ROWS, CalibrationData, Statistic
from .families import Family, additive
from .groups.contract import Grouping
from .paths.path import Path

STATISTICS = ("width", "length", "level", "limits", "groups")
MOST_UNITS = 512  # that are kept: the first in the random order
_OF_A_UNIT = 16  # images of a unit that are looked at
_PIXELS = 128


@dataclass(frozen=True, eq=False)
class BandStatistics:
    """Of certifying units, (u, 5) float32: `of_units` averaged over a unit's images, `of_images` of one of them.

    `widening` and `shares`, (K,), are what the statistics need beside the groups. All are empty where images stay at
    their sites.
    """

    of_units: Array
    of_images: Array
    widening: Array
    shares: Array

    def __len__(self) -> int:
        return len(self.of_units)

    @classmethod
    def of(
        cls, rows: Array, certifying: Array, unit_of: Array, order: Array, widening: Array, shares: Array
    ) -> BandStatistics:
        """From the statistics of all images, (n, 5), those of the first certifying units."""
        images = np.flatnonzero(certifying)
        by_unit = images[np.argsort(unit_of[images], kind="stable")]
        first, last = (np.searchsorted(unit_of[by_unit], order[:MOST_UNITS], side=side) for side in ("left", "right"))
        if (last - first == 1).all():
            alone = rows[by_unit[first]]
            return cls(alone, alone, widening, shares)
        rng = np.random.default_rng(0)
        chosen = [by_unit[some_of(a, b)] for a, b in zip(first.tolist(), last.tolist(), strict=True)]
        means = np.stack([rows[unit].mean(axis=0) for unit in chosen])
        return cls(means, np.stack([rows[rng.choice(unit)] for unit in chosen]), widening, shares)


_NONE = np.empty((0, len(STATISTICS)), np.float32)
NOT_DESCRIBED = BandStatistics(_NONE, _NONE, np.empty(0), np.empty(0))


def some_of(first: int, last: int) -> Array:
    """Up to 16 of the numbers first..last, evenly spread: of a larger unit these images are looked at.

    >>> some_of(0, 3), len(some_of(5, 500))
    (array([0, 1, 2]), 16)
    """
    count = min(last - first, _OF_A_UNIT)
    return first + (np.arange(count) * (last - first)) // max(count, 1)


@lru_cache(maxsize=64)
def _pixels_of(size: int) -> Array:
    """The pixels at which an image of so many is looked at."""
    if size <= _PIXELS:
        return np.arange(size)
    return np.sort(np.random.default_rng(size).choice(size, _PIXELS, replace=False))


def _entries(block: Block) -> Array:
    return (np.arange(len(block))[:, None] * block.image_size + _pixels_of(block.image_size)).reshape(-1)


def _labels(block: Block, grouping: Grouping, entry: Array) -> Array:
    """Groups of the lower and of the upper ends of some pixels, (2, e)."""
    if not grouping.sided:
        return np.broadcast_to(grouping.at(block, entry, np.zeros(len(entry), np.uint8)), (2, len(entry)))
    sides = np.repeat(np.array([LOWER, UPPER], np.uint8), len(entry))
    return grouping.at(block, np.concatenate([entry, entry]), sides).reshape(2, -1)


def describe(block: Block, family: Family, grouping: Grouping, widening: Array, shares: Array) -> Array:
    """Statistics of each image of a block: (n, 5) float32."""
    n, groups, entry = len(block), len(widening), _entries(block)
    lower, upper = block.clipped(entry)
    labels = _labels(block, grouping, entry)
    below, above = widening[labels]
    if family is additive:
        least, most = lower - below, upper + above
    else:
        few = block.band_for(family).map(lambda x: x.reshape(-1)[entry], checked=True)
        least, most = family.widen(few, below)[0], family.widen(few, above)[1]
    low, high = block.limits
    values = np.empty((4, len(entry)))
    values[0] = upper - lower
    values[1] = np.minimum(most, high) - np.maximum(least, low)
    values[2] = lower + upper
    values[3] = (lower <= low).view(np.uint8) + (upper >= high).view(np.uint8)
    counts = np.bincount((labels + np.arange(0, n * groups, groups).repeat(len(entry) // n)).reshape(-1))
    counts.resize(n, groups)
    rows = np.empty((n, len(STATISTICS)), np.float32)
    rows[:, :4] = values.reshape(4, n, -1).mean(axis=2).T * (1, 1, 0.5, 0.5)
    rows[:, 4] = np.abs(counts / (2 * len(entry) / n) - shares).sum(axis=1) / 2
    return rows


def _band_rows(
    truth: Array, block: Block, family: Family, grouping: Grouping, widening: Array, shares: Array
) -> tuple[Array, ...]:
    return (describe(block, family, grouping, widening, shares),)


band_rows = Statistic("band_rows", _band_rows, (ROWS,))


def _group_shares(truth: Array, block: Block, family: Family, grouping: Grouping, groups: int) -> tuple[Array, ...]:
    ends = _labels(block, grouping, _entries(block)).reshape(-1)
    return (np.bincount(ends, minlength=groups).astype(np.int64),)


_shares = Statistic("group_shares", _group_shares, (np.add,))


def group_shares(data: CalibrationData, images: Array, path: Path) -> Array:
    """Shares of the groups on the fitting images, (K,); all alike where none fits."""
    groups = len(path.points)
    if not len(images) or groups == 1:
        return np.full(groups, 1 / groups)
    counts = data.aggregate(_shares, grouping=path.grouping, groups=groups)[0]
    return np.asarray(counts / counts.sum())
