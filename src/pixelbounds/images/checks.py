"""Checks at the door: an error names the value and the remedy. First what a user sets, then images."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

import numpy as np

from ..kernels.values import extremes
from .foreign import as_plain_array
from .library import Array, differ_in_size, library_of, to_numpy

Limits = tuple[float, float]
VALIDITY_DOC = "docs/what_voids_the_promise.md"
_HOLDS_MANY = ("source", "original", "parent", "whole-slide")  # images of which others are cut
_NO_UNIT = ("image", "pixel", "voxel", "value")  # in the singular: the sentence means other things by them


class NoGuarantee(ValueError):
    """What was asked cannot be promised with the images, samples or bands at hand; the message says what would help."""


class ImageError(ValueError):
    """Something is wrong with one image: its number, and a message in which `{image}` stands for it."""

    def __init__(self, message: str, image: int) -> None:
        super().__init__(message.replace("{image}", f"image {image}"))
        self.message = message
        self.image = image

    def __reduce__(self) -> Any:
        return type(self), (self.message, self.image)

    def further(self, count: int) -> ImageError:
        """The same of the image so many further on: what was the first of a block has another number in the whole."""
        return type(self)(self.message, self.image + count)


@contextmanager
def numbered(first: int) -> Iterator[None]:
    """Errors about an image of a block name it by its number in the whole, where the block begins at `first`."""
    try:
        yield
    except ImageError as error:
        raise error.further(first) from error


def check_number(value: Any, name: str) -> float:
    """A finite real number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; it must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number if isinstance(value, int) else value!r}; it must be finite")
    return number


def check_open_unit(value: float, name: str) -> float:
    """A level strictly between 0 and 1."""
    number = check_number(value, name)
    if not 0 < number < 1:
        raise ValueError(f"{name} is {value!r}; it must lie strictly between 0 and 1, for example 0.1")
    return number


def check_count(value: Any, name: str, *, least: int = 1, most: int | None = None) -> int:
    """A whole number of at least `least` and, where given, at most `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; it must be a whole number")
    if value < least:
        raise ValueError(f"{name} is {value}; it must be at least {least}")
    if most is not None and value > most:
        raise ValueError(f"{name} is {value}; it must be at most {most}")
    return int(value)


def check_limits(limits: Any) -> Limits:
    """The least and the greatest possible pixel value; None stands for no limits, or for none at one end."""
    try:
        low, high = (None, None) if limits is None else limits
        least, most = -math.inf if low is None else float(low), math.inf if high is None else float(high)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"limits is {limits!r}; give a pair such as (0.0, 1.0), or None for no limits") from error
    if not least < most:
        raise ValueError(f"limits is {limits!r}; the first must be below the second")
    return least, most


def own_limits(limits: Limits, dtype: Any) -> Limits:
    """The limits as images of a precision can hold them: 0.3 is a little more in single precision."""
    kind = np.dtype(dtype).type
    return float(kind(limits[0])), float(kind(limits[1]))


def check_choice(value: Any, choices: Iterable[str], name: str) -> str:
    """One of a few names; the error shows the nearest."""
    choices = list(choices)
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}; it must be one of {', '.join(choices)}")
    if value not in choices:
        near = get_close_matches(value, choices, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"{name} is {value!r}; {hint}it must be one of {', '.join(choices)}")
    return value


def check_line(value: Any, name: str, *, most: int = 200) -> str:
    """Text that may be printed: one line, not long."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}; it must be a string")
    if len(value) > most or not value.isprintable():
        shown = f"{value[:most]!r} and more" if len(value) > most else repr(value)
        raise ValueError(f"{name} is {shown}; it must be a line of text of at most {most} characters")
    return value


def is_name(value: Any) -> bool:
    """Whether text may name a function in a sentence: letters, digits, spaces, nothing that ends a quotation."""
    return isinstance(value, str) and bool(re.fullmatch(r"<lambda>|[^\W\d][\w .-]{0,79}", value))


def check_generator(seed: Any, name: str = "seed") -> np.random.Generator:
    """A generator from a seed, or the generator itself."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(check_count(seed, name, least=0))


def check_unit_name(name: Any) -> str:
    """A noun for a unit, in the singular, such as 'patient'."""
    if not isinstance(name, str) or not 0 < len(name) <= 40 or not name.replace(" ", "").replace("-", "").isalpha():
        raise ValueError(f"unit_name is {name!r}; give a noun in the singular, such as 'patient'")
    *before, last = name.casefold().split() or [name]
    if last.removesuffix("s") in _NO_UNIT and not {*before} & {*_HOLDS_MANY}:
        raise ValueError(
            f"unit_name is {name!r}, which is what a unit consists of, and would promise more than is certified; say "
            "what it is, such as 'patient', or leave units out where images are independent"
        )
    return name


def check_units(units: Any, n: int) -> Array:
    """The unit (patient, scan) of each of n images as text, (n,); without units every image is its own."""
    if units is None:
        return np.arange(n)
    units = as_plain_array(units, "units")
    try:
        labels = to_numpy(units) if library_of(units) else np.asarray(units)
    except ValueError as error:
        raise ValueError(f"units do not form an array; give the unit (patient, scan) of each of {n} images") from error
    if labels.shape != (n,):
        raise ValueError(f"units have shape {labels.shape}; give the unit (patient, scan) of each of the {n} images")
    missing = sum(_says_nothing(label) for label in labels.tolist())
    if missing:
        raise ValueError(f"units of {missing} images are missing; give the unit (patient, scan) of each")
    return np.strings.strip(labels.astype(str))  # blanks around a name make no other patient


def distinct_in_order(values: Any) -> tuple[Array, Array]:
    """Distinct values in the order in which they come, (k,), and the number of each value, (n,).

    >>> distinct_in_order(["Smith", "Jones", "Smith"])[1].tolist()
    [0, 1, 0]
    """
    distinct, first, number = np.unique(np.asarray(values), return_index=True, return_inverse=True)
    order = np.argsort(first)
    return distinct[order], np.argsort(order)[number]


def _says_nothing(label: Any) -> bool:
    """None, a blank, or what differs from itself, as NaN does, and pandas' NA, which has no truth value."""
    if label is None or (isinstance(label, str | bytes) and not label.strip()):
        return True
    try:
        return bool(label != label)
    except TypeError:
        return True


def check_same_shape(**arrays: Any) -> None:
    """All arrays have one shape."""
    (first, model), *others = arrays.items()
    for name, x in others:
        if differ_in_size(x) and differ_in_size(model) and len(x) == len(model):
            for i, (ours, theirs) in enumerate(zip(x.shapes, model.shapes, strict=True)):
                if ours != theirs:
                    raise ValueError(f"{name} of image {i} has shape {ours}, but {first} has {theirs}; they must agree")
        elif tuple(x.shape) != tuple(model.shape):
            raise ValueError(
                f"{name} has shape {tuple(x.shape)} but {first} has shape {tuple(model.shape)}; "
                f"they must agree, one entry per image and pixel{_axis_hint(x, model, name, first)}"
            )


def _axis_hint(x: Any, model: Any, name: str, first: str) -> str:
    ours, theirs = tuple(x.shape), tuple(model.shape)
    if ours == theirs[1:]:
        return f"; a single image is {name}[None]"
    differ = len(ours) == len(theirs) and [a == b for a, b in zip(ours, theirs, strict=True)].count(False) == 1
    samples = first == "band" and differ and ours[0] == theirs[0]
    return "; a band of samples: axis= says which axis of theirs counts them" if samples else ""


def check_values(name: str, rows: Array, first: int, limits: Limits = (-math.inf, math.inf)) -> Array:
    """Extremes per image of finite images within limits; the error names the image, counted from `first`."""
    ends = extremes(rows.reshape(len(rows), -1))
    bad = ~np.isfinite(ends[:, 0])
    if bad.any():
        image = int(np.argmax(bad))
        count = int(np.sum(~np.isfinite(rows[image])))
        raise ImageError(
            f"{name} of {{image}} has {count} values that are NaN or infinite; correct or drop the image", first + image
        )
    limits = own_limits(limits, rows.dtype)
    out = (ends[:, 0] < limits[0]) | (ends[:, 1] > limits[1])
    if out.any():
        image = int(np.argmax(out))
        share = float(np.mean((rows < limits[0]) | (rows > limits[1])))
        raise ImageError(
            f"{name} of {{image}} reaches [{ends[image, 0]:.6g}, {ends[image, 1]:.6g}], outside the limits "
            f"({limits[0]:g}, {limits[1]:g}); {share:.3%} of the values read are outside: rescale them, or set "
            "limits (limits=, --limits)",
            first + image,
        )
    return ends


def check_ordered(lower: Array, upper: Array, first: int, name: str = "band") -> None:
    """Lower ends are at most the upper ends."""
    crossed = (lower > upper).reshape(len(lower), -1).sum(axis=1)
    if crossed.any():
        image = int(np.argmax(crossed > 0))
        raise ImageError(
            f"{name} of {{image}} has lower above upper at {int(crossed[image])} pixels; swap the arrays"
            f"{', or use pixelbounds.conffusion, which sorts crossed quantiles' * (name == 'band')}",
            first + image,
        )
