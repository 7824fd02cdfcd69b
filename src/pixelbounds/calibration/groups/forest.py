"""Decision trees as checked arrays.

Splits of all trees lie one after the other. A split sends a value of its feature to the left where it is at most the
threshold, else to the right; a child is a later split of the same tree, by its number within the tree, or ~i for the
tree's leaf i. Every split but a tree's first and every leaf is the child of one split: nothing can go round in circles,
and nothing points out of its tree. `kernels/trees.py` relies on all that, so it is checked of every forest in a file.

LightGBM fits the trees, and `forest_of` takes them over as arrays. A file holds these arrays alone, so that LightGBM
never reads anything that comes from a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...images.library import Array
from ...kernels.trees import ALONE, LEAF, PAIR, ROW
from .contract import real_numbers, refuse, whole_numbers

_TREES = 10_000
_LEAVES = 64  # of a tree
_CUTS = 254  # different thresholds of a feature: codes are bytes
_COLUMNS = 2**15
_ZERO = np.float32(1e-35)  # LightGBM takes values up to this size for 0
PARTS = ("feature", "threshold", "left", "right", "root", "leaf")


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees over rows of so many `columns`.

    feature, threshold, left, right    of every split (s,)
    root                               number of the first split of every tree, and s: (t + 1,)
    leaf                               values, tree by tree; a tree has one more than splits: (s + t,)
    """

    columns: int
    feature: Array
    threshold: Array
    left: Array
    right: Array
    root: Array
    leaf: Array

    def __len__(self) -> int:
        return len(self.root) - 1

    def checked(self) -> Forest:
        """The same, of whatever a file held, as contiguous arrays; refused where it is no forest."""
        if not 1 <= self.columns <= _COLUMNS:
            raise refuse("columns", f"is {self.columns}, but must lie in 1..{_COLUMNS}")
        given = {name: getattr(self, name) for name in PARTS}
        whole = {"feature": (0, self.columns - 1), "left": (-_LEAVES, _LEAVES), "right": (-_LEAVES, _LEAVES)}
        checked = {name: whole_numbers(given, name, 1, *ends) for name, ends in whole.items()}
        checked["root"] = whole_numbers(given, "root", 1, 0, _TREES * _LEAVES)
        checked |= {name: real_numbers(given, name, 1) for name in ("threshold", "leaf")}
        forest = Forest(self.columns, *(checked[name] for name in PARTS))
        forest._check_sizes()
        forest._check_children()
        most = int(forest._coded[1].max())
        if most > _CUTS:
            raise refuse("threshold", f"has {most} values for one feature, but at most {_CUTS} are possible")
        return forest

    def _check_sizes(self) -> None:
        splits = len(self.feature)
        if not 2 <= len(self.root) <= _TREES + 1 or self.root[0] != 0 or self.root[-1] != splits:
            raise refuse("root", f"must rise from 0 to the {splits} splits in at most {_TREES} trees")
        own = np.diff(self.root)
        if own.min() < 0 or own.max() >= _LEAVES:
            raise refuse("root", f"gives a tree {own.min()} to {own.max()} splits; it can have at most {_LEAVES - 1}")
        sizes = {"threshold": splits, "left": splits, "right": splits, "leaf": splits + len(self)}
        for name, size in sizes.items():
            if len(getattr(self, name)) != size:
                raise refuse(name, f"has {len(getattr(self, name))} values, but must have {size}")

    def _check_children(self) -> None:
        own = np.diff(self.root)
        tree = np.repeat(np.arange(len(self)), own)
        number = np.arange(len(tree)) - self.root[tree]  # of a split within its tree
        places = []  # of children among all splits, then among all leaves
        for name in ("left", "right"):
            child = getattr(self, name).astype(np.int64)
            later = (child > number) & (child < own[tree])
            leaf = (child < 0) & (~child <= own[tree])
            if not (later | leaf).all():
                raise refuse(name, "must name later splits or leaves of the same tree")
            first_leaf = len(tree) + self.root[tree] + tree
            places.append(np.where(leaf, first_leaf + ~child, self.root[tree] + child))
        found = np.bincount(np.concatenate(places), minlength=len(tree) + len(self.leaf))
        wanted = np.ones(len(found), np.int64)
        wanted[self.root[:-1][own > 0]] = 0  # a tree's first split is nobody's child
        wanted[len(tree) + self.root[:-1][own == 0] + np.flatnonzero(own == 0)] = 0  # nor is an only leaf
        if (found != wanted).any():
            raise refuse("left and right", "must name every other split and every leaf of a tree once")

    @cached_property
    def _single(self) -> Array:
        """Thresholds in single precision, such that x <= threshold stays the same for every x of that precision."""
        with np.errstate(over="ignore"):
            rounded = self.threshold.astype(np.float32)
        rounded = np.where(rounded > self.threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)
        below = (self.threshold >= -_ZERO) & (self.threshold < 0)
        above = (self.threshold >= 0) & (self.threshold < _ZERO)
        rounded = np.where(below, np.nextafter(-_ZERO, np.float32(-np.inf)), rounded)
        return np.where(above, _ZERO, rounded).astype(np.float32)

    @cached_property
    def _coded(self) -> tuple[Array, Array, Array]:
        """Different thresholds, column by column and ascending; how many a column has; each split's place in them."""
        order = np.lexsort((self._single, self.feature))
        feature, threshold = self.feature[order], self._single[order]
        fresh = np.ones(len(order), bool)
        fresh[1:] = (feature[1:] != feature[:-1]) | (threshold[1:] != threshold[:-1])
        counts = np.bincount(feature[fresh], minlength=self.columns)
        start = np.cumsum(counts) - counts
        place = np.empty(len(order), np.int64)
        place[order] = np.cumsum(fresh) - 1 - start[feature]
        return threshold[fresh], counts, place

    @cached_property
    def program(self) -> tuple[Array, ...]:
        """What `kernels.trees` takes: cuts and where each column's begin, steps and where each tree's begin, leaves."""
        thresholds, counts, _ = self._coded
        start = np.concatenate([[0], np.cumsum(-(-counts // 8) * 8)])  # eight are compared at a time
        cuts = np.full(start[-1], np.inf, np.float32)
        cuts[np.repeat(start[:-1] - (np.cumsum(counts) - counts), counts) + np.arange(len(thresholds))] = thresholds
        leaves = np.diff(self.root) + 1
        table = np.zeros((len(self), int(leaves.max())))
        table[np.arange(table.shape[1]) < leaves[:, None]] = self.leaf
        return cuts, start, *self._steps, table

    @property
    def _steps(self) -> tuple[Array, Array]:
        """Every split as a step of the kernel, a tree's last one first, but for pairs of leaves that the split above
        takes along; and the number of each tree's first step: (steps, 12), (t + 1,).
        """
        own = np.diff(self.root)
        tree = np.repeat(np.arange(len(self)), own)
        number = np.arange(len(tree)) - self.root[tree]
        code = self._coded[2] - 128
        pair = (self.left < 0) & (self.right < 0) & (number > 0)

        def side(child: Array) -> tuple[Array, list[Array]]:
            at = np.where(child < 0, 0, self.root[tree] + child)  # among all splits
            kind = np.where(child < 0, LEAF, np.where(pair[at], PAIR, ROW))
            leaves = [np.where(child < 0, ~child, ~self.left[at]), ~self.right[at]]
            rows = [np.where(kind == ROW, 3 + child, self.feature[at]), code[at]]
            held = [kind != LEAF, kind == PAIR, kind != ROW, kind == PAIR]
            return kind, [np.where(there, x, 0) for there, x in zip(held, [*rows, *leaves], strict=True)]

        kinds, parts = zip(*(side(x.astype(np.int64)) for x in (self.left, self.right)), strict=True)
        row = np.where(number > 0, 3 + number, tree % 4)
        steps = np.stack([3 * kinds[0] + kinds[1], row, self.feature, code, *parts[0], *parts[1]], axis=1)
        single = np.flatnonzero(own == 0)
        alone = np.zeros((len(single), steps.shape[1]), np.int64)
        alone[:, 0], alone[:, 1] = ALONE, single % 4
        whose = np.concatenate([tree[~pair], single])
        order = np.lexsort((np.concatenate([-number[~pair], 0 * single]), whose))
        first = np.concatenate([[0], np.cumsum(np.bincount(whose, minlength=len(self)))])
        return np.concatenate([steps[~pair], alone])[order].astype(np.int16), first

    def state(self) -> dict[str, Array]:
        """What a file must hold, beside the number of columns."""
        return {f"trees.{name}": getattr(self, name) for name in PARTS}

    @classmethod
    def from_state(cls, columns: int, arrays: dict[str, Array]) -> Forest:
        """From what a file holds."""
        missing = [name for name in PARTS if f"trees.{name}" not in arrays]
        if missing:
            raise refuse("trees", f"lack {', '.join(missing)}")
        return cls(columns, *(arrays[f"trees.{name}"] for name in PARTS)).checked()


def forest_of(booster: Any) -> Forest:
    """The trees of a LightGBM booster that was fitted here: plain splits x <= threshold."""
    model = booster.dump_model()
    parts = [_arrays_of(tree["tree_structure"]) for tree in model["tree_info"]]
    feature, threshold, left, right, leaf = (np.concatenate(part) for part in zip(*parts, strict=True))
    root = np.cumsum([0, *(len(part[0]) for part in parts)], dtype=np.int32)
    return Forest(model["max_feature_idx"] + 1, feature, threshold, left, right, root, leaf)


def _arrays_of(top: dict[str, Any]) -> tuple[Array, ...]:
    """Feature, threshold, left, right and leaves of a tree, from its nested nodes."""
    splits: dict[int, dict[str, Any]] = {}
    leaves: dict[int, float] = {}
    waiting = [top]
    while waiting:
        node = waiting.pop()
        if "split_index" in node:
            splits[node["split_index"]] = node
            waiting += [node["left_child"], node["right_child"]]
        else:
            leaves[node.get("leaf_index", 0)] = node["leaf_value"]

    nodes = [splits[i] for i in range(len(splits))]
    children = [[node[name] for node in nodes] for name in ("left_child", "right_child")]
    return (
        np.array([node["split_feature"] for node in nodes], np.int32),
        np.array([node["threshold"] for node in nodes], np.float64),
        *(np.array([x.get("split_index", ~x.get("leaf_index", 0)) for x in x_of], np.int32) for x_of in children),
        np.array([leaves[i] for i in range(len(leaves))], np.float64),
    )
