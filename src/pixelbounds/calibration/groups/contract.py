"""Groups as they are stored, arrays and JSON, checked when they are read."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...images.library import Array
from ..block import Grouping

REMEDY = "calibrate again"


def load_grouping(kind: str, meta: dict[str, Any], arrays: dict[str, Array]) -> Grouping:
    """The grouping of a kind from its state."""
    if not isinstance(kind, str) or kind not in Grouping._kinds:
        raise ValueError(f"groups of kind {kind!r} are unknown to this version; it knows {', '.join(Grouping._kinds)}")
    try:
        return Grouping._kinds[kind].from_state(meta, arrays)
    except (KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"groups of kind {kind!r} cannot be made of this state: {error!r} is missing") from error


def unpacked(meta: dict[str, Any], arrays: dict[str, Array], start: str) -> Grouping:
    """The grouping that `Grouping.packed` described, from these arrays and perhaps others."""
    numbers = {name: x for name, x in meta.items() if name != "kind"}
    within = {name.removeprefix(start): x for name, x in arrays.items() if name.startswith(start)}
    return load_grouping(meta["kind"], numbers, within)


# ---------------------------------------------------------------- arrays of a stored grouping
#
# A file may hold anything, and compiled loops read and write where labels, bins and children tell them. So each of
# these is checked when it is read: kind of number, axes, range, order, and that all is finite.


def refuse(name: str, wrong: str) -> ValueError:
    """An error that names a part and the remedy."""
    return ValueError(f"{name} of the stored groups {wrong}; {REMEDY}")


def stored(arrays: dict[str, Array], name: str, axes: int, kinds: str) -> Array:
    """An array of so many axes, of one of some kinds of numbers."""
    if name not in arrays:
        raise ValueError(f"the stored groups lack {name}; {REMEDY}")
    x = np.asarray(arrays[name])
    if x.ndim != axes or x.dtype.kind not in kinds:
        what = "real" if "f" in kinds else "whole"
        raise refuse(
            name, f"has shape {x.shape} and dtype {x.dtype}, but must have {axes} axes and hold {what} numbers"
        )
    return x


def whole_numbers(arrays: dict[str, Array], name: str, axes: int, least: int, most: int) -> Array:
    """Whole numbers in least..most, as contiguous int32."""
    x = stored(arrays, name, axes, "iu")
    if x.size and not (int(x.min()) >= least and int(x.max()) <= most):
        raise refuse(name, f"reaches from {x.min()} to {x.max()}, but must lie in {least}..{most}")
    return np.ascontiguousarray(x, np.int32)


def real_numbers(arrays: dict[str, Array], name: str, axes: int, *, infinite: bool = False) -> Array:
    """Finite numbers, as contiguous float64; `infinite`: +infinity is allowed too."""
    x = stored(arrays, name, axes, "f")
    x = np.ascontiguousarray(x, np.float64)
    bad = ~np.isfinite(x) & ~((x == np.inf) & infinite)
    if bad.any():
        raise refuse(name, f"has {int(bad.sum())} values that are NaN or infinite")
    return x


def ascending(x: Array, name: str) -> Array:
    """Strictly ascending values, (e,)."""
    if (x[1:] <= x[:-1]).any():
        raise refuse(name, "must ascend")
    return x


def without_gaps(labels: Array, name: str) -> Array:
    """Labels 0..K-1, each of which occurs."""
    if not labels.size or len(np.unique(labels)) != int(labels.max()) + 1:
        raise refuse(name, "must hold every group from 0 to the last")
    return labels


def whole_number(meta: dict[str, Any], name: str, most: int) -> int:
    """A whole number in 0..most."""
    value = meta.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise refuse(name, f"is {value!r}, but must be a whole number in 0..{most}")
    return value


def yes_or_no(meta: dict[str, Any], name: str) -> bool:
    """True or False."""
    value = meta.get(name)
    if not isinstance(value, bool):
        raise refuse(name, f"is {value!r}, but must be true or false")
    return value


# ---------------------------------------------------------------- trees
#
# Splits of all trees lie one after the other. A split sends a value of its feature to the left where it is at most the
# threshold, else to the right; a child is a later split of the same tree, by its number within the tree, or ~i for the
# tree's leaf i. Every split but a tree's first and every leaf is the child of one split: nothing can go round in
# circles, and nothing points out of its tree. `kernels/trees.py` relies on all that.

PARTS = ("feature", "threshold", "left", "right", "root", "leaf")
_TREES = 10_000
_LEAVES = 64  # of a tree
_COLUMNS = 2**15


def forest_arrays(columns: int, arrays: dict[str, Array]) -> dict[str, Array]:
    """The parts of trees over rows of so many columns, contiguous; refused where they are no trees."""
    given = {name: arrays[f"trees.{name}"] for name in PARTS if f"trees.{name}" in arrays}
    if len(given) < len(PARTS):
        raise refuse("trees", f"lack {', '.join(name for name in PARTS if name not in given)}")
    if not 1 <= columns <= _COLUMNS:
        raise refuse("columns", f"is {columns}, but must lie in 1..{_COLUMNS}")
    ends = {"feature": (0, columns - 1), "left": (-_LEAVES, _LEAVES), "right": (-_LEAVES, _LEAVES)}
    ends["root"] = (0, _TREES * _LEAVES)
    parts = {
        name: whole_numbers(given, name, 1, *ends[name]) if name in ends else real_numbers(given, name, 1)
        for name in PARTS
    }
    _check_sizes(parts)
    _check_children(parts)
    return parts


def _check_sizes(parts: dict[str, Array]) -> None:
    splits, root = len(parts["feature"]), parts["root"]
    if not 2 <= len(root) <= _TREES + 1 or root[0] != 0 or root[-1] != splits:
        raise refuse("root", f"must rise from 0 to the {splits} splits in at most {_TREES} trees")
    of_tree = np.diff(root)
    if of_tree.min() < 0 or of_tree.max() >= _LEAVES:
        raise refuse(
            "root", f"gives a tree {of_tree.min()} to {of_tree.max()} splits; it can have at most {_LEAVES - 1}"
        )
    sizes = {"threshold": splits, "left": splits, "right": splits, "leaf": splits + len(of_tree)}
    for name, size in sizes.items():
        if len(parts[name]) != size:
            raise refuse(name, f"has {len(parts[name])} values, but must have {size}")


def _check_children(parts: dict[str, Array]) -> None:
    root = parts["root"]
    of_tree = np.diff(root)
    tree = np.repeat(np.arange(len(of_tree)), of_tree)
    number = np.arange(len(tree)) - root[tree]  # of a split within its tree
    places = []  # of children among all splits, then among all leaves
    for name in ("left", "right"):
        child = parts[name].astype(np.int64)
        later = (child > number) & (child < of_tree[tree])
        leaf = (child < 0) & (~child <= of_tree[tree])
        if not (later | leaf).all():
            raise refuse(name, "must name later splits or leaves of the same tree")
        first_leaf = len(tree) + root[tree] + tree
        places.append(np.where(leaf, first_leaf + ~child, root[tree] + child))
    named = np.bincount(np.concatenate(places), minlength=len(tree) + len(parts["leaf"]))
    wanted = np.ones(len(named), np.int64)
    wanted[root[:-1][of_tree > 0]] = 0  # a tree's first split is nobody's child
    wanted[len(tree) + root[:-1][of_tree == 0] + np.flatnonzero(of_tree == 0)] = 0  # nor is an only leaf
    if (named != wanted).any():
        raise refuse("left and right", "must name every other split and every leaf of a tree once")
