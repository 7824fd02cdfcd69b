"""Several bettors who share one purse, against "the ratio of two means is at least this"."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def hedge_wins(top: np.ndarray, bottom: np.ndarray, ratio: float, failure_prob: float, steady: np.ndarray) -> bool:
    """Whether the purse was ever worth 1 / failure_prob; 0 <= top <= bottom <= 1, (n,) each.

    A bet b gains b (ratio bottom - top) in a round, which is at most 0 in the mean where the ratio of the means is at
    least `ratio`: the purse is then worth 1 / failure_prob at some time with probability failure_prob at most (Ville).
    Half of it goes to the predictable plug-in bettor (`wealth.py`), the rest in equal parts to bettors who stake a
    `steady` share, below 1, of what the worst round could take; without these the plug-in bettor has it all. With
    bottoms of 1 this is about a mean. Every factor grows with `ratio`, so what wins against one wins against all above.
    """
    n = len(top)
    count = len(steady)
    objective = 1.0 / failure_prob
    scale = 2.0 * np.log(objective) / n
    most = (1.0 - 1.0 / n) / (1.0 - ratio)
    tops, bottoms, squares, variance = 0.5, 1.0, 0.25, 0.25
    own = 0.5 if count else 1.0
    e_process = np.full(count, 0.5 / max(count, 1))
    for i in range(n):
        gain = ratio * bottom[i] - top[i]
        own *= 1.0 + min(most, np.sqrt(scale / variance)) * gain
        total = own
        for k in range(count):
            e_process[k] *= 1.0 + steady[k] / (1.0 - ratio) * gain
            total += e_process[k]
        if total > objective:
            return True
        tops += top[i]
        bottoms += bottom[i]
        deviation = top[i] - tops / bottoms * bottom[i]
        squares += deviation * deviation
        variance = squares / (i + 2)
    return False
