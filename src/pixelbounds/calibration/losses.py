"""Losses of the certifying images at every point of a path, from one pass (R-hat at each lambda, Section 2.3).

A loss says what intervals cost where they miss: truth, interval -> one number per image. It must be entrywise
nonincreasing, so that widening never raises it, and lie in [0, 1] for the confidence bounds. `l01` is the share of
pixels outside; the table holds what it counts.

The table of a million images at some two thousand points takes gigabytes: beyond a limit it is a map of a temporary
file, which changes no bit. The file has no name: however the process ends, nothing is left of it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..images.checks import check_same_shape, check_values
from ..images.ends import Interval
from ..images.library import Array, Runner, as_array, channel_axis, to_numpy
from ..kernels.entry_scores import weigh_missed
from .block import Block
from .data import ROWS, CalibrationData, CertifyingImages, Statistic, statistic
from .families import Family
from .paths.path import Path, misses
from .provenance import (
    NOT_DESCRIBED,
    BandStatistics,
    check_not_certifying,
    describe,
    group_shares,
    image_hashes,
    region_digests,
    warn_duplicates,
)
from .target import Target

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


@dataclass(eq=False)
class LossTable:
    """What every image misses at every point of the path.

    missed      of all pixels and of each region, (columns, n): of region r from column r * T on
    sizes       of all regions, (n, 1 + regions)
    digest      sum of the digests of the images, (8,)
    hashes      one of each image, (n,) uint64; empty where images stay elsewhere
    described   what bands of certifying units are like, for monitoring
    """

    images: CertifyingImages
    path: Path
    missed: Array
    sizes: Array
    digest: Array
    hashes: Array
    described: BandStatistics


@statistic(*misses.joins, ROWS, ROWS)
def recorded_misses(truth: Array, block: Block, family: Family, path: Path, shares: Array) -> tuple[Array, ...]:
    """Misses, and of each image a hash and what its band is like."""
    total, hashes = image_hashes.count(truth, block, family)
    described = describe(block, family, path.grouping, path.at(path.usual), shares)
    return *misses.count(truth, block, family, path), total, region_digests(block), hashes, described


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


def loss_table(certifying: CertifyingImages, path: Path, target: Target | None = None) -> LossTable:
    """One pass over the images. Rows of blocks, chunks and sites just stack. No setting of the target matters here."""
    data = certifying.data
    if not data.at_hand:
        missed, (sizes, digest, _) = tabulated(data, misses, path=path, digests=True)
        return LossTable(certifying, path, missed, sizes, digest, np.empty(0, np.uint64), NOT_DESCRIBED)
    shares = group_shares(certifying.fitting.data, certifying.fitting.images, path)
    missed, (sizes, digest, _, hashes, rows) = tabulated(data, recorded_misses, path=path, shares=shares)
    check_not_certifying(path.grouping.fitted_on, hashes, certifying.images)
    warn_duplicates(hashes, data.unit_of)
    described = BandStatistics.of(rows, certifying.images, data.unit_of, certifying.order, path.at(path.usual), shares)
    return LossTable(certifying, path, missed, sizes, digest, hashes, described)


def tabulated(data: CalibrationData, statistic: Statistic, **given: Any) -> tuple[Array, tuple[Array, ...]]:
    """The first column of a statistic of all images, turned over: (columns, n); and the others."""
    table: Array | None = None
    others: list[tuple[Array, ...]] = []
    first = 0
    try:
        for rows, *more in data.parts(statistic, **given):
            table = _blank((rows.shape[1], len(data)), rows.dtype, data.runner) if table is None else table
            np.copyto(table[:, first : first + len(rows)], rows.T, "same_kind")
            first += len(rows)
            others.append(tuple(more))
        assert table is not None
    except BaseException:  # the file goes now, not when nobody holds this frame any more
        del table
        raise
    return table, Statistic(statistic.name, statistic.count, statistic.joins[1:]).merge(others)


def _blank(shape: tuple[int, int], dtype: Any, runner: Runner) -> Array:
    size = shape[0] * shape[1] * dtype.itemsize
    if size <= runner.table_bytes:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(buffering=0, dir=runner.scratch) as file:
        try:
            if hasattr(os, "posix_fallocate"):  # a full disk is an error here, and a crash later
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:  # the file has no name to tell
            folder = str(runner.scratch or tempfile.gettempdir())
            raise OSError(error.errno, f"{error.strerror} for a table of losses", folder) from error
        return np.memmap(file, dtype, "r+", shape=shape)
