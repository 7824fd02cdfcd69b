"""MRI: some Fourier coefficients of the image, as each of several coils sees it. Observations are complex.

y_c = M F (s_c x) for a real image x, the sensitivity s_c of coil c (complex, smooth, sum |s_c|^2 = 1), the unitary
Fourier transform F and a mask M of the lines that were measured. The adjoint, for the real part of the inner product,
is x = Re sum_c conj(s_c) F' M y_c.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..images.checks import check_count, check_number
from ..images.library import Array, library_of
from .problem import Problem, check_deviation, constant, last_axes


def mri(acceleration: float, sigma_0: float = 0.0, *, coils: int = 4, centre: float = 0.08, seed: int = 0) -> Problem:
    """Every `acceleration`-th line of k-space on average, drawn from `seed`, and the `centre` share of lines whole.

    Observations are complex, (n, ..., coils, h, w), exactly 0 where nothing was measured; the noise has deviation
    `sigma_0` in the real and in the imaginary part. One coil sees everything alike.
    """
    coils = check_count(coils, "coils")
    seed = check_count(seed, "seed", least=0)
    if check_number(acceleration, "acceleration") < 1:
        raise ValueError(f"acceleration is {acceleration:g}; at 1 every line is measured, at 4 one in four")
    if not 0 <= check_number(centre, "centre") <= 1:
        raise ValueError(f"centre is {centre:g}; give the share of lines in the middle that are all measured")

    def masked(y: Any) -> Any:
        return y * constant(_lines(int(y.shape[-2]), acceleration, centre, seed)[:, None], y)

    def forward(x: Any) -> Any:
        last_axes(x, 2)
        s = constant(_sensitivity(coils, int(x.shape[-2]), int(x.shape[-1])), x)
        return masked(_transforms(x).fft2(x[..., None, :, :] * s, norm="ortho"))

    def adjoint(y: Any) -> Any:
        last_axes(y, 3)
        if int(y.shape[-3]) != coils:
            raise ValueError(f"observations have shape {tuple(y.shape)}; this problem takes (n, ..., {coils}, h, w)")
        s = constant(_sensitivity(coils, int(y.shape[-2]), int(y.shape[-1])), y)
        return (s.conj() * _transforms(y).ifft2(masked(y), norm="ortho")).sum(-3).real

    name = f"mri {acceleration:g} with {coils} coil{'s' * (coils > 1)}"
    return Problem(name, check_deviation(sigma_0), forward, adjoint, masked)


def _transforms(x: Any) -> Any:
    """The Fourier transforms of the library of x."""
    if library_of(x) == "torch":
        import torch

        return torch.fft
    return np.fft


@lru_cache(maxsize=8)
def _lines(h: int, acceleration: float, centre: float, seed: int) -> Array:
    """1 for lines that are measured and 0 for others, in the order of the transform, (h,)."""
    apart = np.minimum(np.arange(h), h - np.arange(h))  # from the middle of k-space
    whole = apart < max(1, round(centre * h)) / 2
    count = max(int(whole.sum()), round(h / acceleration))
    order = np.random.default_rng(seed).permutation(np.flatnonzero(~whole))
    measured = whole.copy()
    measured[order[: count - int(whole.sum())]] = True
    return measured.astype(np.float64)


@lru_cache(maxsize=8)
def _sensitivity(coils: int, h: int, w: int) -> Array:
    """Smooth complex sensitivities of coils on a circle around the image, sum of squares 1, (coils, h, w)."""
    if coils == 1:
        return np.ones((1, h, w), np.complex128)
    down, right = np.mgrid[-1 : 1 : 1j * h, -1 : 1 : 1j * w]
    turn = 2 * np.pi * np.arange(coils)[:, None, None] / coils
    near = np.exp(-((right - np.cos(turn)) ** 2 + (down - np.sin(turn)) ** 2) / 2)
    phase = np.exp(1j * (turn + right * np.cos(turn) + down * np.sin(turn)))
    return near * phase / np.sqrt((near**2).sum(0))
