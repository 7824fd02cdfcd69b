"""Pairs of truth and band, read block by block, and what is counted of them.

A `Block` is a few consecutive images in NumPy, checked, with everything that is known of them at test time. `Pairs` is
the whole calibration set as the user gave it: in memory, in a store, on a device.

Fitting and certifying see images only through `ask`: a `Statistic` says what is counted of a block and how counts of
blocks become one. Counts are exact in any order, so images may as well answer where they lie (`pixelbounds.federated`).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from math import isfinite, prod
from typing import Any, TypeVar

import numpy as np

from ..images import (
    Array,
    Band,
    Limits,
    as_array,
    check_same_shape,
    check_values,
    library_of,
    over_images,
    own_limits,
    rows_of,
    sizes_of,
    to_numpy,
    trusted_band,
)
from ..images.ragged import Ragged
from ..kernels import LOWER, UPPER, block_of, collect_missed, fingerprint, over_rows, survey
from .families import Family, additive, check_fits

T = TypeVar("T")
Entries = tuple[Array, Array, Array]  # flat index within the block, end (LOWER or UPPER), shortfall: (e,) each


@dataclass(frozen=True, eq=False)
class Block:
    """Images start..stop: the band (NumPy), and further images (n, f, *pixels) or a segmentation known at test time."""

    start: int
    band: Band
    limits: Limits
    features: Array | None = None
    segmentation: Array | None = None
    outside: int | None = None  # entries outside the clipped band, where that was counted already

    def __len__(self) -> int:
        return len(self.band)

    @property
    def image_size(self) -> int:
        """Pixels per image."""
        return prod(self.band.pixels)

    def clipped(self, entry: Any = slice(None)) -> tuple[Array, Array]:
        """Lower and upper ends within the limits, at some flat entries: (e,), (e,) in float64."""
        lower, upper = (np.asarray(x.reshape(-1)[entry], np.float64) for x in (self.band.lower, self.band.upper))
        return np.clip(lower, *self.limits), np.clip(upper, *self.limits)

    def band_for(self, family: Family) -> Band:
        """The band from which the family widens: within the limits where both ends move alike (additive)."""
        if family is not additive or not any(isfinite(limit) for limit in self.limits):
            return self.band
        return self.band.map(lambda x: np.clip(np.asarray(x, np.float64), *self.limits), checked=True)

    def missed(self, truth: Array, family: Family) -> Entries:
        """Entries that the narrowest set of the family misses."""
        if family is additive:
            parts = [x.reshape(-1) for x in (truth, self.band.lower, self.band.upper)]
            limits = own_limits(self.limits, truth.dtype)
            count = survey(*parts, *limits, 0.0)[1] if self.outside is None else self.outside
            entry, side, shortfall = np.empty(count + 1, np.int64), np.empty(count + 1, np.uint8), np.empty(count + 1)
            found = collect_missed(*parts, *limits, entry, side, shortfall)
            if found != count:
                raise RuntimeError(f"{found} missed entries were collected but {count} counted; please report this")
            return entry[:-1], side[:-1], shortfall[:-1]
        need = np.asarray(family.shortfall(truth, self.band), np.float64).reshape(-1)
        if np.isnan(need).any():
            raise ValueError(f"family {family.name!r}: shortfall is NaN at {int(np.isnan(need).sum())} pixels")
        entry = np.flatnonzero(~(need <= family.start))
        lower, _ = family.widen(self.band, np.float64(family.start))
        side = np.where(truth.reshape(-1)[entry] < np.reshape(lower, -1)[entry], LOWER, UPPER).astype(np.uint8)
        return entry, side, need[entry]


# ---------------------------------------------------------------- what is counted


ROWS = "rows"  # one row per image, or lists: parts follow one another


@dataclass(frozen=True, eq=False)
class Statistic:
    """What is counted of a block, `count(truth, block, family, **given)`, as arrays, and how each joins with others'.

    An array joins by a ufunc (np.add), or parts follow one another (ROWS).
    """

    name: str
    count: Callable[..., tuple[Array, ...]]
    joins: tuple[Any, ...]

    def merge(self, parts: Iterable[tuple[Array, ...]]) -> tuple[Array, ...]:
        """The counts of several parts, in order, as one."""
        held: list[list[Array]] = [[] for _ in self.joins]
        for part in parts:
            for column, x, join in zip(held, part, self.joins, strict=True):
                if join is ROWS or not column:
                    column.append(x)
                else:
                    column[0] = join(column[0], x)
        return tuple(
            np.concatenate(column) if join is ROWS else column[0] for column, join in zip(held, self.joins, strict=True)
        )


class Archive(ABC):
    """Images for calibration that answer statistics: `Pairs` here, or sites that keep their images."""

    family: Family
    limits: Limits

    @property
    @abstractmethod
    def sizes(self) -> Array:
        """Pixels of each image, (n,)."""

    @property
    @abstractmethod
    def pixels(self) -> tuple[int, ...]:
        """Shape of one image; () where images differ in size."""

    @property
    @abstractmethod
    def source(self) -> str:
        """How the band was made."""

    @abstractmethod
    def parts(self, statistic: Statistic, images: Array | None = None, **given: Any) -> Iterable[tuple[Array, ...]]:
        """A statistic of parts of all images, or of some (ascending), in order."""

    def ask(self, statistic: Statistic, images: Array | None = None, **given: Any) -> tuple[Array, ...]:
        """A statistic of all images, or of some (ascending)."""
        return statistic.merge(self.parts(statistic, images, **given))

    @abstractmethod
    def take(self, images: Array) -> Archive:
        """Some images (ascending)."""

    def __len__(self) -> int:
        return len(self.sizes)


def _fingerprints(truth: Array, block: Block, family: Family) -> tuple[Array, ...]:
    parts = [truth, block.band.lower, block.band.upper]
    parts += [] if block.band.centre is None else [block.band.centre]
    total = np.zeros(8, np.int64)
    for i in range(len(block)):
        state = np.full(256, 2166136261, np.uint32)
        for part in parts:
            fingerprint(part[i].reshape(-1).view(np.uint32), state)
        digest = hashlib.sha256(f"{truth.dtype} {truth.shape[1:]}".encode() + state.tobytes()).digest()
        total += np.frombuffer(digest, "<u4")
    return (total,)


fingerprints = Statistic("fingerprints", _fingerprints, (np.add,))


def digest_of(total: Array) -> str:
    """Digest of a set from the sum of its images' digests: neither cuts nor order matter, and no image can be told."""
    return f"{sum(int(word) << (32 * i) for i, word in enumerate(total)) % 2**256:064x}"


# ---------------------------------------------------------------- images at hand


@dataclass(frozen=True, eq=False)
class Pairs(Archive):
    """A set of images for calibration: truth and band of one shape, n images first."""

    truth: Any
    band: Band
    family: Family
    limits: Limits
    features: Any = None
    segmentation: Any = None

    def __post_init__(self) -> None:
        check_fits(self.family, self.band)

    @property
    def sizes(self) -> Array:
        """Pixels of each image, (n,)."""
        return sizes_of(self.band.lower)

    @property
    def pixels(self) -> tuple[int, ...]:
        """Shape of one image; () where images differ in size."""
        return self.band.pixels

    @property
    def source(self) -> str:
        """How the band was made."""
        return self.band.source

    @property
    def image_size(self) -> int:
        """Pixels per image, where all have as many."""
        sizes = self.sizes
        if (sizes != sizes[0]).any():
            raise ValueError(f"images differ in size, from {sizes.min()} to {sizes.max()} pixels")
        return int(sizes[0])

    def parts(self, statistic: Statistic, images: Array | None = None, **given: Any) -> Iterator[tuple[Array, ...]]:
        """A statistic of the blocks of all images, or of some (ascending), in order."""
        count, family = statistic.count, self.family
        return self.over_blocks(lambda truth, block: count(truth, block, family, **given), images)

    def read(self, start: int, stop: int) -> tuple[Array, Block]:
        """Truth and block of images start..stop, checked and of one dtype."""
        truth = rows_of(self.truth, start, stop)
        parts = [rows_of(x, start, stop) for x in (self.band.lower, self.band.upper)]
        dtype = np.result_type(truth, *parts)
        truth, lower, upper = (x if x.dtype == dtype else x.astype(dtype) for x in (truth, *parts))
        span = self.limits[1] - self.limits[0]
        flat = [x.reshape(-1) for x in (truth, lower, upper)]
        good, outside, far = survey(*flat, *own_limits(self.limits, dtype), span)
        if good < truth.size or far > 0 or self.band.centre is not None:  # the slow road finds out what and where
            check_values("truth", truth, start, self.limits)
            check_range(self.band.rows(start, stop), start, self.limits)
        centre = None if self.band.centre is None else rows_of(self.band.centre, start, stop).astype(dtype)
        features, segmentation = _known(self.features, self.segmentation, start, stop)
        band = trusted_band(lower, upper, centre, self.band.source)
        return truth, Block(start, band, self.limits, features, segmentation, outside)

    def over_blocks(self, work: Callable[[Array, Block], T], images: Array | None = None) -> Iterator[T]:
        """`work(truth, block)` over all images in order, or over some (ascending), in blocks run by threads."""
        if images is None or len(images) == len(self):
            return over_images(lambda a, b: work(*self.read(a, b)), self.band.lower)
        size = block_of(int(self.sizes.mean()), len(images))
        if isinstance(self.band.lower, Ragged):
            one_by_one = over_rows(
                lambda a, b: [work(*self.read(int(i), int(i) + 1)) for i in images[a:b]], len(images), block=size
            )
            return chain.from_iterable(one_by_one)
        return over_rows(lambda a, b: work(*self.gather(images[a:b])), len(images), block=size)

    def take(self, images: Array) -> Pairs:
        """Some images (ascending) as pairs in memory, checked; images of different sizes stay where they are."""
        if isinstance(self.band.lower, Ragged):
            band = self.band.map(lambda x: x[images], checked=True)
            return Pairs(self.truth[images], band, self.family, self.limits)
        truth, block = self.gather(images)
        return Pairs(truth, block.band, self.family, self.limits, block.features, block.segmentation)

    def gather(self, images: Array) -> tuple[Array, Block]:
        """Truth and block of some images (ascending)."""
        if library_of(self.truth) == library_of(self.band.lower) == "numpy" and len(images):
            part = Pairs(
                self.truth[images], self.band.map(lambda x: x[images], checked=True), self.family, self.limits,
                None if self.features is None else self.features[images],
                None if self.segmentation is None else self.segmentation[images],
            )  # fmt: skip
            try:
                return part.read(0, len(images))
            except ValueError:  # read one by one, each image is named by its own number
                for i in images:
                    self.read(int(i), int(i) + 1)
                raise
        runs = np.split(images, np.flatnonzero(np.diff(images) > 1) + 1)  # a store is read in as few pieces as can be
        rows = [self.read(int(run[0]), int(run[-1]) + 1) for run in runs]
        truth = np.concatenate([x for x, _ in rows])
        return truth, stack_blocks([block for _, block in rows])


def read_block(
    band: Band, start: int, stop: int, limits: Limits, features: Any = None, segmentation: Any = None
) -> Block:
    """Images start..stop of a band with what else is known of them, checked."""
    rows = band.rows(start, stop)
    check_range(rows, start, limits)
    return Block(start, rows, limits, *_known(features, segmentation, start, stop))


def _known(features: Any, segmentation: Any, start: int, stop: int) -> tuple[Array | None, Array | None]:
    """What else is known of images start..stop, checked."""
    if features is not None:
        features = rows_of(features, start, stop)
        check_values("features", features, start)
    if segmentation is not None:
        segmentation = to_numpy(segmentation[start:stop])
    return features, segmentation


def stack_blocks(blocks: list[Block]) -> Block:
    """Blocks as one."""

    def stack(parts: list[Any]) -> Any:
        return None if parts[0] is None else np.concatenate(parts)

    bands = [block.band for block in blocks]
    lower, upper, centre = (stack([getattr(band, name) for band in bands]) for name in ("lower", "upper", "centre"))
    band = Band(lower, upper, centre, bands[0].source)
    return Block(
        blocks[0].start, band, blocks[0].limits,
        stack([b.features for b in blocks]), stack([b.segmentation for b in blocks]),
    )  # fmt: skip


def check_range(band: Band, start: int, limits: Limits) -> None:
    """Refuse a band on another scale than the limits, such as 0..255 for limits (0, 1)."""
    span = limits[1] - limits[0]
    if not isfinite(span):
        return
    middle = (band.lower.reshape(len(band), -1).mean(axis=1) + band.upper.reshape(len(band), -1).mean(axis=1)) / 2
    wrong = (middle < limits[0] - span / 2) | (middle > limits[1] + span / 2)
    if wrong.any():
        image = int(np.argmax(wrong))
        raise ValueError(
            f"band of image {start + image} has mean {middle[image]:.6g}, far outside the limits ({limits[0]:g}, "
            f"{limits[1]:g}); bring band and truth to one scale, or set limits"
        )


def check_features(features: Any, band: Band) -> Any:
    """Images known at test time: (n, *pixels) for one, (n, f, *pixels) for f of them, or a list of (n, *pixels)."""
    if features is None:
        return None
    if isinstance(band.lower, Ragged):
        raise ValueError("features are for images of one size; leave them out, or bring the images to one size")
    if isinstance(features, list | tuple) and len(features):
        parts = {f"features[{i}]": as_array(x, f"features[{i}]") for i, x in enumerate(features)}
        check_same_shape(band=band.lower, **parts)
        features = np.stack([to_numpy(x) for x in parts.values()], axis=1)
    features = as_array(features, "features")
    if library_of(features) == "zarr":  # a zarr array takes no new axis
        import dask.array as da

        features = da.from_array(features)
    shape = tuple(features.shape)
    if shape == band.shape:
        return features[:, None]
    if len(shape) == len(band.shape) + 1 and (shape[0], *shape[2:]) == band.shape:
        return features
    raise ValueError(
        f"features have shape {shape}, but the band has {band.shape}; give (n, *pixels) or (n, f, *pixels)"
    )
