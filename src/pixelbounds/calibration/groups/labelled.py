"""Groups within labels known at test time: a segmentation of the reconstruction, however wrong.

A group is a run of groups of another kind (`inner`: bins of the band, learned ones) within one label. A label has as
many runs as its share of the fitting images can tell apart: a rare one has few, in the least one for each side. So an
organ that a promise is about widens by itself, and the rest of the image does not pay for it.

Labels say which group a pixel belongs to and nothing else: whatever they are, the path over the groups is fixed before
the certifying images are seen. Labels that no fitting image has share the groups of the last row, one for each side.
On the way of the frontier each group counts a few ends of all labels beside its own (`pools`): where it has none of its
own, or none that is missed, it widens as the pool does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...images.checks import check_count
from ...images.library import Array
from ..block import Block, Grouping, State
from ..data import CalibrationData, remembered
from .contract import ascending, refuse, stored, unpacked, whole_numbers, without_gaps

NO_LABELS = "this calibration uses labels of the images: give labels=, one whole number per image and pixel (--labels)"
_MOST_LABELS = 1024
_MOST = 2**16  # groups


@dataclass(frozen=True, eq=False)
class LabelledGroups(Grouping):
    """Runs of inner groups within labels: `values` (L,) ascending, and `table` (L + 1, inner groups) of their groups.

    The last row is that of all other labels.
    """

    values: Array
    inner: Grouping
    table: Array
    kind: ClassVar[str] = "labels"

    @property
    def sided(self) -> bool:  # type: ignore[override]
        """As the inner groups."""
        return self.inner.sided

    @property
    def count(self) -> int:
        """Number of runs."""
        return int(self.table.max()) + 1

    @cached_property
    def pools(self) -> Array:
        """Which groups may stand for one another, (groups,): all of a side, which the last row tells apart."""
        last = self.table[-1]
        pool = np.empty(self.count, np.int64)
        for row in self.table:
            pool[row] = last - last.min()
        return pool

    def check(self, block: Block) -> None:
        """Labels are there, one per pixel."""
        self.inner.check(block)
        if block.labels is None:
            raise ValueError(NO_LABELS)
        if block.labels.shape != block.band.shape:
            raise ValueError(
                f"labels have shape {block.labels.shape} but the band has {block.band.shape}; give one label per image "
                "and pixel"
            )

    def _rows(self, label: Array) -> Array:
        row = np.searchsorted(self.values, label)
        row[self.values[np.minimum(row, len(self.values) - 1)] != label] = len(self.values)
        return row

    def at(self, block: Block, entry: Array, side: Array) -> Array:
        """Group of the inner group within the label."""
        self.check(block)
        inner = self.inner.at(block, entry, side)  # checks the entries
        return self.table[self._rows(_flat(block)[entry]), inner]

    def every(self, block: Block) -> Array:
        """The same for all ends."""
        self.check(block)
        row = self._rows(_flat(block))
        return np.stack([self.table[row, inner] for inner in self.inner.every(block)])

    def state(self) -> State:
        """Labels, table, and the inner groups."""
        inner, arrays = self.inner.packed("inner.")
        return {"inner": inner}, {"values": self.values, "table": self.table, **arrays}

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> LabelledGroups:
        """From labels, table and inner groups."""
        if meta["inner"].get("kind") == cls.kind:
            raise refuse("inner groups", "are groups within labels themselves")
        inner = unpacked(meta["inner"], arrays, "inner.")
        values = stored(arrays, "values", 1, "iu")
        if not 0 < len(values) <= _MOST:
            raise refuse("values", f"has {len(values)} values; it must hold 1 to {_MOST}")
        values = ascending(np.ascontiguousarray(values, np.int64), "values")
        table = whole_numbers(arrays, "table", 2, 0, _MOST - 1)
        if table.shape != (len(values) + 1, inner.count):
            raise refuse(
                "table", f"has shape {table.shape}, but {len(values)} labels of {inner.count} groups need more"
            )
        grouping = cls(values, inner, without_gaps(table, "table"))
        last = table[-1]
        if any((grouping.pools[row] != last - last.min()).any() for row in table):
            raise refuse("table", "has a group of both sides, or one that is also for other labels")
        return grouping


def _flat(block: Any) -> Array:
    return np.asarray(block.labels.reshape(-1), np.int64)


@remembered
def fit_labelled_groups(
    pairs: CalibrationData, images: Array, inner: Grouping, *, runs: int = 8, least: int = 1024
) -> LabelledGroups:
    """Cut the inner groups of each label and side into at most so many runs, of at least so many ends each."""
    check_count(runs, "runs", most=2**12)
    check_count(least, "least")
    if not isinstance(inner, Grouping) or isinstance(inner, LabelledGroups):
        raise TypeError(f"inner is a {type(inner).__name__}; give groups of another kind")
    if pairs.labels is None:
        raise ValueError(NO_LABELS)
    values, ends, having = _counted(pairs.over_blocks(lambda truth, block: _tally(block, inner), images), inner.count)
    if len(values) > _MOST_LABELS:
        raise ValueError(
            f"labels have {len(values)} different values; at most {_MOST_LABELS} can be groups: merge some"
        )
    total = ends.sum(axis=0)  # (2, inner)
    side = np.where(total[1] == 0, 0, np.where(total[0] == 0, 1, 2))
    table = np.empty((len(values) + 1, inner.count), np.int32)
    first = 0
    for row, count, present in zip(table, ends.sum(axis=1), having, strict=False):
        for s in np.unique(side):
            own = np.flatnonzero(side == s)
            held = int(count[own].sum())
            row[own] = first + _runs(count[own], max(1, min(runs, held // least, int(present))))
            first = int(row[own].max()) + 1
    table[-1] = first + np.unique(side, return_inverse=True)[1]
    if table.max() >= _MOST:
        raise ValueError(f"{len(values)} labels make {table.max() + 1} groups; ask for fewer runs than {runs}")
    return LabelledGroups(values, inner, table)


def _tally(block: Block, inner: Grouping) -> tuple[Array, Array, Array]:
    """Labels of a block, ends of each by side and inner group, and how many images have it."""
    inner.check(block)
    values, row = np.unique(_flat(block), return_inverse=True)
    groups = np.broadcast_to(inner.every(block), (2, len(row)))
    counts = [np.bincount(row * inner.count + group, minlength=len(values) * inner.count) for group in groups]
    seen = np.unique(np.arange(len(row)) // block.image_size * len(values) + row)
    having = np.bincount(seen % len(values), minlength=len(values))
    return values, np.stack(counts, axis=1).reshape(len(values), inner.count, 2).transpose(0, 2, 1), having


def _counted(parts: Iterable[tuple[Array, Array, Array]], groups: int) -> tuple[Array, Array, Array]:
    held = list(parts)
    values = np.unique(np.concatenate([part[0] for part in held]))
    ends = np.zeros((len(values), 2, groups), np.int64)
    having = np.zeros(len(values), np.int64)
    for own, counts, images in held:
        at = np.searchsorted(values, own)
        ends[at] += counts
        having[at] += images
    return values, ends, having


def _runs(count: Array, wanted: int) -> Array:
    """Runs of neighbours that hold about equally many, none of them empty: (k,) -> (k,) from 0 on."""
    if not count.any():
        return np.zeros(len(count), np.int64)
    middle = np.cumsum(count) - count / 2
    run = np.minimum((wanted * middle / count.sum()).astype(np.int64), wanted - 1)
    there = count > 0
    place = np.maximum(np.cumsum(there) - 1, 0)  # an empty one joins the one before it
    return np.unique(run[there], return_inverse=True)[1][place]
