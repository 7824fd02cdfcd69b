"""(P_K): the least weighted sum of K widenings whose surrogate risk is at most epsilon.

    minimise  sum_k cost_k w_k    subject to    sum_i weight_i [(1 + q) reach_i / (half_i + w_k(i)) - q]_+ <= budget

with q = gamma / (1 - gamma). For the additive family, half is the band's half-width and reach the distance of the truth
from the band's middle; for a family that scales, half is 0 and reach the widening that covers. Given one multiplier mu,
the problem falls apart into K one-dimensional convex ones; their solutions move continuously with mu, so two nested
searches solve it to rounding. Points may be single pixels or the means of fine cells of pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...images.library import Array
from ...kernels.convex import minimise_groups
from ...kernels.entry_scores import FIXED_POINT, add_points

Respond = Callable[[float, Array, float], tuple[Array, float]]

_TOLERANCE = 1e-8  # relative, of widenings and of the budget
_SIZE = 0.05  # relative size of a cell; the surrogate risk of cells is within about _SIZE**2 / 24 of the pixels'
_SPAN = 2**-10  # halves and reaches below this share of the greatest are one cell


class Points(NamedTuple):
    """Weighted pixels, sorted by group: group (p,), half (p,), reach (p,), weight (p,)."""

    group: Array
    half: Array
    reach: Array
    weight: Array


@dataclass(frozen=True, eq=False)
class Solution:
    """Widening per group, the objective (mean cost per unit of weight), the multiplier."""

    widening: Array
    objective: float
    multiplier: float
    gamma: float


def sort_points(group: Array, half: Array, reach: Array, weight: Array | None = None) -> Points:
    """Points in the order of their groups."""
    order = np.argsort(group, kind="stable")
    weight = np.ones(len(group)) if weight is None else weight
    return Points(
        np.asarray(group, np.int64)[order], *(np.asarray(x, np.float64)[order] for x in (half, reach, weight))
    )


def solve(
    points: Points, cost: Array, budget: float, gamma: float, *, start: float = 0.0, warm: Solution | None = None
) -> Solution:
    """Widenings of at least `start` of least total cost: cost (K,) -> Solution. `warm`: a solution for a near gamma."""
    q = gamma / (1 - gamma)
    cost = np.asarray(cost, np.float64)
    live = (1 + q) * points.reach > q * (points.half + start)  # the others lose nothing at any widening
    group, half, reach, weight = (part[live] for part in points)
    bounds = np.searchsorted(group, np.arange(len(cost) + 1))
    last = np.full(len(cost), start)  # widening from which on a group loses nothing; for gamma 0, nearly nothing
    ends = (1 + q) / q * reach - half if q > 0 else reach * (weight.sum() * len(cost) / budget)
    np.maximum.at(last, group, ends)
    least = max(start, 1e-12 * float(last.max(initial=0.0)))  # a set of length 0 may lose without bound

    def respond(mu: float, w: Array, tolerance: float) -> tuple[Array, float]:
        """Minimiser of cost * w + mu * loss in every group, and the total loss there."""
        w = w.copy()
        return w, minimise_groups(mu, q, cost, bounds, half, reach, weight, least, last, tolerance, w)

    w, loss = respond(1e-300, np.full(len(cost), least), 1.0)
    mu = 0.0
    if loss > budget:
        guess = (float(cost.mean() * last.max() / loss), w) if warm is None else (warm.multiplier, warm.widening)
        w, mu = _meet(respond, budget, *guess)
    w = np.where(w <= least, start, w)
    return Solution(w, float(cost @ w / cost.sum()), mu, gamma)


def _meet(respond: Respond, budget: float, mu: float, w: Array) -> tuple[Array, float]:
    """Multiplier whose response loses just the budget: secant steps on a log scale within a bracket."""
    low, high, kept = (0.0, np.inf), (np.inf, 0.0), w  # (mu, loss) above the budget, and within it
    mu = mu if mu > 0 else 1.0
    for _ in range(200):
        known = low[0] > 0 and np.isfinite(high[0])
        gap = np.log(high[0] / low[0]) if known else 1.0
        w, loss = respond(mu, w, _TOLERANCE if gap < 0.05 else 1e-4)
        if loss > budget:
            low = (mu, loss)
        else:
            high, kept = (mu, loss), w
        if known and (gap < 1e-9 or 0 <= budget - loss <= 10 * _TOLERANCE * budget) and gap < 0.05:
            break
        if not np.isfinite(high[0]):
            mu *= 4.0
        elif low[0] == 0.0:
            mu /= 4.0
        else:
            gap = np.log(high[0] / low[0])
            target = (low[1] - budget) / (low[1] - high[1]) if low[1] > high[1] else 0.5
            mu = low[0] * float(np.exp(gap * min(max(target + 0.02, 0.04), 0.96)))
    return respond(high[0], kept, _TOLERANCE)[0], high[0]


# ---------------------------------------------------------------- many pixels as few points


def blank_cells(groups: int) -> Array:
    """Count and fixed-point sums of half and reach, in fine cells of both per group; they merge by addition."""
    per_axis = int(np.ceil(np.log(1 / _SPAN) / _SIZE)) + 2
    return np.zeros((groups, per_axis, per_axis, 3), np.int64)


def add_to_cells(cells: Array, group: Array, half: Array, reach: Array, top: float) -> Array:
    """Add pixels to cells. `top` bounds half and reach and fixes the cells, so all chunks must use the same."""
    add_points(cells, group, half, reach, top * _SPAN, _SIZE, top)
    return cells


def points_of(cells: Array, top: float) -> Points:
    """The occupied cells as points at the means of their pixels."""
    group, *_ = at = np.nonzero(cells[..., 0])
    count, half, reach = cells[tuple(at)].T.astype(np.float64)
    unit = top / FIXED_POINT
    return Points(group, half / count * unit, reach / count * unit, count)
