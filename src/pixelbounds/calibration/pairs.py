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
from dataclasses import dataclass, replace
from itertools import chain
from math import isfinite, prod
from typing import Any, Protocol, TypeVar

import numpy as np

from ..images.checks import ImageError, Limits, check_values, own_limits
from ..images.ends import Band, check_range
from ..images.library import (
    Array,
    Runner,
    alike,
    block_of,
    differ_in_size,
    in_memory,
    over_images,
    rows_of,
    sizes_of,
    to_numpy,
)
from ..images.source import Source
from ..kernels.knots import LOWER, UPPER, collect_missed
from ..kernels.values import fingerprint, survey
from .families import Family, additive, check_fits

T = TypeVar("T")
HERE = Runner()  # threads of this process
Entries = tuple[Array, Array, Array]  # flat index within the block, end (LOWER or UPPER), shortfall: (e,) each


class Labels(Protocol):
    """What pairs need to know of a grouping (`groups.Grouping`): which ends of a block widen together."""

    @property
    def sided(self) -> bool:
        """Whether the two ends of a pixel may belong to different groups."""

    def at(self, block: Block, entry: Array, side: Array) -> Array:
        """Groups of some ends: flat index within the block (e,), end (e,) -> (e,)."""

    def check(self, block: Block) -> None:
        """Refuse a band that cannot be labelled."""


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
        lower = np.asarray(self.band.lower.reshape(-1)[entry], np.float64)
        upper = np.asarray(self.band.upper.reshape(-1)[entry], np.float64)
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
            entry = np.empty(count + 1, np.int64)
            side = np.empty(count + 1, np.uint8)
            shortfall = np.empty(count + 1)
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

    def widen(self, family: Family, grouping: Labels, widening: Array) -> tuple[Array, Array]:
        """Both ends of every pixel at the widening of its group, clipped to the limits: float64 (n, *pixels) each."""
        grouping.check(self)
        band = self.band_for(family)
        if grouping.sided:
            below, above = widening[grouping.at(self, *all_entries(self))].reshape(2, *band.shape)
            lower = family.widen(band, below)[0]
            upper = family.widen(band, above)[1]
        else:
            entry = np.arange(len(self) * self.image_size)
            label = grouping.at(self, entry, np.zeros(len(entry), np.uint8))
            lower, upper = family.widen(band, widening[label].reshape(band.shape))
        return np.clip(lower, *self.limits), np.clip(upper, *self.limits)


def all_entries(block: Block) -> tuple[Array, Array]:
    """Every end of a block: all lower ends, then all upper ends; flat index (2e,), end (2e,)."""
    if not isinstance(block, Block):
        raise TypeError(f"block is a {type(block).__name__}; give a pixelbounds.calibration.pairs.Block")
    size = len(block) * block.image_size
    entry = np.arange(size)
    side = np.repeat(np.array([LOWER, UPPER], np.uint8), size)
    return np.concatenate([entry, entry]), side


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
    runner: Runner

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
    def source(self) -> Source:
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


def check_fitting(pairs: Any, images: Any) -> None:
    """Pairs, and the numbers of at least one of their images, ascending."""
    if not isinstance(pairs, Archive):
        raise TypeError(
            f"pairs is a {type(pairs).__name__}; give pixelbounds.calibration.pairs.Pairs of truth and band"
        )
    numbers = np.asarray(images)
    if numbers.ndim != 1 or not len(numbers) or numbers.dtype.kind not in "iu":
        raise ValueError(f"images is {images!r}; give the numbers of the fitting images, at least one")
    if numbers.min() < 0 or numbers.max() >= len(pairs) or (np.diff(numbers) <= 0).any():
        raise ValueError(f"images is {images!r}; the numbers must ascend within 0..{len(pairs) - 1}")


def _fingerprints(truth: Array, block: Block, family: Family) -> tuple[Array, ...]:
    return _all_prints(truth, block, family)[:1]


def _all_prints(truth: Array, block: Block, family: Family) -> tuple[Array, ...]:
    """The sum of the digests of truth and band, and one print of each truth."""
    total = np.zeros(8, np.int64)
    own = np.zeros(len(block), np.uint64)
    kind = _kind_of(truth)
    single = _kind_of(truth, np.dtype(np.float32))
    for i in range(len(block)):
        state = _words_of(truth[i])
        own[i] = _print_of(truth[i], single, state if truth.dtype == np.float32 else None)
        for part in block.band.arrays:
            fingerprint(part[i].reshape(-1).view(np.uint32), state)
        total += np.frombuffer(hashlib.sha256(kind + state.tobytes()).digest(), "<u4")
    return total, own


# the sum of digests, in which no image can be told; the same with a print of each truth, which stays where it is made
fingerprints = Statistic("fingerprints", _fingerprints, (np.add,))
prints = Statistic("prints", _all_prints, (np.add, ROWS))


def _words_of(image: Array) -> Array:
    state = np.full(256, 2166136261, np.uint32)
    fingerprint(np.ascontiguousarray(image).reshape(-1).view(np.uint32), state)
    return state


def _kind_of(images: Array, dtype: Any = None) -> bytes:
    """What a digest says of images beside their values."""
    return f"{images.dtype if dtype is None else dtype} {images.shape[1:]}".encode()


def _print_of(image: Array, kind: bytes, state: Array | None = None) -> int:
    """Digest of one true image in single precision; 0 where all of its values are one, as in many slices of air."""
    first = image.reshape(-1)[0]
    if first == image.reshape(-1)[-1] and (image == first).all():
        return 0
    if state is None:
        state = _words_of(image.astype(np.float32))
    return int.from_bytes(hashlib.sha256(kind + state.tobytes()).digest()[:8], "little")


def prints_of(truth: Any, runner: Runner = HERE) -> Array:
    """A print of each true image, by which it is known again: (n, *pixels) -> (n,) uint64."""

    def work(start: int, stop: int) -> Array:
        images = rows_of(truth, start, stop)
        kind = _kind_of(images, np.dtype(np.float32))
        return np.array([_print_of(x, kind) for x in images], np.uint64)

    return np.concatenate(list(over_images(work, truth, runner, [truth])))


def known_again(prints: Array, known: Array) -> Array:
    """Which images, (n,) bool, are among those of some other prints."""
    return np.isin(prints, known) & (prints != 0)


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
    runner: Runner = HERE

    def __post_init__(self) -> None:
        check_fits(self.family, self.band)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to a worker knows of no cluster."""
        return {**vars(self), "runner": HERE}

    @property
    def sizes(self) -> Array:
        """Pixels of each image, (n,)."""
        return sizes_of(self.band.lower)

    @property
    def pixels(self) -> tuple[int, ...]:
        """Shape of one image; () where images differ in size."""
        return self.band.pixels

    @property
    def source(self) -> Source:
        """How the band was made."""
        return self.band.source

    @property
    def image_size(self) -> int:
        """Pixels per image, where all have as many."""
        sizes = self.sizes
        if (sizes != sizes[0]).any():
            raise ValueError(f"images differ in size, from {sizes.min()} to {sizes.max()} pixels")
        return int(sizes[0])

    @property
    def reads(self) -> list[Any]:
        """The arrays that a block is read from."""
        return [x for x in (self.truth, *self.band.arrays, self.features, self.segmentation) if x is not None]

    def parts(self, statistic: Statistic, images: Array | None = None, **given: Any) -> Iterator[tuple[Array, ...]]:
        """A statistic of the blocks of all images, or of some (ascending), in order."""
        count, family = statistic.count, self.family
        return self.over_blocks(lambda truth, block: count(truth, block, family, **given), images)

    def read(self, start: int, stop: int) -> tuple[Array, Block]:
        """Truth and block of images start..stop, checked and of one dtype."""
        truth = rows_of(self.truth, start, stop)
        band = self.band.map(lambda x: rows_of(x, start, stop), checked=True)
        dtype = np.result_type(truth, band.lower, band.upper)
        truth = truth.astype(dtype, copy=False)
        band = band.map(lambda x: x.astype(dtype, copy=False), checked=True)
        flat = [x.reshape(-1) for x in (truth, band.lower, band.upper)]
        span = self.limits[1] - self.limits[0]
        good, outside, far = survey(*flat, *own_limits(self.limits, dtype), span)
        if good < truth.size or far > 0 or band.centre is not None:  # the slow road finds out what and where
            check_values("truth", truth, start, self.limits)
            check_range(self.band.rows(start, stop), start, self.limits)
        features, segmentation = _known(self.features, self.segmentation, start, stop)
        return truth, Block(start, band, self.limits, features, segmentation, outside)

    def over_blocks(self, work: Callable[[Array, Block], T], images: Array | None = None) -> Iterator[T]:
        """`work(truth, block)` over all images in order, or over some (ascending), in blocks."""
        if images is None or len(images) == len(self):
            return over_images(lambda a, b: work(*self.read(a, b)), self.band.lower, self.runner, self.reads)

        def some(start: int, stop: int) -> list[T]:
            return [work(*self.gather(run)) for run in alike(self.band.lower, images[start:stop])]

        block = block_of(int(self.sizes.mean()), len(images))
        return chain.from_iterable(self.runner.over(some, len(images), block, self.reads))

    def take(self, images: Array) -> Pairs:
        """Some images (ascending) as pairs in memory, checked; images of different sizes stay where they are."""
        if differ_in_size(self.band.lower):
            return replace(self, truth=self.truth[images], band=self.band.map(lambda x: x[images], checked=True))
        truth, block = self.gather(images)
        return replace(self, truth=truth, band=block.band, features=block.features, segmentation=block.segmentation)

    def gather(self, images: Array) -> tuple[Array, Block]:
        """Truth and block of some images (ascending), of one size."""
        if in_memory(self.truth) and in_memory(self.band.lower) and not differ_in_size(self.truth) and len(images):
            part = replace(
                self,
                truth=self.truth[images],
                band=self.band.map(lambda x: x[images], checked=True),
                features=None if self.features is None else self.features[images],
                segmentation=None if self.segmentation is None else self.segmentation[images],
            )
            try:
                return part.read(0, len(images))
            except ImageError as error:
                raise ImageError(error.message, int(images[error.image])) from error
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

    first = blocks[0]
    bands = [block.band for block in blocks]
    band = Band(
        stack([band.lower for band in bands]),
        stack([band.upper for band in bands]),
        stack([band.centre for band in bands]),
        first.band.source,
    )
    features = stack([block.features for block in blocks])
    return Block(first.start, band, first.limits, features, stack([block.segmentation for block in blocks]))
