"""Arrays of any library, read block by block: NumPy, torch, zarr, Dask, and lists of images of different sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from ..kernels import block_of, over_rows
from .ragged import Ragged

Array = np.ndarray
T = TypeVar("T")
_FLOATS = ("float16", "bfloat16", "float32", "float64")

Reader = Callable[[Any, int, int], Array]  # a zarr array, start, stop -> images
READER: ContextVar[Reader | None] = ContextVar("READER", default=None)  # `execution.running` sets it; None: zarr reads


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
