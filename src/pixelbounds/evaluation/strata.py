"""Two passes over blocks of images, from pixels to sums per image and stratum.

`survey` checks values and adds up histograms of interval length and of the truth's edge strength, whose quantiles cut
the strata; `tally` counts pixels, misses and length of every image in every stratum. Histograms are integers and
tallies are rows per image, so chunks give the same bits as the whole. The quantiles (strata, median) are those of all
pixels alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..images.checks import Limits, check_ordered, check_values
from ..images.ends import check_range
from ..images.library import Array
from ..images.regions import edge_strength

LENGTH_CUTS = (0.2, 0.4, 0.6, 0.8)  # quantiles of the interval length between strata
EDGE_CUTS = (0.5, 0.8, 0.95)  # quantiles of the edge strength
_LAST_BITS = 15  # a cell of a histogram is a float32 without its last bits: 256 cells per octave, whatever the range
_CELLS = 1 << (31 - _LAST_BITS)
_INFINITY = 0x7F800000  # as bits of float32
_MOST_GROUPS = 1024


class Rows(NamedTuple):
    """Images from `first` on in NumPy, with labels of their pixels (1, entries), or of their ends (2, entries)."""

    first: int
    truth: Array
    lower: Array
    upper: Array
    labels: Array | None


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
