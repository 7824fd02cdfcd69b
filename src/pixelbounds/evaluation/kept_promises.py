"""Promises on images that had no part in the calibration: what each comes to, with an interval that is valid.

Each is a mean over the units that have its region, or, where images or pixels count, a ratio of means: both are held by
bets (`unit_means`), at any number of units. A promise is called kept or broken by an interval that holds for all of
them at once, so that several are no more often falsely cleared or accused than one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan
from typing import Any

import numpy as np

from ..calibration.promises import CertifiedPromise, Regions, RiskTarget, check_promises, promise_key, risk_targets_of
from ..calibration.target import UnitLosses, largest_unit
from ..images.checks import Limits, check_values
from ..images.ends import Interval
from ..images.library import Array, Runner, over_images, rows_of
from ..images.regions import region_rows
from .evaluation import SeenPromise
from .unit_means import EvaluationUnits, ratio_interval


def promises_seen(
    promises: Any, truth: Any, interval: Interval, units: EvaluationUnits, *, weighting: str, by_unit: bool,
    certified: Sequence[CertifiedPromise], runner: Runner,
) -> tuple[SeenPromise, ...]:  # fmt: skip
    """What each promise comes to on these images; regions are theirs, (n, *pixels).

    `weighting` is that of promises which say none; a unit counts for at most as much as when it was `certified`.
    """
    asked = check_promises(promises)
    targets, regions = risk_targets_of(asked, truth, weighting, by_unit, units.most)
    if certified and [promise_key(x)[:-1] for x in certified] != [promise_key(x)[:-1] for x in targets]:
        names = ", ".join(repr(promise.name) for promise in certified)
        raise ValueError(f"certified were {names}, and these are others; give the same promises in the same order")
    losses, sizes = losses_of_images(targets, truth, interval, regions, runner)
    at_once = 1 - (1 - units.level) / len(targets)
    caps = [x.most for x in certified] or [float(x.max_images if x.weighting == "images" else 0) for x in targets]
    each = zip(targets, losses, caps, strict=True)
    return tuple(_seen(target, loss, sizes, units, most, at_once) for target, loss, most in each)


def losses_of_images(
    targets: Sequence[RiskTarget], truth: Any, interval: Interval, regions: Regions, runner: Runner,
    limits: Limits = (-inf, inf),
) -> tuple[list[Array], Array]:  # fmt: skip
    """Loss of each promise on each image, (n,) each, and sizes of all pixels and of each region, (n, 1 + regions).

    Truth outside the limits is refused.
    """
    seeing = [target for target in targets if not target.counts_only]

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
    parts = over_images(work, truth, runner, arrays)
    missed, sizes, own = (np.concatenate(column) for column in zip(*parts, strict=True))
    seen = iter(own.T)
    return [
        next(seen) if target in seeing else target.losses(missed[:, target.region], sizes[:, target.region])
        for target in targets
    ], sizes


def _seen(
    target: RiskTarget, losses: Array, sizes: Array, units: EvaluationUnits, most: float, at_once: float
) -> SeenPromise:
    """One promise, from losses of images (n,); all promises hold at the level `at_once` together."""
    counts, cap = target.counts(sizes), target.cap
    weight = sizes[:, target.region] if target.weighting == "pixels" else np.ones(len(sizes))
    every = (0.0, cap)
    if not counts.any():
        return SeenPromise.of(target, nan, every, 0, every, most)
    by_units = target.weighting == "units"
    largest = 0.0 if by_units else most or largest_unit(units.unit_of, counts, weight)
    held = UnitLosses(units.unit_of, counts, units.order, largest, weight)
    shares, counted = np.clip(held.means(losses), 0, 1), held.weights
    risk = cap * float((shares * counted).sum() / counted.sum())

    def ends(level: float) -> tuple[float, float]:
        if not (by_units or most):  # the largest unit may not be among these
            return every
        low, high = ratio_interval(shares * counted, counted, level)
        return cap * low, cap * high

    alone = ends(units.level)
    jointly = alone if at_once == units.level else ends(at_once)
    return SeenPromise.of(target, risk, alone, len(shares), jointly, most)
