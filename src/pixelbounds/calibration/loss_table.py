"""Losses of the certifying images at every point of a path, from one pass (R-hat at each lambda, Section 2.3).

The table of a million images at some two thousand points takes gigabytes: beyond a limit it is a map of a temporary
file, which changes no bit. The file has no name: however the process ends, nothing is left of it.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..images.library import Array, Runner
from ..kernels.entry_scores import weigh_missed
from .block import Block
from .data import ROWS, CalibrationData, Statistic, statistic
from .families import Family
from .losses import AnyChannel
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
from .split import CertifyingImages
from .target import Target


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
    """An array in memory, or in a file where it is large."""
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
