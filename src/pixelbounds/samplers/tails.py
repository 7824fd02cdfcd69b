"""Samples of one image that stream by, reduced as they come: the two tails that quantiles need, mean and deviation.

Of m samples only the k smallest and the k largest of every pixel are kept, k about m a / 2 for a miscoverage a. So 999
samples at 0.1 take the memory of some hundred, and an iterator of samples never has to be held whole.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor, sqrt

import numpy as np

from ..bands import calibrated_ranks
from ..images.library import Array


class SampleTails:
    """Order statistics and moments of m samples (*pixels), pushed in blocks; the cut of the blocks changes no quantile.

    >>> tails = SampleTails(19, 0.1)
    >>> for block in np.split(np.arange(19.0), [4, 5]):
    ...     tails.push(block[:, None])
    >>> {name: float(x[0]) for name, x in tails.parts().items() if name in ("lower", "upper", "mean")}
    {'lower': 0.0, 'upper': 18.0, 'mean': 9.0}
    """

    def __init__(self, m: int, miscoverage: float | Fraction) -> None:
        self._rank, _ = calibrated_ranks(m, miscoverage)
        position = (m - 1) * float(miscoverage) / 2
        self._naive = floor(position)
        self._share = position - self._naive
        self._kept = min(m, max(self._rank, self._naive + 2))
        self._count = 0
        self._low: Array | None = None
        self._high: Array | None = None
        self._mean = np.zeros(())
        self._squares = np.zeros(())

    def push(self, block: Array) -> None:
        """Take some more samples, (b, *pixels)."""
        self._low = _least(block, self._low, self._kept)
        self._high = _least(-block, self._high, self._kept)
        single = block.astype(np.float64)
        mean = single.mean(axis=0)
        total = self._count + len(block)
        apart = mean - self._mean
        self._squares = (
            self._squares + ((single - mean) ** 2).sum(axis=0) + apart**2 * (self._count * len(block) / total)
        )
        self._mean = self._mean + apart * (len(block) / total)
        self._count = total

    def parts(self) -> dict[str, Array]:
        """Calibrated and naive quantiles, mean and deviation of all samples that were pushed, each (*pixels)."""
        assert self._low is not None
        assert self._high is not None
        low = np.sort(self._low, axis=0)
        high = -np.sort(self._high, axis=0)  # from the greatest down
        beside = min(self._naive + 1, self._kept - 1)
        return {
            "lower": low[self._rank - 1],
            "upper": high[self._rank - 1],
            "naive_lower": low[self._naive] + (low[beside] - low[self._naive]) * low.dtype.type(self._share),
            "naive_upper": high[self._naive] + (high[beside] - high[self._naive]) * low.dtype.type(self._share),
            "mean": self._mean.astype(low.dtype),
            "deviation": (np.sqrt(self._squares) / sqrt(self._count - 1)).astype(low.dtype),
        }


def _least(block: Array, before: Array | None, kept: int) -> Array:
    """The `kept` smallest of every pixel, in any order, among new samples and those kept before."""
    every = block if before is None else np.concatenate([before, block])
    return every.copy() if len(every) <= kept else np.partition(every, kept - 1, axis=0)[:kept].copy()
