"""Features of the band, clipped to the limits: width, room to the limits and level of an end, in cells and bins."""

from __future__ import annotations

import numpy as np
from numba import njit


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
