"""Groups by what the band itself shows: its width, its level, the room between an end and the limits, and the side.

Each feature is cut at quantiles of the fitting images; the groups are the combinations that occur there. An end with a
combination that never occurred joins the nearest one that did. No pixel grid is involved, so images may differ in size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isfinite, prod
from typing import Any, ClassVar

import numpy as np

from ...images.checks import check_count
from ...images.library import Array, spatial_axes
from ...kernels.entry_scores import LOWER
from ...kernels.features import add_squared_slope, band_cells, band_labels, width_and_level, window_means
from ..block import Block, Grouping, State
from ..data import CalibrationData, remembered, statistic
from ..families import Family
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


def feature_maps(block: Block) -> tuple[Array, int]:
    """Images known at test time from which the model predicts, (maps, n * pixels); the first so many say the same of
    both ends, the others point upward.
    """
    if "feature maps" not in block.kept:
        block.kept["feature maps"] = _feature_maps(block)
    maps: tuple[Array, int] = block.kept["feature maps"]
    return maps


def _feature_maps(block: Block) -> tuple[Array, int]:
    shape = block.band.shape
    further = 0 if block.features is None else block.features.shape[1]
    alike = 9 + 2 * further
    maps = np.empty((alike + 2 + further, len(block) * block.image_size), np.float32)
    width, level, near, far, gradient = maps[0], maps[1], maps[4], maps[5], maps[6]
    width_and_level(*block.flat_ends(), *block.limits, width, level)
    along = spatial_axes(block.band.lower)
    axes = [(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])) for axis in along]  # outer, length, inner

    def smooth(x: Array, size: int, out: Array) -> None:
        out[:] = x
        for view in axes:
            window_means(out.reshape(view), size, out.reshape(view))

    gradient[:] = 0
    for view in axes:
        add_squared_slope(level.reshape(view), gradient.reshape(view))
    np.sqrt(gradient, out=gradient)
    for x, size, out in ((width, 3, 2), (width, 9, 3), (level, 3, 4), (level, 9, 5), (gradient, 3, 7)):
        smooth(x, size, maps[out])
    mean = width.reshape(len(block), -1).mean(axis=1, dtype=np.float64)
    maps[8].reshape(len(block), -1)[:] = mean.astype(np.float32)[:, None]
    np.subtract(level, near, out=maps[alike])
    np.subtract(level, far, out=maps[alike + 1])
    if block.features is not None:
        for i in range(further):
            extra = maps[9 + 2 * i]
            extra[:] = block.features[:, i].reshape(-1)
            smooth(extra, 3, maps[10 + 2 * i])
            np.subtract(extra, level, out=maps[alike + 2 + i])
    return maps, alike


def has_rooms(block: Block) -> bool:
    """Whether ends have a room to their limits."""
    return all(isfinite(limit) for limit in block.limits)


def rooms_of(block: Block, entry: Array, side: Array) -> tuple[Array, Array] | None:
    """Room from some ends to their own limit, and from the opposite ends to theirs: (e,) each; None without limits."""
    if not has_rooms(block):
        return None
    lower, upper = block.clipped(entry)
    rooms = lower - block.limits[0], block.limits[1] - upper
    return np.where(side == LOWER, *rooms), np.where(side == LOWER, *rooms[::-1])


def feature_rows(block: Block, entry: Array, side: Array) -> Array:
    """Rows of features for some ends: (e, columns) float32; signed ones point outward: both sides teach alike."""
    maps, alike = feature_maps(block)
    outward = np.where(side == LOWER, np.float32(-1), np.float32(1))
    columns = [x[entry] for x in maps[:alike]] + [x[entry] * outward for x in maps[alike:]]
    columns += [*(rooms_of(block, entry, side) or ()), side]
    return np.stack([c.astype(np.float32) for c in columns], axis=1)


def columns_of(features: int, *, rooms: bool) -> int:
    """Columns of `feature_rows` with so many further images."""
    return 9 + 2 * features + 2 + features + (2 if rooms else 0) + 1
