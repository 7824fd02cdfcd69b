"""What a calibration keeps of single images: hashes, by which an image is recognised, and what bands were like.

The digest of a set is the sum of its images' digests, so neither cuts nor order matter, and it reveals no
image. The hash of one image is a digest of its truth alone: by it an image that is to judge a calibration, or to
certify with groups that it shaped, is refused.

The band of an image is described by five numbers, so that new bands can be compared without truth (monitoring):

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

import hashlib
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, TypeVar

import numpy as np

from ..images.checks import VALIDITY_DOC
from ..images.library import Array, Runner, over_images, rows_of
from ..kernels.entry_scores import LOWER, UPPER
from ..kernels.values import fingerprint
from .block import Block, Grouping
from .data import HERE, ROWS, CalibrationData, check_fitting, statistic
from .families import Family, additive

STATISTICS = ("width", "length", "level", "limits", "groups")
MOST_UNITS = 512  # that are kept: the first in the random order
_OF_A_UNIT = 16  # images of a unit that are looked at
_PIXELS = 128
_NAMED = 8  # images in a message
G = TypeVar("G", bound=Grouping)


@statistic(np.add, ROWS)
def image_hashes(truth: Array, block: Block, family: Family) -> tuple[Array, ...]:
    """The sum of the digests of truth and band, and one hash of each truth, which stays where it is made."""
    total = np.zeros(8, np.int64)
    own = np.zeros(len(block), np.uint64)
    kind = _kind_of(truth)
    single = _kind_of(truth, np.dtype(np.float32))
    for i in range(len(block)):
        state = _words_of(truth[i])
        own[i] = _hash_of(truth[i], single, state if truth.dtype == np.float32 else None)
        for part in block.band.arrays:
            fingerprint(part[i].reshape(-1).view(np.uint32), state)
        total += np.frombuffer(hashlib.sha256(kind + state.tobytes()).digest(), "<u4")
    return total, own


def region_digests(block: Block) -> Array:
    """The sum over images of the digests of each of their regions, which reveal no image: (regions, 8)."""
    total = np.zeros((len(block.regions), 8), np.int64)
    for r, region in enumerate(block.regions):
        kind = _kind_of(region)
        for image in region:
            content = np.packbits(image) if image.dtype == bool else np.ascontiguousarray(image)
            total[r] += np.frombuffer(hashlib.sha256(kind + content.tobytes()).digest(), "<u4")
    return total


def _words_of(image: Array) -> Array:
    state = np.full(256, 2166136261, np.uint32)
    fingerprint(np.ascontiguousarray(image).reshape(-1).view(np.uint32), state)
    return state


def _kind_of(images: Array, dtype: Any = None) -> bytes:
    return f"{images.dtype if dtype is None else dtype} {images.shape[1:]}".encode()


def _hash_of(image: Array, kind: bytes, state: Array | None = None) -> int:
    """Digest of one true image in single precision; 0 where all of its values are one, as in many slices of air."""
    first = image.reshape(-1)[0]
    if first == image.reshape(-1)[-1] and (image == first).all():
        return 0
    if state is None:
        state = _words_of(image.astype(np.float32))
    return int.from_bytes(hashlib.sha256(kind + state.tobytes()).digest()[:8], "little")


def hash_images(truth: Any, runner: Runner = HERE) -> Array:
    """A print of each true image, by which it is known again: (n, *pixels) -> (n,) uint64."""

    def work(start: int, stop: int) -> Array:
        images = rows_of(truth, start, stop)
        kind = _kind_of(images, np.dtype(np.float32))
        return np.array([_hash_of(x, kind) for x in images], np.uint64)

    return np.concatenate(list(over_images(work, truth, runner, [truth])))


def is_known_image(image_hashes: Array, known: Array) -> Array:
    """Which images, (n,) bool, are among some other hashes."""
    return np.isin(image_hashes, known) & (image_hashes != 0)


def on_images(grouping: G, images: Array) -> G:
    """The grouping, remembering the images that shaped it by their hashes, (n,) uint64."""
    if images.dtype != np.uint64 or images.ndim != 1:
        raise ValueError(f"image hashes are {images.dtype} {images.shape}; they must be uint64, one per image")
    known = copy(grouping)
    object.__setattr__(known, "fitted_on", images)
    return known


def remembered(fit: Callable[..., G]) -> Callable[..., G]:
    """A function that fits groups on some images of pairs, which are checked first, made to remember those images."""

    @wraps(fit)
    def fitted(pairs: CalibrationData, images: Array, *more: Any, **settings: Any) -> G:
        check_fitting(pairs, images)
        grouping = fit(pairs, images, *more, **settings)
        if not pairs.at_hand:  # images that stay elsewhere are not known here
            return grouping
        return on_images(grouping, pairs.aggregate(image_hashes, np.asarray(images))[1])

    return fitted


def all_known(image_hashes: Array, known: Array) -> bool:
    """Whether all images of a call, at least two different ones, are among others; a few may repeat honestly."""
    compared = image_hashes[image_hashes != 0]
    return len(np.unique(compared)) > 1 and bool(np.isin(compared, known).all())


def check_not_certifying(fitted_on: Array, image_hashes: Array, certifying: Array) -> None:
    """Groups that were shaped by images which now certify make the certificate worthless."""
    if not len(image_hashes) or not len(fitted_on):
        return
    if np.isin(fitted_on, image_hashes[~certifying]).all():
        return  # they were fitted here and now, on fitting images; duplicates of these are reported elsewhere
    again = np.flatnonzero(is_known_image(image_hashes, fitted_on) & certifying)
    if len(again):
        raise ValueError(
            f"the groups were fitted on {len(again)} of the images that would certify now (image {again[0]} is the "
            "first), and a promise made so fails far more often than asked: give other images, or let calibrate fit "
            f"groups on the fitting images ({VALIDITY_DOC})"
        )


def warn_duplicates(image_hashes: Array, unit_of: Array, harm: str = " and the promise does not hold") -> None:
    """Warn where images of different units have one truth, as several noisy views of one image do, or a patient who
    has two names: these units are not independent.
    """
    hashed = np.flatnonzero(image_hashes)  # images of one value are not compared
    kept = np.unique(np.stack([image_hashes[hashed], unit_of[hashed].astype(np.uint64)]), axis=1)[0]
    doubles = len(kept) - len(np.unique(kept))
    if doubles:
        warnings.warn(
            f"{doubles} of {len(image_hashes)} images have the truth of another one, of another unit. Views of one "
            f"image are not independent{harm}: give them one unit (units=). Other repeats stay in ({VALIDITY_DOC})",
            stacklevel=4,
        )


class CalibrationImages(ValueError):
    """Some of the images calibrated: their numbers, of how many, and their names where they have some."""

    def __init__(self, images: Sequence[int], total: int, names: Sequence[str] = ()) -> None:
        few = ", ".join(str(names[i]) if names else str(i) for i in images[:_NAMED])
        more = f" and {len(images) - _NAMED} more" if len(images) > _NAMED else ""
        super().__init__(
            f"{len(images)} of {total} images calibrated ({few}{more}); they cannot judge intervals that were fitted "
            f"to them: leave them out, or give images that had no part in the calibration; see {VALIDITY_DOC}"
        )
        self.images = tuple(images)
        self.total = total


def refuse_calibrated(truth: Any, calibration: Any, runner: Runner, unit_of: Array | None = None) -> str | None:
    """Refuse images that calibrated; the digest of the calibration images, or None where it is unknown.

    Where truths repeat among the calibration images themselves (counts of a few lesions), some of these images may
    repeat them honestly: then only a call all of whose images are known is refused. With the unit of each image, (n,),
    images of different units that have one truth are reported.
    """
    known: Array = calibration.record.image_hashes
    if not known.any():
        return None
    hashes = hash_images(truth, runner)
    again, compared = np.flatnonzero(is_known_image(hashes, known)), known[known != 0]
    repeat = len(np.unique(compared)) < len(compared)
    if len(again) and (not repeat or all_known(hashes, known)):
        raise CalibrationImages(again.tolist(), len(truth))
    if len(again):
        warnings.warn(
            f"{len(again)} of {len(truth)} images have the truth of one that calibrated, as some of these have of each "
            f"other. Truths that repeat honestly stay in; images that calibrated must not judge ({VALIDITY_DOC})",
            stacklevel=4,
        )
    if unit_of is not None:
        warn_duplicates(hashes, unit_of, ", and the confidence intervals of this evaluation are too narrow")
    return None if len(again) else str(calibration.record.digest)


def digest_of(total: Array) -> str:
    """Digest of a set from the sum of its images' digests: neither cuts nor order matter, and it reveals no image."""
    return f"{sum(int(word) << (32 * i) for i, word in enumerate(total)) % 2**256:064x}"


# ---------------------------------------------------------------- what bands are like


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
