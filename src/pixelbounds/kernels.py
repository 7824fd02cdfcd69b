"""The few compiled loops.

Every kernel works on a block of rows (images), holds no lock and shares nothing, so `over_rows` may run blocks in
threads: results do not depend on how rows are cut. Counts are integers and lengths are fixed-point integers, so that
sums over chunks, workers and sites are exact in any order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numba import njit

T = TypeVar("T")
THREADS = max(1, min(8, os.cpu_count() or 1))
FIXED_POINT = float(2**32)  # lengths are summed as integers of range / 2**32

LOWER, UPPER = 0, 1  # the two ends of a pixel


def over_rows(function: Callable[[int, int], T], rows: int, *, block: int) -> Iterator[T]:
    """Results of `function(start, stop)` over blocks of rows, in order, computed in threads."""
    cuts = [(start, min(rows, start + block)) for start in range(0, rows, max(1, block))]
    if len(cuts) < 2 or THREADS < 2:
        yield from (function(*cut) for cut in cuts)
        return
    with ThreadPoolExecutor(THREADS) as pool:
        yield from pool.map(lambda cut: function(*cut), cuts)


def block_of(row_size: int, rows: int) -> int:
    """Rows per block: about a quarter of a million entries, yet enough blocks to feed every thread."""
    return max(1, min(2**18 // max(1, row_size), -(-rows // THREADS)))


# ---------------------------------------------------------------- values at the door


@njit(nogil=True, cache=True)
def extremes(rows: np.ndarray) -> np.ndarray:
    """Least and greatest value of each row: (n, p) -> (n, 2); NaN where a value is not finite."""
    n, p = rows.shape
    out = np.empty((n, 2))
    for i in range(n):
        low = rows[i, 0]
        high = rows[i, 0]
        poison = rows[i, 0] - rows[i, 0]
        for j in range(p):
            value = rows[i, j]
            low = value if value < low else low
            high = value if value > high else high
            poison += value - value  # 0 for every finite value, NaN otherwise
        out[i, 0] = low + poison
        out[i, 1] = high + poison
    return out


@njit(nogil=True, cache=True)
def count_above(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Entries of each row where left > right: (n, p), (n, p) -> (n,)."""
    n, p = left.shape
    out = np.zeros(n, np.int64)
    for i in range(n):
        count = 0
        for j in range(p):
            count += left[i, j] > right[i, j]
        out[i] = count
    return out


# ---------------------------------------------------------------- order statistics of samples

_PIXELS = 256  # a block of pixels whose tails stay in the first-level cache


@njit(nogil=True, cache=True)
def tails(samples: np.ndarray, start: int, stop: int, rank: int, low: np.ndarray, high: np.ndarray) -> bool:
    """The rank-th smallest and rank-th largest of columns start..stop: (m, p) -> (p,), (p,). False on NaN or inf.

    Each sample is pushed through two sorted tails with branch-free exchanges, which vectorise over pixels.
    """
    small = np.empty((rank, _PIXELS), samples.dtype)
    large = np.empty((rank, _PIXELS), samples.dtype)
    down = np.empty(_PIXELS, samples.dtype)
    up = np.empty(_PIXELS, samples.dtype)
    poison = np.zeros(_PIXELS, samples.dtype)
    for first in range(start, stop, _PIXELS):
        width = min(_PIXELS, stop - first)
        small[:] = np.inf
        large[:] = -np.inf
        for i in range(samples.shape[0]):
            for j in range(width):
                value = samples[i, first + j]
                down[j] = value
                up[j] = value
                poison[j] += value - value  # 0 for every finite value, NaN otherwise
            for r in range(rank):
                row = small[r]
                for j in range(width):
                    held = row[j]
                    value = down[j]
                    row[j] = value if value < held else held
                    down[j] = held if value < held else value
                row = large[r]
                for j in range(width):
                    held = row[j]
                    value = up[j]
                    row[j] = value if value > held else held
                    up[j] = held if value > held else value
        low[first : first + width] = small[rank - 1, :width]
        high[first : first + width] = large[rank - 1, :width]
    return poison.sum() == 0


# ---------------------------------------------------------------- arrival times


@njit(nogil=True, cache=True)
def first_at_least(edges: np.ndarray, value: float) -> int:
    """Index of the first edge that is at least `value`; len(edges) if none is."""
    low, high = 0, len(edges)
    while low < high:
        middle = (low + high) // 2
        if edges[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True, cache=True)
def bins(edges: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Bin of each value between inner edges: (b - 1,), (e,) -> (e,) in 0..b-1; a value on an edge goes below it."""
    out = np.empty(len(values), np.int32)
    for i in range(len(values)):
        out[i] = first_at_least(edges, values[i])
    return out


@njit(nogil=True, cache=True)
def count_missed(truth: np.ndarray, lower: np.ndarray, upper: np.ndarray, least: float, most: float) -> int:
    """Entries outside their band once the band is clipped to [least, most]."""
    count = 0
    for j in range(len(truth)):
        low = min(max(lower[j], least), most)
        high = min(max(upper[j], least), most)
        count += (truth[j] < low) | (truth[j] > high)
    return count


@njit(nogil=True, cache=True)
def collect_missed(
    truth: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    least: float,
    most: float,
    entry: np.ndarray,
    side: np.ndarray,
    shortfall: np.ndarray,
) -> None:
    """Write index, end and additive shortfall of every entry outside its clipped band."""
    at = 0
    for j in range(len(truth)):
        low = min(max(lower[j], least), most)
        high = min(max(upper[j], least), most)
        x = truth[j]
        if x < low:
            entry[at], side[at], shortfall[at] = j, 0, np.float64(low) - np.float64(x)
            at += 1
        elif x > high:
            entry[at], side[at], shortfall[at] = j, 1, np.float64(x) - np.float64(high)
            at += 1


@njit(nogil=True, cache=True)
def arrivals(knots: np.ndarray, label: np.ndarray, shortfall: np.ndarray) -> np.ndarray:
    """First path point whose widening covers each entry: knots (K, T), (e,), (e,) -> (e,) in 0..T (T: never)."""
    out = np.empty(len(label), np.int32)
    for i in range(len(label)):
        out[i] = first_at_least(knots[label[i]], shortfall[i])
    return out


@njit(nogil=True, cache=True)
def count_arrivals(image: np.ndarray, arrival: np.ndarray, n: int, points: int) -> np.ndarray:
    """Entries still missed at each path point: (e,), (e,) -> (n, points)."""
    out = np.zeros((n, points + 1), np.int32)
    for i in range(len(image)):
        out[image[i], arrival[i]] += 1
    for i in range(n):
        for j in range(points - 1, -1, -1):
            out[i, j] += out[i, j + 1]
    return out[:, 1:]


# ---------------------------------------------------------------- fitting statistics


@njit(nogil=True, cache=True)
def count_cells(edges: np.ndarray, label: np.ndarray, value: np.ndarray, out: np.ndarray) -> None:
    """Add one to out[group, first edge at least the value]; out is (K, len(edges) + 1)."""
    for i in range(len(label)):
        out[label[i], first_at_least(edges, value[i])] += 1


@njit(nogil=True, cache=True)
def add_lengths(
    edges: np.ndarray, label: np.ndarray, slope: np.ndarray, room: np.ndarray, unit: float, slopes: np.ndarray,
    rooms: np.ndarray,
) -> None:  # fmt: skip
    """Add ends whose length grows by slope * widening until their room is used up: fixed-point sums per cell.

    The cell of an end is the first edge at which its room is used up; slopes and rooms are (K, len(edges) + 1).
    """
    for i in range(len(label)):
        full = room[i] / slope[i] if slope[i] > 0 else np.inf
        cell = first_at_least(edges, full)
        slopes[label[i], cell] += np.int64(slope[i] / unit * FIXED_POINT + 0.5)
        if cell < len(edges):  # room that no edge uses up is never summed
            rooms[label[i], cell] += np.int64(room[i] / unit * FIXED_POINT + 0.5)


# ---------------------------------------------------------------- betting


@njit(nogil=True, cache=True)
def betting_wealth(losses: np.ndarray, level: float, failure_prob: float) -> float:
    """Greatest wealth of the predictable plug-in bettor against "the mean is at least `level`"."""
    n = len(losses)
    scale = 2.0 * np.log(1.0 / failure_prob) / n
    total, squares, variance = 0.5, 0.25, 0.25
    wealth, best = 0.0, 0.0
    for i in range(n):
        bet = min(1.0, np.sqrt(scale / variance))
        wealth += np.log1p(bet * (level - losses[i]))
        best = max(best, wealth)
        total += losses[i]
        deviation = losses[i] - total / (i + 2)
        squares += deviation * deviation
        variance = squares / (i + 2)
    return best


# ---------------------------------------------------------------- the convex program


@njit(nogil=True, cache=True)
def surrogate(
    widening: np.ndarray, q: float, group: np.ndarray, half: np.ndarray, reach: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum of the l-gamma losses of each group with its first and second derivative in the group's widening."""
    value = np.zeros(len(widening))
    slope = np.zeros(len(widening))
    curve = np.zeros(len(widening))
    for i in range(len(group)):
        k = group[i]
        span = half[i] + widening[k]
        if span > 0:
            scaled = (1 + q) * reach[i] / span
            if scaled > q:
                value[k] += weight[i] * (scaled - q)
                slope[k] -= weight[i] * scaled / span
                curve[k] += 2 * weight[i] * scaled / (span * span)
        elif reach[i] > 0:
            value[k] = np.inf
            slope[k] = -np.inf
            curve[k] = np.inf
    return value, slope, curve


@njit(nogil=True, cache=True)
def add_points(
    cells: np.ndarray, group: np.ndarray, half: np.ndarray, reach: np.ndarray, least: float, size: float, unit: float
) -> None:
    """Add pixels to cells (K, a, a, 3) of relative size `size` in half and reach: count and fixed-point sums."""
    last = cells.shape[1] - 1
    for i in range(len(group)):
        h = min(last, int(np.log(half[i] / least) / size) + 1) if half[i] > least else 0
        r = min(last, int(np.log(reach[i] / least) / size) + 1) if reach[i] > least else 0
        cell = cells[group[i], h, r]
        cell[0] += 1
        cell[1] += np.int64(half[i] / unit * FIXED_POINT + 0.5)
        cell[2] += np.int64(reach[i] / unit * FIXED_POINT + 0.5)


# ---------------------------------------------------------------- hulls


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
