"""Groups by what the band itself shows: its width, its level, the room between an end and the limits, and the side.

Each feature is cut at quantiles of the fitting images; the groups are the combinations that occur there. An end with a
combination that never occurred joins the nearest one that did. No pixel grid is involved, so images may differ in size.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from ..arrays import Array, Limits, check_count
from ..kernels import UPPER, bins
from ..pairs import Block, Pairs
from .contract import Grouping, State, all_entries

FEATURES = ("width", "room", "level")
_CELLS = 4096  # of the histogram from which quantiles are read


def feature_values(name: str, block: Block, entry: Array, side: Array) -> Array:
    """One feature of some ends, from the band clipped to the limits: (e,)."""
    lower, upper = block.clipped(entry)
    if name == "width":
        return upper - lower
    if name == "level":
        return (lower + upper) / 2
    return np.where(side == UPPER, block.limits[1] - upper, lower - block.limits[0])


@dataclass(frozen=True, eq=False)
class BandGroups(Grouping):
    """Products of bins: `edges` of each feature, and `table`, the group of each combination (side slowest)."""

    edges: dict[str, Array]
    by_side: bool
    table: Array
    kind: ClassVar[str] = "band"
    sided: ClassVar[bool] = True

    @property
    def count(self) -> int:
        """Number of combinations that occurred on the fitting images."""
        return int(self.table.max()) + 1

    def combination(self, block: Block, entry: Array, side: Array) -> Array:
        """Index of each end's combination of bins."""
        out = side.astype(np.int32) if self.by_side else np.zeros(len(entry), np.int32)
        for name, edges in self.edges.items():
            out = out * (len(edges) + 1) + bins(edges, feature_values(name, block, entry, side))
        return out

    def at(self, block: Block, entry: Array, side: Array) -> Array:
        """Group of each end's combination."""
        return self.table[self.combination(block, entry, side)]

    def check(self, block: Block) -> None:
        """Room needs limits."""
        if "room" in self.edges and not all(isfinite(limit) for limit in block.limits):
            raise ValueError(
                "room to the limits needs limits; set limits=(least, most), or leave room out of the groups"
            )

    def state(self) -> State:
        """Edges and table."""
        arrays = {f"edges.{name}": edges for name, edges in self.edges.items()} | {"table": self.table}
        return {"features": list(self.edges), "by_side": self.by_side}, arrays

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> BandGroups:
        """From edges and table."""
        edges = {name: arrays[f"edges.{name}"] for name in meta["features"]}
        return cls(edges, bool(meta["by_side"]), arrays["table"])


def fit_band_groups(
    pairs: Pairs, images: Array, *, width: int = 16, room: int = 8, level: int = 1, side: bool = True
) -> BandGroups:
    """Bins of width, room and level (1: leave it out), for each side apart or not, cut on the fitting images."""
    wanted = {
        "width": check_count(width, "width"),
        "room": check_count(room, "room"),
        "level": check_count(level, "level"),
    }
    if not all(isfinite(limit) for limit in pairs.limits):
        wanted["room"] = 1
    edges = {name: _quantiles(name, b, pairs, images) for name, b in wanted.items() if b > 1}
    shape = (2 if side else 1, *(len(e) + 1 for e in edges.values()))
    blank = BandGroups(edges, side, np.zeros(int(np.prod(shape)), np.int32))

    def count(truth: Array, block: Block) -> Array:
        return np.bincount(blank.combination(block, *all_entries(block)), minlength=len(blank.table))

    counts = sum(pairs.over_blocks(count, images))
    return BandGroups(edges, side, _nearest_occupied(np.reshape(counts, shape)))


def _quantiles(name: str, count: int, pairs: Pairs, images: Array) -> Array:
    """Inner edges at quantiles, read from a fine histogram so that sets merge by addition."""
    low, high = _span(name, pairs, images)
    cells = np.linspace(low, high, _CELLS + 1)

    def histogram(truth: Array, block: Block) -> Array:
        values = feature_values(name, block, *all_entries(block))
        return np.bincount(bins(cells[1:-1], values), minlength=_CELLS)

    counts = np.cumsum(sum(pairs.over_blocks(histogram, images)))
    at = np.searchsorted(counts, counts[-1] * np.arange(1, count) / count)
    return np.unique(cells[np.minimum(at, _CELLS - 1) + 1])


def _span(name: str, pairs: Pairs, images: Array) -> Limits:
    least, most = pairs.limits
    if isfinite(most - least):
        return (least, most) if name == "level" else (0.0, most - least)

    def extremes(truth: Array, block: Block) -> Limits:
        values = feature_values(name, block, *all_entries(block))
        return float(values.min()), float(values.max())

    lows, highs = zip(*pairs.over_blocks(extremes, images), strict=True)
    return min(lows), max(max(highs), min(lows) + 1e-12)


def _nearest_occupied(counts: Array) -> Array:
    """Number the occupied combinations; send each empty one to the nearest occupied one of its side: flat table."""
    places = np.argwhere(counts > 0)
    table = np.empty(counts.shape, np.int32)
    table[tuple(places.T)] = np.arange(len(places))
    for empty in np.argwhere(counts == 0):
        distance = np.abs(places - empty).astype(np.float64)
        distance[:, 0] *= 1e6  # rather any bin of the same side than the other side
        table[tuple(empty)] = int(np.argmin(distance.sum(axis=1)))
    return table.reshape(-1)
