"""Held-out truth and intervals to an `Evaluation`: how often, where and for whom the intervals miss, and their length.

Two passes over blocks of images. `survey` checks values and adds up histograms of interval length and of the truth's
edge strength, whose quantiles cut the strata; `tally` counts pixels, misses and length of every image in every stratum.
Histograms are integers and tallies are rows per image, so chunks give the same bits as the whole. All that is reported
is a ratio of sums over units (patients; images where no units are given), each unit weighing the same; its confidence
interval comes from drawing units again with replacement (bootstrap, BCa, widened for few units as by Hesterberg 2015).
A bootstrap sees only what occurred: a stratum without a single miss has the interval [0, 0]. Where images differ in
size, pixels are weighed so that every image counts the same: risk and mean length are means over images of the image's
own share and mean. The quantiles (strata, median) are those of all pixels alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm, t

from .arrays import (
    Array,
    Interval,
    as_array,
    check_count,
    check_generator,
    check_open_unit,
    check_same_shape,
    check_values,
    library_of,
    over_images,
    rows_of,
    sizes_of,
    spatial_axes,
    to_numpy,
)
from .evaluation import Evaluation, SampleCoverage, Strata
from .kernels import block_of, count_above, over_rows
from .ragged import Ragged

LENGTH_CUTS = (0.2, 0.4, 0.6, 0.8)  # quantiles of the interval length between strata
EDGE_CUTS = (0.5, 0.8, 0.95)  # quantiles of the edge strength
_LAST_BITS = 15  # a cell of a histogram is a float32 without its last bits: 256 cells per octave, whatever the range
_CELLS = 1 << (31 - _LAST_BITS)
_INFINITY = 0x7F800000  # as bits of float32
_MOST_GROUPS = 1024
_ENTRIES = 2**23  # sample pixels read at a time
_DRAWN = 2**22  # units drawn at a time


# ---------------------------------------------------------------- the front door


def evaluate(
    truth: Any,
    interval: Interval,
    *,
    samples: Any = None,
    sample_axis: int = 1,
    groups: Any = None,
    units: Any = None,
    draws: int = 1000,
    confidence_level: float = 0.95,
    seed: Any = 0,
) -> Evaluation:
    """Risk and length of intervals on held-out images: truth (n, *pixels), Interval of the same shape -> Evaluation.

    Images of different sizes are lists of arrays; groups and samples are for images of one size.

    samples        fresh draws of the sampler, (n, m, *pixels) with m on `sample_axis`: their entrywise coverage
    groups         whole numbers, (*pixels), (n, *pixels), or (2, n, *pixels) for lower and upper ends; in the last case
                   shares and risks count ends, of which each pixel has two and misses one at most
    units          unit (patient, scan) of each image, (n,); units weigh the same and the bootstrap draws them whole
    draws, seed    of the bootstrap

    >>> truth = np.random.default_rng(0).uniform(size=(100, 8, 8))
    >>> ev = evaluate(truth, Interval(np.zeros_like(truth), np.full_like(truth, 0.9)))
    >>> ev
    Evaluation of 100 images: risk 0.09563, mean length 0.9
    >>> ev.risk_interval[0] < 0.1 < ev.risk_interval[1]
    True
    """
    truth = as_array(truth, "truth")
    if not isinstance(interval, Interval):
        raise TypeError(
            f"interval is a {type(interval).__name__}; give what Calibration.apply returns, or Interval(lower, upper)"
        )
    check_same_shape(interval=interval.lower, truth=truth)
    level = check_open_unit(confidence_level, "confidence_level")
    draws = check_count(draws, "draws", least=100, most=10**6)
    rng, (n, *pixels) = check_generator(seed), tuple(truth.shape)
    units = _units(units, n)
    if isinstance(truth, Ragged) and not (groups is None and samples is None):
        raise ValueError("groups and samples are for images of one size, and these differ: leave them out")
    read_labels = _label_reader(groups, (n, *pixels))
    read_samples, m = _sample_reader(samples, sample_axis, (n, *pixels))

    def ends(start: int, stop: int) -> tuple[Array, Array]:
        return rows_of(interval.lower, start, stop), rows_of(interval.upper, start, stop)

    def read(start: int, stop: int) -> Rows:
        return Rows(start, rows_of(truth, start, stop), *ends(start, stop), read_labels(start, stop))

    cuts = cuts_of(reduce(merge, over_images(lambda a, b: survey(read(a, b)), truth)))
    sums, endings = [], np.zeros(1 << _LAST_BITS, np.int64)
    for part, ending in over_images(lambda a, b: tally(read(a, b), cuts), truth):
        sums.append(part)
        endings += ending
    block = block_of(prod(pixels) * m, n)
    held = over_rows(lambda a, b: count_inside(a, *ends(a, b), read_samples, m), n, block=block) if m else ()
    rows, sizes = np.concatenate(sums), sizes_of(truth)
    sums.clear()  # of many images it takes its share of memory
    if (sizes != sizes[0]).any():
        rows *= (sizes.mean() / sizes)[:, None, None]  # images weigh the same
    return summarise(
        rows, cuts, np.concatenate(list(held)) if m else None, units,
        lambda top, bottom: ratios(top, bottom, draws, level, rng),
        median_length=_value_of((cuts.middle << _LAST_BITS) + _rank(endings, cuts.rank)).item(),
        confidence_level=level, pixels=tuple(pixels),
    )  # fmt: skip


def _units(units: Any, n: int) -> tuple[Array, Array]:
    """Names of the units in order of appearance, and the unit of each image, (n,)."""
    labels = np.arange(n) if units is None else to_numpy(units) if library_of(units) else np.asarray(units)
    if labels.shape != (n,):
        raise ValueError(f"units have shape {labels.shape}; give the unit (patient, scan) of each of the {n} images")
    names, first, unit_of = np.unique(labels.astype(str), return_index=True, return_inverse=True)
    order = np.argsort(first)
    return names[order], np.argsort(order)[unit_of]


def _label_reader(groups: Any, shape: tuple[int, ...]) -> Callable[[int, int], Array | None]:
    """Labels of images start..stop: (1, entries) for pixels, (2, entries) for ends."""
    if groups is None:
        return lambda start, stop: None
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


def _sample_reader(samples: Any, axis: int, shape: tuple[int, ...]) -> tuple[Callable[..., Array], int]:
    """Samples first..last of images start..stop, (images, samples, *pixels), and how many there are (none: 0)."""
    if samples is None:
        return lambda *cut: np.empty(0), 0
    samples = as_array(samples, "samples")
    given, axis = tuple(samples.shape), check_count(axis, "sample_axis", least=-samples.ndim)
    axis = axis + len(given) if axis < 0 else axis
    if axis >= len(given) or given[:axis] + given[axis + 1 :] != shape:
        wanted = ", ".join(str(x) for x in (*shape[:axis], "m", *shape[axis:]))
        raise ValueError(f"samples have shape {given}; with sample_axis={axis} they must have shape ({wanted})")

    def read(start: int, stop: int, first: int, last: int) -> Array:
        cut = [slice(None)] * len(given)
        cut[0 if axis else 1], cut[axis] = slice(start, stop), slice(first, last)
        return np.ascontiguousarray(np.moveaxis(to_numpy(samples[tuple(cut)]), axis, 1))

    return read, int(given[axis])


# ---------------------------------------------------------------- first pass: checks, and what cuts the strata


class Rows(NamedTuple):
    """Images from `first` on in NumPy, with labels of their pixels (1, entries), or of their ends (2, entries)."""

    first: int
    truth: Array
    lower: Array
    upper: Array
    labels: Array | None


class Survey(NamedTuple):
    """Histograms (cells,) of interval length and edge strength, and the labels that occur, ascending."""

    lengths: Array
    edges: Array
    labels: Array


def edge_strength(images: Array) -> Array:
    """Length of the gradient over the spatial axes: (n, *pixels) -> (n, *pixels); axes of at most 4 are channels."""
    slopes = (np.gradient(images, axis=axis) ** 2 for axis in spatial_axes(images))
    return np.sqrt(sum(slopes, np.zeros_like(images)))


def survey(rows: Rows) -> Survey:
    """Check a block and count it into histograms."""
    for name, x in {"truth": rows.truth, "interval.lower": rows.lower, "interval.upper": rows.upper}.items():
        check_values(name, x, rows.first)
    crossed = count_above(rows.lower.reshape(len(rows.lower), -1), rows.upper.reshape(len(rows.upper), -1))
    if crossed.any():
        image = int(np.argmax(crossed > 0))
        raise ValueError(
            f"interval of image {rows.first + image} has lower above upper at {crossed[image]} pixels; swap the arrays"
        )
    lengths, edges = (np.bincount(bits >> _LAST_BITS, minlength=_CELLS) for bits in _bits_of(rows))
    return Survey(lengths, edges, np.empty(0, np.int64) if rows.labels is None else np.unique(rows.labels))


def merge(a: Survey, b: Survey) -> Survey:
    """The survey of two sets of images."""
    return Survey(a.lengths + b.lengths, a.edges + b.edges, np.union1d(a.labels, b.labels))


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


def count_inside(start: int, lower: Array, upper: Array, read_samples: Callable[..., Array], m: int) -> Array:
    """Pixels of each image that hold 0..m of its m samples: (n, m + 1), which stack."""
    n, held = len(lower), np.zeros(lower.shape, np.int64)
    step = max(1, _ENTRIES // held.size)
    for first in range(0, m, step):
        samples = read_samples(start, start + n, first, min(m, first + step))
        check_values("samples", samples, start)
        held += ((samples >= lower[:, None]) & (samples <= upper[:, None])).sum(axis=1)
    key = held.reshape(n, -1) + np.arange(n)[:, None] * (m + 1)
    return np.bincount(key.reshape(-1), minlength=n * (m + 1)).reshape(n, m + 1)


# ---------------------------------------------------------------- from sums to what is reported


def summarise(
    sums: Array,
    cuts: Cuts,
    inside: Array | None,
    units: tuple[Array, Array],
    ratios_of: Callable[[Array, Array], tuple[Array, Array, Array]],
    **known: Any,
) -> Evaluation:
    """The evaluation that the sums of all images amount to, given names and numbers of the units."""
    names, unit_of = units
    count, missed, length = np.moveaxis(_per_unit(sums, unit_of), -1, 0)
    top, bottom = [missed, length[:, :1]], [count, count[:, :1]]
    if inside is not None:
        top.append(_per_unit(inside @ np.arange(inside.shape[1]), unit_of)[:, None])
        bottom.append(count[:, :1] * (inside.shape[1] - 1))
    value, low, high = ratios_of(np.hstack(top), np.hstack(bottom))
    mean_length = length.sum(axis=0) / count.sum(axis=0)

    def ends(column: int) -> tuple[float, float]:
        return float(low[column]), float(high[column])

    def strata(of: str, first: int, label: Array, edges: Array | None = None) -> Strata:
        at = slice(first, first + len(label))
        share = count[:, at].sum(axis=0) / count[:, at].sum()
        return Strata(of, label, edges, share, value[at], low[at], high[at], mean_length[at])

    a, b = (len(edges) - 1 for edges in cuts.edges)
    c, sampled = sums.shape[1], None  # after the columns of risks come length and samples
    if inside is not None:
        held = _per_unit(inside, unit_of).sum(axis=0)
        sampled = SampleCoverage(float(value[c + 1]), ends(c + 1), held / held.sum())
    return Evaluation(
        risk=float(value[0]), risk_interval=ends(0), mean_length=float(value[c]), mean_length_interval=ends(c),
        by_image=sums[:, 0, 1] / sums[:, 0, 0], length_by_image=sums[:, 0, 2] / sums[:, 0, 0],
        by_unit=missed[:, 0] / count[:, 0], units=names, unit_of=unit_of,
        size_stratified=strata("interval length", 1, np.arange(a), cuts.edges[0]),
        by_edge=strata("edge strength of truth", 1 + a, np.arange(b), cuts.edges[1]),
        by_group=strata("group", 1 + a + b, cuts.labels) if len(cuts.labels) else None,
        coverage=sampled, **known,
    )  # fmt: skip


def _per_unit(x: Array, unit_of: Array) -> Array:
    """Mean over the images of each unit: (n, ...) -> (units, ...)."""
    if np.array_equal(unit_of, np.arange(len(x))):  # every image is its own
        return np.asarray(x, np.float64)
    size = np.bincount(unit_of)
    out = np.zeros((len(size), *x.shape[1:]))
    np.add.at(out, unit_of, x)
    return out / size.reshape(-1, *[1] * (x.ndim - 1))


def ratios(top: Array, bottom: Array, draws: int, level: float, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Ratios of sums over units with intervals: (units, c) twice -> value, low, high (c,); NaN where one unit has any.

    BCa, with the normal quantile widened to Student's and by sqrt(n / (n - 1)), without which few units are too few.
    """
    units, value, drawn = len(top), top.sum(axis=0) / bottom.sum(axis=0), np.empty((draws, top.shape[1]))
    step = max(1, _DRAWN // units)
    for first in range(0, draws, step):
        rows = min(step, draws - first)
        picked = rng.integers(units, size=(rows, units)) + np.arange(rows)[:, None] * units
        times = np.bincount(picked.reshape(-1), minlength=rows * units).reshape(rows, units).astype(np.float64)
        with np.errstate(invalid="ignore"):  # a draw may hold no unit of a rare group
            drawn[first : first + rows] = (times @ top) / (times @ bottom)
    ends = np.full((len(value), 2), np.nan)
    having = (bottom > 0).sum(axis=0)
    for c in np.flatnonzero(having > 1):
        n, seen = having[c], drawn[~np.isnan(drawn[:, c]), c]
        pull = top[:, c] - value[c] * bottom[:, c]
        pull = pull / (np.abs(pull).max() or 1.0)
        skew = np.sum(pull**3) / (6 * max(np.sum(pull**2), 1.0) ** 1.5)
        share = np.mean(seen < value[c]) + np.mean(seen == value[c]) / 2
        bias = norm.ppf(np.clip(share, 1 / draws, 1 - 1 / draws))
        wide = bias + np.sqrt(n / (n - 1)) * t.ppf((1 + level) / 2, n - 1) * np.array([-1, 1])
        ends[c] = np.quantile(seen, norm.cdf(bias + wide / np.maximum(1 - skew * wide, 0.1)))
    return value, ends[:, 0], ends[:, 1]
