"""Ratios of sums over units, with confidence intervals from drawing units again with replacement.

A bootstrap sees only what occurred: a stratum without a single miss has the interval [0, 0].
"""

from __future__ import annotations

import numpy as np

from ..images.library import Array

_DRAWN = 2**22  # units drawn at a time


def ratios(top: Array, bottom: Array, draws: int, level: float, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Ratios of sums over units with intervals: (units, c) twice -> value, low, high (c,); NaN where one unit has any.

    BCa, with the normal quantile widened to Student's and by sqrt(n / (n - 1)), without which few units are too few
    (Hesterberg 2015).
    """
    from scipy.special import ndtr, ndtri, stdtrit

    units, value, drawn = len(top), top.sum(axis=0) / bottom.sum(axis=0), np.empty((draws, top.shape[1]))
    step = max(1, _DRAWN // units)
    for first in range(0, draws, step):
        rows = min(step, draws - first)
        picked = rng.integers(units, size=(rows, units)) + np.arange(rows)[:, None] * units
        times = np.bincount(picked.reshape(-1), minlength=rows * units).reshape(rows, units).astype(np.float64)
        with np.errstate(invalid="ignore"):  # a draw may hold no unit of a rare group
            drawn[first : first + rows] = (times @ top) / (times @ bottom)
    ends = np.full((len(value), 2), np.nan)
    having = (bottom > 0).sum(axis=0)
    for c in np.flatnonzero(having > 1):
        n, seen = having[c], drawn[~np.isnan(drawn[:, c]), c]
        pull = top[:, c] - value[c] * bottom[:, c]
        pull = pull / (np.abs(pull).max() or 1.0)
        skew = np.sum(pull**3) / (6 * max(np.sum(pull**2), 1.0) ** 1.5)
        share = np.mean(seen < value[c]) + np.mean(seen == value[c]) / 2
        bias = ndtri(np.clip(share, 1 / draws, 1 - 1 / draws))
        wide = bias + np.sqrt(n / (n - 1)) * stdtrit(n - 1, (1 + level) / 2) * np.array([-1, 1])
        ends[c] = np.quantile(seen, ndtr(bias + wide / np.maximum(1 - skew * wide, 0.1)))
    return value, ends[:, 0], ends[:, 1]
