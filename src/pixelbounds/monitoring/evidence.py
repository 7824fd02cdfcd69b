"""What an anytime calibration has seen of its certifying images: e-processes along the path, one for every promise.

It is the same to the bit however images are cut into calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..calibration.block import digest_of
from ..calibration.bounds import betting
from ..calibration.calibration import Calibration
from ..calibration.data import CalibrationData
from ..calibration.paths.path import MOST_UNITS, STATISTICS, BandStatistics, Path, recorded_misses, some_of
from ..calibration.promises import CertifiedPromise, RiskTarget
from ..calibration.target import RiskTest, UnitLosses
from ..images.library import Array
from ..kernels.bets import PathEProcess
from .arrivals import Counted, NewImages

_CURVE = 64  # points of the path kept for the report


class Check(NamedTuple):
    """The result after a call: images and units that certify so far, and where on the path (-1: nowhere)."""

    images: int
    units: int
    point: int

    @property
    def certified(self) -> bool:
        """Whether the promises were certified."""
        return self.point >= 0


@dataclass(frozen=True, eq=False)
class Evidence:
    """What an anytime calibration is made of, and what it has seen."""

    start: Calibration  # what is promised, with groups and with nothing certified
    path: Path  # what the first images fitted
    shares: Array  # of its groups among them
    by_unit: bool  # whether images come in units
    e_processes: tuple[PathEProcess, ...]  # one for each promise
    weights: Array  # how much its units count for in all, (promises,)
    counted: Counted  # images that certify, all units, those that fitted among them, and calls
    certifying: int  # units that certify
    image_hashes: Array  # of all images, those that fitted first, (n,)
    digest: Array  # the sum of the digests of all images, (8,)
    checks: Array  # a `Check` for every call, (calls, 3)
    of_units: Array  # what bands of the first units are like (`BandStatistics`)
    of_images: Array  # and those of one image of each

    @classmethod
    def new(
        cls, start: Calibration, path: Path, shares: Array, image_hashes: Array, units: Array | None, digest: Array
    ) -> Evidence:
        """Before any image that certifies; hashes, digests of names of units and the digest are those that fitted."""
        e_processes = tuple(
            PathEProcess.new(x.level, start.failure_prob, len(path), binary=x.kind == "tail") for x in start.promises
        )
        rows = np.empty((0, len(STATISTICS)), np.float32)
        return cls(
            start, path, shares, units is not None, e_processes, np.zeros(len(e_processes)),
            Counted() if units is None else Counted(units=units), 0, image_hashes, digest,
            np.empty((0, 3), np.int64), rows, rows,
        )  # fmt: skip

    def update(self, data: CalibrationData, risks: Sequence[RiskTarget], unit_of: Array) -> Evidence:
        """The evidence after some whole units, numbered in the order of arrival."""
        path = self.path
        table, sizes, digest, _, hashes, rows = data.aggregate(recorded_misses, path=path, shares=self.shares)
        order = np.arange(int(unit_of.max()) + 1)
        e_processes, weights = list(self.e_processes), self.weights.copy()
        for j, (risk, promise) in enumerate(zip(risks, self.start.promises, strict=True)):
            counts = risk.counts(sizes)
            if not counts.any():
                continue
            size = sizes[:, risk.region]
            units = UnitLosses(unit_of, counts, order, promise.most, size if risk.weighting == "pixels" else None)
            missed = table[:, risk.region * len(path) : (risk.region + 1) * len(path)].T
            losses = RiskTest(risk, units, betting, 0.5).losses(risk.losses(missed, size))
            e_processes[j] = e_processes[j].update(losses.T)
            for weight in units.weights:  # one by one: the same bits however images are cut into calls
                weights[j] += weight
        of_units, of_images = self._described(rows, unit_of)
        return replace(
            self, e_processes=tuple(e_processes), weights=weights, certifying=self.certifying + len(order),
            image_hashes=np.concatenate([self.image_hashes, hashes]), digest=self.digest + digest, of_units=of_units,
            of_images=of_images,
        )  # fmt: skip

    def _described(self, rows: Array, unit_of: Array) -> tuple[Array, Array]:
        """Statistics of bands of the first units, with these; beyond so many units none is added."""
        means, single = [self.of_units], [self.of_images]
        for unit in range(min(int(unit_of.max()) + 1, MOST_UNITS - len(self.of_units))):
            images = np.flatnonzero(unit_of == unit)
            images = images[some_of(0, len(images))]
            one = np.random.default_rng([0, self.certifying + unit]).choice(images)
            means.append(rows[images].mean(axis=0, keepdims=True))
            single.append(rows[one : one + 1])
        return np.concatenate(means), np.concatenate(single)

    def checked(self, arrivals: NewImages) -> Evidence:
        """The evidence at the end of a call."""
        counted = self.counted.add(arrivals)
        row = np.array([[counted.images, self.certifying, self.point]], np.int64)
        return replace(self, checks=np.concatenate([self.checks, row]), counted=counted)

    @property
    def point(self) -> int:
        """The narrowest point such that it and all wider ones pass for every promise, -1 where there is none."""
        certified = np.logical_and.reduce([e_process.certified for e_process in self.e_processes])
        failed = np.flatnonzero(~certified)
        narrowest = int(failed[-1]) + 1 if len(failed) else 0
        return narrowest if narrowest < len(certified) else -1

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of the certified point; None where nothing is certified."""
        start, path, point = self.start, self.path, self.point
        if point < 0:
            return None
        promises = tuple(
            replace(promise, risk=_risk(promise, e_process, float(weight), point), certifying=e_process.count)
            for promise, e_process, weight in zip(start.promises, self.e_processes, self.weights, strict=True)
        )
        curve, chosen = _curve(path, promises[0], self.e_processes[0], point)
        record = replace(
            start.record, images=len(self.image_hashes), certifying=self.certifying,
            units=self.certifying if self.by_unit else 0, digest=digest_of(self.digest), image_hashes=self.image_hashes,
        )  # fmt: skip
        of_images = self.of_images if self.by_unit else self.of_units
        return replace(
            start, widening=path.at(point), promises=promises, curve=curve, chosen=chosen, record=record,
            reference=BandStatistics(self.of_units, of_images, path.at(path.usual), self.shares),
        )  # fmt: skip


def _risk(promise: CertifiedPromise, e_process: PathEProcess, weight: float, point: int) -> float:
    """The mean loss that was seen: over units, or over images or pixels where these count."""
    mean = float(e_process.total[point]) / e_process.count
    if promise.most:
        mean = max(0.0, e_process.level + (mean - e_process.level) * e_process.count / weight)
    return float(min(promise.cap, promise.cap * mean))


def _curve(path: Path, promise: CertifiedPromise, e_process: PathEProcess, point: int) -> tuple[Array, int]:
    """Mean widening, mean of what is bounded, and its bound: the level where it passed, else all that is possible."""
    risks = promise.cap * e_process.total / e_process.count
    wanted = np.searchsorted(-risks, -np.linspace(min(1.0, 4 * promise.at_most), 0, _CURVE))
    kept = np.unique(np.append(np.minimum(wanted, len(path) - 1), point))
    bounds = np.where(e_process.certified[kept], promise.at_most, promise.cap)
    rows = np.stack([path.points[:, kept].mean(axis=0), risks[kept], bounds], axis=1)
    return rows, int(np.searchsorted(kept, point))
