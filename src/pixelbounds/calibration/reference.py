"""What bands of certifying images are like, in a few numbers, so that new ones can be held against them without truth.

width     mean width of the band
length    mean length of the interval, at a widening that was settled before any image certified
level     mean of the band's middle
limits    share of the band's ends that lie at a limit
groups    how far the image's shares of groups lie from those of the fitting images: half the sum of differences

They are taken at up to 512 pixels of an image, the same in all images of a size. Nothing that they depend on (groups,
widening, shares) knows the certifying images, so while images come from the same source, those of certifying and of new
images are exchangeable: an image is as likely to be the most extreme as any other. That is no statement about risk. Of
many units 512 are kept, those that came first in the random order; of a unit up to 16 images.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..images.checks import Limits
from ..images.ends import Band
from ..images.library import Array, alike, block_of, in_threads, sizes_of
from ..kernels.knots import LOWER, UPPER
from .block import Block, read_block
from .data import ROWS, CalibrationData, LocalData, Statistic
from .families import Family, additive
from .groups.contract import Grouping
from .loss_table import Path, grid_of
from .procedures import knot_at_risk
from .split import Split

STATISTICS = ("width", "length", "level", "limits", "groups")
MOST_UNITS = 512
_OF_A_UNIT = 16
_PIXELS = 512
_AT_ONCE = 1024  # new images compared at a time
_FINE = 1e-12  # rounding, of distances of which the farthest is near 1


@dataclass(frozen=True, eq=False)
class Reference:
    """Statistics of certifying units, (n, 5) float32, `of_units` averaged over a unit's images, `of_images` of one.

    Without units the two are one array. `widening` and `shares`, (K,) float64, are what the statistics need beside the
    groups. All are empty where images stayed at their sites, or an earlier version calibrated.
    """

    of_units: Array
    of_images: Array
    widening: Array
    shares: Array

    def __len__(self) -> int:
        return len(self.of_units)

    def check(self, groups: int) -> None:
        """Refuse what a file must not say."""
        n = len(self)
        for name, x in vars(self).items():
            kept = name.startswith("of_")
            shape = (n, len(STATISTICS)) if kept else (groups if n else 0,)
            if x.dtype != (np.float32 if kept else np.float64) or x.shape != shape:
                raise ValueError(f"{name} of the reference is {x.dtype} {x.shape}; it must be of shape {shape}")
            if not np.isfinite(x).all():
                raise ValueError(f"{name} of the reference holds values that are not finite")
        if n > MOST_UNITS or (n and not 0 <= self.shares.min() <= self.shares.sum() <= 1 + 1e-9):
            raise ValueError(f"a reference of {n} units, with shares of groups that sum to {self.shares.sum():g}")

    def tensors(self) -> dict[str, Array]:
        """What a file holds."""
        if not len(self):
            return {}
        found = {f"reference.{name}": x for name, x in vars(self).items()}
        return {name: x for name, x in found.items() if name != "reference.of_images" or not self.alike}

    @property
    def alike(self) -> bool:
        """Whether each image is its own unit."""
        return self.of_images is self.of_units

    @classmethod
    def from_tensors(cls, tensors: dict[str, Array]) -> Reference:
        """What a file holds; none in those of earlier versions."""
        found = {key.removeprefix("reference."): x for key, x in tensors.items() if key.startswith("reference.")}
        if not found:
            return NO_REFERENCE
        found.setdefault("of_images", found.get("of_units", np.empty(0)))
        if found.keys() != {"of_units", "of_images", "widening", "shares"} or not len(found["of_units"]):
            raise ValueError(f"a reference has {', '.join(sorted(found))}")
        return cls(**found)


_NONE = np.empty((0, len(STATISTICS)), np.float32)
NO_REFERENCE = Reference(_NONE, _NONE, np.empty(0), np.empty(0))


# ---------------------------------------------------------------- a few numbers of each image


@lru_cache(maxsize=64)
def _pixels_of(size: int) -> Array:
    """The pixels at which an image of so many is looked at."""
    if size <= _PIXELS:
        return np.arange(size)
    return np.sort(np.random.default_rng(size).choice(size, _PIXELS, replace=False))


def statistics_of(block: Block, family: Family, grouping: Grouping, widening: Array, shares: Array) -> Array:
    """Statistics of each image of a block: (n, 5) float32."""
    n = len(block)
    pixels = _pixels_of(block.image_size)
    entry = (np.arange(n)[:, None] * block.image_size + pixels).reshape(-1)
    lower, upper = block.clipped(entry)
    below, above = _labels(block, grouping, entry)
    least, most = _ends(block, family, entry, (lower, upper), (widening[below], widening[above]))
    groups = len(widening)
    key = np.repeat(np.arange(n) * groups, len(pixels))
    counts = np.bincount(key + below, minlength=n * groups) + np.bincount(key + above, minlength=n * groups)
    own = counts.reshape(n, groups) / (2 * len(pixels))
    edge = (lower <= block.limits[0]) * 0.5 + (upper >= block.limits[1]) * 0.5
    means = [x.reshape(n, -1).mean(axis=1) for x in (upper - lower, most - least, (lower + upper) / 2, edge)]
    return np.stack([*means, np.abs(own - shares).sum(axis=1) / 2], axis=1).astype(np.float32)


def _ends(block: Block, family: Family, entry: Array, ends: tuple[Array, Array], widening: Any) -> tuple[Array, Array]:
    """Both ends of some pixels' intervals, within the limits: (e,) each."""
    if family is additive:
        least, most = ends[0] - widening[0], ends[1] + widening[1]
    else:
        few = block.band_for(family).map(lambda x: x.reshape(-1)[entry], checked=True)
        least, most = family.widen(few, widening[0])[0], family.widen(few, widening[1])[1]
    return np.clip(least, *block.limits), np.clip(most, *block.limits)


def _labels(block: Block, grouping: Grouping, entry: Array) -> tuple[Array, Array]:
    """Groups of the lower and of the upper ends of some pixels, (e,) each."""
    grouping.check(block)
    if not grouping.sided:
        label = grouping.at(block, entry, np.zeros(len(entry), np.uint8))
        return label, label
    sides = np.repeat(np.array([LOWER, UPPER], np.uint8), len(entry))
    below, above = grouping.at(block, np.concatenate([entry, entry]), sides).reshape(2, -1)
    return below, above


def _band_statistics(
    truth: Array, block: Block, family: Family, grouping: Grouping, widening: Array, shares: Array
) -> tuple[Array, ...]:
    return (statistics_of(block, family, grouping, widening, shares),)


def _group_shares(truth: Array, block: Block, family: Family, grouping: Grouping, groups: int) -> tuple[Array, ...]:
    entry = (np.arange(len(block))[:, None] * block.image_size + _pixels_of(block.image_size)).reshape(-1)
    ends = np.concatenate(_labels(block, grouping, entry))
    return (np.bincount(ends, minlength=groups).astype(np.int64),)


band_statistics = Statistic("likeness", _band_statistics, (ROWS,))
_shares = Statistic("group_shares", _group_shares, (np.add,))


# ---------------------------------------------------------------- the reference of a calibration


def reference_of(
    pairs: CalibrationData, split: Split, fit: CalibrationData, grouping: Grouping, path: Path, level: float
) -> Reference:
    """The reference of the certifying units; `fit` are the fitting images, or all where none fits."""
    if not isinstance(pairs, LocalData) or not isinstance(
        fit, LocalData
    ):  # images that stay at their sites are not told one by one
        return NO_REFERENCE
    widening, shares = grounds_of(fit if split.fitting.any() else None, pairs, grouping, path, level)
    units = split.order[:MOST_UNITS]
    certifying = np.flatnonzero(~split.fitting)
    by_unit = np.argsort(split.unit_of[certifying], kind="stable")
    numbers = split.unit_of[certifying][by_unit]
    first = np.searchsorted(numbers, units)
    last = np.searchsorted(numbers, units, side="right")
    chosen = [certifying[by_unit[some_of(a, b)]] for a, b in zip(first, last, strict=True)]
    images = np.sort(np.concatenate(chosen))
    rows = pairs.aggregate(band_statistics, images, grouping=grouping, widening=widening, shares=shares)[0]
    if len(images) == len(units):
        own = rows[np.searchsorted(images, np.concatenate(chosen))]
        return Reference(own, own, widening, shares)
    rng = np.random.default_rng(0)
    of_units = np.stack([rows[np.searchsorted(images, unit)].mean(axis=0) for unit in chosen])
    of_images = np.stack([rows[np.searchsorted(images, rng.choice(unit))] for unit in chosen])
    return Reference(of_units, of_images, widening, shares)


def grounds_of(
    fit: LocalData | None, pairs: CalibrationData, grouping: Grouping, path: Path, level: float
) -> tuple[Array, Array]:
    """Widening and shares of groups, (K,) each, in which no certifying image has a part; None where no image fits."""
    groups = len(path.knots)
    shares = np.full(groups, 1 / groups)
    if fit is not None:
        counts = fit.aggregate(_shares, grouping=grouping, groups=groups)[0]
        shares = counts / counts.sum()
    return path.at(_usual_knot(fit, pairs, grouping, path, level)), shares


def some_of(first: int, last: int) -> Array:
    """Up to 16 of the numbers first..last, evenly spread: of a larger unit these images are looked at.

    >>> some_of(0, 3), len(some_of(5, 500))
    (array([0, 1, 2]), 16)
    """
    count = min(last - first, _OF_A_UNIT)
    return first + (np.arange(count) * (last - first)) // max(count, 1)


def _usual_knot(fit: LocalData | None, pairs: CalibrationData, grouping: Grouping, path: Path, level: float) -> int:
    """A point of the path that no certifying image has a part in: where fitting images miss the level, else any."""
    if fit is None:
        return min(int(np.searchsorted(path.knots.mean(axis=0), grid_of(pairs)[0] / 16)), len(path) - 1)
    return knot_at_risk(fit, grouping, path, level)


# ---------------------------------------------------------------- one image


def p_values(reference: Array, rows: Array) -> Array:
    """Share of images, the reference's and the new one, that lie at least as far out: (n, 5), (m, 5) -> (m,).

    How far out an image lies is the sum of squared distances from the mean of all n + 1, in units of their deviation:
    the same function of all of them, whichever is the new one, so the p-value is at most p with probability at most p.

    >>> at = np.arange(99.0)[:, None]
    >>> p_values(at, np.array([[49.0], [500.0]]))
    array([1.  , 0.01])
    """
    n = len(reference)
    centre = reference.mean(axis=0, dtype=np.float64)
    known = reference - centre
    squares = known**2
    found = np.empty(len(rows))
    for start in range(0, len(rows), _AT_ONCE):
        new = rows[start : start + _AT_ONCE] - centre
        mean = new / (n + 1)  # of all; that of the reference is 0
        total = squares.sum(axis=0) + new**2 - (n + 1) * mean**2
        share = 1 / np.where(total > 0, total, 1.0)
        own = ((new - mean) ** 2 * share).sum(axis=1)
        theirs = share @ squares.T - 2 * (mean * share) @ known.T + (mean**2 * share).sum(axis=1)[:, None]
        found[start : start + len(new)] = (1 + (theirs >= own[:, None] - _FINE).sum(axis=1)) / (n + 1)
    return found


def statistics_of_images(
    reference: Reference, known: tuple[Band, Any, Any, Limits], family: Family, grouping: Grouping, *, threads: bool
) -> Array:
    """Statistics of new images as a reference has them, from band, features, labels and limits: (n, 5) float32."""
    if not len(reference):
        raise ValueError(
            "this calibration keeps no reference of what its bands are like: it is of an earlier version, or its "
            "images stayed at their sites; calibrate again to have it"
        )
    band, features, labels, limits = known

    def work(start: int, stop: int) -> list[Array]:
        runs = alike(band.lower, range(start, stop))
        blocks = (read_block(band, run[0], run[-1] + 1, limits, features, labels) for run in runs)
        return [statistics_of(block, family, grouping, reference.widening, reference.shares) for block in blocks]

    if not threads:
        return np.concatenate(work(0, len(band)))
    block = block_of(int(sizes_of(band.lower).mean()), len(band))
    return np.concatenate([row for rows in in_threads(work, len(band), block) for row in rows])
