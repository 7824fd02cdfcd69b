"""The line of K-RCPS: the solution of (P_K) on the fitting images, and [solution + t * direction] from there.

Algorithm 1 and the program (P_K) of Section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from ...images.checks import NoGuarantee
from ...images.library import Array
from ..block import Block, Grouping
from ..data import CalibrationData
from ..families import Family, additive
from ..groups.positions import Partition
from .path import POINTS, Path, grid_of
from .program import Points, Solution, add_to_cells, blank_cells, points_of, solve, sort_points

GAMMAS = tuple(np.linspace(0.3, 0.7, 16))


def solve_program(
    data: CalibrationData,
    images: Array,
    grouping: Grouping,
    risk_level: float,
    gammas: Sequence[float] = GAMMAS,
    pixels: Array | None = None,
) -> Solution:
    """(P_K) on the fitting images with the gamma of least objective."""
    points, sizes = surrogate_points(data, images, grouping, pixels)
    cost = sizes
    if pixels is not None and isinstance(grouping, Partition):  # a sampled pixel stands for its share of its group
        cost = np.bincount(grouping.labels.reshape(-1), minlength=grouping.count).astype(np.float64)
        points = points._replace(weight=points.weight * (cost / sizes)[points.group])
    cost = np.where(cost > 0, cost, 1.0)
    best: Solution | None = None
    latest: Solution | None = None
    for gamma in gammas:
        latest = solve(points, cost, risk_level * points.weight.sum(), gamma, start=data.family.start, warm=latest)
        if best is None or latest.objective < best.objective:
            best = latest
    assert best is not None
    return best


def surrogate_points(
    data: CalibrationData, images: Array, grouping: Grouping, pixels: Array | None = None
) -> tuple[Points, Array]:
    """All pixels of the fitting images (or some positions) as weighted points of (P_K), and the pixels per group."""
    top = _top_reach(data, images)
    chosen = None if pixels is None else np.flatnonzero(pixels)

    def work(truth: Array, block: Block) -> tuple[Array, Array, Array]:
        entry = np.arange(len(block) * block.image_size)
        if chosen is not None:
            entry = (np.arange(len(block))[:, None] * block.image_size + chosen).reshape(-1)
        half, reach = half_and_reach(data.family, truth, block, entry)
        return grouping.at(block, entry, np.zeros(len(entry), np.uint8)), half, reach

    if data.sizes[images].sum() <= 2**17 or chosen is not None:  # few: every pixel is a point
        parts = [np.concatenate(p) for p in zip(*data.over_blocks(work, images), strict=True)]
        points = sort_points(*parts)
    else:
        cells = sum(
            data.over_blocks(lambda t, b: add_to_cells(blank_cells(grouping.count), *work(t, b), top), images),
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
