"""Stand-ins for a user's data and sampler, for examples and benchmarks: any number of images, in no time.

Images are random ellipses on a soft background; the "model" smooths the noisy observation and draws samples about it,
so it is wrong at edges and its spread is not to be trusted. That is what calibration is for.
"""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from ..bands import calibrated_quantiles
from ..images.ends import Band
from ..images.library import Array

_MISCOVERAGE = 0.2


def synthetic_images(n: int, size: int, rng: np.random.Generator) -> Array:
    """Random ellipses on a soft background, within [0, 1]: (n, size, size) float32."""
    row, column = np.mgrid[0 : 1 : size * 1j, 0 : 1 : size * 1j]
    out = gaussian_filter(rng.standard_normal((n, size, size)), (0, size / 6, size / 6))
    out = 0.35 + 0.08 * out / out.std()
    for image in out:
        for _ in range(rng.integers(3, 8)):
            centre = rng.uniform(0.15, 0.85, 2)
            axes = rng.uniform(0.05, 0.25, 2)
            turn = rng.uniform(0, np.pi)
            u = (column - centre[0]) * np.cos(turn) + (row - centre[1]) * np.sin(turn)
            v = (row - centre[1]) * np.cos(turn) - (column - centre[0]) * np.sin(turn)
            image[(u / axes[0]) ** 2 + (v / axes[1]) ** 2 < 1] = rng.uniform(0, 1)
    return np.clip(out, 0, 1).astype(np.float32)


def flawed_samples(truth: Array, m: int, rng: np.random.Generator, sigma: float = 0.15) -> Array:
    """Samples of a crude denoiser for noisy observations of the truth: (n, *pixels) -> (n, m, *pixels)."""
    noisy = truth + sigma * rng.standard_normal(truth.shape, np.float32)
    estimate = gaussian_filter(noisy, (0, 1, 1))
    slope = np.hypot(*np.gradient(gaussian_filter(noisy, (0, 1.5, 1.5)), axis=(1, 2)))
    spread = (0.03 + 0.4 * slope).astype(np.float32)
    return estimate[:, None] + spread[:, None] * rng.standard_normal((len(truth), m, *truth.shape[1:]), np.float32)


def synthetic_pairs(n: int, size: int, seed: int) -> tuple[Array, Band, Array]:
    """Truth, calibrated band, and one further sample per image to check coverage with."""
    rng = np.random.default_rng(seed)
    truth = synthetic_images(n, size, rng)
    samples = flawed_samples(truth, 40, rng)
    return truth, calibrated_quantiles(samples[:, :39], _MISCOVERAGE), samples[:, 39:]
