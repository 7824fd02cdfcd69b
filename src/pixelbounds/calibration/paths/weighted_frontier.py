"""The frontier for several promises: misses weighted by what they cost each promise.

On the fitting images each missed end costs promise j the share that it is of its region in its image. The path is the
frontier of a mixture, sum_j mu_j * (what promise j misses), with mu >= 0: for one budget of length it goes to the ends
that the promises need most. Any mu makes a valid path, as all of them are fixed by the fitting images; good ones are
short. They are found by multiplicative updates: along the path of some mu, see where each promise alone would be
certified by as many units as will certify it, if these were like the fitting units; the test stops at the widest of
these points. A promise that could have stopped earlier is lowered by how much less than it may it misses there. The mu
that was shortest where the test would stop is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...images.library import Array
from ...kernels.entry_scores import weigh_missed
from ..block import Block, Grouping
from ..data import ROWS, CalibrationData, FittingImages, statistic
from ..families import Family
from ..promises import RiskTarget
from ..target import RiskTest, Target, risk_test_of
from .frontier import Trades, first_edges, frontier_path, trades, traversal
from .path import Path, grid_of, misses, region_sizes

_ROUNDS = 12  # of updates
_PATIENCE = 4  # rounds that may pass without a shorter one
_LEAST = 0.2  # factor by which a promise is lowered in one round
_FINE = 1e-6  # risk below which knots need not be dense
_DOUBT = 2.0  # standard errors by which other units may be worse: what a rare region misses is hardly known
_FLOOR = 1e-3  # no promise is forgotten: relative to the greatest multiplier


@statistic(ROWS, ROWS, ROWS, ROWS)
def missed_cells(truth: Array, block: Block, family: Family, grouping: Grouping, edges: Array) -> tuple[Array, ...]:
    """Missed ends of each image by group and edge that covers them: how many cells it has, which, and their weights."""
    entry, side, need = block.missed(truth, family)
    key = grouping.at(block, entry, side).astype(np.int64) * (len(edges) + 1) + first_edges(edges, need)
    inside = [np.ones(len(entry)), *(region.reshape(-1)[entry].astype(np.float64) for region in block.regions)]
    place = np.empty(grouping.count * (len(edges) + 1), np.int64)
    first = np.searchsorted(entry, np.arange(len(block) + 1) * block.image_size)  # entries ascend
    found = []
    weights = []
    for a, b in pairwise(first):
        cells = np.flatnonzero(np.bincount(key[a:b], minlength=len(place)))
        place[cells] = np.arange(len(cells))
        number = place[key[a:b]]
        found.append(cells)
        weights.append(np.stack([np.bincount(number, x[a:b], minlength=len(cells)) for x in inside], axis=1))
    counts = np.array([len(cells) for cells in found])
    return counts, np.concatenate(found), np.concatenate(weights), region_sizes(block)


class Cells(NamedTuple):
    """Image of each cell (c,), its group and edge as one index into (K, E + 1), what is missed of each region there,
    (R, c), and the sizes of the regions (n, R).
    """

    image: Array
    key: Array
    weights: Array
    sizes: Array


def cells_of(data: CalibrationData, images: Array, grouping: Grouping, edges: Array) -> Cells:
    """What the narrowest intervals miss on some images, by image, group and the edge that would cover it."""
    counts, key, weights, sizes = data.aggregate(missed_cells, images, grouping=grouping, edges=edges)
    return Cells(np.repeat(np.arange(len(counts)), counts), key, np.ascontiguousarray(weights.T), sizes)


def missed_by(target: RiskTarget, cells: Cells, shape: tuple[int, int]) -> Array:
    """What a promise misses at each widening of each group, as a mean over the images that have its region: (K, E)."""
    counts = target.counts(cells.sizes)
    size = np.where(counts, cells.sizes[:, target.region], 1.0)
    per_image = counts / (size * max(1, counts.sum()))
    if target.weighting == "pixels":
        per_image = counts / max(1.0, float(size[counts].sum()))
    weight = cells.weights[target.region] * per_image[cells.image]
    groups, edges = shape
    sums = np.bincount(cells.key, weight, minlength=groups * (edges + 1))
    return np.cumsum(sums.reshape(groups, edges + 1)[:, ::-1], axis=1)[:, ::-1][:, 1:]


@dataclass(frozen=True, eq=False)
class _SimulatedCertification:
    """The test of a promise on the fitting units, sizes of its region, and how many units will certify it."""

    target: RiskTarget
    risk_test: RiskTest
    size: Array
    units: int

    def losses(self, missed: Array, point: int) -> Array:
        return self.risk_test.losses(self.target.losses(missed[:, point], self.size))

    def passes(self, losses: Array) -> bool:
        """Whether as many units like these would pass, were they a little worse than the fitting units let on."""
        mean = float(losses.mean())
        error = float(losses.std()) * (1 / len(losses) + 1 / self.units) ** 0.5
        unlucky = np.minimum(losses * (1 + _DOUBT * error / mean), 1.0) if mean > 0 else losses
        return self.risk_test.passes(np.resize(unlucky, self.units))

    def stop(self, missed: Array) -> int:
        """The first point that as many units like these would certify, or the last."""
        points = range(missed.shape[1] - 1)
        return bisect_left(points, True, key=lambda point: self.passes(self.losses(missed, point)))

    def used(self, missed: Array, point: int, stop: int) -> float:
        """What is missed at a point, of what may be missed where this promise alone would stop."""
        if point == stop:
            return 1.0
        allowed = float(self.losses(missed, stop).mean())
        return max(_LEAST, float(self.losses(missed, point).mean()) / allowed) if allowed > 0 else _LEAST


def _simulated_certifications(fitting: FittingImages, target: Target, sizes: Array) -> list[_SimulatedCertification]:
    """One for each promise whose region some fitting image has."""
    unit_of = np.unique(fitting.unit_of, return_inverse=True)[1]
    everyone = np.arange(int(unit_of.max()) + 1)
    simulated = []
    for risk in fitting.weighed(target):
        if risk.counts(sizes).any():
            test = risk_test_of(
                replace(risk, weighting="units"),  # how units count shapes no path
                sizes, np.ones(len(unit_of), bool), unit_of, everyone, target.bound, target.failure_prob,
            )  # fmt: skip
            units = max(1, round(fitting.certifying * len(test.units.order) / len(everyone)))
            simulated.append(_SimulatedCertification(risk, test, sizes[:, risk.region], units))
    return simulated


def joint_frontier(fitting: FittingImages, grouping: Grouping, target: Target, risk_level: float) -> Path:
    """The path of a mixture of promises."""
    data, images = fitting.data, fitting.images
    grid = grid_of(data, images)
    traded = trades(data, images, grouping, grid)
    cells = cells_of(data, images, grouping, traded.edges)
    live = _simulated_certifications(fitting, target, cells.sizes)
    widest = float(grid.points(data.family.start, per_octave=1)[-1])
    if not live:
        return frontier_path(traded, grouping, risk_level, widest)
    parts = np.stack([missed_by(x.target, cells, traded.missed.shape) for x in live])
    level, mu = _multipliers(live, parts, traded, cells, risk_level)
    return frontier_path(_mixed(traded, parts, mu), grouping, level, widest)


def _mixed(traded: Trades, parts: Array, mu: Array) -> Trades:
    return replace(traded, missed=np.tensordot(mu, parts, axes=1), entries=1)


def _multipliers(
    live: Sequence[_SimulatedCertification], parts: Array, traded: Trades, cells: Cells, risk_level: float
) -> tuple[float, Array]:
    """Mixed risk where the test would stop, and the multipliers (promises,) with which it is shortest there."""
    mu = np.full(len(live), 1.0 / len(live))
    level = risk_level
    best = (np.inf, level, mu)
    since = 0  # rounds without a shorter one
    groups = np.arange(len(traded.missed))
    for number in range(_ROUNDS):
        reached, _ = traversal(_mixed(traded, parts, mu), level)
        if not reached.shape[1]:
            break
        edges = np.arange(len(traded.edges) + 1)  # at which point each group has reached each, or behind the last
        score = np.concatenate([np.searchsorted(row, edges) for row in reached])[cells.key]
        of_region = {
            r: weigh_missed(cells.image, score, cells.weights[r], len(cells.sizes), reached.shape[1])
            for r in {x.target.region for x in live}
        }
        missed = [of_region[x.target.region] for x in live]
        stops = [x.stop(table) for x, table in zip(live, missed, strict=True)]
        point = max(stops)
        at = groups, reached[:, point]
        length = float(traded.length[at].sum())
        left = parts[:, at[0], at[1]].sum(axis=1)  # what each promise misses there
        if length < best[0]:
            best = (length, max(float(mu @ left), _FINE), mu)
            since = 0
        since += 1
        if len(live) == 1 or since > _PATIENCE:
            break
        used = [x.used(table, point, stop) for x, table, stop in zip(live, missed, stops, strict=True)]
        mu = mu * np.array(used) ** (1.0 if number < _ROUNDS // 4 else 0.5)
        mu = np.maximum(mu, _FLOOR * mu.max())
        mu = mu / mu.sum()
        level = max(float(mu @ left), _FINE)
    return best[1], best[2]


def joint_point(fitting: FittingImages, path: Path, target: Target) -> int:
    """The first point at which as many units like these would certify every promise, or the last."""
    table, sizes, *_ = fitting.data.aggregate(misses, fitting.images, path=path)
    point = 0
    for x in _simulated_certifications(fitting, target, sizes):
        first = x.target.region * len(path)
        point = max(point, x.stop(table[:, first : first + len(path)]))
    return point
