"""Small problems solved exactly: the convex program (P_K), group by group, and the lower hull of a group's trades."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(nogil=True, cache=True)
def surrogate(
    w: float, q: float, half: np.ndarray, reach: np.ndarray, weight: np.ndarray
) -> tuple[float, float, float]:
    """Sum of the l-gamma losses of a group's points at widening w, with its first and second derivative."""
    value, slope, curve = 0.0, 0.0, 0.0
    for i in range(len(half)):
        span = half[i] + w
        scaled = (1 + q) * reach[i] / span
        if scaled > q:
            value += weight[i] * (scaled - q)
            slope -= weight[i] * scaled / span
            curve += 2 * weight[i] * scaled / (span * span)
    return value, slope, curve


@njit(nogil=True, cache=True)
def minimise_groups(
    mu: float, q: float, cost: np.ndarray, start: np.ndarray, half: np.ndarray, reach: np.ndarray, weight: np.ndarray,
    least: float, most: np.ndarray, tolerance: float, w: np.ndarray,
) -> float:  # fmt: skip
    """Minimise cost * w + mu * loss(w) over w in [least, most] in every group, from the guess w; gives the total loss.

    Points of group k are start[k]..start[k + 1]. Newton steps on the derivative, kept within a bracket; where a loss
    ends, the derivative jumps, so the bracket may have to be halved instead.
    """
    total = 0.0
    for k in range(len(cost)):
        h, r, m = half[start[k] : start[k + 1]], reach[start[k] : start[k + 1]], weight[start[k] : start[k + 1]]
        low, high = least, max(most[k], least)
        at = min(max(w[k], low), high)
        value, slope, curve = surrogate(at, q, h, r, m)
        for _ in range(200):
            gradient = cost[k] + mu * slope
            if gradient < 0:
                low = at
            else:
                high = at
            if high - low <= tolerance * high or (gradient >= 0 and at <= least):
                break
            following = at - gradient / (mu * curve) if curve > 0 else low
            if not low < following < high:
                following = (low + high) / 2
            step = abs(following - at)
            at = following
            value, slope, curve = surrogate(at, q, h, r, m)
            if step <= tolerance * at:
                break
        w[k] = at
        total += value
    return total


@njit(nogil=True, cache=True)
def lower_hull(cost: np.ndarray, missed: np.ndarray) -> np.ndarray:
    """Indices of the lower convex hull of points with nondecreasing cost and nonincreasing misses."""
    keep = np.empty(len(cost), np.int64)
    count = 0
    for i in range(len(cost)):
        if count and missed[i] >= missed[keep[count - 1]]:
            continue  # costs at least as much and removes nothing
        while count > 1:
            a, b = keep[count - 2], keep[count - 1]
            # drop b unless it lies strictly below the chord from a to i
            if (missed[a] - missed[b]) * (cost[i] - cost[a]) <= (missed[a] - missed[i]) * (cost[b] - cost[a]):
                count -= 1
            else:
                break
        keep[count] = i
        count += 1
    return keep[:count]
