"""After deployment: is the promise still kept? `Monitor` watches a calibration, with truth and without.

*With truth*, `update`: for each promise a bet on "the risk is above its level" (`accounts`, `purse`). All are played on
the same units, so the mean of their purses is a purse: an alarm where it reaches 1 / alpha.

*Without truth*, `look`: ranks of what new bands are like among those of the calibration (`gauges`, `urn`). It tests
whether images are exchangeable with those of the calibration, not the risk.

Half of the chance of a false alarm goes to each (all of it to the first where the calibration has no reference), and
that of the second is shared evenly by its statistics, as they have histories of their own: by Ville and a union bound
an alarm is ever false with probability at most `false_alarm`. What is kept does not grow with time but for digests of
what was seen, up to 2^17 each (`seen`), and a history of at most 512 rows.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ..calibration.band_statistics import some_of
from ..calibration.calibration import Calibration
from ..calibration.losses import Loss
from ..evaluation.kept_promises import region_tallies
from ..evaluation.known_images import refuse_calibrated
from ..images.checks import check_number, check_open_unit, check_same_shape, check_units
from ..images.ends import Band, one_band
from ..images.foreign import check_axes
from ..images.library import Array, as_array, current_runner, differ_in_size, rescale_uint8, singly
from ..storage.digests import joined_digests
from .drift_martingales import DriftMartingale, gauges_of, looked
from .e_process import mean_worth
from .history import row_of, with_row
from .promise_monitors import PromiseMonitor, Rounds, played, regions_of, rounds_of
from .reference import band_statistics
from .seen import first_seen, image_digests, name_digests, remembered_with
from .sentences import late_in_words
from .status import Status, WatchedPromise, worth_of

_LEVEL = 0.95  # of intervals
_NO_DIGESTS = np.empty(0, np.uint64)


class Monitor:
    """Watches whether the promises of a calibration are still kept.

    calibration    what `pixelbounds.calibrate` returned
    false_alarm    the probability of ever raising an alarm while nothing is wrong, over an unlimited time, jointly over
                   all promises and what is looked at without truth
    loss           the function that the calibration was made with, where it has one of the user's

    `update` and `look` return a `Status`; so does `status()`. Images that were counted before are left out.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.uniform(size=(260, 8, 8))
    >>> band = Band(np.full_like(truth, 0.1), np.full_like(truth, 0.9))
    >>> from pixelbounds import calibrate
    >>> monitor = Monitor(calibrate(truth[:200], band[:200], risk_level=0.1, method="frontier"))
    >>> monitor.update(truth[200:], band[200:]).alarm
    False
    >>> bad = rng.choice([0.001, 0.999], (40, 8, 8))
    >>> status = monitor.update(bad, band[:40])
    >>> status.alarm, [promise.broken for promise in status.promises]
    (True, [True])
    """

    def __init__(self, calibration: Calibration, false_alarm: float = 0.01, *, loss: Loss | None = None) -> None:
        if not isinstance(calibration, Calibration):
            raise TypeError(f"calibration is a {type(calibration).__name__}; give what pixelbounds.calibrate returns")
        self.calibration = calibration
        self.false_alarm = check_open_unit(false_alarm, "false_alarm")
        self._digest = hashlib.sha256(calibration.to_bytes()).hexdigest()
        self.loss = loss
        if len(calibration.promises) > 1 and any(promise.kind == "loss" for promise in calibration.promises):
            raise ValueError("a loss of one's own among several promises cannot be watched; calibrate it by itself")
        own = any(promise.kind == "loss" for promise in calibration.promises)
        if own != (loss is not None):
            raise ValueError(
                f"this calibration promises {calibration.promises[0].name!r}, which no file holds: give it, loss=..."
                if own
                else "this calibration is about missed pixels, which need no loss: leave it out"
            )
        self.accounts: tuple[PromiseMonitor, ...] = tuple(
            PromiseMonitor.of(promise) for promise in calibration.promises
        )
        self.gauges: tuple[DriftMartingale, ...] = gauges_of(calibration.reference)
        self.broken = False
        self.images = 0
        self.looked = 0
        self.seen = _NO_DIGESTS
        self.seen_bands = _NO_DIGESTS
        self.history = np.empty((0, len(row_of(self.accounts, self.gauges, 0.0, 0, 0))))

    def __repr__(self) -> str:
        return f"Monitor of {len(self.accounts)} promises: {self.images} images with truth, {self.looked} without"

    @property
    def chances(self) -> tuple[float, float]:
        """The chance of a false alarm with truth, and that without."""
        half = self.false_alarm / 2
        return (half, half) if self.gauges else (self.false_alarm, 0.0)

    # ------------------------------------------------------------ with truth

    def update(
        self,
        truth: Any,
        band: Band,
        *,
        units: Any = None,
        within: Any = None,
        features: Any = None,
        labels: Any = None,
        when: float = 0.0,
    ) -> Status:
        """Images whose truth is known now, in order of arrival: truth (n, *pixels), Band of the same shape -> Status.

        units       the unit of each image, (n,), where the calibration has units: give all images of a unit together;
                    further ones of a unit that was counted are left out, and `Status.late` counts them
        within      the region of each promise that has one, by its name, on these images: {"heart": mask}; None for one
                    that was not drawn on them, for which they do not count
        features, labels    as for `Calibration.apply`
        when        the time, in seconds since 1970, for the history
        """
        calibration = self.calibration
        when = check_number(when, "when")
        band = one_band(band)
        check_axes(band.axes, truth, "truth")
        truth = as_array(rescale_uint8(truth, calibration.limits), "truth")
        if differ_in_size(truth) != differ_in_size(band.lower):
            truth = singly(truth)
            band = band.map(singly, checked=True)
        check_same_shape(band=band.lower, truth=truth)
        names = self._units(units, len(band))
        runner = current_runner()
        refuse_calibrated(truth, calibration, runner)
        promises = calibration.promises
        targets, regions = regions_of(promises, within, band.lower, self.loss)
        interval = calibration.apply(band, features=features, labels=labels)
        seeing = [target for target in targets if target is not None and not target.counts_only]
        tallies = region_tallies(truth, interval, regions, runner, limits=calibration.limits, seeing=seeing)
        missed, sizes, own = tallies
        digests = image_digests(truth, *band.arrays, runner=runner)
        fresh, unit_of, arrived = _arrivals(names, digests, self.seen)
        left_out = _left_out(fresh, digests, self.seen, names)
        rounds = []
        for promise, target in zip(promises, targets, strict=True):
            counts = fresh & (target.counts(sizes) if target is not None else False)
            size = sizes[:, 0 if target is None else target.region]
            if target is None:
                losses = np.zeros(len(size))
            else:
                losses = (
                    target.losses(missed[:, target.region], size)
                    if target.counts_only
                    else own[:, seeing.index(target)]
                )
            rounds.append(rounds_of(promise, losses[fresh], size[fresh], counts[fresh], unit_of, len(arrived)))
        if fresh.any():
            self._count(rounds, digests[fresh], arrived)
            self._remember(when)
        return self.status(*left_out)

    def _units(self, units: Any, n: int) -> Array | None:
        """Names of the units of images, (n,); None where images are independent."""
        record = self.calibration.record
        if (units is None) == bool(record.units):
            raise ValueError(
                f"the promise is about a {record.unit_name}: give the {record.unit_name} of each image, units=..."
                if record.units
                else "the calibration took images as independent, and units are no such: leave them out, or calibrate "
                "again with units"
            )
        return check_units(units, n) if record.units else None

    def _count(self, rounds: list[Rounds], digests: Array, arrived: Array) -> None:
        self.accounts, reached = played(self.accounts, rounds, self.chances[0])
        self.broken = self.broken or reached
        self.images += len(digests)
        own = arrived if self.calibration.record.units else _NO_DIGESTS
        self.seen = remembered_with(self.seen, np.concatenate([digests, own]))

    # ------------------------------------------------------------ without truth

    def check_drift(
        self, band: Band, *, units: Any = None, features: Any = None, labels: Any = None, when: float = 0.0
    ) -> Status:
        """Images without truth, in order of arrival: what their bands are like among those of the calibration.

        It tells whether they come from the same source, as far as `calibration.reference.STATISTICS` show it, and
        nothing about risk. `units` and the rest as in `update`.
        """
        when = check_number(when, "when")
        band = one_band(band)
        names = self._units(units, len(band))
        rows = band_statistics(self.calibration, band, features=features, labels=labels)
        digests = image_digests(*band.arrays, runner=current_runner())
        fresh, unit_of, arrived = _arrivals(names, digests, self.seen_bands)
        left_out = _left_out(fresh, digests, self.seen_bands, names)
        if names is None:
            own, lots = rows[fresh], digests[fresh]
        else:
            parts = [np.flatnonzero(unit_of == u) for u in range(len(arrived))]
            parts = [part[some_of(0, len(part))] for part in parts]
            own = np.stack([rows[fresh][part].mean(axis=0) for part in parts]) if parts else rows[:0]
            first = np.array([digests[fresh][part[0]] for part in parts], np.uint64)
            lots = joined_digests(first, arrived) if parts else arrived
        self.gauges = looked(self.gauges, own, lots, self.chances[1])
        self.looked += int(fresh.sum())
        marks = arrived if names is not None else _NO_DIGESTS
        self.seen_bands = remembered_with(self.seen_bands, np.concatenate([digests[fresh], marks]))
        if fresh.any():
            self._remember(when)
        return self.status(*left_out)

    # ------------------------------------------------------------ what is said

    def _remember(self, when: float) -> None:
        row = row_of(self.accounts, self.gauges, when, self.images, self.looked)
        self.history = with_row(self.history, row)

    def status(self, repeated: int = 0, late: int = 0) -> Status:
        """What is to be said now; `repeated` and `late` images were left out of the last call."""
        record = self.calibration.record
        notes = []
        if late:
            notes.append(late_in_words(late, record.unit_name))
        if self.calibration.bound == "conformal":
            notes.append(
                "The calibration promises its level on average over calibration sets only, so a risk above it does not "
                "contradict the promise, and alarms without a change are more likely than said."
            )
        if not self.gauges:
            notes.append("The calibration keeps no reference, so bands without truth tell nothing: calibrate again.")
        return Status(
            self.false_alarm, self.broken, any(gauge.changed for gauge in self.gauges), self.images, self.looked,
            repeated, record.unit_name if record.units else None,
            tuple(_watched(account) for account in self.accounts), tuple(gauge.status for gauge in self.gauges),
            tuple(notes), mean_worth(np.array([x.e_process.log_worth for x in self.accounts])), self._digest, late,
        )  # fmt: skip


def _arrivals(names: Array | None, digests: Array, seen: Array) -> tuple[Array, Array, Array]:
    """Which images count, (n,) bool, the unit of each that does, in order of arrival, and the units' digests."""
    if names is None:
        fresh = first_seen(digests, seen)
        return fresh, np.arange(int(fresh.sum())), digests[fresh]
    own = name_digests(names)
    fresh = ~np.isin(own, seen) & ~np.isin(digests, seen)
    units, first, number = np.unique(own[fresh], return_index=True, return_inverse=True)
    order = np.argsort(first)
    return fresh, np.argsort(order)[number], units[order]


def _left_out(fresh: Array, digests: Array, seen: Array, names: Array | None) -> tuple[int, int]:
    """Images that were counted before, and those that were not but whose unit was."""
    late = ~fresh & ~np.isin(digests, seen) & (names is not None)
    return int((~fresh & ~late).sum()), int(late.sum())


def _watched(account: PromiseMonitor) -> WatchedPromise:
    promise = account.promise
    low, high = account.risk.ends(_LEVEL)
    risk = None if not account.e_process.rounds or not account.risk.bottom.total else promise.cap * account.risk.value
    return WatchedPromise(
        promise.name, promise.kind, promise.above, promise.at_most, risk, (promise.cap * low, promise.cap * high),
        account.e_process.rounds, worth_of(account.e_process.log_worth), account.broken,
    )  # fmt: skip
