"""Images for tests of groups: everything that a grouping may look at, and misses that depend on the position too."""

import numpy as np
from worlds import heteroscedastic

from pixelbounds.calibration.data import CalibrationData

SIZE, N = 10, 24
FITTING = np.array([1, 2, 5, 6, 9, 12, 13, 17, 20, 23])


def world(rng, *, limits=(0.0, 1.0), features=1, truth_noise=None):
    """CalibrationData that carry features and labels; misses depend on the position too."""
    truth, band = heteroscedastic(N, rng, size=SIZE)
    truth = np.clip(truth + (np.arange(SIZE) > 6) * 0.1, 0, 1).astype(np.float32)
    extra = rng.normal(size=(N, features, SIZE, SIZE)).astype(np.float32) if features else None
    labels = np.broadcast_to(np.arange(SIZE) // 4 * 3 + 5, truth.shape) + (np.arange(N) % 2)[:, None, None] * 20
    if truth_noise is not None:
        truth = truth.copy()
        truth[truth_noise] = rng.uniform(size=truth[truth_noise].shape)
    return CalibrationData(truth, band, labels=labels, features=extra, limits=limits)
