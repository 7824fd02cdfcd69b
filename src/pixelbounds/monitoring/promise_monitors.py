"""Promises after deployment: what arrives with its truth, as rounds of a bet on "the risk is above its level".

Each unit (an image, where images are independent) is one round of every promise whose region it has. Its loss L lies in
[0, 1], as at calibration: with a cap in shares of the cap. Where images or pixels count, a unit of S of them counts c =
min(S, B) / B, B being the most that it may, fixed at calibration: the promise is that E[c (L - level)] <= 0. So the bet
is on c (L - level) in all cases, with c = 1 where units count, and a round gains nothing in the mean, given all units
before, while the promise is kept and units are independent.

All promises are played on the same rounds, so the mean of their purses is a purse (`purse.mean_worth`): it ever reaches
1 / alpha with probability at most alpha if all are kept. Which of them is broken is named by closed tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..calibration.promises import CertifiedPromise, Regions, RiskTarget, check_same_places, risk_targets_of
from ..images.library import Array
from .e_process import PAUSES, EProcess, log_factors, mean_worth, named_by_means
from .running_mean import NOTHING_SEEN, RunningRatio


@dataclass(frozen=True, eq=False)
class PromiseMonitor:
    """What was seen of one promise: its purse, its mean loss, and whether it was named as broken."""

    promise: CertifiedPromise
    e_process: EProcess
    risk: RunningRatio = NOTHING_SEEN
    broken: bool = False

    @classmethod
    def of(cls, promise: CertifiedPromise) -> PromiseMonitor:
        """Of a promise of which nothing was seen."""
        return cls(promise, EProcess.new(PAUSES))

    def then(self, loss: float, weight: float) -> PromiseMonitor:
        """After a unit of this loss, which counts so much."""
        level = self.promise.at_most / self.promise.cap
        e_process = self.e_process.play(log_factors(weight * (loss - level), level))
        return replace(self, e_process=e_process, risk=self.risk.then(weight * loss, weight))


@dataclass(frozen=True)
class Rounds:
    """What units in order of arrival bring to a promise: whether they have its region, loss and weight, (units,)."""

    there: Array
    loss: Array
    weight: Array


def played(
    accounts: Sequence[PromiseMonitor], rounds: Sequence[Rounds], failure_prob: float
) -> tuple[tuple[PromiseMonitor, ...], bool]:
    """The accounts after all rounds, and whether the mean of their purses ever reached 1 / failure_prob on the way."""
    now = list(accounts)
    reached = False
    for unit in range(len(rounds[0].there)):
        for j, each in enumerate(rounds):
            if each.there[unit]:
                now[j] = now[j].then(float(each.loss[unit]), float(each.weight[unit]))
        e_values = np.array([account.e_process.log_worth for account in now])
        if mean_worth(e_values) >= np.log(1 / failure_prob):
            reached = True
            named = named_by_means(e_values, failure_prob)
            now = [replace(account, broken=account.broken or bool(x)) for account, x in zip(now, named, strict=True)]
    return tuple(now), reached


# ---------------------------------------------------------------- images to rounds


def regions_of(
    promises: Sequence[CertifiedPromise], within: Any, band: Any, loss: Any = None
) -> tuple[list[RiskTarget | None], Regions]:
    """Promises as they are counted on new images, given their regions by name, and the distinct regions.

    None stands for a promise whose region was not drawn on these images: they do not count for it.
    """
    given = {} if within is None else within
    if not isinstance(given, Mapping):
        raise TypeError(f"within is a {type(given).__name__}; give the region of each promise by its name")
    needed = {promise.name for promise in promises if promise.place != "all"}
    if set(given) != needed:
        names = ", ".join(f"{name!r}: ..." for name in sorted(needed))
        raise ValueError(
            f"within has {sorted(map(str, given))}, and the promises need {sorted(needed)}; give "
            + (f"within={{{names}}}, None for one that was not drawn on these images" if needed else "none")
        )
    drawn = [promise for promise in promises if promise.place == "all" or given[promise.name] is not None]
    functions = [loss if promise.kind == "loss" else None for promise in drawn]
    asked = [one.asked(given.get(one.name), function) for one, function in zip(drawn, functions, strict=True)]
    targets, regions = risk_targets_of(asked, band, "units", units=True)
    check_same_places(drawn, targets)
    known = iter(targets)
    return [next(known) if promise in drawn else None for promise in promises], regions


def rounds_of(
    promise: CertifiedPromise, losses: Array, sizes: Array, counts: Array, unit_of: Array, units: int
) -> Rounds:
    """Losses of images, sizes of the region and whether images count, (n,) each, as rounds of units 0..units-1."""
    weight = np.where(counts, sizes if promise.weighting == "pixels" else 1.0, 0.0)
    total = np.bincount(unit_of, weight, minlength=units)
    safe = np.where(total > 0, total, 1.0)
    loss = np.clip(np.bincount(unit_of, weight * np.where(counts, losses, 0.0), minlength=units) / safe, 0, 1)
    counted = np.ones(units) if promise.weighting == "units" else np.minimum(total, promise.most) / promise.most
    return Rounds(total > 0, loss, counted)
