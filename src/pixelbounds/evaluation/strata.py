"""Two passes over blocks of images, from pixels to sums per image and stratum.

`survey` checks values and adds up histograms of interval length and of the truth's edge strength, whose quantiles cut
the strata; `tally` counts pixels, misses and length of every image in every stratum. Histograms are integers and
tallies are rows per image, so chunks give the same bits as the whole. The quantiles (strata, median) are those of all
pixels alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..images.checks import Limits, check_count, check_ordered, check_values
from ..images.ends import check_range
from ..images.foreign import as_plain_array
from ..images.library import Array, as_array, library_of, to_numpy
from ..images.regions import edge_strength

LENGTH_CUTS = (0.2, 0.4, 0.6, 0.8)  # quantiles of the interval length between strata
EDGE_CUTS = (0.5, 0.8, 0.95)  # quantiles of the edge strength
_LAST_BITS = 15  # a cell of a histogram is a float32 without its last bits: 256 cells per octave, whatever the range
_CELLS = 1 << (31 - _LAST_BITS)
_INFINITY = 0x7F800000  # as bits of float32
_MOST_GROUPS = 1024
_ENTRIES = 2**23  # sample pixels read at a time


class Rows(NamedTuple):
    """Images from `first` on in NumPy, with labels of their pixels (1, entries), or of their ends (2, entries)."""

    first: int
    truth: Array
    lower: Array
    upper: Array
    labels: Array | None


def label_reader(groups: Any, shape: tuple[int, ...]) -> Callable[[int, int], Array | None]:
    """Labels of images start..stop: (1, entries) for pixels, (2, entries) for ends."""
    if groups is None:
        return lambda start, stop: None
    groups = as_plain_array(groups, "groups")
    groups = groups if library_of(groups) else np.asarray(groups)
    given = tuple(groups.shape)
    if "int" not in str(groups.dtype) and "bool" not in str(groups.dtype):
        raise TypeError(f"groups have dtype {groups.dtype}; labels must be whole numbers: groups.astype(int)")
    if given not in (shape[1:], shape, (2, *shape)):
        raise ValueError(f"groups have shape {given}; for these images give {shape[1:]}, {shape} or {(2, *shape)}")
    if given == shape[1:]:
        groups = np.broadcast_to(to_numpy(groups), shape)
    if given == (2, *shape):
        return lambda start, stop: to_numpy(groups[:, start:stop]).astype(np.int64).reshape(2, -1)
    return lambda start, stop: to_numpy(groups[start:stop]).astype(np.int64).reshape(1, -1)


def _bits_of(rows: Rows) -> list[Array]:
    """Interval length and edge strength of every pixel as the bits of float32, which are ordered as the numbers are."""
    with np.errstate(over="ignore", under="ignore"):
        values = np.abs(rows.upper - rows.lower), edge_strength(rows.truth)
        return [np.ascontiguousarray(x, np.float32).reshape(-1).view(np.int32) for x in values]


def _value_of(bits: Any) -> Array:
    return np.asarray(bits, np.int32).view(np.float32).astype(np.float64)


def _rank(counts: Array, rank: Any) -> Any:
    """Cell of the value of some rank, counted from 1."""
    return np.searchsorted(np.cumsum(counts), rank)


# ---------------------------------------------------------------- first pass: checks, and what cuts the strata


class Survey(NamedTuple):
    """Histograms (cells,) of interval length and edge strength, and the labels that occur, ascending."""

    lengths: Array
    edges: Array
    labels: Array


def survey_rows(rows: Rows, limits: Limits) -> Survey:
    """Check a block, which is on the scale of the limits, and count it into histograms."""
    for name, x in {"truth": rows.truth, "interval.lower": rows.lower, "interval.upper": rows.upper}.items():
        check_values(name, x, rows.first)
    for name, parts in {"truth": (rows.truth,), "interval": (rows.lower, rows.upper)}.items():
        check_range(name, parts, rows.first, limits)
    check_ordered(rows.lower, rows.upper, rows.first, "interval")
    lengths, edges = (np.bincount(bits >> _LAST_BITS, minlength=_CELLS) for bits in _bits_of(rows))
    return Survey(lengths, edges, np.empty(0, np.int64) if rows.labels is None else np.unique(rows.labels))


def merge_surveys(a: Survey, b: Survey) -> Survey:
    """The survey of two sets of images."""
    return Survey(a.lengths + b.lengths, a.edges + b.edges, np.union1d(a.labels, b.labels))


class Cuts(NamedTuple):
    """Stratum of each cell (cells,) and edges between strata, of length and of edge strength; groups' labels.

    The median length lies in cell `middle`, where it has rank `rank`.
    """

    strata: tuple[Array, Array]
    edges: tuple[Array, Array]
    labels: Array
    middle: int
    rank: int


def cuts_of(seen: Survey) -> Cuts:
    """Strata between quantiles of all pixels; those that ties would leave empty are merged."""
    if len(seen.labels) > _MOST_GROUPS:
        raise ValueError(f"groups hold {len(seen.labels)} different labels, more than {_MOST_GROUPS}; merge some")
    total, strata, edges = int(seen.lengths.sum()), [], []
    for counts, quantiles in ((seen.lengths, LENGTH_CUTS), (seen.edges, EDGE_CUTS)):
        last = np.unique(_rank(counts, total * np.array([*quantiles, 1.0])))  # cell of each stratum
        strata.append(np.searchsorted(last, np.arange(_CELLS)).astype(np.uint8))
        edges.append(_value_of(np.minimum(np.append(np.argmax(counts > 0), last + 1) << _LAST_BITS, _INFINITY)))
    middle = int(_rank(seen.lengths, (total + 1) // 2))
    rank = (total + 1) // 2 - int(seen.lengths[:middle].sum())
    return Cuts((strata[0], strata[1]), (edges[0], edges[1]), seen.labels, middle, rank)


# ---------------------------------------------------------------- second pass: sums per image


def tally(rows: Rows, cuts: Cuts) -> tuple[Array, Array]:
    """Pixels, misses and length of each image: overall, then in each stratum of length, of edges, and in each group.

    (n, columns, 3), which stack; and how often each ending of a float32 occurs in the median's cell, which add.
    """
    n = len(rows.truth)
    below, above = (rows.truth < rows.lower).reshape(-1), (rows.truth > rows.upper).reshape(-1)
    missed = below | above
    with np.errstate(over="ignore"):
        length = np.asarray(rows.upper, np.float64).reshape(-1) - rows.lower.reshape(-1)
    image = np.repeat(np.arange(n), len(length) // n)

    def sums(label: Any, count: int, missed: Array) -> Array:
        key = image * count + label
        parts = np.bincount(key, minlength=n * count), np.bincount(key[missed], minlength=n * count)
        return np.stack([*parts, np.bincount(key, length, minlength=n * count)], axis=-1).reshape(n, count, 3)

    found, bits = [sums(0, 1, missed)], _bits_of(rows)
    if not (found[0] < 1e300).all():
        raise ValueError(f"intervals from image {rows.first} on are longer than float64 can sum; rescale the images")
    for x, stratum, edges in zip(bits, cuts.strata, cuts.edges, strict=True):
        found.append(sums(stratum[x >> _LAST_BITS], len(edges) - 1, missed))
    if rows.labels is not None:
        label, k = np.searchsorted(cuts.labels, rows.labels), len(cuts.labels)
        ends = [
            sums(x, k, miss) for x, miss in zip(label, (missed,) if len(label) == 1 else (below, above), strict=True)
        ]
        found.append(np.sum(ends, axis=0))
    ending = bits[0][bits[0] >> _LAST_BITS == cuts.middle] & ((1 << _LAST_BITS) - 1)
    return np.concatenate(found, axis=1), np.bincount(ending, minlength=1 << _LAST_BITS)


def median_length(cuts: Cuts, endings: Array) -> float:
    """Median interval length of all pixels, from how often each ending of a float32 occurs in its cell: (endings,)."""
    return _value_of((cuts.middle << _LAST_BITS) + _rank(endings, cuts.rank)).item()


def inside_counter(samples: Any, axis: int, shape: tuple[int, ...]) -> tuple[Callable[..., Array], int]:
    """How pixels of each image that hold 0..m of its m samples are counted, and m, 0 where there are none.

    (start, lower, upper) -> (images, m + 1), which stack.
    """
    if samples is None:
        return lambda *block: np.empty(0), 0
    samples = as_array(samples, "samples")
    given, axis = tuple(samples.shape), check_count(axis, "sample_axis", least=-samples.ndim)
    axis = axis + len(given) if axis < 0 else axis
    if axis >= len(given) or given[:axis] + given[axis + 1 :] != shape:
        wanted = ", ".join(str(x) for x in (*shape[:axis], "m", *shape[axis:]))
        raise ValueError(f"samples have shape {given}; with sample_axis={axis} they must have shape ({wanted})")
    m = int(given[axis])

    def count(start: int, lower: Array, upper: Array) -> Array:
        n, held = len(lower), np.zeros(lower.shape, np.int64)
        step = max(1, _ENTRIES // held.size)
        for first in range(0, m, step):
            cut = [slice(None)] * len(given)
            cut[0 if axis else 1], cut[axis] = slice(start, start + n), slice(first, min(m, first + step))
            drawn = np.ascontiguousarray(np.moveaxis(to_numpy(samples[tuple(cut)]), axis, 1))
            check_values("samples", drawn, start)
            held += ((drawn >= lower[:, None]) & (drawn <= upper[:, None])).sum(axis=1)
        key = held.reshape(n, -1) + np.arange(n)[:, None] * (m + 1)
        return np.bincount(key.reshape(-1), minlength=n * (m + 1)).reshape(n, m + 1)

    return count, m
