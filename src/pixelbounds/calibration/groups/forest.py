"""Decision trees as checked arrays.

Splits of all trees lie one after the other. A split sends a value of its feature to the left where it is at most the
threshold, else to the right; a child is a later split of the same tree, by its number within the tree, or ~i for the
tree's leaf i. Every split but a tree's first and every leaf is the child of one split: nothing can go round in circles,
and nothing points out of its tree. `kernels/trees.py` relies on all that, so it is checked whenever a forest is made.

LightGBM fits, and tells its trees as text; calibration files of format 1 hold that text. It may come from a file, so
LightGBM never sees it again: `forest_of` reads the few lines that matter and refuses whatever it does not know. Only
plain numerical splits pass, x <= threshold, without missing values and without linear leaves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...images.library import Array
from ...kernels.trees import ALONE, LEAF, PAIR, ROW
from .contract import REMEDY, real_numbers, refuse, whole_numbers

_TREES = 10_000
_LEAVES = 64  # of a tree
_CUTS = 254  # different thresholds of a feature: codes are bytes
_COLUMNS = 2**15
_ZERO = np.float32(1e-35)  # LightGBM takes values up to this size for 0
PARTS = ("feature", "threshold", "left", "right", "root", "leaf")
_TEXT = 2**26  # characters of a model's text
_VERSIONS = ("v3", "v4")
_HEAD = {"num_class": "1", "num_tree_per_iteration": "1", "label_index": "0", "objective": "quantile"}
_NUMERICAL = {"0", "2"}  # kinds of decision: x <= threshold, and where missing values would go
_UNUSED = {
    "split_gain", "leaf_weight", "leaf_count", "internal_value", "internal_weight", "internal_count", "shrinkage"
}  # fmt: skip
_NUMBERS = {"split_feature": int, "threshold": float, "left_child": int, "right_child": int, "leaf_value": float}
_HEAD_UNUSED = {"feature_names", "feature_infos", "tree_sizes"}
_TREE = {"num_leaves", "num_cat", "decision_type", "is_linear", *_NUMBERS, *_UNUSED}


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

    def __post_init__(self) -> None:
        if not 1 <= self.columns <= _COLUMNS:
            raise refuse("columns", f"is {self.columns}, but must lie in 1..{_COLUMNS}")
        given = {name: getattr(self, name) for name in PARTS}
        whole = {"feature": (0, self.columns - 1), "left": (-_LEAVES, _LEAVES), "right": (-_LEAVES, _LEAVES)}
        checked = {name: whole_numbers(given, name, 1, *ends) for name, ends in whole.items()}
        checked["root"] = whole_numbers(given, "root", 1, 0, _TREES * _LEAVES)
        checked |= {name: real_numbers(given, name, 1) for name in ("threshold", "leaf")}
        for name, x in checked.items():
            object.__setattr__(self, name, x)
        self._check_sizes()
        self._check_children()
        most = int(self._coded[1].max())
        if most > _CUTS:
            raise refuse("threshold", f"has {most} values for one feature, but at most {_CUTS} are possible")

    def __len__(self) -> int:
        return len(self.root) - 1

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

    # ------------------------------------------------------------ as the kernel takes it

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
            """What a child is, and its row or feature, code and leaves."""
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

    # ------------------------------------------------------------ files

    def state(self) -> dict[str, Array]:
        """What a file must hold, beside the number of columns."""
        return {f"trees.{name}": getattr(self, name) for name in PARTS}

    @classmethod
    def from_state(cls, columns: int, arrays: dict[str, Array]) -> Forest:
        """From what a file holds."""
        missing = [name for name in PARTS if f"trees.{name}" not in arrays]
        if missing:
            raise refuse("trees", f"lack {', '.join(missing)}")
        return cls(columns, *(arrays[f"trees.{name}"] for name in PARTS))


# ---------------------------------------------------------------- LightGBM's text


def forest_of(text: str) -> Forest:
    """The trees that a model's text holds."""
    if len(text) > _TEXT:
        raise _odd(f"it has {len(text)} characters")
    head, *trees = re.split(r"^Tree=", text.partition("\nend of trees\n")[0], flags=re.MULTILINE)
    if "\nend of trees\n" not in text or not trees:
        raise _odd("it is cut short")
    columns = _columns(_lines(head.removeprefix("tree\n")))
    found = [_tree(part, number) for number, part in enumerate(trees)]
    feature, threshold, left, right, leaf = zip(*found, strict=True)
    root = np.cumsum([0, *(len(x) for x in feature)])
    return Forest(
        columns,
        feature=np.concatenate(feature),
        threshold=np.concatenate(threshold),
        left=np.concatenate(left),
        right=np.concatenate(right),
        root=root,
        leaf=np.concatenate(leaf),
    )


def _columns(head: dict[str, str]) -> int:
    if head.get("version") not in _VERSIONS:
        raise _odd(f"its version is {head.get('version')!r}")
    for key, value in _HEAD.items():
        if head.get(key) != value:
            raise _odd(f"{key} is {head.get(key)!r}")
    unknown = sorted(head.keys() - _HEAD.keys() - _HEAD_UNUSED - {"version", "max_feature_idx"})
    if unknown:
        raise _odd(f"{unknown[0][:40]!r} is unknown")
    last = _numbers(head.get("max_feature_idx", ""), int, "max_feature_idx")
    if len(last) != 1:
        raise _odd("max_feature_idx is missing")
    return int(last[0]) + 1


def _tree(part: str, number: int) -> tuple[np.ndarray, ...]:
    """Feature, threshold, left, right and leaves of one tree."""
    first, _, rest = part.partition("\n")
    lines = _lines(rest)
    if first != str(number) or lines.keys() != _TREE:
        raise _odd(f"tree {number} has other lines than expected")
    if lines["num_cat"] != "0" or lines["is_linear"] != "0" or not set(lines["decision_type"].split()) <= _NUMERICAL:
        raise _odd(f"tree {number} has splits of another kind")
    feature, threshold, left, right, leaf = (_numbers(lines[key], kind, key) for key, kind in _NUMBERS.items())
    splits = len(feature)
    if lines["num_leaves"] != str(splits + 1) or len(lines["decision_type"].split()) != splits:
        raise _odd(f"tree {number} has {splits} splits, but num_leaves is {lines['num_leaves'][:40]!r}")
    if {len(threshold), len(left), len(right), len(leaf) - 1} != {splits}:
        raise _odd(f"tree {number} has lists of different lengths")
    return feature, threshold, left, right, leaf


def _lines(text: str) -> dict[str, str]:
    """Lines `key=value`, each key once."""
    pairs = [line.partition("=") for line in text.split("\n") if line]
    found = {key: value for key, _, value in pairs}
    if len(found) != len(pairs) or not all(sign for _, sign, _ in pairs):
        raise _odd("a line says something twice, or nothing")
    return found


def _numbers(text: str, kind: type[int] | type[float], name: str) -> np.ndarray:
    """Numbers with a blank between them; whole ones of at most nine digits."""
    words = text.split(" ") if text else []
    shape = r"-?\d{1,9}" if kind is int else r"-?\d+(\.\d+)?([eE][-+]?\d{1,3})?"
    wrong = next((word for word in words if len(word) > 40 or not re.fullmatch(shape, word, flags=re.ASCII)), None)
    if wrong is not None:
        raise _odd(f"{name} has {wrong[:40]!r}")
    return np.array([kind(word) for word in words], np.int64 if kind is int else np.float64)


def _odd(why: str) -> ValueError:
    return ValueError(f"the model of the stored groups cannot be read ({why}); {REMEDY}")
