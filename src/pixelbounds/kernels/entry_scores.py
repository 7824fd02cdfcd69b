"""Entry scores along a path, and the sums over images that follow from them.

The entry score of an end is the first point of its group that is at least its score; an index by leading bits finds it.
Counts are integers and lengths are fixed-point integers, so sums over chunks, workers and sites are exact in any order.
"""

from __future__ import annotations

import numpy as np
from numba import njit

LOWER, UPPER = 0, 1  # the two ends of a pixel
FIXED_POINT = float(2**32)  # lengths are summed as integers of range / 2**32
KEY = 46  # a positive float64 shifted by this keeps its exponent and 6 bits: 64 keys per octave, in order
_ENTRIES = 512  # of a tile


# ---------------------------------------------------------------- points


@njit(nogil=True, cache=True, inline="always")
def _first_at_least(points: np.ndarray, starts: np.ndarray, key: int, value: float) -> int:
    """Index of the first of ascending points, the last of them infinite, that is at least a value.

    `key` counts from the first key; starts[key + 1] says how many points lie below it; starts begins with 0, ends with
    the number of finite points. Few points share a key, so that the last step is nearly always the only one.
    """
    at = min(max(key + 1, 0), len(starts) - 2)
    low, high = starts[at], starts[at + 1]
    while high - low > 1:
        middle = (low + high) >> 1
        if points[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low + int(points[low] < value)


@njit(nogil=True, cache=True)
def entry_scores(
    steps: np.ndarray, place: np.ndarray, first: int, starts: np.ndarray, label: np.ndarray, value: np.ndarray,
    bits: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """First point of its group that is at least each value (> 0), given with its bits: (e,) in 0..T (T: none).

    A group's points rise in few `steps` (K, S + 1), filled up with infinity, each first reached at the point `place`.
    `starts` says how many steps of a group lie below each key, the leading bits of a value; keys count from `first`.
    """
    out = np.empty(len(label), np.int32)
    for i in range(len(label)):
        k = label[i]
        out[i] = place[k, _first_at_least(steps[k], starts[k], (bits[i] >> KEY) - first, value[i])]
    return out


# ---------------------------------------------------------------- certifying images


@njit(nogil=True, cache=True)
def collect_missed(
    truth: np.ndarray, lower: np.ndarray, upper: np.ndarray, least: float, most: float, entry: np.ndarray,
    side: np.ndarray, score: np.ndarray,
) -> int:  # fmt: skip
    """Write index, end and additive score of every entry outside its clipped band; outputs have one place to spare.

    Misses of a tile are found first, all entries at once, then numbered without a branch. Returns the number of misses;
    those beyond the room given are not written.
    """
    kind = lower.dtype.type
    low_limit, high_limit = kind(least), kind(most)
    miss = np.empty(_ENTRIES, np.uint8)
    found = np.empty(_ENTRIES + 1, np.int64)
    missed = 0
    for start in range(0, len(truth), _ENTRIES):
        size = min(_ENTRIES, len(truth) - start)
        _find_misses(
            truth[start : start + size], lower[start : start + size], upper[start : start + size], low_limit,
            high_limit, miss,
        )  # fmt: skip
        count = 0
        for j in range(size):
            found[count] = start + j
            count += int(miss[j])
        for i in range(min(count, len(entry) - 1 - missed)):
            j = found[i]
            x = np.float64(truth[j])
            below = min(max(np.float64(lower[j]), least), most) - x
            above = x - min(max(np.float64(upper[j]), least), most)
            entry[missed + i] = j
            side[missed + i] = above > 0
            score[missed + i] = max(below, above)
        missed += count
    return missed


@njit(nogil=True, cache=True)
def _find_misses(
    truth: np.ndarray, lower: np.ndarray, upper: np.ndarray, least: float, most: float, miss: np.ndarray
) -> None:
    for j in range(len(truth)):
        low = lower[j] if lower[j] > least else least
        high = upper[j] if upper[j] < most else most
        low = low if low < most else most
        high = high if high > least else least
        miss[j] = (truth[j] < low) | (truth[j] > high)


@njit(nogil=True, cache=True)
def weigh_missed(image: np.ndarray, score: np.ndarray, weight: np.ndarray, n: int, points: int) -> np.ndarray:
    """Weight of the entries still missed at each path point, summed in their order: (e,), (e,), (e,) -> (n, points)."""
    out = np.zeros((n, points + 1), weight.dtype)
    for i in range(len(image)):
        out[image[i], score[i]] += weight[i]
    for i in range(n):
        for j in range(points - 1, -1, -1):
            out[i, j] += out[i, j + 1]
    return out[:, 1:]


# ---------------------------------------------------------------- fitting images


@njit(nogil=True, cache=True)
def add_lengths(
    lower: np.ndarray, upper: np.ndarray, lower_slope: np.ndarray, upper_slope: np.ndarray, least: float, most: float,
    label: np.ndarray, edges: np.ndarray, first: int, starts: np.ndarray, slope_unit: float, room_unit: float,
    sums: np.ndarray,
) -> None:  # fmt: skip
    """Add ends whose length grows by slope * widening until their room to the limits is used up: fixed-point sums.

    Labels are of all lower ends, and of all upper ends: (2, e). The cell of an end is the first edge at which its room
    is used up; sums of slopes and of rooms are (K, cells, 2). One slope may stand for all. Edges end with infinity.
    """
    slope_fixed, room_fixed = FIXED_POINT / slope_unit, FIXED_POINT / room_unit
    slope, room, full = np.empty(_ENTRIES), np.empty(_ENTRIES), np.empty(_ENTRIES)
    bits = full.view(np.int64)  # the same bytes
    last = len(edges) - 1
    for side in range(2):
        slopes = upper_slope if side else lower_slope
        for start in range(0, len(lower), _ENTRIES):
            size = min(_ENTRIES, len(lower) - start)
            if side:
                for j in range(size):
                    room[j] = most - min(max(np.float64(upper[start + j]), least), most)
            else:
                for j in range(size):
                    room[j] = min(max(np.float64(lower[start + j]), least), most) - least
            for j in range(size):
                slope[j] = slopes[start + j] if len(slopes) > 1 else slopes[0]
                full[j] = room[j] / slope[j] if slope[j] > 0 else np.inf
            for j in range(size):
                cell = min(_first_at_least(edges, starts, (bits[j] >> KEY) - first, full[j]), last)
                to = sums[label[side, start + j], cell]
                to[0] += np.int64(slope[j] * slope_fixed + 0.5)
                if cell < last:  # room that no edge uses up is never summed
                    to[1] += np.int64(room[j] * room_fixed + 0.5)


@njit(nogil=True, cache=True)
def add_points(
    cells: np.ndarray, group: np.ndarray, half: np.ndarray, reach: np.ndarray, least: float, size: float, unit: float
) -> None:
    """Add pixels to cells (K, a, a, 3) of relative size `size` in half and reach: count and fixed-point sums."""
    last = cells.shape[1] - 1
    for i in range(len(group)):
        h = min(last, int(min(np.log(half[i] / least) / size, last)) + 1) if half[i] > least else 0
        r = min(last, int(min(np.log(reach[i] / least) / size, last)) + 1) if reach[i] > least else 0
        cell = cells[group[i], h, r]
        cell[0] += 1
        cell[1] += np.int64(half[i] / unit * FIXED_POINT + 0.5)
        cell[2] += np.int64(reach[i] / unit * FIXED_POINT + 0.5)
