"""A few images at hand: what is known of them when the truth is not, which ends widen together, and how they widen.

A `Block` is a few consecutive images in NumPy, checked. `widen` moves each end by the widening of its group: labels and
intervals of a few thousand pixels at a time, so that what lies between stays in the cache.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field
from importlib import import_module
from math import isfinite, prod
from typing import Any, ClassVar, Self

import numpy as np

from ..images.checks import Limits, check_values, own_limits
from ..images.ends import Band, check_range, outward
from ..images.library import Array, rows_of
from ..kernels.entry_scores import LOWER, UPPER, collect_missed
from ..kernels.intervals import widen_ends
from ..kernels.values import fingerprint, survey, survey_band
from .families import Family, additive

State = tuple[dict[str, Any], dict[str, Array]]  # of a grouping: JSON part, arrays
Entries = tuple[Array, Array, Array]  # flat index within the block, end (LOWER or UPPER), score: (e,) each
_AT_ONCE = 2**15  # pixels that are labelled and widened at a time


@dataclass(frozen=True, eq=False)
class Block:
    """Images start..stop: the band (NumPy), and further images (n, f, *pixels) and labels (n, *pixels) known at
    test time.

    `regions` are masks or weights (n, *pixels) that promises are about; they are known of calibration images only.
    """

    start: int
    band: Band
    limits: Limits
    features: Array | None = None
    labels: Array | None = None
    outside: int | None = None  # entries outside the clipped band, where that was counted already
    regions: tuple[Array, ...] = ()
    kept: dict[str, Any] = field(default_factory=dict)  # what groups have found of it, once for all that ask

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
            score = np.empty(count + 1)
            found = collect_missed(*parts, *limits, entry, side, score)
            if found != count:
                raise RuntimeError(f"{found} missed entries were collected but {count} counted; please report this")
            return entry[:-1], side[:-1], score[:-1]
        need = np.asarray(family.score(truth, self.band), np.float64).reshape(-1)
        if np.isnan(need).any():
            raise ValueError(f"family {family.name!r}: score is NaN at {int(np.isnan(need).sum())} pixels")
        entry = np.flatnonzero(~(need <= family.start))
        lower, _ = family.widen(self.band, np.float64(family.start))
        side = np.where(truth.reshape(-1)[entry] < np.reshape(lower, -1)[entry], LOWER, UPPER).astype(np.uint8)
        return entry, side, need[entry]

    def widen(
        self, family: Family, grouping: Grouping, widening: Array, label: Array | None = None
    ) -> tuple[Array, Array]:
        """Both ends of every pixel at the widening of its group, clipped to the limits: float64 (n, *pixels) each."""
        out = np.empty(self.band.shape), np.empty(self.band.shape)
        self.widen_into(out, family, grouping, widening, label)
        return out

    def widen_into(
        self, out: tuple[Array, Array], family: Family, grouping: Grouping, widening: Array, label: Array | None = None
    ) -> None:
        """The same into two arrays (n, *pixels), rounded outward to their precision; `label` as `every` gives it."""
        if label is None:
            grouping.check(self)
        step = max(1, _AT_ONCE // self.image_size)
        whole = step >= len(self)
        for start in range(0, len(self), step):
            part = self if whole else self.rows(start, start + step)
            ends = out[0][start : start + step], out[1][start : start + step]
            if label is None:
                groups = grouping.every(part)
            else:
                first = start * self.image_size
                groups = label[:, first : first + len(part) * self.image_size]
            part._widen_groups(ends, family, groups, widening)

    def _widen_groups(self, out: tuple[Array, Array], family: Family, label: Array, widening: Array) -> None:
        below, above = label[0], label[-1]
        if family is additive and out[0].dtype.itemsize in (4, 8) and self.band.lower.dtype.kind == "f":
            flat = [x.reshape(-1) for x in out]
            widening = np.ascontiguousarray(widening, np.float64)  # a column of a path too: one layout is compiled
            single = out[0].dtype.itemsize == 4
            strange = widen_ends(*self.flat_ends(), *self.limits, below, above, widening, *flat, single)
            if strange:
                raise IndexError(f"{strange} ends are in a group without a widening; there are {len(widening)}")
            return
        band = self.band_for(family)
        lower, upper = family.widen(band, widening[below].reshape(band.shape))
        if len(label) > 1:
            upper = family.widen(band, widening[above].reshape(band.shape))[1]
        ends = np.clip(lower, *self.limits), np.clip(upper, *self.limits)
        out[0][...], out[1][...] = ends if out[0].dtype == np.float64 else outward(*ends, out[0].dtype)

    def rows(self, start: int, stop: int) -> Block:
        """Some images of the block."""
        band = self.band.map(lambda x: x[start:stop], checked=True)
        features, labels = (None if x is None else x[start:stop] for x in (self.features, self.labels))
        return Block(self.start + start, band, self.limits, features, labels)

    def flat_ends(self) -> tuple[Array, Array]:
        """Lower and upper ends, (n * pixels,) each."""
        return self.band.lower.reshape(-1), self.band.upper.reshape(-1)

    def ends_within(self, entry: Array, side: Array) -> tuple[Array, Array]:
        """Pixels and sides of some ends as compiled loops take them: within the block."""
        entry, side = np.ascontiguousarray(entry, np.int64), np.ascontiguousarray(side, np.uint8)
        size = len(self) * self.image_size
        if len(side) != len(entry) or (len(entry) and not 0 <= entry.min() <= entry.max() < size):
            raise IndexError(f"entries must lie in 0..{size - 1}, each with its side")
        return entry, side


# ---------------------------------------------------------------- which ends widen together


class Grouping(ABC):
    """K groups of ends."""

    kind: ClassVar[str]
    sided: ClassVar[bool] = False
    fitted_on: Array = np.empty(0, np.uint64)  # hashes of the images that shaped it, which must not certify
    _kinds: ClassVar[dict[str, type[Grouping]]] = {}

    def __init_subclass__(cls) -> None:
        Grouping._kinds[cls.kind] = cls

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of groups, K."""

    @property
    def pools(self) -> Array | None:
        """Which groups may stand for one another on the frontier, (groups,); None: each for itself."""
        return None

    @abstractmethod
    def at(self, block: Block, entry: Array, side: Array) -> Array:
        """Groups of some ends: flat index within the block (e,), end (e,) -> (e,) int32."""

    def every(self, block: Block) -> Array:
        """Groups of all ends: (2, n * pixels) int32, lower ends first; (1, n * pixels) where both ends are alike."""
        if self.sided:
            return self.at(block, *all_entries(block)).reshape(2, -1)
        entry = np.arange(len(block) * block.image_size)
        return self.at(block, entry, np.zeros(len(entry), np.uint8)).reshape(1, -1)

    @abstractmethod
    def state(self) -> State:
        """What a file must hold."""

    @classmethod
    @abstractmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> Grouping:
        """The grouping that a file holds."""

    def packed(self, start: str) -> State:
        """What a file holds: kind and numbers, and arrays whose names begin so."""
        meta, arrays = self.state()
        return {"kind": self.kind, **meta}, {start + name: x for name, x in arrays.items()}

    def on_images(self, hashes: Array) -> Self:
        """The grouping, remembering the images that shaped it by their hashes, (n,) uint64."""
        if hashes.dtype != np.uint64 or hashes.ndim != 1:
            raise ValueError(f"image hashes are {hashes.dtype} {hashes.shape}; they must be uint64, one per image")
        known = copy(self)
        object.__setattr__(known, "fitted_on", hashes)
        return known

    def check(self, block: Block) -> None:  # noqa: B027  (most groupings fit any band)
        """Refuse a band that the grouping cannot label."""


@dataclass(frozen=True, eq=False)
class Single(Grouping):
    """All ends in one group: RCPS."""

    kind: ClassVar[str] = "single"

    @property
    def count(self) -> int:
        """One."""
        return 1

    def at(self, block: Block, entry: Array, side: Array) -> Array:
        """Zero for every end."""
        return np.zeros(len(entry), np.int32)

    def state(self) -> State:
        """Nothing."""
        return {}, {}

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> Single:
        """The one grouping of its kind."""
        return cls()


def all_entries(block: Block) -> tuple[Array, Array]:
    """Every end of a block: all lower ends, then all upper ends; flat index (2e,), end (2e,)."""
    size = len(block) * block.image_size
    entry = np.arange(size)
    side = np.repeat(np.array([LOWER, UPPER], np.uint8), size)
    return np.concatenate([entry, entry]), side


# ---------------------------------------------------------------- what is counted


ROWS = "rows"  # one row per image, or lists: parts follow one another


@dataclass(frozen=True, eq=False)
class Statistic:
    """What is counted of a block, `count(truth, block, family, **given)`, as arrays, and how each joins with others'.

    An array joins by a ufunc (np.add), or parts follow one another (ROWS). The last ones may be left out.
    """

    name: str
    count: Callable[..., tuple[Array, ...]]
    joins: tuple[Any, ...]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """To other processes a statistic of a module goes by its name."""
        home = self.count.__module__
        by_name = hasattr(import_module(home), self.name)
        return (_of_module, (home, self.name)) if by_name else super().__reduce_ex__(protocol)

    def merge(self, parts: Iterable[tuple[Array, ...]]) -> tuple[Array, ...]:
        """The counts of several parts, in order, as one."""
        held: list[list[Array]] = []
        for part in parts:
            held = held or [[] for _ in part]
            for column, x, join in zip(held, part, self.joins, strict=False):
                if join is ROWS or not column:
                    column.append(x)
                else:
                    column[0] = join(column[0], x)
        return tuple(
            np.concatenate(column) if join is ROWS else column[0]
            for column, join in zip(held, self.joins, strict=False)
        )


def _of_module(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def statistic(*joins: Any) -> Callable[[Callable[..., tuple[Array, ...]]], Statistic]:
    """A function of a block as the statistic of its name."""
    return lambda count: Statistic(count.__name__, count, joins)


# ---------------------------------------------------------------- images to blocks


def read_block(band: Band, start: int, stop: int, limits: Limits, features: Any = None, labels: Any = None) -> Block:
    """Images start..stop of a band with what else is known of them, checked."""
    rows = band.map(lambda x: rows_of(x, start, stop), checked=True)
    half = (limits[1] - limits[0]) / 2
    good, outside = survey_band(rows.lower.reshape(-1), rows.upper.reshape(-1), limits[0] - half, limits[1] + half)
    if good < rows.lower.size or outside > 0 or rows.centre is not None:  # the slow road finds out what and where
        rows = band.rows(start, stop)
        check_range("band", (rows.lower, rows.upper), start, limits)
    return Block(start, rows, limits, *known_rows(features, labels, start, stop))


def known_rows(features: Any, labels: Any, start: int, stop: int) -> tuple[Array | None, Array | None]:
    """What else is known of images start..stop, checked."""
    if features is not None:
        features = rows_of(features, start, stop)
        check_values("features", features, start)
    if labels is not None:
        labels = rows_of(labels, start, stop)
    return features, labels


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


def digest_of(total: Array) -> str:
    """Digest of a set from the sum of its images' digests: neither cuts nor order matter, and it reveals no image."""
    return f"{sum(int(word) << (32 * i) for i, word in enumerate(total)) % 2**256:064x}"


def is_known_image(image_hashes: Array, known: Array) -> Array:
    """Which images, (n,) bool, are among some other hashes."""
    return np.isin(image_hashes, known) & (image_hashes != 0)
