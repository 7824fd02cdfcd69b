"""Bands to intervals: each end moves outward by the widening of its group, within the limits, rounded outward.

The arithmetic is that of the additive family in double precision; where ends are stored in single precision, an end
that rounding moved inward takes one step outward. A group that has no widening is counted, never looked up.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_ENDS = 512  # of a tile
_ROUNDING = 2.0**-50  # as calibration.families has it


@njit(nogil=True, cache=True)
def widen_ends(
    lower: np.ndarray, upper: np.ndarray, least: float, most: float, below: np.ndarray, above: np.ndarray,
    widening: np.ndarray, out_lower: np.ndarray, out_upper: np.ndarray, single: bool,
) -> int:  # fmt: skip
    """Intervals (e,), float64 or `single` float32, from the groups of lower and upper ends; how many groups have no
    widening.
    """
    exact = np.empty(_ENDS)
    strange = 0
    lower_bits, upper_bits = out_lower.view(np.int32), out_upper.view(np.int32)
    for start in range(0, len(lower), _ENDS):
        stop = min(start + _ENDS, len(lower))
        strange += _look_up(below[start:stop], widening, exact)
        _move_ends(lower[start:stop], -1.0, least, most, exact)
        out_lower[start:stop] = exact[: stop - start]
        if single:
            _step_down(exact, out_lower[start:stop], lower_bits[start:stop])
        strange += _look_up(above[start:stop], widening, exact)
        _move_ends(upper[start:stop], 1.0, least, most, exact)
        out_upper[start:stop] = exact[: stop - start]
        if single:
            _step_up(exact, out_upper[start:stop], upper_bits[start:stop])
    return strange


@njit(nogil=True, cache=True)
def _look_up(group: np.ndarray, widening: np.ndarray, out: np.ndarray) -> int:
    strange = 0
    for j in range(len(group)):
        k = group[j]
        known = 0 <= k < len(widening)
        strange += not known
        out[j] = widening[k if known else 0]
    return strange


@njit(nogil=True, cache=True)
def _move_ends(band: np.ndarray, sign: float, least: float, most: float, ends: np.ndarray) -> None:
    """From widenings to ends, in place: lower ones with sign -1, upper ones with sign 1."""
    for j in range(len(band)):
        x = _within(np.float64(band[j]), least, most)
        w = ends[j]
        ends[j] = _within(x + sign * w + sign * _ROUNDING * (abs(x) + w), least, most)


@njit(nogil=True, cache=True, inline="always")
def _within(x: float, least: float, most: float) -> float:
    x = least if x < least else x  # in this order zeros keep their sign, as NumPy's clip has it
    return most if x > most else x


@njit(nogil=True, cache=True)
def _step_down(exact: np.ndarray, out: np.ndarray, bits: np.ndarray) -> None:
    """Next number below where rounding went up; `bits` are the bytes of `out`."""
    for j in range(len(out)):
        b = bits[j]
        next_below = b - np.int32(1) if b > 0 else (b + np.int32(1) if b < 0 else np.int32(-(2**31) + 1))
        bits[j] = next_below if np.float64(out[j]) > exact[j] else b


@njit(nogil=True, cache=True)
def _step_up(exact: np.ndarray, out: np.ndarray, bits: np.ndarray) -> None:
    """Next number above where rounding went down."""
    for j in range(len(out)):
        b = bits[j]
        minus_zero = b == np.int32(-(2**31))
        next_above = b + np.int32(1) if b >= 0 else (np.int32(1) if minus_zero else b - np.int32(1))
        bits[j] = next_above if np.float64(out[j]) < exact[j] else b
