"""Arrays of a stored grouping, checked before anything is computed with them.

A file may hold anything. Compiled loops read and write where labels, bins and children tell them, so each of these is
checked when it is read: kind of number, axes, range, order, and that all is finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...images.library import Array

REMEDY = "calibrate again"


def refuse(name: str, wrong: str) -> ValueError:
    """An error that names a part and the remedy."""
    return ValueError(f"{name} of the stored groups {wrong}; {REMEDY}")


def stored(arrays: dict[str, Array], name: str, axes: int) -> Array:
    """An array of so many axes."""
    if name not in arrays:
        raise ValueError(f"the stored groups lack {name}; {REMEDY}")
    x = np.asarray(arrays[name])
    if x.ndim != axes:
        raise refuse(name, f"has shape {x.shape}, but must have {axes} axes")
    return x


def whole_numbers(arrays: dict[str, Array], name: str, axes: int, least: int, most: int) -> Array:
    """Whole numbers in least..most, as contiguous int32."""
    x = stored(arrays, name, axes)
    if x.dtype.kind not in "iu":
        raise refuse(name, f"has dtype {x.dtype}, but must hold whole numbers")
    if x.size and not (int(x.min()) >= least and int(x.max()) <= most):
        raise refuse(name, f"reaches from {x.min()} to {x.max()}, but must lie in {least}..{most}")
    return np.ascontiguousarray(x, np.int32)


def real_numbers(arrays: dict[str, Array], name: str, axes: int, *, infinite: bool = False) -> Array:
    """Finite numbers, as contiguous float64; `infinite`: +infinity is allowed too."""
    x = stored(arrays, name, axes)
    if x.dtype.kind != "f" or x.dtype.itemsize > 8:
        raise refuse(name, f"has dtype {x.dtype}, but must hold real numbers")
    x = np.ascontiguousarray(x, np.float64)
    good = np.isfinite(x) | ((x == np.inf) if infinite else False)
    if not good.all():
        raise refuse(name, f"has {int((~good).sum())} values that are NaN or infinite")
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
