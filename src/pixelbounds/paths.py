"""Groups to a monotone path of widenings.

A path is a curve t -> widening of each of K groups, nondecreasing in t, fixed before the certifying images are seen.
It is kept as T knots, and is linear between them. Because every group's widening only grows, each end has one arrival
time: the first t at which it is covered. Three paths:

scalar    one group, widening = t                                     RCPS
line      [solution of (P_K) + t * direction], at least the start     K-RCPS
frontier  groups widen in the order of misses removed per length      ours

**Frontier.** For group k let c_k(w) be the clipped length that widening w adds and m_k(w) the number of missed ends,
both on the fitting images. Every point of the lower convex hull of (c_k, m_k) is a best trade for that group; going
through the hull segments of all groups in order of misses removed per unit of length visits (up to one segment) the
shortest intervals for every risk on the fitting images. Calibrating along that path is RCPS on a nested one-parameter
family: widenings only grow with t, so intervals are nested and the risk is nonincreasing in t, and the path does not
depend on the certifying images. The theorem of the paper uses nothing else of its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import isfinite

import numpy as np

from .arrays import Array, NoGuarantee
from .families import Family, additive
from .groups import Grouping, Partition, all_entries
from .kernels import FIXED_POINT, add_counts, add_lengths, arrivals, index_knots, lower_hull
from .pairs import Archive, Block, Pairs, Statistic
from .program import Points, Solution, add_to_cells, blank_cells, points_of, solve, sort_points

KNOTS = 2048
GAMMAS = tuple(np.linspace(0.3, 0.7, 16))


@dataclass(frozen=True, eq=False)
class Path:
    """Widenings along the path: knots (K, T), nondecreasing in T."""

    knots: Array

    def __post_init__(self) -> None:
        if (np.diff(self.knots, axis=1) < 0).any():
            raise ValueError("a path must be nondecreasing in every group")

    def __len__(self) -> int:
        return self.knots.shape[1]

    def at(self, knot: int, part: float = 1.0) -> Array:
        """Widenings (K,) a share `part` of the way from the knot before to a knot, rounded up."""
        high = self.knots[:, knot]
        if part == 1.0:
            return high.copy()
        low = self.knots[:, knot - 1]
        between = low + part * (high - low)
        return np.minimum(high, between + 2.0**-48 * np.maximum(np.abs(low), np.abs(high)))

    def between(self, knot: int, steps: int) -> Path:
        """The way from the knot before to a knot, in even steps."""
        low, high = self.knots[:, knot - 1, None], self.knots[:, knot, None]
        inner = low + np.arange(steps) / steps * (high - low)
        return Path(np.maximum.accumulate(np.append(np.minimum(inner, high), high, axis=1), axis=1))

    def arrivals(self, label: Array, shortfall: Array) -> Array:
        """First knot that covers each end, T if none: (e,), (e,) -> (e,)."""
        return arrivals(self.knots, self._index, label, shortfall)

    @cached_property
    def _index(self) -> tuple[int, Array]:
        return index_knots(self.knots)


def grid_of(pairs: Archive) -> tuple[float, int, int]:
    """Scale of a grid of widenings and the octaves that it reaches below and above it; no image is looked at."""
    span = pairs.limits[1] - pairs.limits[0]
    if pairs.family is additive and isfinite(span):
        return span, 14, 0  # widening by the whole range covers everything
    return (1.0, 14, 14) if isfinite(span) else (1.0, 20, 20)


def widening_grid(pairs: Archive, per_octave: int) -> Array:
    """The start, then widenings in geometric progression: (points,)."""
    scale, below, above = grid_of(pairs)
    octaves = np.linspace(-below, above, per_octave * (below + above) + 1)
    return np.concatenate([[0.0], scale * 2.0**octaves]) + pairs.family.start


# ---------------------------------------------------------------- scalar


def scalar_path(pairs: Archive) -> Path:
    """One group whose widening is the path's parameter; its knots depend on no image."""
    return Path(widening_grid(pairs, per_octave=146)[None])


# ---------------------------------------------------------------- line


def surrogate_points(
    pairs: Pairs, images: Array, grouping: Grouping, pixels: Array | None = None
) -> tuple[Points, Array]:
    """All pixels of the fitting images (or some positions) as weighted points of (P_K), and the pixels per group."""
    top = _top_reach(pairs, images)
    chosen = None if pixels is None else np.flatnonzero(pixels)

    def work(truth: Array, block: Block) -> tuple[Array, Array, Array]:
        entry = np.arange(len(block) * block.image_size)
        if chosen is not None:
            entry = (np.arange(len(block))[:, None] * block.image_size + chosen).reshape(-1)
        half, reach = half_and_reach(pairs.family, truth, block, entry)
        return grouping.at(block, entry, np.zeros(len(entry), np.uint8)), half, reach

    if pairs.sizes[images].sum() <= 2**17 or chosen is not None:  # few: every pixel is a point
        parts = [np.concatenate(p) for p in zip(*pairs.over_blocks(work, images), strict=True)]
        points = sort_points(*parts)
    else:
        cells = sum(
            pairs.over_blocks(lambda t, b: add_to_cells(blank_cells(grouping.count), *work(t, b), top), images),
            start=blank_cells(grouping.count),
        )
        points = points_of(cells, top)
    return points, np.bincount(points.group, points.weight, minlength=grouping.count)


def half_and_reach(family: Family, truth: Array, block: Block, entry: Array) -> tuple[Array, Array]:
    """Half-width and distance of the truth from the middle (additive), or 0 and the widening that covers: (e,) each."""
    x = np.asarray(truth.reshape(-1)[entry], np.float64)
    if family is additive:
        lower, upper = block.clipped(entry)
        return (upper - lower) / 2, np.abs(x - (lower + upper) / 2)
    need = np.asarray(family.shortfall(truth, block.band), np.float64).reshape(-1)[entry]
    if not np.isfinite(need).all():
        raise NoGuarantee(
            f"{int((~np.isfinite(need)).sum())} pixels cannot be covered by any widening of the {family.name} family, "
            "so (P_K) has no solution; use method='rcps' or 'frontier', or the additive family"
        )
    return np.zeros(len(entry)), np.maximum(need, 0.0)


def _top_reach(pairs: Pairs, images: Array) -> float:
    span = pairs.limits[1] - pairs.limits[0]
    if pairs.family is additive and isfinite(span):
        return span

    def work(truth: Array, block: Block) -> float:
        half, reach = half_and_reach(pairs.family, truth, block, np.arange(len(block) * block.image_size))
        return max(float(half.max()), float(reach.max()), 1e-12)

    return max(pairs.over_blocks(work, images))


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


def solve_program(
    pairs: Pairs,
    images: Array,
    grouping: Grouping,
    risk_level: float,
    gammas: Sequence[float] = GAMMAS,
    pixels: Array | None = None,
) -> Solution:
    """(P_K) on the fitting images with the gamma of least objective."""
    points, sizes = surrogate_points(pairs, images, grouping, pixels)
    cost = sizes
    if pixels is not None and isinstance(grouping, Partition):  # a sampled pixel stands for its share of its group
        cost = np.bincount(grouping.labels.reshape(-1), minlength=grouping.count).astype(np.float64)
        points = points._replace(weight=points.weight * (cost / sizes)[points.group])
    cost = np.where(cost > 0, cost, 1.0)
    best: Solution | None = None
    found: Solution | None = None
    for gamma in gammas:
        found = solve(points, cost, risk_level * points.weight.sum(), gamma, start=pairs.family.start, warm=found)
        if best is None or found.objective < best.objective:
            best = found
    assert best is not None
    return best


def line_path(
    pairs: Pairs, images: Array, grouping: Grouping, offset: Array, direction: Array, risk_level: float
) -> Path:
    """[offset + t * direction], at least the start: knots dense where the fitting images meet the risk level."""
    start = pairs.family.start
    moving = direction > 0
    kinks = (start - offset[moving]) / direction[moving]

    def work(truth: Array, block: Block) -> Array:
        entry, side, need = block.missed(truth, pairs.family)
        label = grouping.at(block, entry, side)
        with np.errstate(divide="ignore", invalid="ignore"):
            times = (need - offset[label]) / direction[label]
        return times[~np.isnan(times)]

    times = np.concatenate(list(pairs.over_blocks(work, images)))
    allowed = int(risk_level * int(pairs.sizes[images].sum()))
    least = float(kinks.min())  # every group at the start
    middle = least
    if allowed < len(times):  # the time at which just the allowed number of ends is still to come
        middle = max(least, float(np.partition(times, len(times) - 1 - allowed)[len(times) - 1 - allowed]))
    latest = float(times[np.isfinite(times)].max(initial=0.0))
    scale, below, above = grid_of(pairs)
    reach = (scale * 2.0**above + np.abs(offset).max()) / direction[moving].min()
    most = max(reach, 2 * latest)
    middle = min(middle, most)
    halvings = 2.0 ** np.linspace(-below - above, 0, KNOTS // 2)
    t = np.unique(np.concatenate([
        kinks, [least, middle, most], middle + (most - middle) * halvings, middle - (middle - least) * halvings,
    ]))  # fmt: skip
    return Path(np.maximum(offset[:, None] + direction[:, None] * t[None], start))


# ---------------------------------------------------------------- frontier


@dataclass(frozen=True, eq=False)
class Trades:
    """What widening buys on the fitting images: misses left and clipped length added at the edges (E,), (K, E) each."""

    edges: Array
    missed: Array
    length: Array
    entries: int


class Ladder:
    """Ascending edges, and for each value of at least 0 the first edge that is at least the value."""

    def __init__(self, edges: Array) -> None:
        self.path = Path(edges[None])

    def cells(self, value: Array) -> Array:
        """(e,) -> (e,) in 0..E (E: beyond the last edge)."""
        return self.path.arrivals(np.zeros(len(value), np.int8), value)


def _farthest(truth: Array, block: Block, family: Family) -> tuple[Array, ...]:
    need = block.missed(truth, family)[2]
    return (need[np.isfinite(need)].max(initial=family.start, keepdims=True),)


def _longest(truth: Array, block: Block, family: Family, edge: float) -> tuple[Array, ...]:
    lower, upper = family.widen(block.band, np.float64(edge))
    return (np.array([np.max(block.band.upper - block.band.lower), np.max(upper - lower)], np.float64),)


def _spend(
    truth: Array, block: Block, family: Family, grouping: Grouping, edges: Array, units: Array
) -> tuple[Array, ...]:
    counts = np.zeros((grouping.count, len(edges) + 1), np.int64)
    entry, side, need = block.missed(truth, family)
    add_counts(grouping.at(block, entry, side), Ladder(edges).cells(need), counts)
    label = grouping.at(block, *all_entries(block))
    return counts, _length_sums(family, block, label, edges, (units[0], units[1]), grouping.count)


farthest = Statistic("farthest", _farthest, (np.maximum,))  # greatest finite shortfall: (1,)
longest = Statistic("longest", _longest, (np.maximum,))  # greatest width before widening and after: (2,)
spend = Statistic("spend", _spend, (np.add, np.add))  # misses by group and shortfall, sums of lengths


def trades(pairs: Archive, images: Array, grouping: Grouping) -> Trades:
    """Misses and clipped lengths of every group along a grid of widenings, as exact integer sums."""
    edges = _useful_edges(pairs, images)
    slope_unit, length_unit = _units_of_length(pairs, images, edges)
    units = np.array([slope_unit, length_unit])
    counts, sums = pairs.ask(spend, images, grouping=grouping, edges=edges, units=units)
    missed = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1][:, 1:]
    length = _lengths(sums, edges - pairs.family.start, slope_unit / length_unit) * (length_unit / FIXED_POINT)
    return Trades(edges, missed, length, int(pairs.sizes[images].sum()))


def _useful_edges(pairs: Archive, images: Array) -> Array:
    """The grid of widenings as far as the fitting images need it; within limits that is all of it."""
    grid = widening_grid(pairs, per_octave=46)
    if grid_of(pairs)[2] == 0:
        return grid
    (most,) = pairs.ask(farthest, images)
    return grid[: 2 + int(np.searchsorted(grid, most[0]))]


def _units_of_length(pairs: Archive, images: Array, edges: Array) -> tuple[float, float]:
    """What slopes and lengths are measured in, so that fixed-point sums neither overflow nor lose digits."""
    span = pairs.limits[1] - pairs.limits[0]
    if isfinite(span):
        return (1.0 if pairs.family is additive else span), span
    if pairs.family is additive:
        return 1.0, 1.0
    (found,) = pairs.ask(longest, images, edge=float(edges[-1]))
    return max(float(found[0]), 1e-300), max(float(found[1]), 1e-300)


def _length_sums(family: Family, block: Block, label: Array, edges: Array, units: tuple[float, float], k: int) -> Array:
    """Fixed-point sums from which lengths at the edges follow: (2, K, E + 1) for linear ends, else (K, E)."""
    least, most = block.limits
    if family.ends is not None:
        at = family.ends(block.band)
        sums = np.zeros((2, k, len(edges) + 1), np.int64)
        ends = [np.ascontiguousarray(x).reshape(-1) for x in at]
        ladder = (edges - family.start)[None]
        add_lengths(*ends, least, most, label, ladder[0], *index_knots(ladder), *units, sums[0], sums[1])
        return sums
    band = block.band_for(family)
    out = np.empty((k, len(edges)), np.int64)
    base = [np.clip(end, least, most).reshape(-1) for end in family.widen(band, np.float64(family.start))]
    for e, edge in enumerate(edges):
        lower, upper = (np.clip(end, least, most).reshape(-1) for end in family.widen(band, np.float64(edge)))
        gained = np.rint(np.concatenate([base[0] - lower, upper - base[1]]) * (FIXED_POINT / units[1]))
        out[:, e] = np.bincount(label, gained, minlength=k).astype(np.int64)  # integers below 2**53: exact
    return out


def _lengths(sums: Array, widening: Array, slope_unit: float) -> Array:
    """Lengths at the edges, (K, E): ends with room left grow by slope * widening, the others have used their room."""
    if sums.ndim == 2:
        return sums.astype(np.float64)
    slopes, rooms = sums
    full = np.cumsum(rooms, axis=1)[:, :-1]
    growing = np.cumsum(slopes[:, ::-1], axis=1)[:, ::-1][:, 1:]
    return full + growing * (slope_unit * widening)


def frontier_path(found: Trades, risk_level: float, widest: float) -> Path:
    """Widen the groups in the order of misses removed per length: the traversal of all hulls, thinned to knots.

    Beyond what the fitting images needed, all groups grow by one factor, up to the `widest` widening.
    """
    first, steps, price = [0], [], []
    for cost, missed in zip(found.length, found.missed, strict=True):
        hull = lower_hull(cost, missed)
        segment = np.diff(hull)  # each cell of a hull segment is one step, at the price of the segment
        steps.append(np.arange(hull[0] + 1, hull[-1] + 1))
        price.append(np.repeat(np.diff(cost[hull]) / -np.diff(missed[hull]), segment))
        first.append(first[-1] + len(steps[-1]))
    group = np.repeat(np.arange(len(steps)), np.diff(first))
    edge = np.concatenate(steps)
    if not len(edge):  # nothing was missed on the fitting images: widen all groups alike
        alike = np.append(
            found.edges[0], found.edges[1] * 2.0 ** np.linspace(0, np.log2(widest / found.edges[1]), KNOTS)
        )
        return Path(np.tile(np.minimum(alike, widest), (len(found.missed), 1)))
    order = np.argsort(np.concatenate(price), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    gain = found.missed[group, edge - 1] - found.missed[group, edge]
    risk = (found.missed[:, 0].sum() - np.cumsum(gain[order])) / found.entries
    chosen = _knots_by_risk(risk, risk_level)
    reached = np.zeros((len(found.missed), len(chosen) + 1), np.int64)  # edge index of each group at each knot
    for k, (a, b) in enumerate(pairwise(first)):
        done = np.searchsorted(place[a:b], chosen, side="right")  # within a group the order is along its hull
        reached[k, 1:] = np.concatenate([[0], edge[a:b]])[done]
    knots, start = found.edges[reached], found.edges[0]
    ended = knots[:, -1:] - start
    base = np.maximum(ended, ended.mean() / 4)
    octaves = np.log2((widest - start) / base.min())
    factors = 2.0 ** np.linspace(0, octaves, 2 + int(24 * max(octaves, 0)))
    tail = np.minimum(start + base * factors, widest)
    return Path(np.maximum.accumulate(np.concatenate([knots, tail], axis=1), axis=1))


def _knots_by_risk(risk: Array, risk_level: float) -> Array:
    """Steps to keep as knots: dense in risk about the level, sparse elsewhere."""
    dense = np.linspace(2.5 * risk_level, risk_level / 10, 3 * KNOTS // 4)
    sparse = np.linspace(float(risk[0]), 0, KNOTS // 8)
    tail = risk_level / 10 * 2.0 ** -np.linspace(0, 12, KNOTS // 8)
    at = np.searchsorted(-risk, -np.concatenate([dense, sparse, tail]))
    return np.unique(np.append(np.minimum(at, len(risk) - 1), len(risk) - 1))
