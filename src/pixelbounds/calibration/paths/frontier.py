"""The frontier: groups widen in the order of misses removed per length (in place of the line of Section 3.2).

For group k let c_k(w) be the clipped length that widening w adds and m_k(w) the number of missed ends, both on the
fitting images. Every point of the lower convex hull of (c_k, m_k) is a best trade for that group; going through the
hull segments of all groups in order of misses removed per unit of length visits (up to one segment) the shortest
intervals for every risk on the fitting images. Calibrating along that path is RCPS on a nested one-parameter family:
widenings only grow with t, so intervals are nested and the risk is nonincreasing in t, and the path does not depend on
the certifying images. The theorem of the paper uses nothing else of its line.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

import numpy as np

from ...images.library import Array
from ...kernels.convex import lower_hull
from ...kernels.entry_scores import FIXED_POINT, add_lengths
from ..block import Block, Grouping, Single
from ..data import CalibrationData, statistic
from ..families import Family, additive
from .path import POINTS, Grid, Path, grid_of, index_points

_ONE = np.ones(1)  # the slope of every additive end
_POOLED_ENDS = 1024  # of all labels that a group within a label counts beside its own

# ---------------------------------------------------------------- what widening buys


@dataclass(frozen=True, eq=False)
class Trades:
    """What widening buys on the fitting images: misses left and clipped length added at the edges (E,), (K, E) each.

    Where groups have `pools`, each is priced as if it had a `part` of what its pool has beside its own.
    """

    edges: Array
    missed: Array
    length: Array
    entries: int
    pools: Array | None = None
    part: float = 0.0

    def priced(self, x: Array) -> Array:
        """Misses or lengths (K, E) with a part of the pool's."""
        if self.pools is None:
            return x
        pooled = np.zeros((int(self.pools.max()) + 1, x.shape[1]))
        np.add.at(pooled, self.pools, x)
        return x + self.part * pooled[self.pools]


def trades(data: CalibrationData, images: Array, grouping: Grouping, grid: Grid | None = None) -> Trades:
    """Misses and clipped lengths of every group along a grid of widenings, as exact integer sums."""
    grid = grid_of(data, images) if grid is None else grid
    edges = grid.points(data.family.start, per_octave=46)
    edges = edges[: 2 + int(np.searchsorted(edges, grid.most))]  # as far as the fitting images need it
    slope_unit, length_unit = _units_of_length(data, images, edges)
    units = np.array([slope_unit, length_unit])
    counts, sums = data.aggregate(spend, images, grouping=grouping, edges=edges, units=units)
    missed = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1][:, 1:]
    length = _lengths(sums, edges - data.family.start, slope_unit / length_unit) * (length_unit / FIXED_POINT)
    entries = int(data.sizes[images].sum())
    sides = 1 if grouping.pools is None else int(grouping.pools.max()) + 1
    return Trades(edges, missed, length, entries, grouping.pools, _POOLED_ENDS * sides / (2 * entries))


def _units_of_length(data: CalibrationData, images: Array, edges: Array) -> tuple[float, float]:
    """What slopes and lengths are measured in, so that fixed-point sums neither overflow nor lose digits."""
    span = data.limits[1] - data.limits[0]
    if isfinite(span):
        return (1.0 if data.family is additive else span), span
    if data.family is additive:
        return 1.0, 1.0
    (found,) = data.aggregate(longest, images, edge=float(edges[-1]))
    return max(float(found[0]), 1e-300), max(float(found[1]), 1e-300)


def _lengths(sums: Array, widening: Array, slope_unit: float) -> Array:
    """Lengths at the edges, (K, E): ends with room left grow by slope * widening, the others have used their room."""
    if sums.ndim == 2:
        return sums.astype(np.float64)
    slopes, rooms = sums
    full = np.cumsum(rooms, axis=1)[:, :-1]
    growing = np.cumsum(slopes[:, ::-1], axis=1)[:, ::-1][:, 1:]
    return full + growing * (slope_unit * widening)


# ---------------------------------------------------------------- statistics of a block


def first_edges(edges: Array, value: Array) -> Array:
    """First of the ascending edges that is at least each value, E if none: (E,), (e,) -> (e,)."""
    return Path(edges[None], Single()).entry_scores(np.zeros(len(value), np.int8), value)


@statistic(np.maximum)
def longest(truth: Array, block: Block, family: Family, edge: float) -> tuple[Array, ...]:
    """Greatest width before widening and after: (2,)."""
    lower, upper = family.widen(block.band, np.float64(edge))
    return (np.array([np.max(block.band.upper - block.band.lower), np.max(upper - lower)], np.float64),)


@statistic(np.add, np.add)
def spend(
    truth: Array, block: Block, family: Family, grouping: Grouping, edges: Array, units: Array
) -> tuple[Array, ...]:
    """Misses by group and score, and sums of lengths (`_length_sums`)."""
    grouping.check(block)
    entry, side, need = block.missed(truth, family)
    shape = grouping.count, len(edges) + 1
    label = np.broadcast_to(grouping.every(block), (2, len(block) * block.image_size))
    if not 0 <= label.min() <= label.max() < grouping.count:  # sums are kept by group
        raise IndexError(f"groups reach from {label.min()} to {label.max()}, but there are {grouping.count}")
    cell = np.ravel_multi_index((label[side, entry], first_edges(edges, need)), shape)
    counts = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    return counts, _length_sums(family, block, label, edges, (units[0], units[1]), grouping.count)


def _length_sums(family: Family, block: Block, label: Array, edges: Array, units: tuple[float, float], k: int) -> Array:
    """Fixed-point sums from which lengths at the edges follow: (2, K, E + 1) for linear ends, else (K, E)."""
    least, most = block.limits
    if family.ends is not None:
        sums = np.zeros((k, len(edges) + 1, 2), np.int64)  # both sums of a cell lie together
        ends = [*block.flat_ends(), _ONE, _ONE]
        if family is not additive:
            ends = [np.ascontiguousarray(x).reshape(-1) for x in family.ends(block.band)]
        ladder = np.append(edges - family.start, np.inf)
        first, starts = index_points(ladder[None])
        add_lengths(*ends, least, most, label, ladder, first, starts[0], *units, sums)
        return np.ascontiguousarray(np.moveaxis(sums, 2, 0))
    band = block.band_for(family)
    out = np.empty((k, len(edges)), np.int64)
    base = [np.clip(end, least, most).reshape(-1) for end in family.widen(band, np.float64(family.start))]
    for e, edge in enumerate(edges):
        lower, upper = (np.clip(end, least, most).reshape(-1) for end in family.widen(band, np.float64(edge)))
        gained = np.rint(np.concatenate([base[0] - lower, upper - base[1]]) * (FIXED_POINT / units[1]))
        out[:, e] = np.bincount(label.reshape(-1), gained, minlength=k).astype(np.int64)  # integers below 2**53: exact
    return out


# ---------------------------------------------------------------- the traversal


def frontier_path(found: Trades, grouping: Grouping, risk_level: float, widest: float) -> Path:
    """Widen the groups in the order of misses removed per length: the traversal of all hulls, thinned to points.

    Beyond what the fitting images needed, all groups grow by one factor, up to the `widest` widening.
    """
    reached, risk = traversal(found, risk_level)
    if not reached.shape[1]:  # nothing was missed on the fitting images: widen all groups alike
        alike = np.append(
            found.edges[0], found.edges[1] * 2.0 ** np.linspace(0, np.log2(widest / found.edges[1]), POINTS)
        )
        return Path(np.tile(np.minimum(alike, widest), (len(found.missed), 1)), grouping)
    points, start = found.edges[reached], found.edges[0]
    ended = points[:, -1:] - start
    base = np.maximum(ended, ended.mean() / 4)  # a group without a miss widens too
    octaves = np.log2((widest - start) / base.min())
    factors = 2.0 ** np.linspace(0, octaves, 2 + int(24 * max(octaves, 0)))
    tail = np.minimum(start + base * factors, widest)
    usual = min(1 + int(np.searchsorted(-risk, -risk_level)), len(risk))
    return Path(np.maximum.accumulate(np.concatenate([points, tail], axis=1), axis=1), grouping, usual)


def traversal(found: Trades, risk_level: float) -> tuple[Array, Array]:
    """Edge that each group has reached at each point, (K, points), from no widening on, and the risk that is left at
    all points but the first; no points where nothing is missed.

    Points are dense where the risk on the fitting images is about the level.
    """
    first = [0]
    steps = []
    price = []
    for cost, missed in zip(found.priced(found.length), found.priced(found.missed), strict=True):
        hull = lower_hull(cost, missed)
        segment = np.diff(hull)  # each cell of a hull segment is one step, at the price of the segment
        steps.append(np.arange(hull[0] + 1, hull[-1] + 1))
        price.append(np.repeat(np.diff(cost[hull]) / -np.diff(missed[hull]), segment))
        first.append(first[-1] + len(steps[-1]))
    group = np.repeat(np.arange(len(steps)), np.diff(first))
    edge = np.concatenate(steps)
    if not len(edge):
        return np.empty((len(found.missed), 0), np.int64), np.empty(0)
    order = np.argsort(np.concatenate(price), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    gain = found.missed[group, edge - 1] - found.missed[group, edge]
    risk = (found.missed[:, 0].sum() - np.cumsum(gain[order])) / found.entries
    chosen = _points_by_risk(risk, risk_level)
    reached = np.zeros((len(found.missed), len(chosen) + 1), np.int64)
    for k, (a, b) in enumerate(pairwise(first)):
        done = np.searchsorted(place[a:b], chosen, side="right")  # within a group the order is along its hull
        reached[k, 1:] = np.concatenate([[0], edge[a:b]])[done]
    return reached, risk[chosen]


def frontier_of(data: CalibrationData, images: Array, grouping: Grouping, risk_level: float) -> Path:
    """The frontier of a grouping on some images."""
    grid = grid_of(data, images)
    widest = float(grid.points(data.family.start, per_octave=1)[-1])
    return frontier_path(trades(data, images, grouping, grid), grouping, risk_level, widest)


def _points_by_risk(risk: Array, risk_level: float) -> Array:
    """Steps to keep as points: dense in risk about the level, sparse elsewhere."""
    dense = np.linspace(2.5 * risk_level, risk_level / 10, 3 * POINTS // 4)
    sparse = np.linspace(float(risk[0]), 0, POINTS // 8)
    tail = risk_level / 10 * 2.0 ** -np.linspace(0, 12, POINTS // 8)
    at = np.searchsorted(-risk, -np.concatenate([dense, sparse, tail]))
    return np.unique(np.append(np.minimum(at, len(risk) - 1), len(risk) - 1))
