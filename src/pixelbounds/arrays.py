"""Images as arrays: the first axis counts n images, what follows are pixels of any shape.

Images of different sizes are a `Ragged`, a list of arrays, which is read one image at a time. A `Band` is what a model
says before calibration (a lower and an upper image, perhaps a centre); an `Interval` is what a calibration returns.
Both hold NumPy arrays, torch tensors, zarr or Dask arrays as the user gave them; the rooms below read them block by
block through `rows_of`, which is also where every value is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from .kernels import block_of, count_above, extremes, over_rows
from .ragged import Ragged

Array = np.ndarray
Limits = tuple[float, float]
T = TypeVar("T")
_FLOATS = ("float16", "bfloat16", "float32", "float64")

Reader = Callable[[Any, int, int], Array]  # a zarr array, start, stop -> images
READER: ContextVar[Reader | None] = ContextVar("READER", default=None)  # `execution.running` sets it; None: zarr reads


# ---------------------------------------------------------------- kinds of arrays


def library_of(x: Any) -> str:
    """Name of the library an array belongs to: numpy, torch, zarr, dask, or "" for anything else."""
    name = type(x).__module__.split(".")[0]
    return name if name in ("numpy", "torch", "zarr", "dask") and hasattr(x, "shape") else ""


def as_array(x: Any, name: str) -> Any:
    """`x` itself where it is an array of a known library, else the NumPy array made of it; it must be floating.

    A list of arrays of different shapes becomes a `Ragged`.
    """
    if isinstance(x, list | tuple) and len({tuple(np.shape(image)) for image in x if library_of(image)}) > 1:
        images = [as_array(image, f"{name}[{i}]") for i, image in enumerate(x)]
        return Ragged([image if library_of(image) == "zarr" else to_numpy(image) for image in images])
    if not library_of(x) and not isinstance(x, Ragged):
        try:
            x = np.asarray(x)
        except (ValueError, TypeError) as error:
            raise TypeError(
                f"{name} is a {type(x).__name__} that does not form an array; "
                "give a NumPy, torch, zarr or Dask array, or a list of arrays where images differ in size"
            ) from error
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; fill or drop what is masked, for example {name}.filled(0)")
    if library_of(x) == "torch":
        x = x.detach()
    if library_of(x) == "numpy" and not x.dtype.isnative:
        x = x.astype(x.dtype.newbyteorder("="))
    if str(x.dtype).removeprefix("torch.") not in _FLOATS:
        raise TypeError(
            f"{name} has dtype {x.dtype}; images must be {', '.join(_FLOATS)}: convert them, for example "
            f"{name}.astype('float32'), divided by 255 for 8-bit images"
        )
    if x.ndim < 1 or math.prod(x.shape) == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must hold at least one image of at least one pixel")
    return x


def to_numpy(x: Any) -> Array:
    """The NumPy array with the values of any supported array; half precision becomes single."""
    library = library_of(x)
    if library == "torch":
        x = x.detach()
        x = (x.float() if "float16" in str(x.dtype) else x).cpu().numpy()
    elif library == "dask":
        x = x.compute()
    out = np.asarray(x[...] if library == "zarr" else x)
    return out.astype(np.float32) if out.dtype.itemsize == 2 and out.dtype.kind not in "iu" else out


def rows_of(x: Any, start: int, stop: int) -> Array:
    """Images start..stop as a contiguous NumPy array: (n, *pixels) -> (stop - start, *pixels)."""
    if isinstance(x, Ragged):
        return np.stack([to_numpy(x[i]) for i in range(start, stop)])
    reader = READER.get() if library_of(x) == "zarr" else None
    return np.ascontiguousarray(to_numpy(reader(x, start, stop) if reader else x[start:stop]))


def like(result: Array, template: Any) -> Any:
    """`result` as the kind of array that `template` is: a torch tensor on its device, else NumPy."""
    if library_of(template) != "torch":
        return result
    import torch

    return torch.from_numpy(np.ascontiguousarray(result)).to(template.device)


def over_images(function: Callable[[int, int], T], images: Any) -> Iterator[T]:
    """`function(start, stop)` over blocks of images, in order; images of different sizes come one at a time."""
    n, size = int(images.shape[0]), int(sizes_of(images).mean())
    if not isinstance(images, Ragged):
        return over_rows(function, n, block=block_of(size, n))
    parts = over_rows(lambda a, b: [function(i, i + 1) for i in range(a, b)], n, block=block_of(size, n))
    return chain.from_iterable(parts)


def sizes_of(images: Any) -> Array:
    """Pixels of each image: (n, *pixels) -> (n,)."""
    if isinstance(images, Ragged):
        return images.sizes
    return np.full(int(images.shape[0]), math.prod(int(x) for x in images.shape[1:]))


def spatial_axes(images: Any) -> list[int]:
    """Axes along which neighbours mean something: (n, *pixels); an axis of at most 4 holds channels."""
    return [axis for axis in range(1, images.ndim) if images.shape[axis] > 4]


# ---------------------------------------------------------------- checks at the door


class NoGuarantee(ValueError):
    """What was asked cannot be promised with the images, samples or bands at hand; the message says what would help."""


def check_open_unit(value: float, name: str) -> float:
    """A level strictly between 0 and 1."""
    number = check_number(value, name)
    if not 0 < number < 1:
        raise ValueError(f"{name} is {value!r}; it must lie strictly between 0 and 1, for example 0.1")
    return number


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
    """The least and the greatest possible pixel value; None stands for no limits."""
    if limits is None:
        return -math.inf, math.inf
    try:
        least, most = (float(end) for end in limits)
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


def check_generator(seed: Any, name: str = "seed") -> np.random.Generator:
    """A generator from a seed, or the generator itself."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(check_count(seed, name, least=0))


def check_same_shape(**arrays: Any) -> None:
    """All arrays have one shape."""
    (first, *others) = arrays.items()
    for name, x in others:
        if isinstance(x, Ragged) and isinstance(first[1], Ragged) and len(x) == len(first[1]):
            for i, (ours, theirs) in enumerate(zip(x.shapes, first[1].shapes, strict=True)):
                if ours != theirs:
                    raise ValueError(
                        f"{name} of image {i} has shape {ours}, but {first[0]} has {theirs}; they must agree"
                    )
            continue
        if tuple(x.shape) != tuple(first[1].shape):
            raise ValueError(
                f"{name} has shape {tuple(x.shape)} but {first[0]} has shape {tuple(first[1].shape)}; "
                "they must agree, one entry per image and pixel"
            )


def check_values(name: str, rows: Array, first: int, limits: Limits = (-math.inf, math.inf)) -> Array:
    """Extremes per image of finite images within limits; the error names the image, counted from `first`."""
    flat = rows.reshape(len(rows), -1)
    block = block_of(flat.shape[1], len(flat))
    ends = np.concatenate(list(over_rows(lambda a, b: extremes(flat[a:b]), len(flat), block=block)))
    bad = ~np.isfinite(ends[:, 0])
    if bad.any():
        image = int(np.argmax(bad))
        count = int(np.sum(~np.isfinite(rows[image])))
        raise ValueError(
            f"{name} of image {first + image} has {count} values that are NaN or infinite; mend or drop the image"
        )
    limits = own_limits(limits, rows.dtype)
    out = (ends[:, 0] < limits[0]) | (ends[:, 1] > limits[1])
    if out.any():
        image = int(np.argmax(out))
        share = float(np.mean((rows < limits[0]) | (rows > limits[1])))
        raise ValueError(
            f"{name} of image {first + image} reaches [{ends[image, 0]:.6g}, {ends[image, 1]:.6g}], outside the limits "
            f"({limits[0]:g}, {limits[1]:g}); {share:.3%} of the values read are outside: rescale them, or set limits"
        )
    return ends


def check_ordered(lower: Array, upper: Array, first: int) -> None:
    """Lower ends are at most the upper ends."""
    flat = lower.reshape(len(lower), -1), upper.reshape(len(upper), -1)
    block = block_of(flat[0].shape[1], len(lower))
    counts = over_rows(lambda a, b: count_above(flat[0][a:b], flat[1][a:b]), len(lower), block=block)
    crossed = np.concatenate(list(counts))
    if crossed.any():
        image = int(np.argmax(crossed > 0))
        raise ValueError(
            f"band of image {first + image} has lower above upper at {int(crossed[image])} pixels; "
            "swap the arrays, or use pixelbounds.conffusion, which sorts crossed quantiles"
        )


# ---------------------------------------------------------------- bands and intervals


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


def _sizes(images: Any) -> str:
    return "different sizes" if isinstance(images, Ragged) else f"shape {tuple(images.shape[1:])}"


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


def outward(lower: Array, upper: Array, dtype: Any) -> tuple[Array, Array]:
    """Ends rounded to `dtype`, lower down and upper up, so that a stored interval still holds what it held."""
    ends = []
    for x, towards, short in ((lower, -np.inf, np.greater), (upper, np.inf, np.less)):
        rounded = x.astype(dtype)
        wrong = short(rounded.astype(x.dtype), x)
        rounded[wrong] = np.nextafter(rounded[wrong], rounded.dtype.type(towards))
        ends.append(rounded)
    return ends[0], ends[1]
