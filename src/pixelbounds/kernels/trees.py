"""Sums of small decision trees, for many ends at once.

No tree is walked. Values are first turned into codes, the number of a feature's thresholds that lie below; then every
split of a tree, the last one first, chooses for all ends of a tile between what its two children have chosen already.
A split only reads splits after it, so there is nothing to loop in, no branch depends on an end, and a step takes as
many ends as a vector register has bytes. A split of two leaves is chosen in one step with the split above it, which
saves a row that is written and read. Sums are taken in the order of the trees, in double precision.

Codes count from -128: signed bytes compare in one step.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_ENDS = 2048  # of a tile: long enough for a pass over it to be worth a call, short enough for the cache
_LOWER, _UPPER = 0, 1
LEAF, ROW, PAIR = 0, 1, 2  # what a child is: a leaf, a split with a row of its own, or a split of two leaves
ALONE = 9  # kind of the only step of a tree that is one leaf


@njit(nogil=True, cache=True)
def predict_all(
    maps: np.ndarray, alike: int, lower: np.ndarray, upper: np.ndarray, least: float, most: float, rooms: bool,
    side_from: int, side_to: int, cuts: np.ndarray, cut_start: np.ndarray, steps: np.ndarray, first: np.ndarray,
    leaf: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Predictions for the ends of every pixel, of the sides side_from..side_to: maps (m, e) float32 -> out (2, e).

    The first `alike` maps say the same of both ends, the others point upward; then come the rooms of the end and of the
    opposite one, where there are `rooms`, and the side. Thresholds of feature f are cuts[cut_start[f]:cut_start[f+1]],
    filled up with infinity to a multiple of eight. Steps of tree t are steps[first[t]:first[t+1]], see `_choose`.
    """
    columns = len(cut_start) - 1
    codes = np.empty((columns, _ENDS), np.int8)
    chosen = np.empty((leaf.shape[1] + 3, _ENDS), np.uint8)
    value = np.empty(_ENDS, np.float32)
    for start in range(0, maps.shape[1], _ENDS):
        size = min(_ENDS, maps.shape[1] - start)
        for f in range(alike):
            _code(maps[f, start : start + size], cuts[cut_start[f] : cut_start[f + 1]], codes[f])
        for side in range(side_from, side_to):
            for f in range(alike, len(maps)):
                signed = maps[f, start : start + size]
                if side == _LOWER:
                    signed = np.negative(signed, value[:size])
                _code(signed, cuts[cut_start[f] : cut_start[f + 1]], codes[f])
            at = len(maps)
            if rooms:
                for opposite in range(2):
                    ends = lower if side == opposite else upper  # room of a lower end, or opposite of an upper one
                    _room(ends[start : start + size], least, most, side != opposite, value)
                    _code(value[:size], cuts[cut_start[at] : cut_start[at + 1]], codes[at])
                    at += 1
            value[:] = side
            _code(value[:size], cuts[cut_start[at] : cut_start[at + 1]], codes[at])
            total = out[side, start : start + size]
            total[:] = 0.0
            _add_trees(codes, steps, first, leaf, chosen, size, total)


@njit(nogil=True, cache=True)
def _room(ends: np.ndarray, least: float, most: float, above: bool, out: np.ndarray) -> None:
    for j in range(len(ends)):
        x = min(max(np.float64(ends[j]), least), most)
        out[j] = most - x if above else x - least


@njit(nogil=True, cache=True)
def _code(x: np.ndarray, cuts: np.ndarray, out: np.ndarray) -> None:
    """How many cuts lie below each value, less 128; eight at a time."""
    for j in range(len(x)):
        out[j] = -128
    for i in range(0, len(cuts) - 7, 8):
        a, b, c, d = cuts[i], cuts[i + 1], cuts[i + 2], cuts[i + 3]
        e, f, g, h = cuts[i + 4], cuts[i + 5], cuts[i + 6], cuts[i + 7]
        for j in range(len(x)):
            v = x[j]
            first = np.int8(v > a) + np.int8(v > b) + np.int8(v > c) + np.int8(v > d)
            second = np.int8(v > e) + np.int8(v > f) + np.int8(v > g) + np.int8(v > h)
            out[j] = np.int8(out[j] + first + second)


@njit(nogil=True, cache=True)
def _add_trees(
    codes: np.ndarray, steps: np.ndarray, first: np.ndarray, leaf: np.ndarray, chosen: np.ndarray, size: int,
    total: np.ndarray,
) -> None:  # fmt: skip
    """Add the leaves that the ends of a tile reach, tree by tree; four trees are added in one read of the sums.

    Tree t leaves its choice in row t % 4 of `chosen`.
    """
    trees = len(first) - 1
    for t in range(trees):
        for i in range(first[t], first[t + 1]):
            _choose(steps, i, codes, size, chosen)
        if t % 4 == 3:
            _add_four(chosen, leaf[t - 3 : t + 1], size, total)
    for t in range(trees - trees % 4, trees):
        for j in range(size):
            total[j] += leaf[t, chosen[t % 4, j]]


@njit(nogil=True, cache=True)
def _choose(steps: np.ndarray, i: int, codes: np.ndarray, size: int, chosen: np.ndarray) -> None:
    """What a split chooses for all ends of a tile. A step (12,) holds, in whole numbers,

    kind         3 * what the left child is + what the right one is (LEAF, ROW, PAIR), or ALONE
    row          of `chosen` into which the choice goes
    x, c         left where codes[x] <= c
    y, d, p, q   the left child: leaf p, row y, or, of a pair, leaf p where codes[y] <= d, else q
    z, e, r, s   the right one

    Children are read before one is chosen: no branch.
    """
    kind, row, x, c = steps[i, 0], steps[i, 1], steps[i, 2], np.int8(steps[i, 3])
    y, d, p, q = steps[i, 4], np.int8(steps[i, 5]), np.uint8(steps[i, 6]), np.uint8(steps[i, 7])
    z, e, r, s = steps[i, 8], np.int8(steps[i, 9]), np.uint8(steps[i, 10]), np.uint8(steps[i, 11])
    if kind == 3 * LEAF + LEAF:
        for j in range(size):
            chosen[row, j] = p if codes[x, j] <= c else r
    elif kind == 3 * LEAF + ROW:
        for j in range(size):
            b = chosen[z, j]
            chosen[row, j] = p if codes[x, j] <= c else b
    elif kind == 3 * LEAF + PAIR:
        for j in range(size):
            b = r if codes[z, j] <= e else s
            chosen[row, j] = p if codes[x, j] <= c else b
    elif kind == 3 * ROW + LEAF:
        for j in range(size):
            a = chosen[y, j]
            chosen[row, j] = a if codes[x, j] <= c else r
    elif kind == 3 * ROW + ROW:
        for j in range(size):
            a = chosen[y, j]
            b = chosen[z, j]
            chosen[row, j] = a if codes[x, j] <= c else b
    elif kind == 3 * ROW + PAIR:
        for j in range(size):
            a = chosen[y, j]
            b = r if codes[z, j] <= e else s
            chosen[row, j] = a if codes[x, j] <= c else b
    elif kind == 3 * PAIR + LEAF:
        for j in range(size):
            a = p if codes[y, j] <= d else q
            chosen[row, j] = a if codes[x, j] <= c else r
    elif kind == 3 * PAIR + ROW:
        for j in range(size):
            a = p if codes[y, j] <= d else q
            b = chosen[z, j]
            chosen[row, j] = a if codes[x, j] <= c else b
    elif kind == 3 * PAIR + PAIR:
        for j in range(size):
            a = p if codes[y, j] <= d else q
            b = r if codes[z, j] <= e else s
            chosen[row, j] = a if codes[x, j] <= c else b
    else:
        for j in range(size):
            chosen[row, j] = p


@njit(nogil=True, cache=True)
def _add_four(chosen: np.ndarray, leaf: np.ndarray, size: int, total: np.ndarray) -> None:
    p, q, r, s = chosen[0], chosen[1], chosen[2], chosen[3]
    a, b, c, d = leaf[0], leaf[1], leaf[2], leaf[3]
    for j in range(size):
        total[j] = (((total[j] + a[p[j]]) + b[q[j]]) + c[r[j]]) + d[s[j]]
