"""Groups by what the band itself shows: its width, its level, the room between an end and the limits, and the side.

Each feature is cut at quantiles of the fitting images; the groups are the combinations that occur there. An end with a
combination that never occurred joins the nearest one that did. No pixel grid is involved, so images may differ in size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from ...images.checks import check_count
from ...images.library import Array
from ...kernels.features import band_cells, band_labels
from ..block import Block, Grouping, State
from ..data import CalibrationData, statistic
from ..families import Family
from ..provenance import remembered
from .contract import ascending, real_numbers, refuse, whole_numbers, without_gaps, yes_or_no

FEATURES = ("width", "room", "level")
_MOST = 2**16  # combinations
_CELLS = 4096  # a feature is first rounded to fine cells; bins are runs of cells


@dataclass(frozen=True, eq=False)
class BandGroups(Grouping):
    """Products of bins of FEATURES: their `spans` (3, 2), and `cuts`, the first cell of every bin but the first.

    `table` is the group of each combination of side, width, room and level, the side slowest.
    """

    spans: Array
    cuts: tuple[Array, Array, Array]
    by_side: bool
    table: Array
    kind: ClassVar[str] = "band"
    sided: ClassVar[bool] = True

    @property
    def count(self) -> int:
        """Number of combinations that occurred on the fitting images."""
        return int(self.table.max()) + 1

    @cached_property
    def _lookup(self) -> tuple[Array, Array, Array, Array]:
        """Least value and cells per unit of every feature; how far in the table the bin of each cell lies behind the
        first bin, (3, cells), in few bytes; and bins.
        """
        bin_of = np.stack([np.searchsorted(cuts, np.arange(_CELLS), side="right") for cuts in self.cuts])
        bins = np.array([len(cuts) + 1 for cuts in self.cuts])
        stride = np.array([bins[1] * bins[2], bins[2], 1])
        return self.spans[:, 0].copy(), _per_cell(self.spans), (bin_of * stride[:, None]).astype(np.uint16), bins

    def edges(self, name: str) -> Array:
        """Values at which the bins of a feature are cut."""
        f = FEATURES.index(name)
        low, high = self.spans[f]
        return np.asarray(low + self.cuts[f] * ((high - low) / _CELLS))

    def at(self, block: Block, entry: Array, side: Array) -> Array:
        """Group of each end's combination of bins."""
        entry, side = block.ends_within(entry, side)
        labels = self._labels(block, *(x[entry] for x in block.flat_ends()))
        return labels[side, np.arange(len(entry))]

    def every(self, block: Block) -> Array:
        """The same for all ends."""
        return self._labels(block, *block.flat_ends())

    def _labels(self, block: Block, lower: Array, upper: Array) -> Array:
        out = np.empty((2, len(lower)), np.int32)
        band_labels(lower, upper, *block.limits, *self._lookup, self.by_side, self.table, out)
        return out

    def check(self, block: Block) -> None:
        """Room needs limits."""
        if len(self.cuts[1]) and not all(isfinite(limit) for limit in block.limits):
            raise ValueError("room to the limits needs limits; set limits=(least, most), or leave room out: room=1")

    def state(self) -> State:
        """Spans, cuts and table."""
        arrays = {f"cuts.{name}": cuts for name, cuts in zip(FEATURES, self.cuts, strict=True)}
        return {"by_side": self.by_side}, {"spans": self.spans, "table": self.table, **arrays}

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> BandGroups:
        """From spans, cuts and table."""
        by_side = yes_or_no(meta, "by_side")
        spans = real_numbers(arrays, "spans", 2)
        with np.errstate(over="ignore"):
            if spans.shape != (3, 2) or not ((np.diff(spans) >= 0) & np.isfinite(np.diff(spans))).all():
                raise refuse("spans", "must hold the least and the greatest value of width, room and level")
        names = [f"cuts.{name}" for name in FEATURES]
        width, room, level = (ascending(whole_numbers(arrays, name, 1, 1, _CELLS - 1), name) for name in names)
        combinations = (2 if by_side else 1) * (len(width) + 1) * (len(room) + 1) * (len(level) + 1)
        table = without_gaps(whole_numbers(arrays, "table", 1, 0, _MOST - 1), "table")
        if len(table) != combinations or combinations > _MOST:
            raise refuse("table", f"has {len(table)} entries, but the cuts make {combinations} combinations")
        return cls(spans, (width, room, level), by_side, table)


@statistic(np.maximum)
def extent(truth: Array, block: Block, family: Family) -> tuple[Array, ...]:
    """Extremes of width and level: (2, 2), the least negated."""
    lower, upper = block.clipped()
    return (np.array([[-x.min(), x.max()] for x in (upper - lower, (lower + upper) / 2)]),)


@statistic(np.add)
def cells(truth: Array, block: Block, family: Family, spans: Array) -> tuple[Array, ...]:
    """Ends per cell of width, room and level: (3, cells)."""
    out = np.zeros((3, _CELLS), np.int64)
    band_cells(*block.flat_ends(), *block.limits, spans[:, 0].copy(), _per_cell(spans), out)
    return (out,)


@statistic(np.logical_or)
def occupied(truth: Array, block: Block, family: Family, grouping: BandGroups) -> tuple[Array, ...]:
    """Whether each combination of bins occurs: (combinations,)."""
    return (np.bincount(grouping.every(block).reshape(-1), minlength=len(grouping.table)) > 0,)


@remembered
def fit_band_groups(
    pairs: CalibrationData, images: Array, *, width: int = 12, room: int = 8, level: int = 1, side: bool = True
) -> BandGroups:
    """Bins of width, room and level (1: leave it out), for each side apart or not, cut on the fitting images."""
    if not isinstance(side, bool):
        raise TypeError(f"side is {side!r}; it must be True or False")
    wanted = [check_count(b, n, most=_CELLS) for n, b in {"width": width, "room": room, "level": level}.items()]
    spans = _spans(pairs, images)
    (counts,) = pairs.aggregate(cells, images, spans=spans)
    cuts = [_cut(row, bins) for row, bins in zip(np.cumsum(counts, axis=1), wanted, strict=True)]
    shape = (2 if side else 1, *(len(cut) + 1 for cut in cuts))
    if np.prod(shape) > _MOST:
        raise ValueError(f"{width} x {room} x {level} bins make more than {_MOST} groups; ask for fewer")
    blank = BandGroups(spans, (cuts[0], cuts[1], cuts[2]), side, np.arange(int(np.prod(shape)), dtype=np.int32))
    (found,) = pairs.aggregate(occupied, images, grouping=blank)
    return BandGroups(spans, blank.cuts, side, _nearest_occupied(found.reshape(shape)))


def _per_cell(spans: Array) -> Array:
    width = spans[:, 1] - spans[:, 0]
    return np.where(width > 0, _CELLS / np.where(width > 0, width, 1.0), 0.0)


def _cut(cumulative: Array, bins: int) -> Array:
    """First cells of the second to last bin, at quantiles; ties merge, and no bin is empty."""
    if cumulative[-1] == 0:
        return np.empty(0, np.int32)
    at = np.searchsorted(cumulative, cumulative[-1] * np.arange(1, bins) / bins) + 1
    return np.unique(at[cumulative[np.minimum(at, _CELLS) - 1] < cumulative[-1]]).astype(np.int32)


def _spans(pairs: CalibrationData, images: Array) -> Array:
    """Least and greatest value of each feature: from the limits, or where there are none from the fitting images."""
    least, most = pairs.limits
    if isfinite(most - least):
        return np.array([[0.0, most - least], [0.0, most - least], [least, most]])
    (ends,) = pairs.aggregate(extent, images)
    width, level = ends * [-1, 1] + 0.0  # 0.0 makes -0.0 positive
    return np.array([width, [0.0, 0.0], level])


def _nearest_occupied(found: Array) -> Array:
    """Number the occupied combinations; send each empty one to the nearest occupied one of its side: flat table."""
    places = np.argwhere(found)
    table = np.empty(found.shape, np.int32)
    table[tuple(places.T)] = np.arange(len(places))
    for empty in np.argwhere(~found):
        distance = np.abs(places - empty).astype(np.float64)
        distance[:, 0] *= 1e6  # rather any bin of the same side than the other side
        table[tuple(empty)] = int(np.argmin(distance.sum(axis=1)))
    return table.reshape(-1)
