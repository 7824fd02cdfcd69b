"""Observation processes: y = A x + sigma_0 v with v standard normal, a linear A and a noise deviation sigma_0.

A `Problem` is called with images and a seed and returns observations. Its `forward` is A without noise and `adjoint`
is A transposed, which a sampler of the user's own may need: <A x, y> = <x, A' y>. The noise of an image depends on the
seed and the number of the image alone, so that observing images one by one, or in any order, gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .images.checks import check_count, check_number
from .images.library import Array, as_array, to_numpy

Operator = Callable[[Array], Array]  # (n, *pixels) -> (n, *other pixels), linear, image by image


@dataclass(frozen=True, eq=False)
class Problem:
    """Images (n, *pixels) to observations: `forward`, then noise of deviation `sigma_0` wherever something is seen.

    >>> y = denoise(0.5)(np.zeros((2, 8, 8), np.float32), 0)
    >>> y.shape, str(y.dtype)
    ((2, 8, 8), 'float32')
    """

    name: str
    sigma_0: float
    forward: Operator
    adjoint: Operator
    seen: Operator | None = None  # sets entries that are not observed to 0; None: all are

    def __repr__(self) -> str:
        return f"{self.name}, sigma_0 {self.sigma_0:g}"

    def __call__(self, images: Any, rng: int | np.random.Generator, *, ids: Any = None) -> Array:
        """Observations of images (n, *pixels); ids (n,) are the numbers of the images, 0..n-1 unless told.

        A Generator gives one seed, so a second call with it gives other noise.
        """
        x = to_numpy(as_array(images, "images"))
        seed = int(rng.integers(2**63)) if isinstance(rng, np.random.Generator) else check_count(rng, "rng", least=0)
        numbers = np.arange(len(x)) if ids is None else np.asarray(ids)
        if numbers.shape != (len(x),) or numbers.dtype.kind not in "iu" or (numbers < 0).any():
            raise ValueError(f"ids must be {len(x)} whole numbers of at least 0, one per image")
        clean = self.forward(x)
        if self.sigma_0 == 0:
            return clean
        noise = np.stack([_noise(seed, int(number), clean.shape[1:], clean.dtype) for number in numbers])
        noise *= clean.dtype.type(self.sigma_0)
        return clean + (noise if self.seen is None else self.seen(noise))


def _noise(seed: int, number: int, shape: tuple[int, ...], dtype: Any) -> Array:
    return np.random.default_rng([seed, number]).standard_normal(shape, dtype)


def _deviation(sigma_0: float) -> float:
    value = check_number(sigma_0, "sigma_0")
    if value < 0:
        raise ValueError(f"sigma_0 is {value:g}; it is the deviation of the noise (not the variance), at least 0")
    return value


def _axes(x: Array, dims: int) -> tuple[int, ...]:
    """The last `dims` axes, along which pixels are neighbours; what stands between them and n are channels."""
    if x.ndim < dims + 1:
        raise ValueError(f"images have shape {x.shape}; with {dims} axes of pixels they must be (n, ..., *pixels)")
    return tuple(range(x.ndim - dims, x.ndim))


def denoise(sigma_0: float) -> Problem:
    """The image plus noise of deviation `sigma_0` (a deviation, never a variance)."""
    return Problem("denoise", _deviation(sigma_0), lambda x: x, lambda y: y)


def inpaint(missing: Any, sigma_0: float = 0.0, *, dims: int = 2, seed: int = 0) -> Problem:
    """Some pixels are missing, observed as exactly 0: a boolean mask that is True where they are, or their share.

    A share is drawn once per shape of image from `seed`, all channels alike, so every image misses the same pixels.
    `dims` is the number of axes of pixels: 1 for signals, 2 for images, 3 for volumes.
    """
    dims, sigma_0 = check_count(dims, "dims"), _deviation(sigma_0)
    if isinstance(missing, int | float | np.number) and not isinstance(missing, bool):
        share = check_number(missing, "missing")
        if not 0 <= share < 1:
            raise ValueError(f"missing is {share:g}; a share of missing pixels lies in [0, 1)")
        fixed, seed = None, check_count(seed, "seed", least=0)
    else:
        fixed = np.asarray(missing)
        if fixed.dtype != bool or fixed.ndim < 1 or fixed.all():
            raise ValueError(f"missing is {fixed.dtype} of shape {fixed.shape}; give a mask that is True where missing")

    def apply(x: Array) -> Array:
        if fixed is None:
            shape = x.shape[_axes(x, dims)[0] :]
            order = np.random.default_rng(seed).permutation(int(np.prod(shape)))
            mask = (order < round(share * order.size)).reshape(shape)
        else:
            mask = fixed
            if x.shape[x.ndim - mask.ndim :] != mask.shape or x.ndim <= mask.ndim:
                raise ValueError(f"the mask has shape {mask.shape}, images have shape {x.shape}; their ends must agree")
        return np.where(mask, x.dtype.type(0), x)

    return Problem("inpaint", sigma_0, apply, apply, apply)


def super_resolve(factor: int, sigma_0: float = 0.0, *, dims: int = 2) -> Problem:
    """Each observed pixel is the mean of a block of factor x factor pixels; sizes must be multiples of the factor."""
    factor, dims = check_count(factor, "factor"), check_count(dims, "dims")

    def forward(x: Array) -> Array:
        axes = _axes(x, dims)
        blocks: list[int] = list(x.shape[: axes[0]])
        for axis in axes:
            if x.shape[axis] % factor:
                raise ValueError(f"images have shape {x.shape}; crop or pad them to multiples of {factor}")
            blocks += [x.shape[axis] // factor, factor]
        means = tuple(range(axes[0] + 1, axes[0] + 2 * dims, 2))
        return x.reshape(blocks).mean(axis=means, dtype=np.float64).astype(x.dtype)

    def adjoint(y: Array) -> Array:
        out = y / y.dtype.type(factor**dims)
        for axis in _axes(y, dims):
            out = np.repeat(out, factor, axis=axis)
        return out

    return Problem(f"super-resolve {factor}", _deviation(sigma_0), forward, adjoint)


def deblur(width: float, sigma_0: float = 0.0, *, dims: int = 2) -> Problem:
    """A Gaussian kernel of deviation `width` pixels, cut at 4 widths; images go on as their mirror images.

    With that continuation, and a symmetric kernel, the operator is its own adjoint.
    """
    dims = check_count(dims, "dims")
    if check_number(width, "width") <= 0:
        raise ValueError(f"width is {width}; the deviation of the kernel must be positive, in pixels")

    def apply(x: Array) -> Array:
        from scipy.ndimage import gaussian_filter1d

        for axis in _axes(x, dims):
            x = gaussian_filter1d(x, width, axis=axis, mode="reflect", truncate=4.0)
        return x

    return Problem(f"deblur {width:g}", _deviation(sigma_0), apply, apply)
