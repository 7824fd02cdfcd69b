"""The one format of state files: a monitor or an anytime calibration as text and arrays, sealed with a checksum.

Whoever can write such a file can make it say anything; what is checked here is that it is whole and well-formed, so
that nothing in it indexes memory unchecked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from ..images.library import Array
from ..storage.files import seal, unseal

_FORMAT = 1
ANYTIME_STATE, MONITOR = "anytime calibration", "monitor"
_AGAIN = {
    ANYTIME_STATE: "begin again, with the images that fitted",
    MONITOR: "begin a new one with the calibration file",
}
_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)

State = TypeVar("State")


def state_bytes(kind: str, text: Mapping[str, Any], tensors: Mapping[str, Array]) -> bytes:
    """The content of a state file; equal states give equal bytes."""
    return seal({"format": _FORMAT, "kind": kind, **text}, tensors)


def read_state(data: bytes, name: str, kind: str, build: Callable[[dict[str, Any], dict[str, Array]], State]) -> State:
    """What `build` makes of the text and the arrays of a state file; errors name the file and the remedy."""
    again = _AGAIN[kind]
    text, tensors = unseal(data, name, what=kind, remedy=again, again=again)
    if text.get("kind") != kind or text["format"] != _FORMAT:
        raise ValueError(f"{name!r} is not a {kind} of format {_FORMAT}; update pixelbounds, or {again}")
    try:
        return build(text, tensors)
    except _ERRORS as error:
        why = f"{error!r} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{name!r} is not a valid {kind}: {why}; {again}") from error


def tensor(tensors: Mapping[str, Array], name: str, dtype: Any, *shape: int | None) -> Array:
    """An array of a file of this type and shape; None stands for any length."""
    x = tensors[name]
    fits = x.ndim == len(shape) and all(want in (None, size) for want, size in zip(shape, x.shape, strict=True))
    if x.dtype != dtype or not fits or (x.dtype.kind == "f" and np.isnan(x).any()):
        raise ValueError(f"{name} is {x.dtype} {x.shape}; it must be {np.dtype(dtype)} {shape} without NaN")
    return x


def flags(values: Any, count: int) -> list[bool]:
    """So many values true or false."""
    if not isinstance(values, list) or len(values) != count or not all(isinstance(x, bool) for x in values):
        raise ValueError(f"{values!r:.60} is not a list of {count} values true or false")
    return values
