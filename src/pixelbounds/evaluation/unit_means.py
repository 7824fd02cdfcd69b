"""Confidence intervals of means and of ratios of means over independent units, valid at every number of units.

Each end is the inverse of a bet (Waudby-Smith and Ramdas 2024): it lies where a bettor against "the mean is at least
this", or "at most this", would have multiplied his money by 2 / (1 - level). So each end errs with probability at most
(1 - level) / 2, whatever the law of values within their bounds. In particular no miss among n units does not mean that
there is none: the high end is then about log(2 / (1 - level)) / n.

high   the predictable plug-in bettor of calibrations, near the best that is possible where units are alike
low    the same beside three bets of a steady stake: with few units of small losses much higher

Bets are set from the units before, so the ends depend on the order, which must not depend on the values: draw it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, nan

import numpy as np

from ..calibration.target import UnitLosses
from ..images.library import Array
from ..kernels.bets import bisect, rejects_ratio

_STEADY = np.array([0.98, 0.6, 0.2])
_ALONE = np.empty(0)
_FINE = 1e-10


def ratio_interval(top: Array, bottom: Array, level: float) -> tuple[float, float]:
    """Both ends for E[top] / E[bottom] over independent units: 0 <= top <= bottom <= 1, (units,) each.

    The value itself lies within; an end that a run of luck has put beyond it is moved there.

    >>> low, high = ratio_interval(np.zeros(100), np.ones(100), 0.95)
    >>> low, round(high, 3)
    (0.0, 0.037)
    """
    top, bottom = (np.ascontiguousarray(x, np.float64) for x in (top, bottom))
    value = float(top.sum() / bottom.sum())
    failure_prob = (1 - level) / 2
    high = _least_beaten(top, bottom, failure_prob, _ALONE)
    low = 1 - _least_beaten(bottom - top, bottom, failure_prob, _STEADY)
    return min(low, value), max(high, value)


def _least_beaten(top: Array, bottom: Array, failure_prob: float, steady: Array) -> float:
    """The least ratio that bets reject, rounded upward; 1 where there is none."""
    return bisect(lambda ratio: rejects_ratio(top, bottom, ratio, failure_prob, steady), 0.0, 1.0, width=_FINE)


def mean_interval(values: Array, level: float) -> tuple[float, float]:
    """Both ends for the mean of values in [0, 1] of independent units: (units,)."""
    return ratio_interval(values, np.ones(len(values)), level)


@dataclass(frozen=True, eq=False)
class EvaluationUnits:
    """What is independent: names of units, the unit of each image (n,), units in random order, the level of intervals.

    `span` is the longest that an interval may be. A unit counts for at most `most` images, 0 where that is not known.
    """

    names: Array
    unit_of: Array
    order: Array
    level: float
    span: float = inf
    most: int = 0

    def means(self, x: Array) -> Array:
        """Mean over the images of each unit: (n, ...) -> (units, ...)."""
        every = UnitLosses(self.unit_of, np.ones(len(x), bool), np.arange(len(self.names)))
        return np.moveaxis(every.means(np.moveaxis(x, 0, -1)), -1, 0).astype(np.float64)

    def ends(self, shares: Array) -> tuple[float, float]:
        """Both ends for the mean of shares in [0, 1] of some units, NaN for those that do not count: (units,)."""
        shares = shares[self.order]
        return mean_interval(np.clip(shares[~np.isnan(shares)], 0, 1), self.level)

    def length_ends(self, lengths: Array) -> tuple[float, float]:
        """Both ends for a mean length, (units,); unknown where lengths have no bound."""
        if not isfinite(self.span) or not self.span:
            return nan, nan
        if lengths.max() > self.span * (1 + 1e-3):  # ends are rounded outward
            raise ValueError(f"mean length is {lengths.max():g}, but limits are {self.span:g} apart; give wider ones")
        low, high = self.ends(lengths / self.span)
        return self.span * low, self.span * high

    def of_images(self, shares: Array) -> tuple[float, tuple[float, float]]:
        """Mean share where each image counts the same, and its ends: the largest unit may not be among these."""
        sizes = np.bincount(self.unit_of)
        most = self.most or sizes.max()
        weight = np.minimum(sizes, most) / most
        top = np.clip(shares, 0, 1) * weight
        ends = ratio_interval(top[self.order], weight[self.order], self.level) if self.most else (0.0, 1.0)
        return float(top.sum() / weight.sum()), ends
