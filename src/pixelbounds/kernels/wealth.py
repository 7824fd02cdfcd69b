"""The bettor whose wealth is evidence against a risk."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def betting_wealth(losses: np.ndarray, level: float, failure_prob: float) -> float:
    """Greatest log wealth of the predictable plug-in bettor against "the mean is at least `level`".

    He stakes almost all that a loss of 1 could take: where losses vary little, that is what limits every valid bound.
    """
    n = len(losses)
    scale, most = 2.0 * np.log(1.0 / failure_prob) / n, (1.0 - 1.0 / n) / (1.0 - level)
    total, squares, variance = 0.5, 0.25, 0.25
    wealth, best = 0.0, 0.0
    for i in range(n):
        bet = min(most, np.sqrt(scale / variance))
        wealth += np.log1p(bet * (level - losses[i]))
        best = max(best, wealth)
        total += losses[i]
        deviation = losses[i] - total / (i + 2)
        squares += deviation * deviation
        variance = squares / (i + 2)
    return best
