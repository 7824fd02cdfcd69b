"""Features of the band, clipped to the limits: width, room to the limits and level of an end; cells and bins of them.

Around a pixel: means over a window and the steepness, along any axes. An axis of an image in memory is seen as (outer,
length, inner). Window means are running sums in double precision, rounded to single precision after every axis, with
the outermost values repeated beyond the edge.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_PIXELS = 512  # of a tile
_LINES = 64  # that are summed at once


@njit(nogil=True, cache=True, inline="always")
def _bounded(x: float, last: int) -> np.int32:
    """The whole part within 0..last."""
    x = x if x > 0.0 else 0.0
    return np.int32(x if x < last else last)


@njit(nogil=True, cache=True)
def band_cells(
    lower: np.ndarray, upper: np.ndarray, least: float, most: float, low: np.ndarray, per_cell: np.ndarray,
    out: np.ndarray,
) -> None:  # fmt: skip
    """Count ends in cells of width, room and level of the clipped band: out (3, cells); room needs finite limits."""
    last = out.shape[1] - 1
    for j in range(len(lower)):
        a = min(max(np.float64(lower[j]), least), most)
        b = min(max(np.float64(upper[j]), least), most)
        out[0, _bounded((b - a - low[0]) * per_cell[0], last)] += 2
        if per_cell[1] > 0:
            out[1, _bounded((a - least - low[1]) * per_cell[1], last)] += 1
            out[1, _bounded((most - b - low[1]) * per_cell[1], last)] += 1
        out[2, _bounded(((a + b) / 2 - low[2]) * per_cell[2], last)] += 2


@njit(nogil=True, cache=True)
def band_labels(
    lower: np.ndarray, upper: np.ndarray, least: float, most: float, low: np.ndarray, per_cell: np.ndarray,
    step_of: np.ndarray, bins: np.ndarray, by_side: bool, table: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Groups of both ends of every pixel, (2, e): bins of the clipped band, looked up in `table`.

    `step_of` (3, cells) says how far in the table a cell's bin lies behind the first one.
    """
    last = step_of.shape[1] - 1
    cell = np.empty((4, _PIXELS), np.int32)  # of width, of the rooms of both ends, and of level
    place = np.empty(_PIXELS, np.int32)
    other_side = len(table) // 2 if by_side else 0
    of_width, of_room, of_level = step_of[0], step_of[1], step_of[2]
    for start in range(0, len(lower), _PIXELS):
        stop = min(start + _PIXELS, len(lower))
        _tile_cells(lower[start:stop], upper[start:stop], least, most, low, per_cell, bins, last, cell)
        for j in range(stop - start):
            place[j] = of_width[cell[0, j]]
        if bins[2] > 1:
            for j in range(stop - start):
                place[j] += of_level[cell[3, j]]
        for side in range(2):
            to, room, first = out[side, start:stop], cell[1 + side], side * other_side
            if bins[1] > 1:
                for j in range(stop - start):
                    to[j] = table[first + place[j] + of_room[room[j]]]
            else:
                for j in range(stop - start):
                    to[j] = table[first + place[j]]


@njit(nogil=True, cache=True)
def _tile_cells(
    lower: np.ndarray, upper: np.ndarray, least: float, most: float, low: np.ndarray, per_cell: np.ndarray,
    bins: np.ndarray, last: int, cell: np.ndarray,
) -> None:  # fmt: skip
    width, below, above, level = cell[0], cell[1], cell[2], cell[3]
    a0, a1, a2 = low[0], low[1], low[2]
    b0, b1, b2 = per_cell[0], per_cell[1], per_cell[2]
    for j in range(len(lower)):
        a = min(max(np.float64(lower[j]), least), most)
        b = min(max(np.float64(upper[j]), least), most)
        width[j] = _bounded((b - a - a0) * b0, last)
    if bins[1] > 1:
        for j in range(len(lower)):
            a = min(max(np.float64(lower[j]), least), most)
            b = min(max(np.float64(upper[j]), least), most)
            below[j] = _bounded((a - least - a1) * b1, last)
            above[j] = _bounded((most - b - a1) * b1, last)
    if bins[2] > 1:
        for j in range(len(lower)):
            a = min(max(np.float64(lower[j]), least), most)
            b = min(max(np.float64(upper[j]), least), most)
            level[j] = _bounded(((a + b) / 2 - a2) * b2, last)


@njit(nogil=True, cache=True)
def prediction_labels(
    value: np.ndarray, lower: np.ndarray, upper: np.ndarray, least: float, most: float, rooms: bool, side_from: int,
    side_to: int, edges: np.ndarray, start: np.ndarray, first: np.ndarray, room_edges: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Groups of ends of every pixel, of some sides, from predictions (2, e): bins of `edges` (2, b), and of the room.

    The bins of a side count from start (2,); group numbers of a bin count from `first`, by bins of its room_edges.
    """
    place = np.empty(_PIXELS, np.int64)  # as wide as the values that are compared
    group = np.empty(_PIXELS, np.int64)
    room = np.empty(_PIXELS)
    for begin in range(0, value.shape[1], _PIXELS):
        stop = min(begin + _PIXELS, value.shape[1])
        for side in range(side_from, side_to):
            _places(value[side, begin:stop], edges[side], start[side], place)
            for j in range(stop - begin):
                group[j] = first[place[j]]
            if rooms:
                if side:
                    for j in range(stop - begin):
                        room[j] = most - min(max(np.float64(upper[begin + j]), least), most)
                else:
                    for j in range(stop - begin):
                        room[j] = min(max(np.float64(lower[begin + j]), least), most) - least
                _add_room_bins(place[: stop - begin], room, room_edges, group)
            out[side, begin:stop] = group[: stop - begin]


@njit(nogil=True, cache=True)
def _places(value: np.ndarray, edges: np.ndarray, start: int, out: np.ndarray) -> None:
    """Bins of values: few edges are compared with many values at once."""
    if len(edges) > 31:
        for j in range(len(value)):
            out[j] = start + np.searchsorted(edges, value[j])
        return
    out[:] = start
    whole = len(edges) // 3 * 3
    for i in range(0, whole, 3):
        a, b, c = edges[i], edges[i + 1], edges[i + 2]
        for j in range(len(value)):
            x = value[j]
            out[j] += np.int64(a < x) + np.int64(b < x) + np.int64(c < x)
    for i in range(whole, len(edges)):
        a = edges[i]
        for j in range(len(value)):
            out[j] += np.int64(a < value[j])


@njit(nogil=True, cache=True)
def _add_room_bins(place: np.ndarray, room: np.ndarray, edges: np.ndarray, group: np.ndarray) -> None:
    for j in range(len(place)):
        row = edges[place[j]]
        count = 0
        for c in range(len(row)):
            count += row[c] < room[j]
        group[j] += count


@njit(nogil=True, cache=True)
def width_and_level(
    lower: np.ndarray, upper: np.ndarray, least: float, most: float, width: np.ndarray, level: np.ndarray
) -> None:
    """Width and middle of the clipped band in single precision: (e,) each."""
    for j in range(len(lower)):
        a = np.float32(min(max(np.float64(lower[j]), least), most))
        b = np.float32(min(max(np.float64(upper[j]), least), most))
        width[j] = b - a
        level[j] = (b + a) / np.float32(2)


@njit(nogil=True, cache=True)
def window_means(x: np.ndarray, size: int, out: np.ndarray) -> None:
    """Means over `size` (odd) values along the middle axis: (outer, length, inner) float32; out may be x."""
    outer, length, inner = x.shape
    if inner == 1:
        for o in range(0, outer, _LINES):
            lines = x[o : o + _LINES, :, 0].T.copy()
            _across_lines(lines, size, np.empty(lines.shape[1]), out[o : o + _LINES, :, 0].T)
        return
    held = np.empty((length, inner), np.float32)
    total = np.empty(inner)
    for o in range(outer):
        held[:] = x[o]
        _across_lines(held, size, total, out[o])


@njit(nogil=True, cache=True)
def _across_lines(x: np.ndarray, size: int, total: np.ndarray, out: np.ndarray) -> None:
    """Along the first axis of (length, inner), all lines at once."""
    length = len(x)
    half = size // 2
    total[:] = 0.0
    for i in range(size):
        row = x[min(max(i - half, 0), length - 1)]
        for k in range(len(total)):
            total[k] += np.float64(row[k])
    for i in range(length):
        mean, coming, going = out[i], x[min(i + half + 1, length - 1)], x[max(i - half, 0)]
        for k in range(len(total)):
            mean[k] = total[k] / size
            total[k] += np.float64(coming[k]) - np.float64(going[k])


@njit(nogil=True, cache=True)
def add_squared_slope(x: np.ndarray, out: np.ndarray) -> None:
    """Add the square of the slope along the middle axis, central within and one-sided at the edges."""
    outer, length, inner = x.shape
    for o in range(outer):
        last = (length - 1) * inner
        values, sums = x[o].reshape(-1), out[o].reshape(-1)
        _add_squares(values[inner : 2 * inner], values[:inner], np.float32(1), sums[:inner])
        _add_squares(values[2 * inner :], values[: -2 * inner], np.float32(2), sums[inner:last])
        _add_squares(values[last:], values[last - inner : last], np.float32(1), sums[last:])


@njit(nogil=True, cache=True)
def _add_squares(high: np.ndarray, low: np.ndarray, distance: float, sums: np.ndarray) -> None:
    for j in range(len(sums)):
        slope = (high[j] - low[j]) / distance
        sums[j] += slope * slope
