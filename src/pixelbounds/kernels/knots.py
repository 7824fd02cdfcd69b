"""Arrival times along a path, and the sums over images that follow from them.

An end arrives at the first knot of its group that is at least its shortfall; an index by leading bits finds it. Counts
are integers and lengths are fixed-point integers, so that sums over chunks, workers and sites are exact in any order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LOWER, UPPER = 0, 1  # the two ends of a pixel
FIXED_POINT = float(2**32)  # lengths are summed as integers of range / 2**32
KEY = 45  # a positive float64 shifted by this keeps its exponent and 7 bits: 128 keys per octave, in order


# ---------------------------------------------------------------- knots


@njit(nogil=True, cache=True)
def knots_below(knots: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How many knots of each row lie below each edge, both nondecreasing: (K, T), (E,) -> (K, E)."""
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
def arrivals(
    knots: np.ndarray, first: int, starts: np.ndarray, label: np.ndarray, value: np.ndarray, bits: np.ndarray
) -> np.ndarray:
    """First knot of its group that is at least each value (> 0), given with its bits: (e,) in 0..T (T: none).

    `starts` (K, keys + 1) says how many knots of a group lie below each key, the leading bits of a value; keys count
    from `first`.
    """
    out = np.empty(len(label), np.int32)
    for i in range(len(label)):
        k = label[i]
        out[i] = _first_at_least(knots[k], starts[k], (bits[i] >> KEY) - first, value[i])
    return out


# ---------------------------------------------------------------- certifying images


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


# ---------------------------------------------------------------- fitting images


@njit(nogil=True, cache=True)
def add_counts(label: np.ndarray, cell: np.ndarray, out: np.ndarray) -> None:
    """Add one to out[group, cell]."""
    for i in range(len(label)):
        out[label[i], cell[i]] += 1


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


@njit(nogil=True, cache=True, inline="always")
def _add_length(
    slope: float, room: float, group: int, edges: np.ndarray, first: int, starts: np.ndarray, slope_fixed: float,
    room_fixed: float, slopes: np.ndarray, rooms: np.ndarray, full: np.ndarray, bits: np.ndarray,
) -> None:  # fmt: skip
    full[0] = room / slope if slope > 0 else np.inf  # and `bits` sees the same eight bytes
    cell = _first_at_least(edges, starts, (bits[0] >> KEY) - first, full[0])
    slopes[group, cell] += np.int64(slope * slope_fixed + 0.5)
    if cell < len(edges):  # room that no edge uses up is never summed
        rooms[group, cell] += np.int64(room * room_fixed + 0.5)


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
