"""Truth and intervals to an `Evaluation`: how often, where and for whom the intervals miss, and their length.

All that has an interval is a mean over independent units (patients; images where no units are given) of a share of the
unit's own, each unit counting the same; beside it stands the mean over images, which differs where units differ in
size. Where images differ in size, pixels are weighed so that every image counts the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import reduce
from math import inf, nan, prod
from typing import Any

import numpy as np

from ..calibration.calibration import Calibration
from ..calibration.data import true_images
from ..calibration.promises import Promise, of_all_pixels
from ..calibration.provenance import refuse_calibrated
from ..calibration.target import Units
from ..calibration.words import plural
from ..images.checks import Limits, check_generator, check_limits, check_open_unit, check_units, distinct_in_order
from ..images.ends import Interval
from ..images.library import Array, block_of, current_runner, differ_in_size, over_images, rows_of, sizes_of
from .evaluation import Evaluation, SampleCoverage, Strata
from .kept_promises import promises_seen
from .strata import Cuts, Rows, cuts_of, inside_counter, label_reader, median_length, merge_surveys, survey_rows, tally
from .unit_means import EvaluationUnits

_FEW = 0.1  # of the mean number of a stratum's pixels: a unit with fewer says nothing of it


def evaluate(
    truth: Any, interval: Interval, *, samples: Any = None, sample_axis: int = 1, groups: Any = None, units: Any = None,
    calibration: Calibration | None = None, promises: Sequence[Promise] | None = None, limits: Any = None,
    confidence_level: float = 0.95, seed: Any = 0,
) -> Evaluation:  # fmt: skip
    """Risk and length of intervals on images: truth (n, *pixels), Interval of the same shape -> Evaluation.

    Images of different sizes are lists of arrays; groups and samples are for images of one size.

    samples        fresh draws of the sampler, (n, m, *pixels) with m on `sample_axis`: their entrywise coverage
    groups         whole numbers, (*pixels), (n, *pixels), or (2, n, *pixels) for lower and upper ends; in the last case
                   shares and risks count ends, of which each pixel has two and misses one at most
    units          unit of each image, (n,), or Units(ids, name="patient"): what is independent; by default each image.
                   Without a name it is that of the calibration
    calibration    that made the intervals: refuses images that calibrated, and knows limits and the name of a unit
    promises       made by `pb.share` and `pb.tail` with the regions of these images: what each comes to; with a
                   calibration of promises the same ones in the same order
    limits         between which all ends lie, (low, high), by default those of the calibration: only then mean length
                   has an interval. 8-bit truth spans them (default: those that the interval knows, else (0, 1))
    seed           of the order of units, on which confidence intervals depend

    >>> truth = np.random.default_rng(0).uniform(size=(100, 8, 8))
    >>> ev = evaluate(truth, Interval(np.zeros_like(truth), np.full_like(truth, 0.9)))
    >>> ev
    Evaluation of 100 images: risk 0.09563, mean length 0.9
    >>> ev.risk_interval[0] < 0.1 < ev.risk_interval[1]
    True
    """
    bounded = _limits_known(interval, calibration, limits)
    first = truth[0] if isinstance(truth, list | tuple) else truth
    known = next(iter(bounded), interval.limits)
    scale = known or ((0.0, 1.0) if "uint8" in str(getattr(first, "dtype", "")) else (-inf, inf))
    truth = true_images(truth, known or (0.0, 1.0), interval.axes, interval=interval.lower)
    level = check_open_unit(confidence_level, "confidence_level")
    rng = check_generator(seed)
    n, *pixels = (int(x) for x in truth.shape)
    name = _unit_name(units, calibration)
    if differ_in_size(truth) and not (groups is None and samples is None):
        raise ValueError("groups and samples are for images of one size, and these differ: leave them out")
    read_labels = label_reader(groups, (n, *pixels))
    count_inside, m = inside_counter(samples, sample_axis, (n, *pixels))

    def ends(start: int, stop: int) -> tuple[Array, Array]:
        return rows_of(interval.lower, start, stop), rows_of(interval.upper, start, stop)

    def read(start: int, stop: int) -> Rows:
        return Rows(start, rows_of(truth, start, stop), *ends(start, stop), read_labels(start, stop))

    runner = current_runner()
    how = units if isinstance(units, Units) else Units(units)
    names, unit_of = distinct_in_order(check_units(how.ids, n).astype(str))
    apart = None if calibration is None else refuse_calibrated(truth, calibration, runner, unit_of)
    reads = (truth, interval.lower, interval.upper, groups)
    surveys = over_images(lambda a, b: survey_rows(read(a, b), scale), truth, runner, reads)
    cuts = cuts_of(reduce(merge_surveys, surveys))
    sums, endings = [], np.zeros((), np.int64)
    for part, ending in over_images(lambda a, b: tally(read(a, b), cuts), truth, runner, reads):
        sums.append(part)
        endings = endings + ending
    inside = None
    if m:
        drawn, block = [interval.lower, interval.upper, samples], block_of(prod(pixels) * m, n)
        held = runner.over(lambda a, b: count_inside(a, *ends(a, b)), n, block, drawn)
        inside = np.concatenate(list(held))
    rows = np.concatenate(sums)
    sizes = sizes_of(truth)
    sums.clear()  # of many images it takes its share of memory
    if (sizes != sizes[0]).any():
        rows *= (sizes.mean() / sizes)[:, None, None]  # images weigh the same
    weighting, most = how.weighting, how.max_images or 0
    if calibration is not None:
        weighting, most = calibration.record.weighting, calibration.record.max_images
    most = most or int(name is None)
    span = min((high - low for low, high in bounded), default=inf)
    every = EvaluationUnits(names, unit_of, rng.permutation(len(names)), level, span, most)
    seen = () if promises is None else promises_seen(
        promises, truth, interval, every, weighting=weighting, by_unit=name is not None, runner=runner,
        certified=() if calibration is None or of_all_pixels(calibration.promises) else calibration.promises,
    )  # fmt: skip
    return summarise(
        rows, cuts, inside, every, unit_name=name, median_length=median_length(cuts, endings), pixels=tuple(pixels),
        apart_from=apart, promises=seen,
    )  # fmt: skip


def _limits_known(interval: Any, calibration: Any, limits: Any) -> list[Limits]:
    """Limits that were given, then those of the calibration; it must be one, of images of this grid."""
    if not isinstance(interval, Interval):
        raise TypeError(f"interval is a {type(interval).__name__}; give the truth first, then an Interval")
    given = [check_limits(limits)] if limits is not None else []
    if calibration is None:
        return given
    if not isinstance(calibration, Calibration):
        raise TypeError(f"calibration is a {type(calibration).__name__}; give what pixelbounds.calibrate returns")
    calibration.check_grid(interval)
    return [*given, calibration.limits]


def _unit_name(units: Any, calibration: Calibration | None) -> str | None:
    certified = calibration.record.unit_name if calibration is not None and calibration.record.units else None
    if units is None and certified is not None:
        warnings.warn(
            f"the calibration counts {plural(certified)}, and here each image counts as independent, so that "
            f"confidence intervals are too short where images of a {certified} are alike: give units=, the "
            f"{certified} of each image",
            stacklevel=3,
        )
    if units is None:
        return None
    return (units.name if isinstance(units, Units) else certified) or "unit"


def summarise(sums: Array, cuts: Cuts, inside: Array | None, units: EvaluationUnits, **known: Any) -> Evaluation:
    """The evaluation from sums of images, (n, columns, 3), and numbers of pixels by samples inside, (n, m + 1)."""
    count, missed, length = np.moveaxis(units.means(sums), -1, 0)
    with np.errstate(invalid="ignore"):
        shares = missed / count  # NaN where a unit has nothing of a stratum
    total = count.sum(axis=0)
    having = (count > 0).sum(axis=0)
    enough = count >= _FEW * total / having
    lengths = length[:, 0] / count[:, 0]
    image_risk, image_ends = units.of_images(shares[:, 0])

    def strata(of: str, first: int, label: Array, edges: Array | None = None) -> Strata:
        at = slice(first, first + len(label))
        columns = np.where(enough, shares, nan)[:, at].T
        low, high = np.array([units.ends(column) for column in columns]).T
        return Strata(
            of, label, edges, total[at] / total[at].sum(), np.nanmean(columns, axis=1), low, high,
            enough[:, at].sum(axis=0), missed[:, at].sum(axis=0) / total[at], length[:, at].sum(axis=0) / total[at],
        )  # fmt: skip

    coverage = None
    if inside is not None:
        held, m = units.means(inside), inside.shape[1] - 1
        of_units, pooled = held @ np.arange(m + 1) / (m * held.sum(axis=1)), held.sum(axis=0)
        coverage = SampleCoverage(float(of_units.mean()), units.ends(of_units), pooled / pooled.sum())
    a, b = (len(edges) - 1 for edges in cuts.edges)
    return Evaluation(
        risk=float(shares[:, 0].mean()), risk_interval=units.ends(shares[:, 0]),
        image_risk=image_risk, image_risk_interval=image_ends, max_images=units.most,
        mean_length=float(lengths.mean()), mean_length_interval=units.length_ends(lengths),
        by_image=sums[:, 0, 1] / sums[:, 0, 0], length_by_image=sums[:, 0, 2] / sums[:, 0, 0],
        by_unit=shares[:, 0], units=units.names, unit_of=units.unit_of,
        size_stratified=strata("interval length", 1, np.arange(a), cuts.edges[0]),
        by_edge=strata("edge strength of truth", 1 + a, np.arange(b), cuts.edges[1]),
        by_group=strata("group", 1 + a + b, cuts.labels) if len(cuts.labels) else None,
        coverage=coverage, confidence_level=units.level, **known,
    )  # fmt: skip
