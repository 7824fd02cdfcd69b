"""What a problem is: y = A x + sigma_0 v with v standard normal, or counts of photons, and a linear A.

A `Problem` is called with images and a seed and returns observations. Its `forward` is A without noise and `adjoint`
is A transposed, exactly: <A x, y> = <x, A' y>, the real part where y is complex. `solve` is the least-squares solution,
of least norm where there are several. The noise of an image depends on the seed and the number of the image alone, so
that observing images one by one, or in any order, gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..images.checks import check_count, check_number
from ..images.library import Array, as_array, library_of, like, to_numpy
from .krylov import conjugate_gradients

Operator = Callable[[Any], Any]  # (n, *pixels) -> (n, *other pixels), linear, image by image; NumPy or torch


@dataclass(frozen=True, eq=False)
class Problem:
    """Images (n, *pixels) to observations: `forward`, then noise of deviation `sigma_0` wherever something is seen.

    >>> from pixelbounds.problems import denoise
    >>> y = denoise(0.5)(np.zeros((2, 8, 8), np.float32), 0)
    >>> y.shape, str(y.dtype)
    ((2, 8, 8), 'float32')
    """

    name: str
    sigma_0: float
    forward: Operator
    adjoint: Operator
    seen: Operator | None = None  # sets entries that are not observed to 0; None: all are
    photons: float | None = None  # that a value of 1 stands for; then the noise is that of counting them

    def __repr__(self) -> str:
        noise = f"sigma_0 {self.sigma_0:g}" if self.photons is None else f"{self.photons:g} photons"
        return f"{self.name}, {noise}"

    def __call__(self, images: Any, rng: int | np.random.Generator, *, ids: Any = None) -> Any:
        """Observations of images (n, *pixels); ids (n,) are the numbers of the images, 0..n-1 by default.

        A Generator gives one seed, so a second call with it gives other noise.
        """
        x = to_numpy(as_array(images, "images"))
        seed = int(rng.integers(2**63)) if isinstance(rng, np.random.Generator) else check_count(rng, "rng", least=0)
        numbers = np.arange(len(x)) if ids is None else np.asarray(ids)
        if numbers.shape != (len(x),) or numbers.dtype.kind not in "iu" or (numbers < 0).any():
            raise ValueError(f"ids must be {len(x)} whole numbers of at least 0, one per image")
        clean = self.forward(x)
        rows = [self._noisy(y, np.random.default_rng([seed, int(i)])) for y, i in zip(clean, numbers, strict=True)]
        return like(np.stack(rows), images)

    def _noisy(self, clean: Array, rng: np.random.Generator) -> Array:
        """One observation with its noise."""
        if self.photons is not None:
            return (rng.poisson(np.maximum(clean, 0) * self.photons) / self.photons).astype(clean.dtype)
        if self.sigma_0 == 0:
            return clean
        real = clean.real.dtype
        noise = rng.standard_normal(clean.shape, real)
        if clean.dtype.kind == "c":
            noise = noise + 1j * rng.standard_normal(clean.shape, real)
        noise *= real.type(self.sigma_0)
        return clean + (noise if self.seen is None else self.seen(noise[None])[0])

    def variance(self, y: Any) -> Any:
        """Variance of the noise of each entry of observations (n, ...), real; of counts as these themselves say it."""
        if self.photons is None:
            return y.real * 0 + self.sigma_0**2
        return y.clip(min=1 / self.photons) / self.photons

    def solve(self, y: Any, *, damping: float = 0.0, steps: int = 200) -> Any:
        """Least squares: the x (n, *pixels) of least |A x - y|^2 + damping^2 |x|^2, of least norm where many are.

        With damping 0 that is the pseudo-inverse, up to `steps` of conjugate gradients: few steps are a damping too.
        """
        if check_number(damping, "damping") < 0:
            raise ValueError(f"damping is {damping:g}; it must be at least 0")
        start = self.adjoint(y)
        square = damping**2
        return conjugate_gradients(lambda x: self.adjoint(self.forward(x)) + square * x, start, steps=steps)


def poisson(problem: Problem, photons: float) -> Problem:
    """The same operator, seen by counting photons: y = N / photons, N Poisson with mean photons * A x.

    >>> from pixelbounds.problems import denoise
    >>> poisson(denoise(0.0), 100)
    denoise, 100 photons
    """
    if check_number(photons, "photons") <= 0:
        raise ValueError(f"photons is {photons:g}; give how many a value of 1 stands for, a positive number")
    if problem.sigma_0:
        raise ValueError(f"{problem} has noise already; give a problem of sigma_0 = 0")
    return replace(problem, photons=float(photons))


# ---------------------------------------------------------------- what operators are made of


def check_deviation(sigma_0: float) -> float:
    """The deviation of the noise."""
    value = check_number(sigma_0, "sigma_0")
    if value < 0:
        raise ValueError(f"sigma_0 is {value:g}; it is the deviation of the noise (not the variance), at least 0")
    return value


def last_axes(x: Any, dims: int) -> tuple[int, ...]:
    """The last `dims` axes, along which pixels are neighbours; what stands between them and n are channels."""
    if x.ndim < dims + 1:
        raise ValueError(
            f"images have shape {tuple(x.shape)}; with {dims} axes of pixels they must be (n, ..., *pixels)"
        )
    return tuple(range(x.ndim - dims, x.ndim))


def constant(value: Array, x: Any) -> Any:
    """An array of numbers in the library, precision and place of `x`; complex ones stay complex."""
    if library_of(x) == "torch":
        import torch

        single = x.dtype in (torch.float32, torch.complex64)
        kind = (torch.complex64 if single else torch.complex128) if value.dtype.kind == "c" else x.real.dtype
        return torch.from_numpy(np.ascontiguousarray(value)).to(x.device, kind)
    kind = np.result_type(x.dtype, np.complex64) if value.dtype.kind == "c" else x.real.dtype
    return value.astype(kind, copy=False)
