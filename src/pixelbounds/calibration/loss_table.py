"""Arrival times along a path, and the tables of losses that one pass over images makes of them.

A path is a curve t -> widening of each of K groups, nondecreasing in t, fixed before the certifying images are seen. It
is kept as T knots, and is linear between them. Because every group's widening only grows, each end has one arrival
time: the first knot at which it is covered. Counting arrivals gives the missed ends of every image at every knot: a
table, images by path points. Tables of chunks stack, so the same pass serves memory, disk, a cluster and hospitals.

The table of a million images at some two thousand points takes gigabytes. Rows are kept in tiles, each turned over so
that its part of a column lies together; beyond a limit tiles go to a temporary file, which changes no bit. The file has
no name: however the process ends, nothing is left of it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ..images.library import Array
from ..kernels.knots import KEY, arrivals, count_arrivals, knots_below, weigh_arrivals
from .block import Block, Labels
from .data import ROWS, CalibrationData, LocalData, Statistic
from .families import Family, additive
from .image_hashes import fingerprints, image_hashes, region_digests

KNOTS = 2048
_TILE = 2**24  # bytes of a table that are turned over at a time


# ---------------------------------------------------------------- paths


@dataclass(frozen=True, eq=False)
class Path:
    """Widenings along the path: knots (K, T), nondecreasing in T."""

    knots: Array

    def __post_init__(self) -> None:
        knots = np.asarray(self.knots)
        if knots.ndim != 2 or not knots.size or knots.dtype.kind != "f" or not np.isfinite(knots).all():
            raise ValueError(
                f"the knots of a path have shape {knots.shape} and dtype {knots.dtype}; they must be finite widenings, "
                "groups by points"
            )
        object.__setattr__(self, "knots", np.ascontiguousarray(knots, np.float64))
        if (np.diff(self.knots, axis=1) < 0).any():
            raise ValueError("a path must be nondecreasing in every group")

    def __len__(self) -> int:
        return self.knots.shape[1]

    def at(self, knot: int, part: float = 1.0) -> Array:
        """Widenings (K,) a share `part` of the way from the knot before to a knot, rounded up."""
        high = self.knots[:, knot]
        if part == 1.0:
            return high.copy()
        low = self.knots[:, knot - 1]
        between = low + part * (high - low)
        return np.minimum(high, between + 2.0**-48 * np.maximum(np.abs(low), np.abs(high)))

    def between(self, knot: int, steps: int) -> Path:
        """The way from the knot before to a knot, in even steps."""
        low = self.knots[:, knot - 1, None]
        high = self.knots[:, knot, None]
        inner = low + np.arange(steps) / steps * (high - low)
        return Path(np.maximum.accumulate(np.append(np.minimum(inner, high), high, axis=1), axis=1))

    def arrivals(self, label: Array, score: Array) -> Array:
        """First knot that covers each end, T if none: (e,), (e,) -> (e,)."""
        value = np.ascontiguousarray(score, np.float64)
        if len(label) and not 0 <= label.min() <= label.max() < len(self.knots):
            raise IndexError(f"groups reach from {label.min()} to {label.max()}, but the path has {len(self.knots)}")
        return arrivals(*self._steps, *self._index, label, value, value.view(np.int64))

    @cached_property
    def _steps(self) -> tuple[Array, Array]:
        """Different knots of each group, (K, S + 1), filled up with infinity, and where each is first reached."""
        fresh = np.ones(self.knots.shape, bool)
        fresh[:, 1:] = self.knots[:, 1:] > self.knots[:, :-1]
        group, knot = np.nonzero(fresh)
        number = (np.cumsum(fresh, axis=1) - 1)[group, knot]
        steps = np.full((len(self.knots), int(number.max()) + 2), np.inf)
        place = np.full(steps.shape, len(self), np.int32)
        steps[group, number] = self.knots[group, knot]
        place[group, number] = knot
        return steps, place

    @cached_property
    def _index(self) -> tuple[int, Array]:
        return index_knots(self._steps[0])


def index_knots(knots: Array) -> tuple[int, Array]:
    """Index of rows of ascending knots (K, S), filled up with infinity, by a value's leading bits.

    The first key, and how many knots lie below each key, (K, keys + 2), after a 0 and before the number of all.
    """
    finite = np.isfinite(knots)
    positive = knots[finite & (knots > 0)]
    ends = [np.zeros((len(knots), 1), np.int32), finite.sum(axis=1, dtype=np.int32)[:, None]]
    if not len(positive):
        return 0, np.concatenate(ends, axis=1)
    keys = np.array([positive.min(), positive.max()]).view(np.int64) >> KEY
    edges = (np.arange(keys[0], keys[1] + 2, dtype=np.int64) << KEY).view(np.float64)
    below = knots_below(np.ascontiguousarray(knots), edges)
    return int(keys[0]), np.concatenate([ends[0], below, ends[1]], axis=1)


def grid_of(pairs: CalibrationData) -> tuple[float, int, int]:
    """Scale of a grid of widenings and the octaves that it reaches below and above it; no image is looked at."""
    span = pairs.limits[1] - pairs.limits[0]
    if pairs.family is additive and isfinite(span):
        return span, 14, 0  # widening by the whole range covers everything
    return (1.0, 14, 14) if isfinite(span) else (1.0, 20, 20)


def widening_grid(pairs: CalibrationData, per_octave: int) -> Array:
    """The start, then widenings in geometric progression: (points,)."""
    scale, below, above = grid_of(pairs)
    octaves = np.linspace(-below, above, per_octave * (below + above) + 1)
    return np.concatenate([[0.0], scale * 2.0**octaves]) + pairs.family.start


def scalar_path(pairs: CalibrationData) -> Path:
    """One group whose widening is the path's parameter; its knots depend on no image."""
    return Path(widening_grid(pairs, per_octave=146)[None])


# ---------------------------------------------------------------- what is counted


def _misses(truth: Array, block: Block, family: Family, grouping: Labels, path: Path) -> tuple[Array, ...]:
    return _table(truth, block, family, grouping, path), *fingerprints.count(truth, block, family)


def _hashed_misses(truth: Array, block: Block, family: Family, grouping: Labels, path: Path) -> tuple[Array, ...]:
    return _table(truth, block, family, grouping, path), *image_hashes.count(truth, block, family)


def _table(truth: Array, block: Block, family: Family, grouping: Labels, path: Path) -> Array:
    """Missed ends of each image at each path point, (images, T)."""
    grouping.check(block)
    entry, side, need = block.missed(truth, family)
    arrival = path.arrivals(grouping.at(block, entry, side), need)
    return count_arrivals(entry // block.image_size, arrival, len(block), len(path))


def _regional_misses(truth: Array, block: Block, family: Family, grouping: Labels, path: Path) -> tuple[Array, ...]:
    rows = _regional_table(truth, block, family, grouping, path), region_sizes(block)
    return *rows, *fingerprints.count(truth, block, family), region_digests(block)


def _hashed_regional_misses(
    truth: Array, block: Block, family: Family, grouping: Labels, path: Path
) -> tuple[Array, ...]:
    rows = _regional_table(truth, block, family, grouping, path), region_sizes(block)
    return *rows, *image_hashes.count(truth, block, family)


def _regional_table(truth: Array, block: Block, family: Family, grouping: Labels, path: Path) -> Array:
    grouping.check(block)
    entry, side, need = block.missed(truth, family)
    arrival = path.arrivals(grouping.at(block, entry, side), need)
    image = entry // block.image_size
    tables = [count_arrivals(image, arrival, len(block), len(path))]
    for region in block.regions:
        inside = region.reshape(-1)[entry]
        if inside.dtype == bool:
            tables.append(count_arrivals(image[inside], arrival[inside], len(block), len(path)))
        else:
            tables.append(weigh_arrivals(image, arrival, inside, len(block), len(path)))
    return np.concatenate(tables, axis=1)


def region_sizes(block: Block) -> Array:
    """Pixels of each image, and pixels or weight of each of its regions: (images, 1 + regions) float64."""
    sizes = np.empty((len(block), 1 + len(block.regions)))
    sizes[:, 0] = block.image_size
    for r, region in enumerate(block.regions, 1):
        sizes[:, r] = [np.sum(image) for image in region.reshape(len(block), -1)]
    return sizes


def _arriving(truth: Array, block: Block, family: Family, grouping: Labels, path: Path, knot: int) -> tuple[Array, ...]:
    entry, side, need = block.missed(truth, family)
    label = grouping.at(block, entry, side)
    here = path.arrivals(label, need) == knot
    label, need, image = label[here], need[here], entry[here] // block.image_size
    low = path.knots[label, knot - 1]
    high = path.knots[label, knot]
    share = (need - low) / (high - low)
    return np.bincount(image, minlength=len(block)), share[np.argsort(image, kind="stable")]


# missed ends per image and path point, and the sum of fingerprints
misses = Statistic("misses", _misses, (ROWS, np.add))
# the same with a print of each image, for images that are here
hashed_misses = Statistic("hashed_misses", _hashed_misses, (ROWS, np.add, ROWS))
# missed ends of all pixels and of each region, (1 + regions) * T columns, sizes of regions, and digests of both
regional_misses = Statistic("regional_misses", _regional_misses, (ROWS, ROWS, np.add, np.add))
# the same with a print of each image, for images that are here
hashed_regional_misses = Statistic("hashed_regional_misses", _hashed_regional_misses, (ROWS, ROWS, np.add, ROWS))
# ends that are covered at a knot: how many per image, and their share of the way from the knot before
arriving = Statistic("arriving", _arriving, (ROWS, ROWS))


def loss_table(pairs: CalibrationData, grouping: Labels, path: Path) -> Array:
    """Missed ends of every image at every path point, in memory: (n, T) int32. Rows of blocks just stack."""
    return pairs.aggregate(misses, grouping=grouping, path=path)[0]


@contextmanager
def tabulated(pairs: CalibrationData, grouping: Labels, path: Path) -> Iterator[tuple[Table, Array, Array]]:
    """The same as a `Table`, however many images there are, the sum of their fingerprints, and a print of each.

    Images that stay elsewhere have no prints: an array of none.
    """
    total = np.zeros(8, np.int64)
    own = [np.empty(0, np.uint64)]
    statistic = hashed_misses if isinstance(pairs, LocalData) else misses
    with Table(pairs.runner.table_bytes, pairs.runner.scratch) as table:
        for rows, part, *printed in pairs.parts(statistic, grouping=grouping, path=path):
            table.append(rows)
            total += part
            own += printed
        yield table, total, np.concatenate(own)


@contextmanager
def tabulated_regions(
    pairs: CalibrationData, grouping: Labels, path: Path
) -> Iterator[tuple[Table, Array, Array, Array]]:
    """The same with all regions side by side, region r from column r * T on, and their sizes (n, 1 + regions)."""
    total = np.zeros(8, np.int64)
    sizes = []
    own = [np.empty(0, np.uint64)]
    here = isinstance(pairs, LocalData)
    statistic = hashed_regional_misses if here else regional_misses
    with Table(pairs.runner.table_bytes, pairs.runner.scratch) as table:
        for rows, size, part, last in pairs.parts(statistic, grouping=grouping, path=path):
            table.append(rows)
            total += part
            sizes.append(size)
            own += [last] if here else []
        yield table, np.concatenate(sizes), total, np.concatenate(own)


class Table:
    """Counts (n, columns), int32, that are appended as rows and read as columns; a context that frees what it took.

    Sums of weights are float64.
    Beyond `most` bytes it lies in a temporary file, in a folder or where the system puts them.

    >>> with Table() as table:
    ...     table.append(np.array([[5, 3], [4, 0]]))
    ...     table.append(np.array([[7, 1]]))
    ...     table.columns(1, 2)
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

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *error: Any) -> None:
        self._waiting.clear()
        self._tiles.clear()
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        return self._rows

    @property
    def on_disk(self) -> bool:
        """Whether it was too large for memory."""
        return self._file is not None

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
