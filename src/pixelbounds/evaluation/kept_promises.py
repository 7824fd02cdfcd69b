"""Promises on images that had no part in the calibration: what each comes to, with an interval that is valid.

Each is a mean over the units that have its region, or, where images or pixels count, a ratio of means: both are held by
bets (`unit_means`), each by itself, at any number of units. A promise is seen broken only where a low end that holds
for all of them at once lies above its level, so that several promises are no more often falsely accused than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np

from ..calibration.promises import CertifiedPromise, Regions, RiskTarget, check_promises, risk_targets_of
from ..calibration.target import largest_unit, losses_by_unit
from ..images.checks import Limits, check_values
from ..images.ends import Interval
from ..images.library import Array, Runner, differ_in_size, library_of, over_images, rows_of
from ..images.regions import region_rows
from .evaluation import SeenPromise
from .unit_means import ratio_interval


@dataclass(frozen=True, eq=False)
class EvaluationUnits:
    """Who judges: the unit of each image (n,), units in random order, and the level of intervals."""

    unit_of: Array
    order: Array
    confidence_level: float


def promises_seen(
    promises: Any,
    truth: Any,
    interval: Interval,
    judges: EvaluationUnits,
    *,
    weighting: str,
    units: bool,
    certified: Sequence[CertifiedPromise],
    runner: Runner,
) -> tuple[SeenPromise, ...]:
    """What each promise comes to on these images; regions are theirs, (n, *pixels).

    `weighting` is that of promises which say none; a unit counts for at most as much as when it was `certified`.
    """
    asked = check_promises(promises)
    targets, regions = risk_targets_of(asked, truth, weighting, units)
    if certified and [(p.kind, p.at_most) for p in certified] != [(p.kind, p.at_most) for p in asked]:
        raise ValueError(
            f"the calibration certified {len(certified)} promises, and these are others; give the same promises in the "
            "same order, with the regions of these images"
        )
    seeing = [target for target in targets if not target.counts_only]
    missed, sizes, own = region_tallies(truth, interval, regions, runner, seeing=seeing)
    most = [promise.most for promise in certified] or [0.0] * len(targets)
    by_image = [
        own[:, seeing.index(target)]
        if not target.counts_only
        else target.losses(missed[:, target.region], sizes[:, target.region])
        for target in targets
    ]
    at_once = 1 - (1 - judges.confidence_level) / len(targets)
    return tuple(
        _seen(target, x, sizes, judges, b, at_once) for target, x, b in zip(targets, by_image, most, strict=True)
    )


def region_tallies(
    truth: Any,
    interval: Interval,
    regions: Regions,
    runner: Runner,
    *,
    limits: Limits = (-inf, inf),
    seeing: Sequence[RiskTarget] = (),
) -> tuple[Array, Array, Array]:
    """What each image misses of all pixels and of each region, their sizes, and losses that see images.

    (n, 1 + regions) float64 each, and (n, losses). Truth outside the limits is refused.
    """

    def work(start: int, stop: int) -> tuple[Array, ...]:
        x, lower, upper = (rows_of(part, start, stop) for part in (truth, interval.lower, interval.upper))
        check_values("truth", x, start, limits)
        missed = ((x < lower) | (x > upper)).reshape(len(x), -1)
        regional = [region_rows(values, name, start, stop).reshape(len(x), -1) for name, values in regions]
        lost = [missed.sum(axis=1), *((row * missed).sum(axis=1) for row in regional)]
        size = [np.full(len(x), missed.shape[1]), *(row.sum(axis=1) for row in regional)]
        own = [target.losses_of(x, Interval(lower, upper), start) for target in seeing]
        return *(np.stack(part, axis=1).astype(np.float64) for part in (lost, size)), np.reshape(own, (-1, len(x))).T

    arrays = (truth, interval.lower, interval.upper, *(values for _, values in regions))
    reads = [x for x in arrays if library_of(x) or differ_in_size(x)]
    parts = list(over_images(work, truth, runner, reads))
    missed, sizes, own = (np.concatenate(column) for column in zip(*parts, strict=True))
    return missed, sizes, own


def _seen(
    target: RiskTarget, by_image: Array, sizes: Array, judges: EvaluationUnits, most: float, at_once: float
) -> SeenPromise:
    """One promise; its `least` is the low end of an interval of the level `at_once`."""
    counts = target.counts(sizes)
    weight = sizes[:, target.region] if target.weighting == "pixels" else np.ones(len(sizes))
    asked = (target.kind, target.name, target.place, target.at_most, target.above, target.cap, target.weighting)
    if not counts.any():
        return SeenPromise(*asked, nan, (0.0, target.cap), 0, 0.0)
    largest = 0.0 if target.weighting == "units" else most or largest_unit(judges.unit_of, counts, weight)
    units = losses_by_unit(judges.unit_of, counts, judges.order, largest, weight)
    shares, counted = np.clip(units.means(by_image), 0, 1), units.weights
    low, high = ratio_interval(shares * counted, counted, judges.confidence_level)
    least = low if at_once == judges.confidence_level else ratio_interval(shares * counted, counted, at_once)[0]
    risk = float((shares * counted).sum() / counted.sum())
    return SeenPromise(
        *asked, target.cap * risk, (target.cap * low, target.cap * high), len(shares), target.cap * least
    )
