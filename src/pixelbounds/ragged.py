"""Images of different sizes in one set.

A `Ragged` is a list of arrays, one per image. On disk it is flat: `values`, the pixels of all images one after the
other, and `shapes`, (n, axes), which says where one ends. A zarr group may hold several (truth, lower, upper), each as
a group of these two arrays; an image is read when it is needed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
_CHUNK = 2**16  # least pixels per chunk: an image is read alone, so chunks should not hold many


@dataclass(frozen=True, eq=False)
class Ragged:
    """n images of different sizes, one array (*pixels) each; to other code an array of shape (n,).

    >>> Ragged([np.zeros((2, 3)), np.zeros((4, 4))])
    Ragged of 2 images of 6 to 16 pixels, float64
    """

    images: Sequence[Any]

    def __post_init__(self) -> None:
        if not len(self.images):
            raise ValueError("a set of images is empty; give at least one")
        if len({len(shape) for shape in self.shapes}) > 1 or min(self.sizes) == 0:
            raise ValueError(
                f"images have shapes such as {self.shapes[:3]}; they must have as many axes each and hold pixels"
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
        return Ragged([self.images[i] for i in np.arange(len(self))[np.asarray(at)]])

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def __sub__(self, other: Ragged) -> Ragged:
        return Ragged([a - b for a, b in zip(self, other, strict=True)])

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,)."""
        return (len(self),)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of each image."""
        return [tuple(int(x) for x in image.shape) for image in self.images]

    @property
    def sizes(self) -> Array:
        """Pixels of each image, (n,)."""
        return np.array([math.prod(shape) for shape in self.shapes])

    @property
    def ndim(self) -> int:
        """One: images are counted, pixels are not."""
        return 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision that holds every image."""
        return np.result_type(*{image.dtype for image in self.images})


@dataclass(frozen=True, eq=False, slots=True)
class _Stored:
    """One image within flat storage."""

    values: Any
    first: int
    shape: tuple[int, ...]

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        part = np.asarray(self.values[self.first : self.first + math.prod(self.shape)])
        return np.asarray(part, dtype).reshape(self.shape)


def flat_images(values: Any, shapes: Any) -> Ragged:
    """Images that lie one after the other: values (pixels of all images,), shapes (n, axes) -> Ragged.

    >>> flat_images(np.arange(10.0), [(2, 3), (1, 4)])[1]
    array([[6., 7., 8., 9.]])
    """
    shapes = np.asarray(shapes)
    if shapes.ndim != 2 or shapes.dtype.kind not in "iu" or not shapes.size or (shapes < 1).any():
        raise ValueError(f"shapes have shape {shapes.shape} and dtype {shapes.dtype}; give whole numbers (n, axes)")
    last = np.cumsum(shapes.prod(axis=1))
    if tuple(values.shape) != (int(last[-1]),):
        raise ValueError(f"values have shape {tuple(values.shape)}, but the shapes make {int(last[-1])} pixels")
    firsts = np.append(0, last[:-1]).tolist()
    return Ragged([_Stored(values, first, tuple(shape)) for first, shape in zip(firsts, shapes.tolist(), strict=True)])


# ---------------------------------------------------------------- stores


def write_ragged(path: str | os.PathLike[str], parts: Mapping[str, Any]) -> None:
    """Write sets of images, such as {"lower": ..., "upper": ...}, into a new zarr store; NAME.part until it is done."""
    import zarr

    path = Path(path)
    aside = path.with_name(f"{path.name}.part")
    if path.exists() or aside.exists():
        raise FileExistsError(f"{path if path.exists() else aside} exists; remove it, or choose another name")
    root = zarr.open_group(aside, mode="w")
    for name, images in parts.items():
        ragged = images if isinstance(images, Ragged) else Ragged(list(images))
        group = root.create_group(name)
        group.create_array("shapes", data=np.array(ragged.shapes, np.int64))
        total = int(ragged.sizes.sum())
        chunk = min(total, max(_CHUNK, total // len(ragged)))
        values = group.create_array("values", shape=(total,), chunks=(chunk,), dtype=ragged.dtype, fill_value=np.nan)
        at = 0
        for image in ragged:
            values[at : at + image.size] = image.reshape(-1)
            at += image.size
    aside.rename(path)


def read_ragged(path: str | os.PathLike[str]) -> dict[str, Ragged]:
    """The sets of images in a store that `write_ragged` wrote, by name; pixels are read when they are needed."""
    import zarr

    if not Path(path).is_dir():
        raise FileNotFoundError(f"there is no store at {str(path)!r}")
    root = zarr.open_group(path, mode="r")
    found = {name: group for name, group in sorted(root.groups()) if {"values", "shapes"} <= set(group.array_keys())}
    if not found:
        raise ValueError(f"{str(path)!r} holds no images of different sizes; each set is a group of values and shapes")
    out = {}
    for name, group in found.items():
        values: Any = group["values"]
        if values.nchunks_initialized < values.nchunks:
            missing = values.nchunks - values.nchunks_initialized
            raise ValueError(
                f"{path}/{name}: {missing} of {values.nchunks} chunks of values are not there; write it again"
            )
        shapes: Any = group["shapes"]
        out[name] = flat_images(values, shapes[...])
    return out
