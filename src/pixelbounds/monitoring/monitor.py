"""After deployment: is the promise still kept? `Monitor` checks a calibration, with truth and without.

*With truth*, `update`: for each promise an e-process against "the risk is at most its level" (`promise_monitors`). All
count the same units, so the mean of the e-values is an e-process: an alarm where it reaches 1 / alpha.

*Without truth*, `check_drift`: conformal ranks of band statistics among those of the calibration (`drift`). It tests
whether images are exchangeable with those of the calibration, not the risk.

Half of the probability of a false alarm goes to each (all of it to the first where the calibration has no reference),
and that of the second is shared evenly by its statistics: by Ville and a union bound an alarm is ever false with
probability at most `false_alarm`. The state does not grow with time but for digests of unit names, up to 2^17, and of
calls (`arrivals`), up to 2^12, and a history of at most 512 rows, of which a full one loses every other.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ..calibration.calibration import Calibration
from ..calibration.data import truth_and_band
from ..calibration.losses import Loss
from ..calibration.paths.path import some_of
from ..calibration.provenance import CalibrationImages, all_known, hash_images
from ..evaluation.kept_promises import losses_of_images
from ..images.checks import check_number, check_open_unit
from ..images.ends import Band, one_band
from ..images.library import Array, current_runner
from ..kernels.bets import mean_log_e_value
from .arrivals import Counted, NewImages
from .drift import DriftMartingale, drift_martingales, statistics_of, update_drift
from .promise_monitors import PromiseMonitor, Rounds, rounds_of, targets_of, update_promises
from .status import Status

MAX_UNITS = 2**17  # of which the names are remembered, the latest ones
_MAX_ROWS = 512  # of the history


class Monitor:
    """Monitors whether the promises of a calibration are still kept.

    calibration    what `pixelbounds.calibrate` returned
    false_alarm    the probability of ever raising an alarm while nothing is wrong, over an unlimited time, jointly over
                   all promises and what is checked without truth
    loss           the function that the calibration was made with, where it has one of the user's

    `update` and `check_drift` return a `Status`; so does `status()`.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.uniform(size=(260, 8, 8))
    >>> band = Band(np.full_like(truth, 0.1), np.full_like(truth, 0.9))
    >>> from pixelbounds import Frontier, calibrate
    >>> monitor = Monitor(calibrate(truth[:200], band[:200], risk_level=0.1, method=Frontier(groups="band")))
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
        losses = [promise.name for promise in calibration.promises if promise.kind == "loss"]
        if len(losses) > 1:
            raise ValueError(f"{len(losses)} losses of your own cannot be monitored together; calibrate each by itself")
        if bool(losses) != (loss is not None):
            about = f"the loss {losses[0]!r}: give it, loss=..." if losses else "missed pixels: leave loss= out"
            raise ValueError(f"this calibration is about {about}")
        self.promises: tuple[PromiseMonitor, ...] = tuple(map(PromiseMonitor, calibration.promises))
        self._seed = int(self._digest[:16], 16)  # of what breaks ties
        self.drift: tuple[DriftMartingale, ...] = drift_martingales(calibration.reference, self._seed)
        self.broken = False
        self.with_truth = Counted()
        self.without_truth = Counted()
        self.history = np.empty((0, len(self._row(0.0))))  # one row for each call

    def __repr__(self) -> str:
        seen = f"{self.with_truth.images} images with truth, {self.without_truth.images} without"
        return f"Monitor of {len(self.promises)} promises: {seen}"

    @property
    def shares(self) -> tuple[float, float]:
        """The probability of a false alarm with truth, and without."""
        half = self.false_alarm / 2
        return (half, half) if self.drift else (self.false_alarm, 0.0)

    def update(
        self, truth: Any, band: Band, *, units: Any = None, within: Any = None, features: Any = None,
        labels: Any = None, when: float = 0.0, batch: str | None = None,
    ) -> Status:  # fmt: skip
        """Images whose truth is known now, in order of arrival: truth (n, *pixels), Band of the same shape -> Status.

        units       the unit of each image, (n,), where the calibration has units: give all images of a unit together;
                    further ones of a unit that was counted do not count, and `Status.late` says how many
        within      the region of each promise that has one, by its name, on these images: {"heart": mask}; None for one
                    that was not drawn on them, for which they do not count
        features, labels    as for `Calibration.apply`
        when        the time, in seconds since 1970, for the history
        batch       a name of this call: a batch counts once, and `Status.repeated` says how many images came again.
                    Without names and units, a call that begins with all images of an earlier one is refused

        Images that are like earlier ones count: they may repeat honestly (slices of air).
        """
        calibration = self.calibration
        when = check_number(when, "when")
        truth, band = truth_and_band(truth, band, calibration.limits)
        runner = current_runner()
        arrivals = self._arrivals(self.with_truth, units, batch, truth, *band.arrays)
        if not len(arrivals.images):
            return self.status(arrivals.repeated, arrivals.late)
        if all_known(hash_images(truth, runner), calibration.record.image_hashes):
            raise CalibrationImages(range(len(band)), len(band))
        promises = calibration.promises
        targets, regions = targets_of(promises, within, band.lower, self.loss)
        interval = calibration.apply(band, features=features, labels=labels)
        losses, sizes = losses_of_images([*targets.values()], truth, interval, regions, runner, calibration.limits)
        new, unit_of = arrivals.images, arrivals.unit_of
        rounds: list[Rounds] = [{} for _ in promises]
        for (number, target), loss in zip(targets.items(), losses, strict=True):
            size, counts = sizes[new, target.region], target.counts(sizes)[new]
            rounds[number] = rounds_of(promises[number], loss[new], size, counts, unit_of)
        self.promises, reached = update_promises(self.promises, rounds, self.shares[0])
        self.broken = self.broken or reached
        self.with_truth = self.with_truth.add(arrivals, MAX_UNITS)
        self._record(when)
        return self.status(arrivals.repeated, arrivals.late)

    def _arrivals(self, counted: Counted, units: Any, batch: str | None, *images: Any) -> NewImages:
        record = self.calibration.record
        if (units is None) == bool(record.units):
            noun = record.unit_name
            missing = f"the promise is about a {noun}: give the {noun} of each image, units=..."
            none = "the calibration took images as independent: leave units= out, or calibrate again with units"
            raise ValueError(missing if record.units else none)
        return counted.arrivals(units, batch, *images, runner=current_runner())

    def check_drift(
        self, band: Band, *, units: Any = None, features: Any = None, labels: Any = None, when: float = 0.0,
        batch: str | None = None,
    ) -> Status:  # fmt: skip
        """Images without truth, in order of arrival: are their bands like those of the calibration?

        It tests whether they come from the same source, as far as the statistics of `reference` show it, and nothing
        about risk. `units` and the rest as in `update`.
        """
        when = check_number(when, "when")
        band = one_band(band)
        arrivals = self._arrivals(self.without_truth, units, batch, *band.arrays)
        rows = statistics_of(self.calibration, band, features=features, labels=labels)[arrivals.images]
        if self.calibration.record.units and len(rows):
            parts = [np.flatnonzero(arrivals.unit_of == unit) for unit in range(len(arrivals.units))]
            rows = np.stack([rows[part[some_of(0, len(part))]].mean(axis=0) for part in parts])
        if len(rows):
            self.drift = update_drift(self.drift, rows, self._seed, self.shares[1])
            self.without_truth = self.without_truth.add(arrivals, MAX_UNITS)
            self._record(when)
        return self.status(arrivals.repeated, arrivals.late)

    def _row(self, when: float) -> Array:
        """The state now: time, images with truth, images without; then the columns that follow are read by."""
        row = [when, self.with_truth.images, self.without_truth.images]
        for one in self.promises:
            low, high = one.ends()
            row += [one.promise.cap * one.risk.top.total, one.risk.bottom.total, low, high, one.e_process.log_e_value]
        for martingale in self.drift:
            row += [martingale.e_process.rounds, martingale.total, martingale.e_process.log_e_value]
        return np.array(row, np.float64)

    def _record(self, when: float) -> None:
        kept = self.history[1::2] if len(self.history) >= _MAX_ROWS else self.history
        self.history = np.concatenate([kept, self._row(when)[None]])

    @property
    def histories(self) -> tuple[list[Array], list[Array]]:
        """Of each promise the sum of losses times weights, sum of weights, low and high end, log e-value, (5, rows); of
        each statistic of bands images (units), sum of values and log e-value, (3, rows).
        """
        cuts = np.cumsum([3, *[5] * len(self.promises), *[3] * len(self.drift)])[:-1]
        _, *columns = np.split(self.history.T, cuts)
        return columns[: len(self.promises)], columns[len(self.promises) :]

    def status(self, repeated: int = 0, late: int = 0) -> Status:
        """The state now; `repeated` and `late` images of the last call did not count."""
        record = self.calibration.record
        notes, noun = [], record.unit_name
        if late:
            which = "1 image was left out," if late == 1 else f"{late} images were left out, each"
            notes.append(f"{which} of a {noun} that was counted before: give all images of a {noun} in one call.")
        if self.calibration.bound == "conformal":
            notes.append(
                "The calibration promises its level on average over calibration sets only, so a risk above it does not "
                "contradict the promise, and alarms without a change are more likely than said."
            )
        if not self.drift:
            notes.append("The calibration keeps no reference, so bands without truth cannot be checked.")
        log_e_value = mean_log_e_value(np.array([x.e_process.log_e_value for x in self.promises]))
        return Status(
            self.false_alarm, self.broken, any(x.changed for x in self.drift), self.with_truth.images,
            self.without_truth.images, repeated, noun if record.units else None,
            tuple(x.status(len(self.promises)) for x in self.promises), tuple(x.status for x in self.drift),
            tuple(notes), log_e_value, self._digest, late,
        )  # fmt: skip
