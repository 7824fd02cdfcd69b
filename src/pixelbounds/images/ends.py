"""Two ends per pixel: a `Band` before calibration, an `Interval` after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from .checks import check_ordered, check_same_shape, check_values
from .library import Array, as_array, library_of, rows_of, to_numpy
from .ragged import Ragged


@dataclass(frozen=True, eq=False)
class Band:
    """Lower and upper image per observation, (n, *pixels), before calibration; some families widen about a `centre`.

    `source` says how the band was made; a calibration refuses a band of another source.

    >>> Band(np.zeros((2, 3)), np.ones((2, 3)))
    Band of 2 images of shape (3,), float64
    """

    lower: Any
    upper: Any
    centre: Any = None
    source: str = ""

    def __post_init__(self) -> None:
        parts = {name: getattr(self, name) for name in ("lower", "upper", "centre")}
        parts = {name: as_array(x, f"band.{name}") for name, x in parts.items() if x is not None}
        if not {"lower", "upper"} <= parts.keys():
            raise TypeError("a Band needs both lower and upper; give two arrays of shape (n, *pixels)")
        check_same_shape(**parts)
        if not isinstance(self.source, str):
            raise TypeError(f"source is {self.source!r}; it must be a string")
        for name, x in parts.items():
            object.__setattr__(self, name, x)
        if all(library_of(x) == "numpy" for x in parts.values()):
            self.rows(0, len(self))
        elif isinstance(self.lower, Ragged) and all(library_of(x) == "numpy" for x in self.lower.images):
            for i in range(len(self)):
                self.rows(i, i + 1)

    def __repr__(self) -> str:
        source = f", {self.source}" if self.source else ""
        return f"Band of {len(self)} images of {_sizes(self.lower)}, {self.lower.dtype}{source}"

    def __len__(self) -> int:
        return int(self.lower.shape[0])

    def __getitem__(self, images: Any) -> Band:
        if isinstance(images, int | np.integer):
            raise TypeError(f"a Band is indexed by several images; write band[{images}:{images + 1}]")
        return self.map(lambda x: x[images])

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, *pixels)."""
        return tuple(self.lower.shape)

    @property
    def pixels(self) -> tuple[int, ...]:
        """Shape of one image; () where images differ in size."""
        return self.shape[1:]

    @property
    def width(self) -> Any:
        """Upper minus lower, (n, *pixels)."""
        return self.upper - self.lower

    def map(self, function: Callable[[Any], Any], *, checked: bool = False) -> Band:
        """The band with a function applied to each of its arrays; `checked`: the result needs no further check."""
        centre = None if self.centre is None else function(self.centre)
        return (trusted_band if checked else Band)(function(self.lower), function(self.upper), centre, self.source)

    def rows(self, start: int, stop: int) -> Band:
        """Images start..stop in NumPy, checked: finite, lower at most upper."""
        lower, upper = rows_of(self.lower, start, stop), rows_of(self.upper, start, stop)
        centre = None if self.centre is None else rows_of(self.centre, start, stop)
        for name, x in {"lower": lower, "upper": upper, "centre": centre}.items():
            if x is not None:
                check_values(f"band.{name}", x, start)
        check_ordered(lower, upper, start)
        return trusted_band(lower, upper, centre, self.source)


def trusted_band(lower: Any, upper: Any, centre: Any = None, source: str = "") -> Band:
    """A Band of arrays that were checked already."""
    band = object.__new__(Band)
    for name, x in {"lower": lower, "upper": upper, "centre": centre, "source": source}.items():
        object.__setattr__(band, name, x)
    return band


def one_band(band: Any) -> Band:
    """A band, or the images of several bands as one."""
    if isinstance(band, list | tuple) and band and all(isinstance(part, Band) for part in band):
        if len({(part.source, part.centre is None) for part in band}) > 1:
            raise ValueError("bands of one set must have one source, and all or none a centre")
        if len({part.pixels for part in band}) == 1 and not any(isinstance(part.lower, Ragged) for part in band):
            lower, upper, centre = (_joined(band, name, np.concatenate) for name in ("lower", "upper", "centre"))
        else:
            lower, upper, centre = (_joined(band, name, _in_a_row) for name in ("lower", "upper", "centre"))
        return Band(lower, upper, centre, band[0].source)
    if not isinstance(band, Band):
        raise TypeError(f"band is a {type(band).__name__}; wrap your bounds as pixelbounds.Band(lower, upper)")
    return band


def _joined(bands: Sequence[Band], name: str, join: Callable[[list[Any]], Any]) -> Any:
    parts = [getattr(band, name) for band in bands]
    return None if parts[0] is None else join([part if isinstance(part, Ragged) else to_numpy(part) for part in parts])


def _in_a_row(parts: list[Any]) -> Ragged:
    return Ragged(list(chain.from_iterable(parts)))


@dataclass(frozen=True, eq=False)
class Interval:
    """Calibrated ends per pixel, (n, *pixels).

    >>> Interval(np.zeros((1, 2)), np.array([[0.5, 1.0]])).length
    array([[0.5, 1. ]])
    """

    lower: Any
    upper: Any

    def __post_init__(self) -> None:
        for name in ("lower", "upper"):
            object.__setattr__(self, name, as_array(getattr(self, name), f"interval.{name}"))
        check_same_shape(lower=self.lower, upper=self.upper)

    def __repr__(self) -> str:
        return f"Interval of {len(self)} images of {_sizes(self.lower)}, {self.lower.dtype}"

    def __len__(self) -> int:
        return int(self.lower.shape[0])

    @property
    def length(self) -> Any:
        """Upper minus lower, (n, *pixels)."""
        return self.upper - self.lower

    def contains(self, truth: Any) -> Any:
        """Whether each true pixel lies within its interval, (n, *pixels) -> bool."""
        check_same_shape(interval=self.lower, truth=as_array(truth, "truth"))
        if isinstance(self.lower, Ragged):
            ends = zip(as_array(truth, "truth"), self.lower, self.upper, strict=True)
            return [(x >= lower) & (x <= upper) for x, lower, upper in ends]
        return (truth >= self.lower) & (truth <= self.upper)


def _sizes(images: Any) -> str:
    return "different sizes" if isinstance(images, Ragged) else f"shape {tuple(images.shape[1:])}"


def outward(lower: Array, upper: Array, dtype: Any) -> tuple[Array, Array]:
    """Ends rounded to `dtype`, lower down and upper up, so that a stored interval still holds what it held."""
    ends = []
    for x, towards, short in ((lower, -np.inf, np.greater), (upper, np.inf, np.less)):
        rounded = x.astype(dtype)
        wrong = short(rounded.astype(x.dtype), x)
        rounded[wrong] = np.nextafter(rounded[wrong], rounded.dtype.type(towards))
        ends.append(rounded)
    return ends[0], ends[1]
