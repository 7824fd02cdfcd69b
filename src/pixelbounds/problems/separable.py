"""Problems that act pixel by pixel or axis by axis: denoise, inpaint, super-resolve, deblur.

What acts along axes is a small matrix for each, so that its adjoint is the transposed matrix, exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ..images.checks import check_count, check_number
from ..images.library import Array
from .problem import Problem, check_deviation, constant, last_axes

Matrix = Callable[[int], Array]  # size of an axis -> matrix (out, size)


def denoise(sigma_0: float) -> Problem:
    """The image plus noise of deviation `sigma_0` (a deviation, never a variance)."""
    return Problem("denoise", check_deviation(sigma_0), lambda x: x, lambda y: y)


def inpaint(missing: Any, sigma_0: float = 0.0, *, dims: int = 2, seed: int = 0) -> Problem:
    """Some pixels are missing, observed as exactly 0: a boolean mask that is True where they are, or their share.

    A share is drawn once per shape of image from `seed`, all channels alike, so every image misses the same pixels.
    `dims` is the number of axes of pixels: 1 for signals, 2 for images, 3 for volumes.
    """
    dims = check_count(dims, "dims")
    sigma_0 = check_deviation(sigma_0)
    if isinstance(missing, int | float | np.number) and not isinstance(missing, bool):
        share = check_number(missing, "missing")
        if not 0 <= share < 1:
            raise ValueError(f"missing is {share:g}; a share of missing pixels lies in [0, 1)")
        fixed, seed = None, check_count(seed, "seed", least=0)
    else:
        fixed = np.asarray(missing)
        if fixed.dtype != bool or fixed.ndim < 1 or fixed.all():
            raise ValueError(f"missing is {fixed.dtype} of shape {fixed.shape}; give a mask that is True where missing")

    def apply(x: Any) -> Any:
        if fixed is None:
            shape = tuple(x.shape)[last_axes(x, dims)[0] :]
            order = np.random.default_rng(seed).permutation(int(np.prod(shape)))
            mask = (order < round(share * order.size)).reshape(shape)
        else:
            mask = fixed
            if tuple(x.shape)[x.ndim - mask.ndim :] != mask.shape or x.ndim <= mask.ndim:
                raise ValueError(
                    f"the mask has shape {mask.shape}, images have shape {tuple(x.shape)}; their ends must agree"
                )
        return x * constant((~mask).astype(np.float64), x)

    return Problem("inpaint", sigma_0, apply, apply, apply)


def super_resolve(factor: int, sigma_0: float = 0.0, *, dims: int = 2) -> Problem:
    """Each observed pixel is the mean of a block of factor x factor pixels; sizes must be multiples of the factor."""
    factor = check_count(factor, "factor")
    dims = check_count(dims, "dims")

    def means(size: int) -> Array:
        return np.kron(np.eye(size // factor), np.full((1, factor), 1 / factor))

    def forward(x: Any) -> Any:
        if any(x.shape[axis] % factor for axis in last_axes(x, dims)):
            raise ValueError(f"images have shape {tuple(x.shape)}; crop or pad them to multiples of {factor}")
        return along_axes(x, means, dims)

    def adjoint(y: Any) -> Any:
        return along_axes(y, lambda size: means(size * factor).T, dims)

    return Problem(f"super-resolve {factor}", check_deviation(sigma_0), forward, adjoint)


_MOST_WIDTH = 1024  # of a Gaussian kernel, in pixels


def deblur(width: float, sigma_0: float = 0.0, *, dims: int = 2) -> Problem:
    """A Gaussian kernel of deviation `width` pixels, cut at 4 widths; images go on as their mirror images.

    With that continuation, and a symmetric kernel, the operator is its own adjoint.
    """
    dims = check_count(dims, "dims")
    if check_number(width, "width") <= 0:
        raise ValueError(f"width is {width}; the deviation of the kernel must be positive, in pixels")
    if width > _MOST_WIDTH:
        raise ValueError(f"width is {width}; a kernel of a deviation of {_MOST_WIDTH} pixels is the widest")

    def forward(x: Any) -> Any:
        return along_axes(x, lambda size: _blur_matrix(size, float(width)), dims)

    def adjoint(y: Any) -> Any:
        return along_axes(y, lambda size: _blur_matrix(size, float(width)).T, dims)

    return Problem(f"deblur {width:g}", check_deviation(sigma_0), forward, adjoint)


@lru_cache(maxsize=16)
def _blur_matrix(size: int, width: float) -> Array:
    """A Gaussian blur of one axis with mirrored ends, (size, size)."""
    from scipy.ndimage import gaussian_filter1d

    return np.asarray(gaussian_filter1d(np.eye(size), width, axis=0, mode="reflect", truncate=4.0))


def along_axes(x: Any, matrix: Matrix, dims: int) -> Any:
    """Apply a matrix to each of the last `dims` axes, image by image: no bit depends on what else is in the batch."""
    axes = [axis - x.ndim for axis in last_axes(x, dims)]
    flat = x.ndim == 2
    x = x[:, None] if flat else x
    for axis in axes:
        m = constant(matrix(int(x.shape[axis])), x)
        x = (x.swapaxes(axis, -1) @ m.swapaxes(0, 1)).swapaxes(axis, -1)
    return x[:, 0] if flat else x
