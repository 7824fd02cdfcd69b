"""The main job on the embedded default: synthetic images, a flawed sampler, every method, one table.

Images are random ellipses on a soft background; the "model" smooths the noisy observation and draws samples about it,
so it is wrong at edges and its spread is not to be trusted. That is what calibration is for.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter

from .arrays import Array, Band
from .bands import calibrated_quantiles
from .calibrate import calibrate
from .calibration import Calibration
from .evaluate import evaluate
from .evaluation import Evaluation

RISK_LEVEL, FAILURE_PROB, MISCOVERAGE = 0.1, 0.1, 0.2
RUNS: dict[str, dict[str, Any]] = {
    "RCPS, Hoeffding-Bentkus": {"method": "rcps", "confidence": "hoeffding_bentkus"},
    "K-RCPS, Hoeffding-Bentkus (the paper)": {"method": "krcps", "confidence": "hoeffding_bentkus"},
    "RCPS, betting": {"method": "rcps"},
    "K-RCPS, betting": {"method": "krcps"},
    "frontier, band features, betting": {"groups": "band"},
    "frontier, learned groups, betting": {"groups": "learned"},
    "frontier, betting (default: the shorter of the two)": {},
}


def synthetic_images(n: int, size: int, rng: np.random.Generator) -> Array:
    """Random ellipses on a soft background, within [0, 1]: (n, size, size) float32."""
    row, column = np.mgrid[0 : 1 : size * 1j, 0 : 1 : size * 1j]
    out = gaussian_filter(rng.standard_normal((n, size, size)), (0, size / 6, size / 6))
    out = 0.35 + 0.08 * out / out.std()
    for image in out:
        for _ in range(rng.integers(3, 8)):
            centre, axes, turn = rng.uniform(0.15, 0.85, 2), rng.uniform(0.05, 0.25, 2), rng.uniform(0, np.pi)
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
    return truth, calibrated_quantiles(samples[:, :39], MISCOVERAGE), samples[:, 39:]


@dataclass(frozen=True, eq=False)
class Row:
    """One line of the table: a method, its calibration, what held-out images say, and seconds."""

    name: str
    calibration: Calibration
    evaluation: Evaluation
    seconds: float


def compare(n: int = 640, size: int = 48, held_out: int = 640) -> list[Row]:
    """Calibrate every method on the same images and evaluate it on others."""
    truth, band, _ = synthetic_pairs(n, size, seed=1)
    new_truth, new_band, new_samples = synthetic_pairs(held_out, size, seed=2)
    rows = []
    for name, choices in RUNS.items():
        begin = perf_counter()
        calibration = calibrate(truth, band, risk_level=RISK_LEVEL, failure_prob=FAILURE_PROB, **choices)
        seconds = perf_counter() - begin
        found = evaluate(new_truth, calibration.apply(new_band), samples=new_samples)
        rows.append(Row(name, calibration, found, seconds))
    return rows
