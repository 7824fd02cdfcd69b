"""What an image shows around a pixel: means over a window, and the steepness, along any axes.

An axis of an image in memory is seen as (outer, length, inner). Window means are running sums in double precision,
rounded to single precision after every axis, with the outermost values repeated beyond the edge.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_LINES = 64  # that are summed at once


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
