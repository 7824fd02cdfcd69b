"""A path: T points, each a widening of every one of K groups, nondecreasing, fixed before any image certifies.

Section 2.3 takes one lambda, Section 3.2 a line; any nested path will do. It is linear between its points. Because
every group's widening only grows, each end (of a pixel) is covered from one point on: its entry score along the path.
Counting entry scores gives what every image misses at every point.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf, isfinite, log2
from typing import Any, NamedTuple

import numpy as np

from ...images.library import Array
from ...kernels.entry_scores import KEY, LOWER, UPPER, entry_scores, weigh_missed
from ..block import Block, Grouping, image_hashes, region_digests
from ..data import ROWS, CalibrationData, Statistic, statistic
from ..families import FAMILIES, Family, additive

POINTS = 2048


@dataclass(frozen=True, eq=False)
class Path:
    """Widenings along the path: points (K, T), nondecreasing in T, of the groups of a grouping.

    `usual` is a point at which intervals are about as long as they will be: bands are described by it (monitoring).
    """

    points: Array
    grouping: Grouping
    usual: int = 0

    def __post_init__(self) -> None:
        points = np.asarray(self.points)
        if points.ndim != 2 or not points.size or points.dtype.kind != "f" or not np.isfinite(points).all():
            raise ValueError(
                f"the points of a path have shape {points.shape} and dtype {points.dtype}; they must be finite "
                "widenings, groups by points"
            )
        object.__setattr__(self, "points", np.ascontiguousarray(points, np.float64))
        if (np.diff(self.points, axis=1) < 0).any():
            raise ValueError("a path must be nondecreasing in every group")

    def __len__(self) -> int:
        return self.points.shape[1]

    def at(self, point: int, part: float = 1.0) -> Array:
        """Widenings (K,) a share `part` of the way from the point before to a point, rounded up."""
        high = self.points[:, point]
        if part == 1.0:
            return high.copy()
        low = self.points[:, point - 1]
        between = low + part * (high - low)
        return np.minimum(high, between + 2.0**-48 * np.maximum(np.abs(low), np.abs(high)))

    def between(self, point: int, steps: int) -> Path:
        """The way from the point before to a point, in even steps."""
        low = self.points[:, point - 1, None]
        high = self.points[:, point, None]
        inner = low + np.arange(steps) / steps * (high - low)
        points = np.maximum.accumulate(np.append(np.minimum(inner, high), high, axis=1), axis=1)
        return Path(points, self.grouping)

    def entry_scores(self, label: Array, score: Array) -> Array:
        """First point that covers each end, T if none: groups (e,), scores of the family (e,) -> (e,)."""
        value = np.ascontiguousarray(score, np.float64)
        if len(label) and not 0 <= label.min() <= label.max() < len(self.points):
            raise IndexError(f"groups reach from {label.min()} to {label.max()}, but the path has {len(self.points)}")
        return entry_scores(*self._steps, label, value, value.view(np.int64))

    @cached_property
    def _steps(self) -> tuple[Array, Array, int, Array]:
        """Different widenings of each group, (K, S + 1), filled up with infinity, where each is first reached, and the
        index of these widenings.
        """
        fresh = np.ones(self.points.shape, bool)
        fresh[:, 1:] = self.points[:, 1:] > self.points[:, :-1]
        group, point = np.nonzero(fresh)
        number = (np.cumsum(fresh, axis=1) - 1)[group, point]
        steps = np.full((len(self.points), int(number.max()) + 2), np.inf)
        place = np.full(steps.shape, len(self), np.int32)
        steps[group, number] = self.points[group, point]
        place[group, number] = point
        return steps, place, *index_points(steps)


def index_points(points: Array) -> tuple[int, Array]:
    """Index of rows of ascending values (K, S), filled up with infinity, by a value's leading bits.

    The first key, and how many values lie below each key, (K, keys + 2), after a 0 and before the number of all.
    """
    finite = np.isfinite(points)
    positive = points[finite & (points > 0)]
    ends = [np.zeros((len(points), 1), np.int32), finite.sum(axis=1, dtype=np.int32)[:, None]]
    if not len(positive):
        return 0, np.concatenate(ends, axis=1)
    keys = np.array([positive.min(), positive.max()]).view(np.int64) >> KEY
    edges = (np.arange(keys[0], keys[1] + 2, dtype=np.int64) << KEY).view(np.float64)
    below = np.stack([np.searchsorted(row, edges).astype(np.int32) for row in points])
    return int(keys[0]), np.concatenate([ends[0], below, ends[1]], axis=1)


class Grid(NamedTuple):
    """Widenings in geometric progression: so many octaves below and above a scale, which is a power of two times."""

    scale: float
    below: int
    above: int
    most: float = inf  # the greatest finite score on the fitting images, where it was asked for

    def points(self, start: float, per_octave: int) -> Array:
        """The start, then widenings up to the widest."""
        octaves = np.linspace(-self.below, self.above, per_octave * (self.below + self.above) + 1)
        return np.concatenate([[0.0], self.scale * 2.0**octaves]) + start


def grid_of(data: CalibrationData, images: Array | None = None) -> Grid:
    """The grid of widenings. Without limits it follows scores of some fitting images; no other image is looked at."""
    span = data.limits[1] - data.limits[0]
    if data.family is additive and isfinite(span):
        return Grid(span, 14, 0)  # widening by the whole range covers everything
    grid = Grid(1.0, 14, 14) if isfinite(span) else Grid(1.0, 20, 20)
    if images is None or not len(images):
        return grid
    most = float(data.aggregate(farthest, images)[0][0])
    need = most - data.family.start
    if isfinite(span) or _has_own_scale(data.family) or not need > 0 or 2.0**-10 <= need <= 2.0**10:
        return grid._replace(most=most)
    return Grid(2.0 ** round(log2(need)), 20, 20, most)


def _has_own_scale(family: Family) -> bool:
    """Whether widenings are shares of what a band says, not lengths."""
    return family.name in FAMILIES and family is not additive


def scalar_path(data: CalibrationData, grouping: Grouping, images: Array | None = None) -> Path:
    """One group whose widening is the path's parameter (Algorithm 2); its points depend on no image that certifies.

    Without limits, and without a fitting image that says on which scale values are, it reaches farther both ways.
    """
    start, free = data.family.start, not isfinite(data.limits[1] - data.limits[0])
    follows = free and not _has_own_scale(data.family)
    grid = grid_of(data, images if follows else None)
    points = grid.points(start, per_octave=146)
    if follows and (images is None or not len(images)):
        far = 2.0 ** np.linspace(20, 60, 24 * 40 + 1)[1:]
        points = np.concatenate([points[:1], start + 1 / far[::-1], points[1:], start + far])
    return Path(points[None], grouping, min(int(np.searchsorted(points, grid.scale / 16)), len(points) - 1))


@statistic(np.maximum)
def farthest(truth: Array, block: Block, family: Family) -> tuple[Array, ...]:
    """Greatest finite score: (1,)."""
    need = block.missed(truth, family)[2]
    return (need[np.isfinite(need)].max(initial=family.start, keepdims=True),)


def _misses(truth: Array, block: Block, family: Family, path: Path, *, digests: bool = False) -> tuple[Array, ...]:
    """What each image misses of all pixels and of each region at each point, side by side, and sizes of the regions;
    with `digests` also the sums of the digests of images and of regions, in which no image can be recognised.

    (n, (1 + regions) * T), (n, 1 + regions), (8,), (regions, 8)
    """
    path.grouping.check(block)
    entry, side, need = block.missed(truth, family)
    score = path.entry_scores(path.grouping.at(block, entry, side), need)
    image = entry // block.image_size
    weights = [np.ones(len(entry), bool), *(region.reshape(-1)[entry] for region in block.regions)]
    tables = [
        weigh_missed(image, score, x.astype(np.int32 if x.dtype == bool else np.float64), len(block), len(path))
        for x in weights
    ]
    rows = tables[0] if len(tables) == 1 else np.concatenate(tables, axis=1), region_sizes(block)
    return (*rows, image_hashes.count(truth, block, family)[0], region_digests(block)) if digests else rows


misses = Statistic("misses", _misses, (ROWS, ROWS, np.add, np.add))


def region_sizes(block: Block) -> Array:
    """Pixels of each image, and pixels or weight of each of its regions: (images, 1 + regions) float64."""
    sizes = np.empty((len(block), 1 + len(block.regions)))
    sizes[:, 0] = block.image_size
    for r, region in enumerate(block.regions, 1):
        sizes[:, r] = [np.sum(image) for image in region.reshape(len(block), -1)]
    return sizes


@statistic(ROWS, ROWS)
def arriving(truth: Array, block: Block, family: Family, path: Path, point: int) -> tuple[Array, ...]:
    """Ends that are first covered at a point: how many per image, and their share of the way from the point before."""
    entry, side, need = block.missed(truth, family)
    label = path.grouping.at(block, entry, side)
    here = path.entry_scores(label, need) == point
    label, need, image = label[here], need[here], entry[here] // block.image_size
    low = path.points[label, point - 1]
    high = path.points[label, point]
    share = (need - low) / (high - low)
    return np.bincount(image, minlength=len(block)), share[np.argsort(image, kind="stable")]


# ---------------------------------------------------------------- what bands are like
#
# The band of an image is described by five numbers, so that new bands can be compared without truth (monitoring):
#
# width     mean width of the band
# length    mean length of the interval, at a point of the path that was fixed before any image certified
# level     mean of the band's middle
# limits    share of the band's ends that lie at a limit
# groups    how far the image's shares of groups lie from those of the fitting images: half the sum of differences
#
# They are taken at up to 128 pixels of an image, the same in all images of a size, in the pass that counts losses.
# Nothing that they depend on (groups, widening, shares) knows the certifying images, so while images come from the same
# source, those of certifying and of new images are exchangeable. That is no statement about risk.

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
    if size <= _PIXELS:
        return np.arange(size)
    return np.sort(np.random.default_rng(size).choice(size, _PIXELS, replace=False))


def _entries(block: Block) -> Array:
    return (np.arange(len(block))[:, None] * block.image_size + _pixels_of(block.image_size)).reshape(-1)


def _labels(block: Block, grouping: Grouping, entry: Array) -> Array:
    """Groups of the lower and of the upper ends of some pixels, (2, e)."""
    return np.stack([grouping.at(block, entry, np.full(len(entry), side, np.uint8)) for side in (LOWER, UPPER)])


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
    cells = (labels + np.arange(0, n * groups, groups).repeat(len(entry) // n)).reshape(-1)
    counts = np.bincount(cells, minlength=n * groups).reshape(n, groups)
    rows = np.empty((n, len(STATISTICS)), np.float32)
    rows[:, :4] = values.reshape(4, n, -1).mean(axis=2).T * (1, 1, 0.5, 0.5)
    rows[:, 4] = np.abs(counts / (2 * len(entry) / n) - shares).sum(axis=1) / 2
    return rows


@statistic(np.add)
def ends_of_groups(truth: Array, block: Block, family: Family, grouping: Grouping, groups: int) -> tuple[Array, ...]:
    """How many of the ends that are looked at each group has: (groups,)."""
    ends = _labels(block, grouping, _entries(block)).reshape(-1)
    return (np.bincount(ends, minlength=groups).astype(np.int64),)


def group_shares(data: CalibrationData, images: Array, path: Any) -> Array:
    """Shares of the groups on the fitting images, (K,); all alike where none fits."""
    groups = len(path.points)
    if not len(images) or groups == 1:
        return np.full(groups, 1 / groups)
    counts = data.aggregate(ends_of_groups, grouping=path.grouping, groups=groups)[0]
    return np.asarray(counts / counts.sum())


@statistic(*misses.joins, ROWS, ROWS)
def recorded_misses(truth: Array, block: Block, family: Family, path: Path, shares: Array) -> tuple[Array, ...]:
    """Misses, and of each image a hash and what its band is like."""
    total, hashes = image_hashes.count(truth, block, family)
    described = describe(block, family, path.grouping, path.at(path.usual), shares)
    return *misses.count(truth, block, family, path), total, region_digests(block), hashes, described
