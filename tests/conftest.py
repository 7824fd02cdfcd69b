"""Worlds and generators that several tests share."""

import numpy as np
import pytest

import pixelbounds as pb


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def heteroscedastic(n, rng, size=32, dtype=np.float32):
    """Truth and band where width, level and image all say something about the error: (n, size, size)."""
    shape = (n, size, size)
    level = rng.uniform(0.05, 0.95, shape)
    deviation = np.exp(rng.normal(-3, 0.6, shape)) * np.exp(rng.normal(0, 0.2, (n, 1, 1)))
    truth = np.clip(level + deviation * rng.standard_t(4, shape), 0, 1)
    half = 0.6 * deviation + 0.02
    band = pb.Band(np.clip(level - half, 0, 1).astype(dtype), np.clip(level + half, 0, 1).astype(dtype))
    return truth.astype(dtype), band
