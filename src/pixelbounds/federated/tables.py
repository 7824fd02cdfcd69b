"""The arrays of messages: what each must be before anything uses it.

Plans, answers and announcements come from other machines, and their arrays index memory and drive compiled loops. So
every array is held against a `Form` first. An array that passes can still be wrong (docs/federated.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..images.library import Array

Tables = tuple[Array, ...]
WHOLE, REAL, NUMBER, BOOL = "whole numbers", "float64", "numbers", "bool"
_KINDS = {WHOLE: "iu", REAL: "f", NUMBER: "iuf", BOOL: "b"}
_MAX_COUNT = 2**62  # sums of counts fit into int64


@dataclass(frozen=True, eq=False)
class Form:
    """What an array must be: kind of numbers, shape (None: any length), range, whether it rises, content.

    `least` and `most` may be arrays that broadcast.
    """

    kind: str
    shape: tuple[int | None, ...]
    least: Any = 0
    most: Any = None
    rises: bool = False  # along the last axis
    equals: Array | None = None

    def check(self, x: Any, what: str, remedy: str) -> Array:
        """The array, or an error that begins with `what`."""
        if not isinstance(x, np.ndarray) or x.dtype.kind not in _KINDS[self.kind] or (
            x.dtype.kind == "f" and x.dtype.itemsize != 8
        ):  # fmt: skip
            raise ValueError(f"{what} of {getattr(x, 'dtype', x)!s}; it must hold {self.kind}: {remedy}")
        if x.ndim != len(self.shape) or any(n not in (None, m) for n, m in zip(self.shape, x.shape, strict=True)):
            sizes = ", ".join("any" if n is None else str(n) for n in self.shape)
            raise ValueError(f"{what} of shape {x.shape}; it must have shape ({sizes}): {remedy}")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise ValueError(f"{what} with values that are NaN or infinite; {remedy}")
        if self.kind != BOOL and x.size:
            self._check_values(x, what, remedy)
        return x

    def _check_values(self, x: Array, what: str, remedy: str) -> None:
        most = _MAX_COUNT if self.most is None and x.dtype.kind != "f" else self.most
        for limit, outside, word in ((self.least, np.less, "least"), (most, np.greater, "most")):
            if limit is not None and (wrong := outside(x, limit)).any():
                at = np.unravel_index(np.argmax(wrong), x.shape)
                bound = np.broadcast_to(limit, x.shape)[at]
                raise ValueError(f"{what} with the value {x[at]:.6g}, where it must be at {word} {bound:.6g}; {remedy}")
        if self.rises and (x[..., 1:] < x[..., :-1]).any():
            raise ValueError(f"{what} that falls along its last axis, where it must not; {remedy}")
        if self.equals is not None and not np.array_equal(x, self.equals):
            raise ValueError(f"{what} that differs from what was announced; {remedy}")


def check_tables(forms: Mapping[str, Form], tables: Mapping[str, Array], who: str, remedy: str) -> Tables:
    """The tables of a message in the order of their forms, each checked."""
    if tables.keys() != forms.keys():
        listed, wanted = (", ".join(sorted(x)) or "none" for x in (tables, forms))
        raise ValueError(f"{who} has the tables {listed}; it must have {wanted}: {remedy}")
    return tuple(form.check(tables[name], f"{who} has {name}", remedy) for name, form in forms.items())
