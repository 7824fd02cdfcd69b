"""(P_K): the least weighted sum of K widenings whose surrogate risk is at most epsilon.

    minimise  sum_k cost_k w_k    subject to    sum_i weight_i [(1 + q) reach_i / (half_i + w_k(i)) - q]_+ <= budget

with q = gamma / (1 - gamma). For the additive family, half is the band's half-width and reach the distance of the truth
from the band's middle; for a family that scales, half is 0 and reach the widening that covers. Given one multiplier mu,
the problem falls apart into K one-dimensional convex ones; their solutions move continuously with mu, so two nested
searches solve it to rounding. Points may be single pixels or the means of fine cells of pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .arrays import Array
from .kernels import FIXED_POINT, add_points, surrogate

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
    """Widenings of at least `start` of least total cost: cost (K,) -> Solution."""
    q = gamma / (1 - gamma)
    cost = np.asarray(cost, np.float64)
    k = len(cost)
    live = (1 + q) * points.reach > q * (points.half + start)  # the others are 0 at every widening
    group, half, reach, weight = (part[live] for part in points)
    top = np.full(k, start)  # widening at which the last loss of a group becomes 0
    if q > 0:
        np.maximum.at(top, group, (1 + q) / q * reach - half)
    else:
        np.maximum.at(top, group, reach * weight.sum() * k / max(budget, 1e-300))
    base = max(start, 1e-12 * float(top.max(initial=1.0)))  # a set of length 0 has no finite surrogate loss

    def total(widening: Array) -> tuple[Array, Array, Array]:
        return surrogate(widening, q, group, half, reach, weight)

    def respond(mu: float, guess: Array) -> tuple[Array, float]:
        """Minimiser of cost w + mu loss(w) in every group, by Newton steps kept within a bracket; its total loss."""
        low, high, w = np.full(k, base), np.maximum(top, base), np.clip(guess, base, np.maximum(top, base))
        for _ in range(100):
            _, slope, curve = total(w)
            gradient = cost + mu * slope
            low, high = np.where(gradient < 0, w, low), np.where(gradient >= 0, w, high)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = w - gradient / (mu * curve)
            inside = (step > low) & (step < high)
            following = np.where(inside, step, (low + high) / 2)
            following = np.where((gradient >= 0) & (w <= base), base, following)
            moved = np.abs(following - w) > 1e-10 * np.maximum(top, base)
            w = following
            if not moved.any():
                break
        return w, float(total(w)[0].sum())

    w = np.full(k, base)
    loss = float(total(w)[0].sum())
    mu = warm.multiplier if warm is not None and warm.multiplier > 0 else _first_multiplier(cost, total(w)[1])
    if loss <= budget:
        w, mu = np.full(k, start), 0.0
    else:
        w, mu = _search(respond, mu, budget, w if warm is None else warm.widening)
    return Solution(np.maximum(w, start), float(cost @ np.maximum(w, start) / cost.sum()), mu, gamma)


def _first_multiplier(cost: Array, slope: Array) -> float:
    """A multiplier at which some group begins to move."""
    finite = np.isfinite(slope) & (slope < 0)
    return float(np.median(-cost[finite] / slope[finite])) if finite.any() else 1.0


def _search(respond, mu: float, budget: float, w: Array) -> tuple[Array, float]:  # type: ignore[no-untyped-def]
    """Multiplier at which the total loss meets the budget, from the side where it does: secant steps in a bracket."""
    low, high = (0.0, np.inf), (np.inf, -np.inf)  # (mu, loss) with the loss above, and at most, the budget
    for _ in range(200):
        w, loss = respond(mu, w)
        if loss > budget:
            low = (mu, loss)
        else:
            high, kept = (mu, loss), w
            if budget - loss <= 1e-9 * budget:
                return w, mu
        if not np.isfinite(high[0]):
            mu *= 4.0
            continue
        if low[0] == 0.0:
            mu /= 4.0
            continue
        if high[0] - low[0] <= 1e-13 * high[0]:
            break
        span = np.log(high[0] / low[0])
        aim = (low[1] - budget) / max(low[1] - high[1], 1e-300)
        mu = low[0] * float(np.exp(span * min(max(aim, 0.05), 0.95)))
    return kept, high[0]


def solve_with_cvxpy(points: Points, cost: Array, budget: float, gamma: float, *, start: float = 0.0) -> Solution:
    """The same program handed to CVXPY, as an independent check; needs the extra `cvx`."""
    try:
        import cvxpy as cp
    except ImportError as error:
        raise RuntimeError("this needs CVXPY; install pixelbounds[cvx]") from error
    q = gamma / (1 - gamma)
    w = cp.Variable(len(cost))
    span = points.half + w[points.group]
    loss = cp.sum(cp.multiply(points.weight, cp.pos(cp.multiply((1 + q) * points.reach, cp.inv_pos(span)) - q)))
    problem = cp.Problem(cp.Minimize(np.asarray(cost) @ w / np.sum(cost)), [loss <= budget, w >= start])
    problem.solve(solver=cp.CLARABEL)
    if problem.status not in ("optimal", "optimal_inaccurate"):
        raise RuntimeError(f"CVXPY ended with status {problem.status!r}")
    return Solution(np.asarray(w.value), float(problem.value), float("nan"), gamma)


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
