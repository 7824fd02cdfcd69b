"""Losses of the certifying images at every point of a path, from one pass (Algorithm 2 needs R-hat at each lambda).

The table of a million images at some two thousand points takes gigabytes. Rows are kept in tiles, each turned over so
that its part of a column lies together; beyond a limit tiles go to a temporary file, which changes no bit. The file has
no name: however the process ends, nothing is left of it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ..images.library import Array
from .block import Block
from .data import ROWS, CalibrationData, LocalData, Statistic
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
from .split import CertifyingImages
from .target import Target

_TILE = 2**24  # bytes of a table that are turned over at a time


@dataclass(eq=False)
class LossTable:
    """What every image misses at every point of the path; a context that frees what the table took.

    missed      of all pixels and of each region, region r from column r * T on
    sizes       of all regions, (n, 1 + regions)
    digest      sum of the digests of the images, (8,)
    hashes      one of each image, (n,) uint64; empty where images stay elsewhere
    described   what bands of certifying units are like, for monitoring
    """

    images: CertifyingImages
    path: Path
    missed: Table
    sizes: Array
    digest: Array
    hashes: Array
    described: BandStatistics

    def __enter__(self) -> LossTable:
        return self

    def __exit__(self, *error: Any) -> None:
        self.missed.close()


def _recorded(truth: Array, block: Block, family: Family, path: Path, shares: Array) -> tuple[Array, ...]:
    """Misses, and of each image a hash and what its band is like."""
    total, hashes = image_hashes.count(truth, block, family)
    rows = misses.count(truth, block, family, path)
    return (
        *rows,
        total,
        region_digests(block),
        hashes,
        describe(block, family, path.grouping, path.at(path.usual), shares),
    )


recorded_misses = Statistic("recorded_misses", _recorded, (*misses.joins, ROWS, ROWS))


def loss_table(certifying: CertifyingImages, path: Path, target: Target | None = None) -> LossTable:
    """One pass over the images. Rows of blocks, chunks and sites just stack. No setting of the target matters here."""
    data = certifying.data
    if not isinstance(data, LocalData):
        missed, (sizes, digest, _) = tabulated(data, misses, path=path, digests=True)
        return LossTable(certifying, path, missed, sizes, digest, np.empty(0, np.uint64), NOT_DESCRIBED)
    shares = group_shares(certifying.fitting.data, certifying.fitting.images, path)
    missed, (sizes, digest, _, hashes, rows) = tabulated(data, recorded_misses, path=path, shares=shares)
    check_not_certifying(path.grouping.fitted_on, hashes, certifying.images)
    warn_duplicates(hashes, data.unit_of)
    described = BandStatistics.of(rows, certifying.images, data.unit_of, certifying.order, path.at(path.usual), shares)
    return LossTable(certifying, path, missed, sizes, digest, hashes, described)


def tabulated(data: CalibrationData, statistic: Statistic, **given: Any) -> tuple[Table, tuple[Array, ...]]:
    """The first column of a statistic of all images as a `Table`, and the others."""
    table = Table(data.runner.table_bytes, data.runner.scratch)
    others = []
    try:
        for rows, *more in data.parts(statistic, **given):
            table.append(rows)
            others.append(tuple(more))
    except BaseException:  # nothing is left of it
        table.close()
        raise
    return table, Statistic(statistic.name, statistic.count, statistic.joins[1:]).merge(others)


class Table:
    """Counts (n, columns), int32, or sums of weights, float64, that are appended as rows and read as columns.

    Beyond `most` bytes it lies in a temporary file, in a folder or where the system puts them.

    >>> table = Table()
    >>> table.append(np.array([[5, 3], [4, 0]]))
    >>> table.append(np.array([[7, 1]]))
    >>> table.columns(1, 2)
    array([[3, 0, 1]], dtype=int32)
    """

    def __init__(self, most: int = 2**30, folder: FilePath | None = None) -> None:
        self._most = most
        self._folder = folder
        self._waiting: list[Array] = []  # rows that are in no tile yet
        self._tiles: list[Array | tuple[int, int]] = []  # (columns, rows) each, or where in the file, and rows
        self._file: Any = None  # unbuffered
        self._dtype = np.dtype(np.int32)  # that of the rows
        self._rows = 0
        self._coming = 0  # bytes that wait
        self._held = 0  # bytes that lie in tiles

    def close(self) -> None:
        """Free what it took."""
        self._waiting.clear()
        self._tiles.clear()
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        return self._rows

    def append(self, rows: Array) -> None:
        """Add rows (r, columns)."""
        if rows.dtype == np.float64:
            self._dtype = rows.dtype
        self._waiting.append(rows)
        self._rows += len(rows)
        self._coming += self._dtype.itemsize * rows.size
        if self._coming >= min(_TILE, self._most // 4):
            self._turn()

    def columns(self, start: int, stop: int) -> Array:
        """Columns start..stop: (stop - start, n)."""
        self._turn()
        out = np.empty((stop - start, len(self)), self._dtype)
        first = 0
        for tile in self._tiles:
            part = self._read(*tile, start, stop) if isinstance(tile, tuple) else tile[start:stop]
            out[:, first : first + part.shape[1]] = part
            first += part.shape[1]
        return out

    def _turn(self) -> None:
        """Make a tile of the rows that wait; all tiles go to the file once they are too many."""
        if not self._waiting:
            return
        tile = np.empty((self._waiting[0].shape[1], sum(len(x) for x in self._waiting)), self._dtype)
        first = 0
        for x in self._waiting:
            tile[:, first : first + len(x)] = x.T
            first += len(x)
        self._waiting.clear()
        self._coming = 0
        self._held += tile.nbytes
        if self._file is None and self._held > self._most:
            self._file = tempfile.TemporaryFile(buffering=0, dir=self._folder)  # noqa: SIM115 - kept
            self._tiles = [self._write(x) for x in self._tiles if isinstance(x, np.ndarray)]
        self._tiles.append(tile if self._file is None else self._write(tile))

    def _write(self, tile: Array) -> tuple[int, int]:
        at = self._file.seek(0, 2)
        left = tile.data.cast("B")
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:  # the file has no name to tell
            folder = self._folder or tempfile.gettempdir()
            raise OSError(error.errno, f"{error.strerror} for a table of losses", str(folder)) from error
        return at, tile.shape[1]

    def _read(self, at: int, rows: int, start: int, stop: int) -> Array:
        out = np.empty((stop - start, rows), self._dtype)
        self._file.seek(at + self._dtype.itemsize * rows * start)
        left = out.data.cast("B")
        while left:
            got = self._file.readinto(left)
            if not got:
                raise OSError("the temporary file of a table of losses was cut short; run it again")
            left = left[got:]
        return out
