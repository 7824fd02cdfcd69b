"""Sums of small decision trees, for many ends at once.

No tree is walked. Values are first turned into codes, the number of a feature's thresholds that lie below; then every
split of a tree, the last one first, chooses for all ends of a tile between what its two children have chosen already.
A split only reads splits after it, so there is nothing to loop in, no branch depends on an end, and a step takes as
many ends as a vector register has bytes. Sums are taken in the order of the trees, in double precision.

Codes count from -128: signed bytes compare in one step.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_ENDS = 2048  # of a tile: long enough for a pass over it to be worth a call, short enough for the cache
_LOWER, _UPPER = 0, 1


@njit(nogil=True, cache=True)
def predict_all(
    maps: np.ndarray, alike: int, lower: np.ndarray, upper: np.ndarray, least: float, most: float, rooms: bool,
    cuts: np.ndarray, cut_start: np.ndarray, feature: np.ndarray, code: np.ndarray, left: np.ndarray,
    right: np.ndarray, root: np.ndarray, leaf: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """Predictions for both ends of every pixel: maps (m, e) float32 -> out (2, e).

    The first `alike` maps say the same of both ends, the others point upward; then come the rooms of the end and of the
    opposite one, where there are `rooms`, and the side. Thresholds of feature f are cuts[cut_start[f]:cut_start[f+1]],
    filled up with infinity to a multiple of eight.
    """
    columns = len(cut_start) - 1
    codes = np.empty((columns, _ENDS), np.int8)
    chosen = np.empty((leaf.shape[1] + 3, _ENDS), np.uint8)
    value = np.empty(_ENDS, np.float32)
    count = np.empty(_ENDS, np.int32)
    for start in range(0, maps.shape[1], _ENDS):
        size = min(_ENDS, maps.shape[1] - start)
        for f in range(alike):
            _code(maps[f, start : start + size], cuts[cut_start[f] : cut_start[f + 1]], count, codes[f])
        for side in range(2):
            for f in range(alike, len(maps)):
                signed = maps[f, start : start + size]
                if side == _LOWER:
                    _negate(signed, value)
                    signed = value[:size]
                _code(signed, cuts[cut_start[f] : cut_start[f + 1]], count, codes[f])
            at = len(maps)
            if rooms:
                for opposite in range(2):
                    if side == opposite:  # own room of a lower end, or the opposite one of an upper end
                        _room_below(lower[start : start + size], least, most, value)
                    else:
                        _room_above(upper[start : start + size], least, most, value)
                    _code(value[:size], cuts[cut_start[at] : cut_start[at + 1]], count, codes[at])
                    at += 1
            value[:] = side
            _code(value[:size], cuts[cut_start[at] : cut_start[at + 1]], count, codes[at])
            total = out[side, start : start + size]
            total[:] = 0.0
            _add_trees(codes[:, :size], feature, code, left, right, root, leaf, chosen[:, :size], total)


@njit(nogil=True, cache=True)
def predict_some(
    maps: np.ndarray, alike: int, lower: np.ndarray, upper: np.ndarray, least: float, most: float, rooms: bool,
    cuts: np.ndarray, cut_start: np.ndarray, feature: np.ndarray, code: np.ndarray, left: np.ndarray,
    right: np.ndarray, root: np.ndarray, leaf: np.ndarray, entry: np.ndarray, side: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    """The same for some ends, of the pixels `entry` (e,) and the sides (e,): out (e,)."""
    columns = len(cut_start) - 1
    codes = np.empty((columns, _ENDS), np.int8)
    chosen = np.empty((leaf.shape[1] + 3, _ENDS), np.uint8)
    value = np.empty(_ENDS, np.float32)
    count = np.empty(_ENDS, np.int32)
    for start in range(0, len(entry), _ENDS):
        size = min(_ENDS, len(entry) - start)
        for f in range(len(maps)):
            for j in range(size):
                x = maps[f, entry[start + j]]
                value[j] = -x if f >= alike and side[start + j] == _LOWER else x
            _code(value[:size], cuts[cut_start[f] : cut_start[f + 1]], count, codes[f])
        at = len(maps)
        if rooms:
            for opposite in range(2):
                for j in range(size):
                    i = entry[start + j]
                    if (side[start + j] == _LOWER) == (opposite == 0):
                        value[j] = min(max(np.float64(lower[i]), least), most) - least
                    else:
                        value[j] = most - min(max(np.float64(upper[i]), least), most)
                _code(value[:size], cuts[cut_start[at] : cut_start[at + 1]], count, codes[at])
                at += 1
        for j in range(size):
            value[j] = side[start + j]
        _code(value[:size], cuts[cut_start[at] : cut_start[at + 1]], count, codes[at])
        total = out[start : start + size]
        total[:] = 0.0
        _add_trees(codes[:, :size], feature, code, left, right, root, leaf, chosen[:, :size], total)


# ---------------------------------------------------------------- values to codes


@njit(nogil=True, cache=True)
def _negate(x: np.ndarray, out: np.ndarray) -> None:
    for j in range(len(x)):
        out[j] = -x[j]


@njit(nogil=True, cache=True)
def _room_below(lower: np.ndarray, least: float, most: float, out: np.ndarray) -> None:
    for j in range(len(lower)):
        out[j] = min(max(np.float64(lower[j]), least), most) - least


@njit(nogil=True, cache=True)
def _room_above(upper: np.ndarray, least: float, most: float, out: np.ndarray) -> None:
    for j in range(len(upper)):
        out[j] = most - min(max(np.float64(upper[j]), least), most)


@njit(nogil=True, cache=True)
def _code(x: np.ndarray, cuts: np.ndarray, count: np.ndarray, out: np.ndarray) -> None:
    """How many cuts lie below each value, less 128; eight at a time, counted in words as wide as the values."""
    for j in range(len(x)):
        count[j] = -128
    for i in range(0, len(cuts) - 7, 8):
        a, b, c, d = cuts[i], cuts[i + 1], cuts[i + 2], cuts[i + 3]
        e, f, g, h = cuts[i + 4], cuts[i + 5], cuts[i + 6], cuts[i + 7]
        for j in range(len(x)):
            v = x[j]
            first = np.int32(v > a) + np.int32(v > b) + np.int32(v > c) + np.int32(v > d)
            second = np.int32(v > e) + np.int32(v > f) + np.int32(v > g) + np.int32(v > h)
            count[j] += first + second
    for j in range(len(x)):
        out[j] = count[j]


# ---------------------------------------------------------------- codes to leaves, leaves to sums


@njit(nogil=True, cache=True)
def _add_trees(
    codes: np.ndarray, feature: np.ndarray, code: np.ndarray, left: np.ndarray, right: np.ndarray, root: np.ndarray,
    leaf: np.ndarray, chosen: np.ndarray, total: np.ndarray,
) -> None:  # fmt: skip
    """Add the leaves that the ends of a tile reach, tree by tree; four trees are added in one read of the sums."""
    trees = len(root) - 1
    for t in range(trees):
        _choose_leaves(codes, feature, code, left, right, root[t], root[t + 1], t % 4, chosen)
        if t % 4 == 3:
            _add_four(chosen, leaf[t - 3 : t + 1], total)
    for t in range(trees - trees % 4, trees):
        _add_one(chosen[t % 4], leaf[t], total)


@njit(nogil=True, cache=True)
def _choose_leaves(
    codes: np.ndarray, feature: np.ndarray, code: np.ndarray, left: np.ndarray, right: np.ndarray, first: int,
    stop: int, place: int, chosen: np.ndarray,
) -> None:  # fmt: skip
    """Leaf of every end in one tree, in chosen[place]; that of its split i, i > 0, is in chosen[3 + i].

    Children count within the tree, and leaf i is written as ~i.
    """
    if first == stop:
        chosen[place] = 0  # a tree of one leaf
    for i in range(stop - 1, first - 1, -1):
        a, b = left[i], right[i]
        x, out = codes[feature[i]], chosen[3 + i - first if i > first else place]
        if a < 0 and b < 0:
            _choose(x, code[i], np.uint8(~a), np.uint8(~b), out)
        elif a < 0:
            _choose_right(x, code[i], np.uint8(~a), chosen[3 + b], out)
        elif b < 0:
            _choose_left(x, code[i], chosen[3 + a], np.uint8(~b), out)
        else:
            _choose_both(x, code[i], chosen[3 + a], chosen[3 + b], out)


@njit(nogil=True, cache=True)
def _choose(x: np.ndarray, code: int, left: int, right: int, out: np.ndarray) -> None:
    for j in range(len(out)):
        out[j] = left if x[j] <= code else right


@njit(nogil=True, cache=True)
def _choose_left(x: np.ndarray, code: int, left: np.ndarray, right: int, out: np.ndarray) -> None:
    for j in range(len(out)):
        a = left[j]
        out[j] = a if x[j] <= code else right


@njit(nogil=True, cache=True)
def _choose_right(x: np.ndarray, code: int, left: int, right: np.ndarray, out: np.ndarray) -> None:
    for j in range(len(out)):
        b = right[j]
        out[j] = left if x[j] <= code else b


@njit(nogil=True, cache=True)
def _choose_both(x: np.ndarray, code: int, left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    for j in range(len(out)):
        a = left[j]  # both are read before one is chosen: no branch
        b = right[j]
        out[j] = a if x[j] <= code else b


@njit(nogil=True, cache=True)
def _add_four(chosen: np.ndarray, leaf: np.ndarray, total: np.ndarray) -> None:
    p, q, r, s = chosen[0], chosen[1], chosen[2], chosen[3]
    a, b, c, d = leaf[0], leaf[1], leaf[2], leaf[3]
    for j in range(len(total)):
        total[j] = (((total[j] + a[p[j]]) + b[q[j]]) + c[r[j]]) + d[s[j]]


@njit(nogil=True, cache=True)
def _add_one(chosen: np.ndarray, leaf: np.ndarray, total: np.ndarray) -> None:
    for j in range(len(total)):
        total[j] += leaf[chosen[j]]
