"""Numbers of images: an organ's mean, a volume, a PSNR. Some values per image, (n, q), are images of q values.

A function takes one image (*pixels), and whatever else is known of it, at test time too (a mask, an estimate), and
gives a number or a vector. Images are read a block at a time; the function sees them one by one, in their own library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from .checks import ImageError
from .foreign import as_plain_array
from .library import Array, as_array, differ_in_size, library_of, size_of, to_numpy

Functional = Callable[..., Any]  # image (*pixels), what else is known of it -> a number, or a vector (q,)
_READ_AT_ONCE = 2**26  # bytes of images in files


def functional_values(
    images: Any, function: Functional, *, known: Sequence[Any] = (), sample_axis: int | None = None
) -> Array:
    """Values of a function of every image: (n, *pixels) -> (n, q) float64; of samples (n, m, *pixels) -> (n, m, q).

    known          sequences of n, of which the function of an image is given its own: function(image, *known of it)
    sample_axis    the axis that counts samples, where images are samples; 1 for a list of (m, *pixels)

    >>> functional_values(np.ones((3, 4, 4)), lambda image: image.sum()).tolist()
    [[16.0], [16.0], [16.0]]
    >>> masks = np.arange(16).reshape(1, 4, 4) < np.array([2, 3, 4]).reshape(3, 1, 1)
    >>> functional_values(np.ones((3, 4, 4)), lambda image, mask: [image[mask].sum(), 0.5], known=[masks]).tolist()
    [[2.0, 0.5], [3.0, 0.5], [4.0, 0.5]]
    """
    if not callable(function):
        raise TypeError(f"function is a {type(function).__name__}; give a function of one image, such as numpy.mean")
    images = as_array(images, "images" if sample_axis is None else "samples")
    axes = 2 if differ_in_size(images) else len(images.shape)
    if sample_axis is not None and (
        isinstance(sample_axis, bool) or not isinstance(sample_axis, int) or not 0 <= sample_axis < axes or axes < 2
    ):
        raise ValueError(f"sample_axis is {sample_axis!r}; give the axis that counts samples, 0 to {axes - 1}")
    n = int(images.shape[1] if sample_axis == 0 else images.shape[0])
    for i, x in enumerate(known):
        if len(x) != n:
            raise ValueError(f"known[{i}] holds {len(x)} images, but there are {n}; give one for each image")
    out: list[Array] = []
    for number, image in enumerate(_one_by_one(images, n, sample_axis)):
        more = [x[number] for x in known]
        each = [image] if sample_axis is None else image
        out.append(np.stack([_vector(function(one, *more), number) for one in each]))
        if out[-1].shape != out[0].shape:
            raise ValueError(
                f"function gives {out[-1].shape[1]} values for image {number} and {out[0].shape[1]} for image 0 (of "
                f"{out[-1].shape[0]} and {out[0].shape[0]} samples); give as many for every image"
            )
    values = np.stack(out)
    return values[:, 0] if sample_axis is None else values


def _one_by_one(images: Any, n: int, sample_axis: int | None) -> Iterator[Any]:
    if differ_in_size(images):
        yield from (np.moveaxis(to_numpy(images[i]), (sample_axis or 1) - 1, 0) for i in range(n))
        return
    stored = library_of(images) in ("zarr", "dask")
    step = max(1, _READ_AT_ONCE * n // size_of(images)) if stored else n
    for start in range(0, n, step):
        block: Any = images[:, start : start + step] if sample_axis == 0 else images[start : start + step]
        block = to_numpy(block) if stored else block
        if sample_axis is not None:
            move = block.movedim if library_of(block) == "torch" else partial(np.moveaxis, block)
            block = move(sample_axis, 1)
        yield from block


def _vector(value: Any, image: int) -> Array:
    value = as_plain_array(value, f"what function gives for image {image}")
    found = np.asarray(to_numpy(value) if library_of(value) else value)
    if found.dtype.kind not in "biuf" or found.ndim > 1 or found.size == 0:
        raise TypeError(
            f"function gives a {type(value).__name__} of shape {found.shape} for image {image}; it must give a number, "
            "or a vector of numbers"
        )
    found = found.astype(np.float64).reshape(-1)
    if not np.isfinite(found).all():
        raise ImageError("function gives NaN or infinite values for {image}; see that it is defined for it", image)
    return found
