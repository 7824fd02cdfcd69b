"""Images of different sizes in one set.

A `Ragged` is a list of arrays, one per image. On disk it is flat: `values`, the pixels of all images one after the
other, and `shapes`, (n, axes), which says where one ends. A zarr group may hold several (truth, lower, upper), each as
a group of these two arrays; an image is read when it is needed.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from .foreign import as_plain_array

Array = np.ndarray
Shapes = Array  # (n, axes) whole numbers
_MOST_AXES = 32
_SETS = 4  # truth, lower, upper, centre


@dataclass(frozen=True, eq=False)
class Ragged:
    """n images of different sizes, one array (*pixels) each; to other code an array of shape (n,).

    >>> images = Ragged([np.zeros((2, 3)), np.ones((4, 4))])
    >>> images
    Ragged of 2 images of 6 to 16 pixels, float64
    >>> images[1].mean(), images[1:].shapes
    (np.float64(1.0), [(4, 4)])
    """

    images: Sequence[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.images, list | tuple | _Flat):
            raise TypeError(f"images are a {type(self.images).__name__}; give a list of arrays, one per image")
        if not len(self.images):
            raise ValueError("a set of images is empty; give at least one")
        if not isinstance(self.images, _Flat):
            object.__setattr__(self, "images", as_plain_array(self.images, "images"))
            others = {type(x).__name__ for x in self.images if not (hasattr(x, "shape") and hasattr(x, "dtype"))}
            if others:
                raise TypeError(f"some images are of type {', '.join(sorted(others))}; give an array for each")
            shapes = [tuple(image.shape) for image in self.images]
            if len({len(shape) for shape in shapes}) > 1 or 0 in map(math.prod, shapes):
                raise ValueError(
                    f"images have shapes such as {shapes[:3]}; they must have as many axes each and hold pixels"
                )

    def __repr__(self) -> str:
        return f"Ragged of {len(self)} images of {self.sizes.min()} to {self.sizes.max()} pixels, {self.dtype}"

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, at: Any) -> Any:
        """One image, or a Ragged of several: a number, a slice, or an array of numbers or of bool."""
        if isinstance(at, int | np.integer):
            image = self.images[int(at)]
            return np.asarray(image if isinstance(image, np.ndarray | _Stored) else image[...])
        if isinstance(at, slice):
            return Ragged(self.images[at])
        chosen = np.arange(len(self))[np.asarray(at)]
        return Ragged(self.images.take(chosen) if isinstance(self.images, _Flat) else [self.images[i] for i in chosen])

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def converted(self, convert: Callable[[Any], Any]) -> Ragged:
        """The same images, whose values a function turns into others where they lie."""
        if isinstance(self.images, _Flat):
            return Ragged(replace(self.images, values=convert(self.images.values)))
        return Ragged([convert(image) for image in self.images])

    def __sub__(self, other: Ragged) -> Ragged:
        return Ragged([a - b for a, b in zip(self, other, strict=True)])

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return (len(self),)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of each image."""
        return [tuple(shape) for shape in self._shapes.tolist()]

    @cached_property
    def sizes(self) -> Array:
        """Pixels of each image, (n,)."""
        return self._shapes.prod(axis=1)

    @cached_property
    def _shapes(self) -> Shapes:
        if isinstance(self.images, _Flat):
            return self.images.shapes
        return np.array([tuple(image.shape) for image in self.images], np.int64).reshape(len(self), -1)

    @property
    def storage(self) -> Sequence[Any]:
        """The arrays in which the images lie."""
        return [self.images.values] if isinstance(self.images, _Flat) else self.images

    @property
    def ndim(self) -> int:
        """One: images are counted, pixels are not."""
        return 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision that holds every image."""
        return np.result_type(*{image.dtype for image in self.images[: 1 if isinstance(self.images, _Flat) else None]})


@dataclass(frozen=True, eq=False)
class _Flat(Sequence[Any]):
    values: Any
    firsts: Array
    shapes: Shapes

    def __len__(self) -> int:
        return len(self.firsts)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return self.take(at)
        return _Stored(self.values, int(self.firsts[at]), tuple(self.shapes[at].tolist()))

    def take(self, at: slice | Array) -> _Flat:
        return _Flat(self.values, self.firsts[at], self.shapes[at])


@dataclass(frozen=True, eq=False, slots=True)
class _Stored:
    values: Any
    first: int
    shape: tuple[int, ...]

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        part = _stretch(self.values, self.first, self.first + math.prod(self.shape))
        return np.array(part, dtype).reshape(self.shape)


_LAST = threading.local()


def _stretch(values: Any, start: int, stop: int) -> Array:
    """Values start..stop. Of chunks, whole ones are read and kept until this thread needs others: images lie in a row,
    and many small ones lie in one chunk.
    """
    chunks = getattr(values, "chunks", None)
    if chunks is None:
        return np.asarray(values[start:stop])
    kept: list[tuple[Any, int, Array]] = getattr(_LAST, "kept", [])
    for source, first, part in kept:
        if source is values and first <= start and stop <= first + len(part):
            return part[start - first : stop - first]
    size = chunks[0] if isinstance(chunks[0], int) else max(chunks[0])  # of zarr, of Dask
    first = start // size * size
    from ..storage.chunks import rows_at

    part = rows_at(values, first, min(values.shape[0], -(-stop // size) * size))
    _LAST.kept = [(values, first, part), *(x for x in kept if x[0] is not values)][:_SETS]
    return part[start - first : stop - first]


def flat_images(values: Any, shapes: Any) -> Ragged:
    """Images that lie one after the other: values (pixels of all images,), shapes (n, axes) -> Ragged.

    >>> flat_images(np.arange(10.0), [(2, 3), (1, 4)])[1]
    array([[6., 7., 8., 9.]])
    """
    shapes = np.asarray(shapes)
    if shapes.ndim != 2 or shapes.dtype.kind not in "iu" or not shapes.size or (shapes < 1).any():
        raise ValueError(f"shapes have shape {shapes.shape} and dtype {shapes.dtype}; give whole numbers (n, axes)")
    total = sum(math.prod(shape) for shape in shapes.tolist())  # in whole numbers that do not overflow
    if tuple(values.shape) != (total,):
        raise ValueError(f"values have shape {tuple(values.shape)}, but the shapes make {total} pixels")
    last = np.cumsum(shapes.astype(np.int64).prod(axis=1))
    return Ragged(_Flat(values, np.append(0, last[:-1]), shapes.astype(np.int64)))


def write_ragged(path: str | os.PathLike[str], parts: Mapping[str, Any]) -> None:
    """Write sets of images, such as {"lower": ..., "upper": ...}, into a new zarr store; NAME.part until it is whole.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_ragged(f"{folder}/set.zarr", {"truth": [np.zeros((2, 3)), np.ones((4, 4))]})
    ...     read_ragged(f"{folder}/set.zarr")
    {'truth': Ragged of 2 images of 6 to 16 pixels, float64}
    """
    from ..storage.store import DONE, resumable

    sets = {name: x if isinstance(x, Ragged) else Ragged(list(x)) for name, x in parts.items()}
    arrays = {name: (x._shapes, x.dtype) for name, x in sets.items()}
    with resumable(Path(path), arrays, request={"written": uuid4().hex}, anew=True) as store:
        for block in range(len(store)):
            start, stop = store.cut(block)
            images = {name: [x[i] for i in range(start, stop)] for name, x in sets.items()}
            store.write(block, images, np.full(stop - start, DONE, np.uint8))


def read_ragged(path: str | os.PathLike[str], watch: Callable[[Any], Any] = lambda values: values) -> dict[str, Ragged]:
    """The sets of images in a store that `write_ragged` wrote, by name; pixels are read when they are needed.

    watch          what every array of pixels goes through before it is used
    """
    import zarr

    if not Path(path).is_dir():
        raise FileNotFoundError(f"there is no store at {str(path)!r}")
    root = zarr.open_group(path, mode="r")
    sets = {name: group for name, group in sorted(root.groups()) if {"values", "shapes"} <= set(group.array_keys())}
    if not sets:
        raise ValueError(f"{str(path)!r} holds no images of different sizes; each set is a group of values and shapes")
    out = {}
    for name, group in sets.items():
        values: Any = watch(group["values"])
        if values.nchunks_initialized < values.nchunks:
            missing = values.nchunks - values.nchunks_initialized
            raise ValueError(
                f"{path}/{name}: {missing} of {values.nchunks} chunks of values are not there; write it again"
            )
        shapes: Any = watch(group["shapes"])
        if shapes.ndim != 2 or shapes.shape[0] > values.shape[0] or shapes.shape[1] > _MOST_AXES:
            raise ValueError(f"{path}/{name}: shapes of {shapes.shape} for {values.shape[0]} pixels; write it again")
        out[name] = flat_images(values, shapes[...])
    return out
