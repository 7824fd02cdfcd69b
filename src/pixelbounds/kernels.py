"""The few compiled loops.

Every kernel works on a block of rows (images), holds no lock and shares nothing, so `over_rows` may run blocks in
threads: results do not depend on how rows are cut. Counts are integers and lengths are fixed-point integers, so that
sums over chunks, workers and sites are exact in any order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
from numba import njit

T = TypeVar("T")
THREADS = max(1, min(8, os.cpu_count() or 1))
FIXED_POINT = float(2**32)  # lengths are summed as integers of range / 2**32

LOWER, UPPER = 0, 1  # the two ends of a pixel


Runner = Callable[[Callable[[int, int], Any], int, int], Iterator[Any]]  # function, rows, block -> results in order
RUNNER: ContextVar[Runner | None] = ContextVar("RUNNER", default=None)  # `execution.running` sets it; None: threads


def over_rows(function: Callable[[int, int], T], rows: int, *, block: int) -> Iterator[T]:
    """Results of `function(start, stop)` over blocks of rows, in order, computed in threads or by the runner set.

    The function must depend on nothing but its rows and return what it found: it may run in another process.
    """
    return (RUNNER.get() or in_threads)(function, rows, block)


def in_threads(function: Callable[[int, int], T], rows: int, block: int) -> Iterator[T]:
    """The same, always in this process: for functions that fill arrays of the caller's."""
    cuts = cut_rows(rows, block)
    if len(cuts) < 2 or THREADS < 2 or RUNNER.get() is in_this_thread:
        yield from (function(*cut) for cut in cuts)
        return
    with ThreadPoolExecutor(THREADS) as pool:
        yield from pool.map(lambda cut: function(*cut), cuts)


def in_this_thread(function: Callable[[int, int], T], rows: int, block: int) -> Iterator[T]:
    """The same, one block after the other: the runner within a block."""
    return (function(*cut) for cut in cut_rows(rows, block))


def cut_rows(rows: int, block: int) -> list[tuple[int, int]]:
    """Blocks of rows, (start, stop) each."""
    return [(start, min(rows, start + block)) for start in range(0, rows, max(1, block))]


def block_of(row_size: int, rows: int) -> int:
    """Rows per block: about a quarter of a million entries, enough blocks to feed every thread; little data is one."""
    if rows * row_size <= 2**15:
        return max(1, rows)
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


@njit(nogil=True, cache=True)
def survey(
    truth: np.ndarray, lower: np.ndarray, upper: np.ndarray, least: float, most: float, span: float
) -> tuple[int, int, int]:
    """How many entries are in order, missed by the clipped band, and far from the limits: three counts in one read.

    In order: truth within the limits, lower at most upper, both finite. Far: the band lies half a span outside.
    """
    huge = np.finfo(lower.dtype).max
    low_limit = lower.dtype.type(max(least, -huge))
    high_limit = lower.dtype.type(min(most, huge))
    below = lower.dtype.type(max(least - span / 2, -huge))
    above = lower.dtype.type(min(most + span / 2, huge))
    good, missed, far = 0, 0, 0
    for j in range(len(truth)):
        x, low, high = truth[j], lower[j], upper[j]
        good += (x >= low_limit) & (x <= high_limit) & (low <= high) & (low >= -huge) & (high <= huge)
        missed += ((x < low) & (x < high_limit)) | ((x > high) & (x > low_limit))
        far += (high < below) | (low > above)
    return good, missed, far


_LANES = 256


@njit(nogil=True, cache=True)
def fingerprint(words: np.ndarray, state: np.ndarray) -> None:
    """Fold 32-bit words into 256 lanes of state; each step is one to one, so a changed word always shows."""
    whole = len(words) // _LANES * _LANES
    for start in range(0, whole, _LANES):
        for lane in range(_LANES):
            state[lane] = (state[lane] ^ words[start + lane]) * np.uint32(16777619)
    for i in range(whole, len(words)):
        state[i - whole] = (state[i - whole] ^ words[i]) * np.uint32(16777619)


# ---------------------------------------------------------------- arrival times


_KEY = 45  # a positive float64 shifted by this keeps its exponent and 7 bits: 128 keys per octave, in order


def index_knots(knots: np.ndarray) -> tuple[int, np.ndarray]:
    """Index of rows of nondecreasing knots (K, T) by a value's leading bits: first key, and starts (K, keys + 1)."""
    positive = knots[knots > 0]
    if not len(positive):
        return 0, np.zeros((len(knots), 1), np.int32)
    keys = np.array([positive.min(), positive.max()]).view(np.int64) >> _KEY
    edges = (np.arange(keys[0], keys[1] + 2, dtype=np.int64) << _KEY).view(np.float64)
    return int(keys[0]), _starts(np.ascontiguousarray(knots), edges)


@njit(nogil=True, cache=True)
def _starts(knots: np.ndarray, edges: np.ndarray) -> np.ndarray:
    out = np.empty((len(knots), len(edges)), np.int32)
    for k in range(len(knots)):
        at = 0
        for e in range(len(edges)):
            while at < knots.shape[1] and knots[k, at] < edges[e]:
                at += 1
            out[k, e] = at
    return out


@njit(nogil=True, cache=True, inline="always")
def _first_at_least(knots: np.ndarray, starts: np.ndarray, key: int, value: float) -> int:
    """Index of the first knot that is at least a value, len(knots) if none is; `key` counts from the first key."""
    if key < 0:
        low, high = 0, starts[0]
    elif key >= len(starts) - 1:
        low, high = starts[-1], len(knots)
    else:
        low, high = starts[key], starts[key + 1]
    while low < high:
        middle = (low + high) >> 1
        if knots[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@njit(nogil=True, cache=True)
def _arrivals(
    knots: np.ndarray, first: int, starts: np.ndarray, label: np.ndarray, value: np.ndarray, bits: np.ndarray
) -> np.ndarray:
    out = np.empty(len(label), np.int32)
    for i in range(len(label)):
        k = label[i]
        out[i] = _first_at_least(knots[k], starts[k], (bits[i] >> _KEY) - first, value[i])
    return out


def arrivals(knots: np.ndarray, index: tuple[int, np.ndarray], label: np.ndarray, value: np.ndarray) -> np.ndarray:
    """First knot of its group that is at least each value (> 0): knots (K, T), (e,), (e,) -> (e,) in 0..T (T: none)."""
    value = np.ascontiguousarray(value, np.float64)
    return _arrivals(knots, *index, label, value, value.view(np.int64))


@njit(nogil=True, cache=True)
def collect_missed(
    truth: np.ndarray, lower: np.ndarray, upper: np.ndarray, least: float, most: float, entry: np.ndarray,
    side: np.ndarray, shortfall: np.ndarray,
) -> int:  # fmt: skip
    """Write index, end and additive shortfall of every entry outside its clipped band; outputs have one place to spare.

    Every entry is written and the place advances only after a miss: no branch depends on the data. Returns the number
    of misses; those beyond the room given are not written.
    """
    at, missed = 0, 0
    for j in range(len(truth)):
        low = min(max(np.float64(lower[j]), least), most)
        high = min(max(np.float64(upper[j]), least), most)
        x = np.float64(truth[j])
        below, above = low - x, x - high
        entry[at] = j
        side[at] = above > 0
        shortfall[at] = max(below, above)
        miss = int((below > 0) | (above > 0))
        missed += miss
        at = min(at + miss, len(entry) - 1)
    return missed


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


# ---------------------------------------------------------------- features of the band


@njit(nogil=True, cache=True, inline="always")
def _cell(value: float, low: float, per_cell: float, cells: int) -> int:
    return min(max(int((value - low) * per_cell), 0), cells - 1)


@njit(nogil=True, cache=True)
def band_cells(
    lower: np.ndarray, upper: np.ndarray, least: float, most: float, low: np.ndarray, per_cell: np.ndarray,
    out: np.ndarray,
) -> None:  # fmt: skip
    """Count ends in cells of width, room and level of the clipped band: out (3, cells); room needs finite limits."""
    cells = out.shape[1]
    for j in range(len(lower)):
        a = min(max(np.float64(lower[j]), least), most)
        b = min(max(np.float64(upper[j]), least), most)
        out[0, _cell(b - a, low[0], per_cell[0], cells)] += 2
        if per_cell[1] > 0:
            out[1, _cell(a - least, low[1], per_cell[1], cells)] += 1
            out[1, _cell(most - b, low[1], per_cell[1], cells)] += 1
        out[2, _cell((a + b) / 2, low[2], per_cell[2], cells)] += 2


@njit(nogil=True, cache=True)
def band_labels(
    lower: np.ndarray, upper: np.ndarray, least: float, most: float, low: np.ndarray, per_cell: np.ndarray,
    bin_of: np.ndarray, bins: np.ndarray, by_side: bool, table: np.ndarray, entry: np.ndarray, side: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Group of some ends: bins of width, room and level, (3, cells), combined and looked up in `table`: (e,)."""
    cells = bin_of.shape[1]
    out = np.empty(len(entry), np.int32)
    for i in range(len(entry)):
        a = min(max(np.float64(lower[entry[i]]), least), most)
        b = min(max(np.float64(upper[entry[i]]), least), most)
        at = np.int64(side[i]) if by_side else 0
        if bins[0] > 1:
            at = at * bins[0] + bin_of[0, _cell(b - a, low[0], per_cell[0], cells)]
        if bins[1] > 1:
            room = most - b if side[i] else a - least
            at = at * bins[1] + bin_of[1, _cell(room, low[1], per_cell[1], cells)]
        if bins[2] > 1:
            at = at * bins[2] + bin_of[2, _cell((a + b) / 2, low[2], per_cell[2], cells)]
        out[i] = table[at]
    return out


# ---------------------------------------------------------------- fitting statistics


@njit(nogil=True, cache=True)
def add_counts(label: np.ndarray, cell: np.ndarray, out: np.ndarray) -> None:
    """Add one to out[group, cell]."""
    for i in range(len(label)):
        out[label[i], cell[i]] += 1


@njit(nogil=True, cache=True, inline="always")
def _add_length(
    slope: float, room: float, group: int, edges: np.ndarray, first: int, starts: np.ndarray, slope_fixed: float,
    room_fixed: float, slopes: np.ndarray, rooms: np.ndarray, full: np.ndarray, bits: np.ndarray,
) -> None:  # fmt: skip
    full[0] = room / slope if slope > 0 else np.inf  # and `bits` sees the same eight bytes
    cell = _first_at_least(edges, starts, (bits[0] >> _KEY) - first, full[0])
    slopes[group, cell] += np.int64(slope * slope_fixed + 0.5)
    if cell < len(edges):  # room that no edge uses up is never summed
        rooms[group, cell] += np.int64(room * room_fixed + 0.5)


@njit(nogil=True, cache=True)
def add_lengths(
    lower: np.ndarray, upper: np.ndarray, lower_slope: np.ndarray, upper_slope: np.ndarray, least: float, most: float,
    label: np.ndarray, edges: np.ndarray, first: int, starts: np.ndarray, slope_unit: float, room_unit: float,
    slopes: np.ndarray, rooms: np.ndarray,
) -> None:  # fmt: skip
    """Add ends whose length grows by slope * widening until their room to the limits is used up: fixed-point sums.

    Labels are of all lower ends, then of all upper ends. The cell of an end is the first edge at which its room is used
    up; slopes and rooms are (K, edges + 1). One slope may stand for all.
    """
    n = len(lower)
    slope_fixed, room_fixed = FIXED_POINT / slope_unit, FIXED_POINT / room_unit
    full = np.empty(1)
    bits = full.view(np.int64)
    for i in range(n):
        rate = lower_slope[i] if len(lower_slope) > 1 else lower_slope[0]
        room = min(max(np.float64(lower[i]), least), most) - least
        _add_length(rate, room, label[i], edges, first, starts[0], slope_fixed, room_fixed, slopes, rooms, full, bits)
        rate = upper_slope[i] if len(upper_slope) > 1 else upper_slope[0]
        room = most - min(max(np.float64(upper[i]), least), most)
        _add_length(
            rate, room, label[n + i], edges, first, starts[0], slope_fixed, room_fixed, slopes, rooms, full, bits
        )


# ---------------------------------------------------------------- betting


@njit(nogil=True, cache=True)
def betting_wealth(losses: np.ndarray, level: float, failure_prob: float) -> float:
    """Greatest log wealth of the predictable plug-in bettor against "the mean is at least `level`".

    He stakes almost all that a loss of 1 could take: where losses vary little, that is what limits every valid bound.
    """
    n = len(losses)
    scale, most = 2.0 * np.log(1.0 / failure_prob) / n, (1.0 - 1.0 / n) / (1.0 - level)
    total, squares, variance = 0.5, 0.25, 0.25
    wealth, best = 0.0, 0.0
    for i in range(n):
        bet = min(most, np.sqrt(scale / variance))
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
