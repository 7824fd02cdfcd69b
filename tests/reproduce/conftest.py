"""A small material with every array, and the plan in miniature that fits it."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

import pixelbounds as pb
from pixelbounds.demo.phantom import phantoms
from reproduce.experiment import load_experiment, miniature
from reproduce.material import load_material

COUNT, SIZE, SAMPLES = 48, 16, 9


def arrays(count=COUNT, size=SIZE, units=16, seed=0):
    """Phantoms, and what a crude sampler and crude regressors say about them."""
    rng = np.random.default_rng(seed)
    truth = phantoms(count, size, seed).images
    noisy = truth + 0.2 * rng.standard_normal(truth.shape, np.float32)
    centre = gaussian_filter(noisy, (0, 1, 1))
    spread = 0.05 + 0.4 * np.hypot(*np.gradient(centre, axis=(1, 2))).astype(np.float32)
    noise = rng.standard_normal((count, SAMPLES + 1, size, size), np.float32)
    drawn = centre[:, None] + spread[:, None] * noise
    band, naive = (f(drawn[:, :SAMPLES], 0.2) for f in (pb.calibrated_quantiles, pb.naive_quantiles))
    middle = (band.lower + band.upper) / 2
    return {
        "truth": truth, "observation": noisy, "lower": band.lower, "upper": band.upper,
        "naive_lower": naive.lower, "naive_upper": naive.upper, "fresh": drawn[:, SAMPLES],
        "mean": drawn[:, :SAMPLES].mean(axis=1), "deviation": drawn[:, :SAMPLES].std(axis=1),
        "qr_lower": centre - spread, "qr_estimate": centre, "qr_upper": centre + spread,
        "dropout_mean": centre, "dropout_deviation": spread / 3,
        "conffusion_lower": centre - spread, "conffusion_upper": centre + spread,
        "printed_lower": np.minimum(band.lower + 0.02, middle), "printed_upper": np.maximum(band.upper - 0.02, middle),
        "printed_fresh": drawn[:, SAMPLES], "ours_lower": band.lower - 0.02, "ours_upper": band.upper + 0.02,
        "samples": drawn[:4, :4], "unit": np.arange(count) * units // count,
    }  # fmt: skip


@pytest.fixture(scope="session")
def material():
    return load_material(arrays())


@pytest.fixture(scope="session")
def plan():
    return miniature(load_experiment("ct64"))
