"""Order statistics of samples, compiled: the two sorted tails of every pixel, kept while samples stream by.

Eight samples at a time are sorted and merged into the tails by comparator networks: no branch depends on the data, so a
pass takes as many pixels at once as a vector register holds. The upper tail is the lower tail of the negated samples.
All rows of work space lie at fixed distances in one array: so the compiler sees that they do not overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Eight = tuple[Any, Any, Any, Any, Any, Any, Any, Any]  # rows, or values of a pixel

_PIXELS = 256  # of a pass: the work space stays in the first-level cache, or for long tails in the second
_P = _PIXELS + 16  # from row to row; at a power of two they would all compete for the same places in the cache
_UP, _DOWN, _TAIL = _P, 9 * _P, 17 * _P  # after a row that turns NaN: sorted samples, those negated, and the tails
_SIDE, _BLOCK = 8 * _P, 16 * _P  # tails are blocks of eight ranks, of the lower and then of the upper side


@njit(nogil=True, cache=True)
def tails(samples: np.ndarray, start: int, stop: int, rank: int, low: np.ndarray, high: np.ndarray) -> bool:
    """The rank-th smallest and rank-th largest of columns start..stop: (m, p) -> (p,), (p,). False on NaN or inf."""
    m = samples.shape[0]
    blocks = (rank + 7) // 8
    space = np.zeros(_TAIL + blocks * _BLOCK, samples.dtype)
    up, down, tail = space[_UP:_DOWN], space[_DOWN:_TAIL], space[_TAIL:]
    for first in range(start, stop, _PIXELS):
        end = min(stop, first + _PIXELS)
        tail[:] = np.inf
        for i in range(0, m - 7, 8):
            rows = (
                samples[i, first:end], samples[i + 1, first:end], samples[i + 2, first:end], samples[i + 3, first:end],
                samples[i + 4, first:end], samples[i + 5, first:end], samples[i + 6, first:end],
                samples[i + 7, first:end],
            )  # fmt: skip
            if blocks == 1:
                _push(rows, space)
                continue
            _sort(rows, space)
            for b in range(blocks):
                _merge(up, tail[b * _BLOCK :], end - first)
                _merge(down, tail[b * _BLOCK + _SIDE :], end - first)
        for i in range(m - m % 8, m):
            _insert(samples[i, first:end], space, rank)
        _take(tail[_row(rank - 1) :], space, low[first:end], high[first:end])
    return bool(space[:_P].sum() == 0)


@njit(nogil=True, cache=True)
def _row(r: int) -> int:
    """Where in the tails the lower side of a rank, counted from 0, begins."""
    return r // 8 * _BLOCK + r % 8 * _P


@njit(nogil=True, cache=True)
def _take(found: np.ndarray, space: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Put out the rows of a rank; infinite samples are at the ends of the tails."""
    for j in range(len(low)):
        low[j], high[j] = found[j], -found[j + _SIDE]
        least, most = space[j + _TAIL], space[j + _TAIL + _SIDE]
        space[j] += (least - least) + (most - most)  # 0 for finite ones, NaN otherwise


@njit(nogil=True, cache=True)
def _push(rows: Eight, space: np.ndarray) -> None:
    """Merge eight samples into tails of one block."""
    for j in range(len(rows[0])):
        a, b, c, d, e, f, g, h = _read(rows, space, j)
        _put(space, j + _TAIL, _least((a, b, c, d, e, f, g, h), _get(space, j + _TAIL)))
        upper = _get(space, j + _TAIL + _SIDE)
        _put(space, j + _TAIL + _SIDE, _least((-h, -g, -f, -e, -d, -c, -b, -a), upper))


@njit(nogil=True, cache=True)
def _sort(rows: Eight, space: np.ndarray) -> None:
    """Sort eight samples into the rows UP, and negated into the rows DOWN."""
    for j in range(len(rows[0])):
        a, b, c, d, e, f, g, h = _read(rows, space, j)
        _put(space, j + _UP, (a, b, c, d, e, f, g, h))
        _put(space, j + _DOWN, (-h, -g, -f, -e, -d, -c, -b, -a))


@njit(nogil=True, cache=True)
def _merge(new: np.ndarray, tail: np.ndarray, width: int) -> None:
    """Merge eight new ones into a block of a tail; those that it loses become the new ones."""
    for j in range(width):
        ours, theirs = _get(new, j), _get(tail, j)
        _put(tail, j, _least(ours, theirs))
        _put(new, j, _most(ours, theirs))


@njit(nogil=True, cache=True)
def _insert(row: np.ndarray, space: np.ndarray, rank: int) -> None:
    """Push one sample through both tails."""
    for j in range(len(row)):
        space[j], space[j + _UP], space[j + _DOWN] = np.nan if row[j] != row[j] else space[j], row[j], -row[j]
    for r in range(rank):
        _exchange(space[_UP:], space[_TAIL + _row(r) :], len(row))


@njit(nogil=True, cache=True)
def _exchange(new: np.ndarray, tail: np.ndarray, width: int) -> None:
    for j in range(width):
        a, b, c, d = new[j], tail[j], new[j + _SIDE], tail[j + _SIDE]
        new[j], tail[j], new[j + _SIDE], tail[j + _SIDE] = _more(a, b), _less(a, b), _more(c, d), _less(c, d)


@njit(nogil=True, cache=True)
def _read(rows: Eight, space: np.ndarray, j: int) -> Eight:
    """Eight samples of a pixel, sorted; NaN is noted."""
    s, t, u, v, w, x, y, z = rows
    a, b, c, d, e, f, g, h = s[j], t[j], u[j], v[j], w[j], x[j], y[j], z[j]
    bad = (a != a) | (b != b) | (c != c) | (d != d) | (e != e) | (f != f) | (g != g) | (h != h)
    space[j] = np.nan if bad else space[j]
    return _sorted(a, b, c, d, e, f, g, h)


@njit(nogil=True, cache=True)
def _get(x: np.ndarray, j: int) -> Eight:
    return (
        x[j], x[j + _P], x[j + 2 * _P], x[j + 3 * _P], x[j + 4 * _P], x[j + 5 * _P], x[j + 6 * _P], x[j + 7 * _P]
    )  # fmt: skip


@njit(nogil=True, cache=True)
def _put(x: np.ndarray, j: int, values: Eight) -> None:
    x[j], x[j + _P], x[j + 2 * _P], x[j + 3 * _P] = values[0], values[1], values[2], values[3]
    x[j + 4 * _P], x[j + 5 * _P], x[j + 6 * _P], x[j + 7 * _P] = values[4], values[5], values[6], values[7]


@njit(nogil=True, cache=True)
def _less(a: float, b: float) -> float:
    return a if a < b else b


@njit(nogil=True, cache=True)
def _more(a: float, b: float) -> float:
    return b if a < b else a


@njit(nogil=True, cache=True)
def _sorted(a: float, b: float, c: float, d: float, e: float, f: float, g: float, h: float) -> Eight:
    """Eight values, ascending, after 19 exchanges."""
    a, c, b, d = _less(a, c), _more(a, c), _less(b, d), _more(b, d)
    e, g, f, h = _less(e, g), _more(e, g), _less(f, h), _more(f, h)
    a, e, b, f = _less(a, e), _more(a, e), _less(b, f), _more(b, f)
    c, g, d, h = _less(c, g), _more(c, g), _less(d, h), _more(d, h)
    a, b, c, d = _less(a, b), _more(a, b), _less(c, d), _more(c, d)
    e, f, g, h = _less(e, f), _more(e, f), _less(g, h), _more(g, h)
    c, e, d, f = _less(c, e), _more(c, e), _less(d, f), _more(d, f)
    b, e, d, g = _less(b, e), _more(b, e), _less(d, g), _more(d, g)
    return a, _less(b, c), _more(b, c), _less(d, e), _more(d, e), _less(f, g), _more(f, g), h


@njit(nogil=True, cache=True)
def _settled(a: float, b: float, c: float, d: float, e: float, f: float, g: float, h: float) -> Eight:
    """Eight values that rise and then fall, or fall and then rise, ascending after 12 exchanges."""
    a, e, b, f = _less(a, e), _more(a, e), _less(b, f), _more(b, f)
    c, g, d, h = _less(c, g), _more(c, g), _less(d, h), _more(d, h)
    a, c, b, d = _less(a, c), _more(a, c), _less(b, d), _more(b, d)
    e, g, f, h = _less(e, g), _more(e, g), _less(f, h), _more(f, h)
    return _less(a, b), _more(a, b), _less(c, d), _more(c, d), _less(e, f), _more(e, f), _less(g, h), _more(g, h)


@njit(nogil=True, cache=True)
def _least(x: Eight, y: Eight) -> Eight:
    """The least eight of two sorted eights, sorted."""
    a, b, c, d, e, f, g, h = x
    s, t, u, v, w, p, q, r = y
    return _settled(
        _less(h, s), _less(g, t), _less(f, u), _less(e, v), _less(d, w), _less(c, p), _less(b, q), _less(a, r)
    )  # fmt: skip


@njit(nogil=True, cache=True)
def _most(x: Eight, y: Eight) -> Eight:
    """The greatest eight of two sorted eights, sorted."""
    a, b, c, d, e, f, g, h = x
    s, t, u, v, w, p, q, r = y
    return _settled(
        _more(h, s), _more(g, t), _more(f, u), _more(e, v), _more(d, w), _more(c, p), _more(b, q), _more(a, r)
    )  # fmt: skip
