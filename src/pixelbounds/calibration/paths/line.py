"""The line of K-RCPS: the solution of (P_K) on the fitting images, and [solution + t * direction] from there.

(P_K) of Section 3.2 is the least weighted sum of K widenings whose surrogate risk is at most epsilon:

    minimise  sum_k cost_k w_k    subject to    sum_i weight_i [(1 + q) reach_i / (half_i + w_k(i)) - q]_+ <= budget

with q = gamma / (1 - gamma). For the additive family, half is the band's half-width and reach the distance of the truth
from the band's middle; for a family that scales, half is 0 and reach the widening that covers. Given one multiplier mu,
the problem falls apart into K one-dimensional convex ones; their solutions move continuously with mu, so two nested
searches solve it to rounding. Points may be single pixels or the means of fine cells of pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import isfinite
from typing import NamedTuple

import numpy as np

from ...images.checks import NoGuarantee
from ...images.library import Array
from ...kernels.convex import minimise_groups
from ...kernels.entry_scores import FIXED_POINT, add_points
from ..block import Block, Grouping
from ..data import CalibrationData
from ..families import Family, additive
from ..groups.positions import Partition
from .path import POINTS, Path, grid_of

GAMMAS = tuple(np.linspace(0.3, 0.7, 16))
_TOLERANCE = 1e-8  # relative, of widenings and of the budget
_SIZE = 0.05  # relative size of a cell; the surrogate risk of cells is within about _SIZE**2 / 24 of the pixels'
_SPAN = 2**-10  # halves and reaches below this share of the greatest are one cell


Respond = Callable[[float, Array, float], tuple[Array, float]]


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


def surrogate_cells(groups: int, group: Array, half: Array, reach: Array, top: float) -> Array:
    """Count and fixed-point sums of half and reach of pixels, in fine cells of both per group, which merge by addition.

    `top` bounds half and reach and fixes the cells, so all blocks must use the same.
    """
    per_axis = int(np.ceil(np.log(1 / _SPAN) / _SIZE)) + 2
    cells = np.zeros((groups, per_axis, per_axis, 3), np.int64)
    add_points(cells, group, half, reach, top * _SPAN, _SIZE, top)
    return cells


def points_of(cells: Array, top: float) -> Points:
    """The occupied cells as points at the means of their pixels."""
    group, *_ = at = np.nonzero(cells[..., 0])
    count, half, reach = cells[tuple(at)].T.astype(np.float64)
    unit = top / FIXED_POINT
    return Points(group, half / count * unit, reach / count * unit, count)


def solve_program(
    data: CalibrationData, images: Array, grouping: Grouping, risk_level: float, gammas: Sequence[float] = GAMMAS,
    pixels: Array | None = None,
) -> Solution:  # fmt: skip
    """(P_K) on the fitting images with the gamma of least objective."""
    points, sizes = surrogate_points(data, images, grouping, pixels)
    cost = sizes
    if pixels is not None and isinstance(grouping, Partition):  # a sampled pixel stands for its share of its group
        cost = np.bincount(grouping.labels.reshape(-1), minlength=grouping.count).astype(np.float64)
        points = points._replace(weight=points.weight * (cost / sizes)[points.group])
    cost = np.where(cost > 0, cost, 1.0)
    solutions: list[Solution | None] = [None]
    for gamma in gammas:
        warm, budget = solutions[-1], risk_level * points.weight.sum()
        solutions.append(solve(points, cost, budget, gamma, start=data.family.start, warm=warm))
    return min(filter(None, solutions), key=lambda solution: solution.objective)


def surrogate_points(
    data: CalibrationData, images: Array, grouping: Grouping, pixels: Array | None = None
) -> tuple[Points, Array]:
    """All pixels of the fitting images (or some positions) as weighted points of (P_K), and the pixels per group."""

    def work(truth: Array, block: Block) -> tuple[Array, Array, Array]:
        at = np.arange(block.image_size) if pixels is None else np.flatnonzero(pixels)
        entry = (np.arange(len(block))[:, None] * block.image_size + at).reshape(-1)
        half, reach = half_and_reach(data.family, truth, block, entry)
        return grouping.at(block, entry, np.zeros(len(entry), np.uint8)), half, reach

    if data.sizes[images].sum() <= 2**17 or pixels is not None:  # few: every pixel is a point
        parts = [np.concatenate(p) for p in zip(*data.over_blocks(work, images), strict=True)]
        points = sort_points(*parts)
    else:
        top = _top_reach(data, images)
        cells = data.over_blocks(lambda truth, block: surrogate_cells(grouping.count, *work(truth, block), top), images)
        points = points_of(reduce(np.add, cells), top)
    return points, np.bincount(points.group, points.weight, minlength=grouping.count)


def half_and_reach(family: Family, truth: Array, block: Block, entry: Array) -> tuple[Array, Array]:
    """Half-width and distance of the truth from the middle (additive), or 0 and the widening that covers: (e,) each."""
    x = np.asarray(truth.reshape(-1)[entry], np.float64)
    if family is additive:
        lower, upper = block.clipped(entry)
        return (upper - lower) / 2, np.abs(x - (lower + upper) / 2)
    need = np.asarray(family.score(truth, block.band), np.float64).reshape(-1)[entry]
    if not np.isfinite(need).all():
        raise NoGuarantee(
            f"{int((~np.isfinite(need)).sum())} pixels cannot be covered by any widening of the {family.name} family, "
            "so (P_K) has no solution; use method='rcps' or 'frontier', or the additive family"
        )
    return np.zeros(len(entry)), np.maximum(need, 0.0)


def _top_reach(data: CalibrationData, images: Array) -> float:
    span = data.limits[1] - data.limits[0]
    if data.family is additive and isfinite(span):
        return span

    def work(truth: Array, block: Block) -> float:
        half, reach = half_and_reach(data.family, truth, block, np.arange(len(block) * block.image_size))
        return max(float(half.max()), float(reach.max()), 1e-12)

    return max(data.over_blocks(work, images))


def stratified_pixels(grouping: Grouping, pixels: tuple[int, ...], count: int, rng: np.random.Generator) -> Array:
    """About `count` pixel positions, in proportion to the groups and at least one of each: (*pixels) -> bool (p,)."""
    if not isinstance(grouping, Partition):
        raise ValueError(
            "d_opt chooses pixel positions by group, which needs groups on the pixel grid ('loss', 'otsu' or a "
            "partition); leave d_opt out to use every pixel"
        )
    labels = grouping.labels.reshape(-1)
    count = min(count, len(labels))
    chosen = np.zeros(len(labels), bool)
    for k in range(grouping.count):
        members = np.flatnonzero(labels == k)
        share = min(len(members), max(1, round(count * len(members) / len(labels))))
        chosen[rng.choice(members, share, replace=False)] = True
    return chosen


def line_path(
    data: CalibrationData, images: Array, grouping: Grouping, offset: Array, direction: Array, risk_level: float
) -> Path:
    """[offset + t * direction], at least the start: points dense where the fitting images meet the risk level."""
    start = data.family.start
    moving = direction > 0
    kinks = (start - offset[moving]) / direction[moving]

    def work(truth: Array, block: Block) -> Array:
        entry, side, need = block.missed(truth, data.family)
        label = grouping.at(block, entry, side)
        with np.errstate(divide="ignore", invalid="ignore"):
            times = (need - offset[label]) / direction[label]
        return times[~np.isnan(times)]

    times = np.concatenate(list(data.over_blocks(work, images)))
    allowed = int(risk_level * int(data.sizes[images].sum()))
    least = float(kinks.min())  # every group at the start
    middle = least
    if allowed < len(times):  # the time at which just the allowed number of ends is still to come
        middle = max(least, float(np.partition(times, len(times) - 1 - allowed)[len(times) - 1 - allowed]))
    latest = float(times[np.isfinite(times)].max(initial=0.0))
    scale, below, above, _ = grid_of(data, images)
    reach = (scale * 2.0**above + np.abs(offset).max()) / direction[moving].min()
    most = max(reach, 2 * latest)
    middle = min(middle, most)
    halvings = 2.0 ** np.linspace(-below - above, 0, POINTS // 2)
    t = np.unique(np.concatenate([
        kinks, [least, middle, most], middle + (most - middle) * halvings, middle - (middle - least) * halvings,
    ]))  # fmt: skip
    points = np.maximum(offset[:, None] + direction[:, None] * t[None], start)
    return Path(points, grouping, int(np.searchsorted(t, middle)))
