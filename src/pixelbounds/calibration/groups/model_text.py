"""LightGBM's text of a model to a `Forest`: what LightGBM fitted, and what calibration files of format 1 hold.

The text may come from a file, so LightGBM never sees it: this reads the few lines that matter, and refuses whatever it
does not know. Only plain numerical splits pass, x <= threshold, without missing values and without linear leaves.
"""

from __future__ import annotations

import re

import numpy as np

from .forest import Forest
from .state_checks import REMEDY

_MOST = 2**26  # characters
_VERSIONS = ("v3", "v4")
_HEAD = {"num_class": "1", "num_tree_per_iteration": "1", "label_index": "0", "objective": "quantile"}
_NUMERICAL = {"0", "2"}  # kinds of decision: x <= threshold, and where missing values would go
_UNUSED = {
    "split_gain", "leaf_weight", "leaf_count", "internal_value", "internal_weight", "internal_count", "shrinkage"
}  # fmt: skip
_NUMBERS = {"split_feature": int, "threshold": float, "left_child": int, "right_child": int, "leaf_value": float}
_TREE = {"num_leaves", "num_cat", "decision_type", "is_linear", *_NUMBERS, *_UNUSED}


def forest_of(text: str) -> Forest:
    """The trees that a model's text holds."""
    if len(text) > _MOST:
        raise _odd(f"it has {len(text)} characters")
    head, *trees = re.split(r"^Tree=", text.partition("\nend of trees\n")[0], flags=re.MULTILINE)
    if "\nend of trees\n" not in text or not trees:
        raise _odd("it is cut short")
    columns = _columns(_lines(head.removeprefix("tree\n")))
    found = [_tree(part, number) for number, part in enumerate(trees)]
    feature, threshold, left, right, leaf = zip(*found, strict=True)
    root = np.cumsum([0, *(len(x) for x in feature)])
    joined = [np.concatenate(part) for part in (feature, threshold, left, right)]
    return Forest(columns, *joined, root, np.concatenate(leaf))


def _columns(head: dict[str, str]) -> int:
    if head.get("version") not in _VERSIONS:
        raise _odd(f"its version is {head.get('version')!r}")
    for key, value in _HEAD.items():
        if head.get(key) != value:
            raise _odd(f"{key} is {head.get(key)!r}")
    unknown = sorted(
        head.keys() - _HEAD.keys() - {"version", "max_feature_idx", "feature_names", "feature_infos", "tree_sizes"}
    )
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
