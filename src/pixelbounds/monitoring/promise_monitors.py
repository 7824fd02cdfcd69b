"""Promises after deployment: images with their truth, as rounds of bets on "the risk is above its level".

Each unit (an image, where images are independent) is one round of every promise whose region it has. Its loss L lies in
[0, 1], as at calibration: with a cap in shares of the cap. Where images or pixels count, a unit of S of them counts c =
min(S, B) / B, with B fixed at calibration: the promise is that E[c (L - level)] <= 0. So the bet
is on c (L - level) in all cases, with c = 1 where units count, and a round gains nothing in the mean, given all units
before, while the promise is kept and units are independent.

The e-processes of all promises count the same rounds, so their mean is an e-process (`mean_log_e_value`): it ever
reaches 1 / alpha with probability at most alpha if all are kept. Closed testing names the broken ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..calibration.promises import CertifiedPromise, Regions, RiskTarget, check_same_places, risk_targets_of
from ..calibration.target import UnitLosses
from ..images.library import Array
from ..kernels.bets import NOTHING_SEEN, PAUSES, EProcess, RunningRatio, log_factors, mean_log_e_value, rejected_jointly
from .status import PromiseStatus

LEVEL = 0.95  # of intervals


@dataclass(frozen=True, eq=False)
class PromiseMonitor:
    """What was seen of one promise: its e-process, its mean loss, and whether it was named as broken."""

    promise: CertifiedPromise
    e_process: EProcess = EProcess.new(PAUSES)  # noqa: RUF009 - frozen
    risk: RunningRatio = NOTHING_SEEN
    broken: bool = False

    def update(self, loss: float, weight: float) -> PromiseMonitor:
        """After a unit of this loss, which counts so much."""
        level = self.promise.at_most / self.promise.cap
        e_process = self.e_process.update(log_factors(weight * (loss - level), level))
        return replace(self, e_process=e_process, risk=self.risk.update(weight * loss, weight))

    def ends(self, count: int = 1) -> tuple[float, float]:
        """Both ends for its mean loss that hold at all times, for so many promises at once."""
        low, high = self.risk.ends(1 - (1 - LEVEL) / count)
        return self.promise.cap * low, self.promise.cap * high

    def status(self, count: int) -> PromiseStatus:
        """What was seen of it, one of so many promises."""
        promise, risk = self.promise, self.risk
        return PromiseStatus(
            promise.name, promise.kind, promise.above, promise.at_most,
            promise.cap * risk.value if risk.bottom.total else None, self.ends(),
            self.e_process.rounds, self.e_process.e_value, self.broken, self.ends(count)[1] <= promise.at_most,
        )  # fmt: skip


Rounds = dict[int, tuple[float, float]]  # of each unit that has the region, numbered by arrival: loss and weight


def update_promises(
    monitors: Sequence[PromiseMonitor], rounds: Sequence[Rounds], failure_prob: float
) -> tuple[tuple[PromiseMonitor, ...], bool]:
    """The monitors after all rounds, and whether their mean e-value ever reached 1 / failure_prob on the way."""
    now = list(monitors)
    reached = False
    for unit in sorted(set().union(*rounds)):
        now = [one.update(*of[unit]) if unit in of else one for one, of in zip(now, rounds, strict=True)]
        log_e_values = np.array([monitor.e_process.log_e_value for monitor in now])
        if mean_log_e_value(log_e_values) >= np.log(1 / failure_prob):
            reached = True
            broken = rejected_jointly(log_e_values, failure_prob)
            now = [replace(monitor, broken=monitor.broken or bool(x)) for monitor, x in zip(now, broken, strict=True)]
    return tuple(now), reached


def regions_by_name(promises: Sequence[CertifiedPromise], within: Any, or_none: str = "") -> Mapping[str, Any]:
    """The region of each promise that has one, by its name; `or_none` says what None stands for."""
    given = {} if within is None else within
    if not isinstance(given, Mapping):
        raise TypeError(f"within is a {type(given).__name__}; give the region of each promise by its name")
    needed = {promise.name for promise in promises if promise.place != "all"}
    if set(given) != needed:
        names = ", ".join(f"{name!r}: ..." for name in sorted(needed))
        remedy = f"each of {sorted(needed)} needs its region on these images, within={{{names}}}{or_none}"
        raise ValueError(f"within has {sorted(map(str, given))}: {remedy if needed else 'no promise has a region'}")
    return given


def targets_of(
    promises: Sequence[CertifiedPromise], within: Any, band: Any, loss: Any = None
) -> tuple[dict[int, RiskTarget], Regions]:
    """Promises, by number, as they are counted on new images, given their regions by name, and the distinct regions.

    A promise whose region was not drawn on these images is left out: they do not count for it.
    """
    given = regions_by_name(promises, within, ", None for one that was not drawn")
    drawn = {j: one for j, one in enumerate(promises) if one.place == "all" or given[one.name] is not None}
    asked = [one.asked(given.get(one.name), loss if one.kind == "loss" else None) for one in drawn.values()]
    targets, regions = risk_targets_of(asked, band, "units", units=True)
    check_same_places([*drawn.values()], targets)
    return dict(zip(drawn, targets, strict=True)), regions


def rounds_of(promise: CertifiedPromise, losses: Array, sizes: Array, counts: Array, unit_of: Array) -> Rounds:
    """Losses of images, sizes of the region and whether images count, (n,) each, as rounds of their units."""
    weights = sizes if promise.weighting == "pixels" else None
    units = UnitLosses(unit_of, counts, np.unique(unit_of), promise.most, weights)
    loss = np.clip(units.means(losses), 0, 1)
    return dict(zip(units.order.tolist(), zip(loss.tolist(), units.weights.tolist(), strict=True), strict=True))
