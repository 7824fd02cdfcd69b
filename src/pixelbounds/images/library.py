"""Arrays of any library, of one size or many, and how passes over their blocks run.

A set of images is a NumPy, torch, zarr or Dask array (n, *pixels), or a `Ragged` where images differ in size. What
follows from the kind is decided here: elsewhere images are read as blocks that are NumPy arrays of one shape each.

A pass is a function of a range of images whose results come back in order; how it is cut changes no bit. A `Runner`
runs passes: in threads of this process, or however `pixelbounds.execution.running` says. The functions that users call
ask for the one in force (`current_runner`) and hand it on.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from .foreign import as_plain_array, refuse_masked
from .ragged import Ragged

Array = np.ndarray
T = TypeVar("T")
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_AT_ONCE = 2**26  # bytes of 8-bit images that are converted when they are asked for
_THREADS = max(1, min(8, os.cpu_count() or 1))


def library_of(x: Any) -> str:
    """Name of the library an array belongs to: numpy, torch, zarr, dask, derived (ours), or "" for anything else."""
    if isinstance(x, Derived):
        return "derived"
    name = type(x).__module__.split(".")[0]
    return name if name in ("numpy", "torch", "zarr", "dask") and hasattr(x, "shape") else ""


class Derived:
    """What is made of images in files, a few at a time, whenever it is read: (n, *pixels) -> (n, *pixels)."""

    def __init__(self, images: Any, of: Callable[[Array], Any], dtype: Any) -> None:
        self.images = images
        self.of = of
        self.dtype = np.dtype(dtype)
        self.shape = tuple(int(x) for x in images.shape)
        self.ndim = len(self.shape)

    @property
    def chunksize(self) -> tuple[int, ...]:
        """Images that are best read together, as a Dask array says it."""
        from ..storage.chunks import chunk_rows

        return chunk_rows(self.images), *self.shape[1:]

    def __getitem__(self, rows: slice) -> Array:
        start, stop, step = rows.indices(self.shape[0])
        return np.asarray(self.of(rows_of(self.images, start, stop)), self.dtype)[::step]


def as_array(x: Any, name: str) -> Any:
    """`x` itself where it is an array of a known library, else the NumPy array made of it; it must be floating.

    A list of arrays of different shapes becomes a `Ragged`. What comes from elsewhere goes through `as_plain_array`.
    """
    if not is_plain(x):
        x = as_plain_array(x, name)
    if isinstance(x, list | tuple) and len({tuple(np.shape(image)) for image in x if library_of(image)}) > 1:
        images = [as_array(image, f"{name}[{i}]") for i, image in enumerate(x)]
        return Ragged([image if library_of(image) == "zarr" else to_numpy(image) for image in images])
    if not library_of(x) and not isinstance(x, Ragged):
        try:
            x = np.asarray(x)
        except (ValueError, TypeError) as error:
            order = ": give the truth first" if hasattr(x, "lower") else ""
            raise TypeError(
                f"{name} is a {type(x).__name__} that does not form an array{order}; "
                "give a NumPy, torch, zarr or Dask array, or a list of arrays where images differ in size"
            ) from error
    if library_of(x) == "torch":
        x = x.detach()
    if str(x.dtype).removeprefix("torch.") not in _FLOATS:
        raise TypeError(f"{name} {_not_floating(x, name)}")
    if x.ndim < 1 or math.prod(x.shape) == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must hold at least one image of at least one pixel")
    return x


def _not_floating(x: Any, name: str) -> str:
    """The error for images of another dtype: 8-bit ones have a scale of their own, other whole numbers have none."""
    if x.dtype == object:
        return f"is no array of numbers; give images (n, *pixels), of {', '.join(_FLOATS)}, and the truth first"
    kinds = f"has dtype {x.dtype}; images are {', '.join(_FLOATS)}, and 8-bit truth spans the limits"
    scale = " / 255" if "uint8" in str(x.dtype) else ", and limits=(least, most) of its scale"
    return f"{kinds}: give {name}.astype('float32'){scale * ('int' in str(x.dtype))}"


def is_plain(x: Any) -> bool:
    """Whether it is an array of NumPy's own, or of zarr, of numbers in this machine's byte order."""
    known = type(x) in (np.ndarray, np.memmap) or library_of(x) == "zarr"
    return known and x.dtype.isnative and x.dtype != object


def rescale_uint8(images: Any, limits: tuple[float, float], name: str = "truth") -> Any:
    """8-bit images as float32 between the limits, 0 the least and 255 the greatest value; masks (bool) as 0 and 1.

    Many of them, or those in files, are converted as they are read.

    >>> rescale_uint8(np.array([[0, 51, 255]], np.uint8), (0.0, 1.0))
    array([[0. , 0.2, 1. ]], dtype=float32)
    """
    images = images if is_plain(images) else as_plain_array(images, "truth")
    if isinstance(images, Ragged):
        return images.converted(lambda x: rescale_uint8(x, limits))
    if isinstance(images, list | tuple):
        return [rescale_uint8(image, limits) if library_of(image) else image for image in images]
    dtype = str(getattr(images, "dtype", "")).removeprefix("torch.")
    if dtype not in ("uint8", "bool") or not library_of(images):
        return images
    convert: Callable[[Array], Array] = partial(np.asarray, dtype=np.float32)
    if dtype == "uint8":
        if library_of(images) in ("numpy", "torch") and images.max() == 1:
            raise ValueError(f"{name} has 8 bits and no value but 0 and 1: give a mask as bool, {name} > 0")
        if not all(math.isfinite(limit) for limit in limits):
            raise ValueError(
                f"8-bit images span the limits, and these are {limits[0]:g} and {limits[1]:g}; set limits, for example "
                "(0, 255), or convert the images to float32"
            )
        convert = partial(_between, np.float32(limits[0]), np.float32(limits[1]))
    if not in_file(images) and 4 * math.prod(images.shape) <= _AT_ONCE:
        return like(convert(to_numpy(images)), images)
    return Derived(images, convert, np.float32)


def _between(least: Any, most: Any, x: Array) -> Array:
    return np.asarray(np.clip(least + (x / np.float32(255)) * (most - least), least, most), np.float32)


def as_images(x: Any, name: str) -> Any:
    """Images of any dtype: an array as it is, a list of images as one, or a `Ragged` where they differ in size."""
    x = as_plain_array(x, name)
    if isinstance(x, list | tuple) and x and all(library_of(image) for image in x):
        images = [to_numpy(image) for image in x]
        return Ragged(images) if len({image.shape for image in images}) > 1 else np.stack(images)
    return x


def to_numpy(x: Any) -> Array:
    """The NumPy array with the values of any supported array; half precision becomes single."""
    library = library_of(x)
    if library == "torch":
        x = x.detach()
        x = (x.float() if "float16" in str(x.dtype) else x).cpu().numpy()
    elif library == "dask":
        x = x.compute()
    if not is_plain(x):
        refuse_masked(x, "an array")
    out = np.asarray(x[...] if library == "zarr" else x[:] if library == "derived" else x)
    if not out.dtype.isnative:
        out = out.astype(out.dtype.newbyteorder("="))
    return out.astype(np.float32) if out.dtype.itemsize == 2 and out.dtype.kind not in "iu" else out


def like(result: Any, template: Any) -> Any:
    """`result` as the kind of set that `template` is: a torch tensor on its device, a Ragged, else NumPy."""
    if isinstance(template, Ragged):
        return Ragged(result)
    if library_of(template) != "torch":
        return result
    import torch

    return torch.from_numpy(np.ascontiguousarray(result)).to(template.device)


def differ_in_size(images: Any) -> bool:
    """Whether the images of a set may differ in size."""
    return isinstance(images, Ragged)


def in_memory(images: Any) -> bool:
    """Whether all images are NumPy arrays."""
    if isinstance(images, Ragged):
        return all(library_of(image) == "numpy" for image in images.images)
    return library_of(images) == "numpy"


def in_file(x: Any) -> bool:
    """Whether a set of images lies in files, or is lazy, or some of its images are."""
    if isinstance(x, Ragged):
        return any(in_file(image) for image in x.storage)
    if library_of(x) == "zarr":
        return type(x.store).__name__ != "MemoryStore"
    return library_of(x) in ("dask", "derived") or isinstance(x, np.memmap)


def size_of(x: Any) -> int:
    """Bytes of an array."""
    return math.prod(x.shape) * itemsize(x)


def itemsize(x: Any) -> int:
    """Bytes of a value."""
    return int(x.element_size() if library_of(x) == "torch" else x.dtype.itemsize)


def sizes_of(images: Any) -> Array:
    """Pixels of each image: (n, *pixels) -> (n,)."""
    if isinstance(images, Ragged):
        return images.sizes
    return np.full(int(images.shape[0]), math.prod(int(x) for x in images.shape[1:]))


def alike(images: Any, numbers: Sequence[int] | Array) -> list[Any]:
    """Numbers of images in runs that form one array each: all of them, or one by one where images differ in size."""
    return [numbers[i : i + 1] for i in range(len(numbers))] if isinstance(images, Ragged) else [numbers]


def rows_of(x: Any, start: int, stop: int) -> Array:
    """Images start..stop, of one size, as a contiguous NumPy array: (stop - start, *pixels)."""
    if isinstance(x, Ragged):
        return np.stack([to_numpy(x[i]) for i in range(start, stop)])
    if library_of(x) == "zarr" or isinstance(x, np.memmap):
        from ..storage.chunks import rows_at

        return np.ascontiguousarray(to_numpy(rows_at(x, start, stop)))
    return np.ascontiguousarray(to_numpy(x[start:stop]))


def chosen_of(x: Any, images: Array) -> Any:
    """Some images (ascending) of a set, those of files in memory, read in as few pieces as can be; None of None."""
    if x is None or isinstance(x, Ragged) or in_memory(x):
        return None if x is None else x[images]
    runs = np.split(images, np.flatnonzero(np.diff(images) > 1) + 1)
    return np.concatenate([rows_of(x, int(run[0]), int(run[-1]) + 1) for run in runs])


def places_for(images: Any, dtype: Any) -> Any:
    """Where results, one image each, can be put by slices: an array of the shape of the set, or a list."""
    return [None] * len(images) if isinstance(images, Ragged) else np.empty(tuple(images.shape), dtype)


def joined(sets: Sequence[Any]) -> Any:
    """The images of several sets as one: an array where all have one size."""
    if len({tuple(x.shape[1:]) for x in sets}) == 1 and not any(isinstance(x, Ragged) for x in sets):
        return np.concatenate([to_numpy(x) for x in sets])
    return Ragged(list(chain.from_iterable(x if isinstance(x, Ragged) else to_numpy(x) for x in sets)))


def singly(images: Any) -> Ragged:
    """Images of one size as a list of images."""
    return images if isinstance(images, Ragged) else Ragged(list(to_numpy(images)))


def channel_axis(pixels: Sequence[int]) -> int | None:
    """The axis of an image of this shape that holds channels: of three axes or more, the last or the first of 2 to 4.

    >>> channel_axis((64, 64, 3)), channel_axis((3, 64, 64)), channel_axis((64, 64)), channel_axis((90, 64, 64))
    (2, 0, None, None)
    """
    ends = [axis for axis in (len(pixels) - 1, 0) if len(pixels) > 2 and 2 <= pixels[axis] <= 4]
    return min(ends, key=lambda axis: pixels[axis]) if ends else None


def channels_first(x: Array, before: int = 0) -> Array:
    """Images as they are drawn: channels in front of rows and columns, behind so many other axes."""
    last = x.ndim - 1 - before
    return np.moveaxis(x, -1, before) if channel_axis(x.shape[before:]) == last else x


def spatial_axes(images: Any) -> list[int]:
    """Axes along which neighbours mean something: (n, *pixels); an axis of at most 4 holds channels."""
    return [axis for axis in range(1, images.ndim) if images.shape[axis] > 4]


class Runner:
    """Runs passes over images in threads of this process.

    `table_bytes` is what a table of losses may take in memory; a larger one goes to a file in the folder `scratch`.
    """

    table_bytes: int = 2**30
    scratch: Path | None = None

    def over(self, function: Callable[[int, int], T], rows: int, block: int, reads: Sequence[Any] = ()) -> Iterator[T]:
        """Results of `function(start, stop)` over blocks of rows, in order.

        The function must depend on nothing but its rows of the arrays that it `reads`, and return what it found: it may
        run in another process.
        """
        return in_threads(function, rows, block)


_RUNNER: ContextVar[Runner] = ContextVar("_RUNNER", default=Runner())  # noqa: B039 - holds no state


def current_runner() -> Runner:
    """What runs passes now; asked by the functions that users call, and handed on from there."""
    return _RUNNER.get()


def set_runner(runner: Runner) -> Callable[[], None]:
    """Let a runner be the current one, until what is returned is called."""
    token = _RUNNER.set(runner)
    return lambda: _RUNNER.reset(token)


def over_images(
    function: Callable[[int, int], T], images: Any, runner: Runner, reads: Sequence[Any] = ()
) -> Iterator[T]:
    """`function(start, stop)` over blocks of images of one size, in order."""
    n = int(images.shape[0])
    block = block_of(int(sizes_of(images).mean()), n)
    reads = [x for x in reads if library_of(x) or differ_in_size(x)]

    def work(start: int, stop: int) -> list[T]:
        return [function(run[0], run[-1] + 1) for run in alike(images, range(start, stop))]

    return chain.from_iterable(runner.over(work, n, block, reads))


def in_threads(function: Callable[[int, int], T], rows: int, block: int) -> Iterator[T]:
    """Results of `function(start, stop)` over blocks of rows, in order, in threads of this process."""
    cuts = cut_rows(rows, block)
    if len(cuts) < 2 or _THREADS < 2:
        yield from (function(*cut) for cut in cuts)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from pool.map(lambda cut: function(*cut), cuts)


def cut_rows(rows: int, block: int) -> list[tuple[int, int]]:
    """Blocks of rows, (start, stop) each."""
    return [(start, min(rows, start + block)) for start in range(0, rows, max(1, block))]


def block_of(row_size: int, rows: int) -> int:
    """Rows per block: about a quarter of a million entries, enough blocks to feed every thread; little data is one."""
    if rows * row_size <= 2**15:
        return max(1, rows)
    return max(1, min(2**18 // max(1, row_size), -(-rows // _THREADS)))
