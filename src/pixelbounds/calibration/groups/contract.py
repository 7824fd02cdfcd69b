"""Groups as they are stored, arrays and JSON, checked when they are read."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...images.library import Array
from ..block import Grouping, State

REMEDY = "calibrate again"


def load_grouping(kind: str, meta: dict[str, Any], arrays: dict[str, Array]) -> Grouping:
    """The grouping of a kind from its state."""
    if not isinstance(kind, str) or kind not in Grouping._kinds:
        raise ValueError(f"groups of kind {kind!r} are unknown to this version; it knows {', '.join(Grouping._kinds)}")
    try:
        return Grouping._kinds[kind].from_state(meta, arrays)
    except (KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"groups of kind {kind!r} cannot be made of this state: {error!r} is missing") from error


def packed(grouping: Grouping, start: str) -> State:
    """What a file holds of a grouping, its kind and numbers, and arrays whose names begin so."""
    meta, arrays = grouping.state()
    return {"kind": grouping.kind, **meta}, {start + name: x for name, x in arrays.items()}


def unpacked(meta: dict[str, Any], arrays: dict[str, Array], start: str) -> Grouping:
    """The grouping that `packed` described, from these arrays and perhaps others."""
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
