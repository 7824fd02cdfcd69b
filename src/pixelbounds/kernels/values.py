"""Values at the door: extremes, crossed ends, a survey of truth and band in one read, and a fingerprint."""

from __future__ import annotations

import numpy as np
from numba import njit

_LANES = 256


@njit(nogil=True, cache=True)
def extremes(rows: np.ndarray) -> np.ndarray:
    """Least and greatest value of each row: (n, p) -> (n, 2); NaN where a value is not finite."""
    n, p = rows.shape
    out = np.empty((n, 2))
    for i in range(n):
        low = rows[i, 0]
        high = rows[i, 0]
        poison = rows[i, 0] - rows[i, 0]
        for j in range(p):
            value = rows[i, j]
            low = value if value < low else low
            high = value if value > high else high
            poison += value - value  # 0 for every finite value, NaN otherwise
        out[i, 0] = low + poison
        out[i, 1] = high + poison
    return out


@njit(nogil=True, cache=True)
def survey_band(lower: np.ndarray, upper: np.ndarray, least: float, most: float) -> tuple[int, int]:
    """How many entries of a band are finite and in order, and how many leave least..most: two counts in one read."""
    huge = np.finfo(lower.dtype).max
    low_limit = lower.dtype.type(max(least, -huge))
    high_limit = lower.dtype.type(min(most, huge))
    good, outside = 0, 0
    for j in range(len(lower)):
        low, high = lower[j], upper[j]
        good += (low <= high) & (low >= -huge) & (high <= huge)
        outside += (low < low_limit) | (high > high_limit)
    return good, outside


@njit(nogil=True, cache=True)
def survey(
    truth: np.ndarray, lower: np.ndarray, upper: np.ndarray, least: float, most: float, span: float
) -> tuple[int, int, int]:
    """How many entries are in order, missed by the clipped band, and far from the limits: three counts in one read.

    In order: truth within the limits, lower at most upper, both finite. Far: the band lies half a span outside.
    """
    huge = np.finfo(lower.dtype).max
    low_limit = lower.dtype.type(max(least, -huge))
    high_limit = lower.dtype.type(min(most, huge))
    below = lower.dtype.type(max(least - span / 2, -huge))
    above = lower.dtype.type(min(most + span / 2, huge))
    good, missed, far = 0, 0, 0
    for j in range(len(truth)):
        x, low, high = truth[j], lower[j], upper[j]
        good += (x >= low_limit) & (x <= high_limit) & (low <= high) & (low >= -huge) & (high <= huge)
        missed += ((x < low) & (x < high_limit)) | ((x > high) & (x > low_limit))
        far += (high < below) | (low > above)
    return good, missed, far


@njit(nogil=True, cache=True)
def fingerprint(words: np.ndarray, state: np.ndarray) -> None:
    """Fold 32-bit words into 256 lanes of state; each step is one to one, so a changed word always shows."""
    whole = len(words) // _LANES * _LANES
    for start in range(0, whole, _LANES):
        for lane in range(_LANES):
            state[lane] = (state[lane] ^ words[start + lane]) * np.uint32(16777619)
    for i in range(whole, len(words)):
        state[i - whole] = (state[i - whole] ^ words[i]) * np.uint32(16777619)
