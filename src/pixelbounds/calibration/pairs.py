"""Pairs of truth and band, read block by block, and what is counted of them.

`Pairs` is the whole calibration set as the user gave it: in memory, in a store, on a device. It is read as blocks.

Fitting and certifying see images only through `ask`: a `Statistic` says what is counted of a block and how counts of
blocks become one. Counts are exact in any order, so images may as well answer where they lie (`pixelbounds.federated`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeVar

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
)
from ..images.regions import region_rows
from ..images.source import Source
from ..kernels.values import survey
from .block import Block, known_rows, stack_blocks
from .families import Family, check_fits

T = TypeVar("T")
HERE = Runner()  # threads of this process


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
    regions: tuple[tuple[str, Any], ...] = ()  # name and mask or weights of each

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
        known = (self.features, self.segmentation, *(values for _, values in self.regions))
        return [x for x in (self.truth, *self.band.arrays, *known) if x is not None]

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
        features, segmentation = known_rows(self.features, self.segmentation, start, stop)
        regions = tuple(region_rows(values, name, start, stop) for name, values in self.regions)
        return truth, Block(start, band, self.limits, features, segmentation, outside, regions)

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
            band = self.band.map(lambda x: x[images], checked=True)
            regions = tuple((name, values[images]) for name, values in self.regions)
            return replace(self, truth=self.truth[images], band=band, regions=regions)
        truth, block = self.gather(images)
        regions = tuple((name, x) for (name, _), x in zip(self.regions, block.regions, strict=True))
        return replace(
            self, truth=truth, band=block.band, features=block.features, segmentation=block.segmentation,
            regions=regions,
        )  # fmt: skip

    def gather(self, images: Array) -> tuple[Array, Block]:
        """Truth and block of some images (ascending), of one size."""
        if in_memory(self.truth) and in_memory(self.band.lower) and not differ_in_size(self.truth) and len(images):
            part = replace(
                self,
                truth=self.truth[images],
                band=self.band.map(lambda x: x[images], checked=True),
                features=None if self.features is None else self.features[images],
                segmentation=None if self.segmentation is None else self.segmentation[images],
                regions=tuple((name, _some_rows(values, images)) for name, values in self.regions),
            )
            try:
                return part.read(0, len(images))
            except ImageError as error:
                raise ImageError(error.message, int(images[error.image])) from error
        runs = np.split(images, np.flatnonzero(np.diff(images) > 1) + 1)  # a store is read in as few pieces as can be
        rows = [self.read(int(run[0]), int(run[-1]) + 1) for run in runs]
        truth = np.concatenate([x for x, _ in rows])
        return truth, stack_blocks([block for _, block in rows])


def _some_rows(values: Any, images: Array) -> Array:
    """Some images (ascending) of one size, from any library."""
    if in_memory(values):
        return values[images]
    return np.concatenate([rows_of(values, int(i), int(i) + 1) for i in images])
