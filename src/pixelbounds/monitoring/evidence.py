"""What an anytime calibration is about, which is fixed, and what its images have shown so far, which grows.

`Terms` are settled on the first images. `Evidence` changes with every further one, and has the same bits however images
are cut into calls. Together they give the certified point and its `Calibration`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..calibration.band_statistics import MOST_UNITS, STATISTICS, BandStatistics, band_rows, some_of
from ..calibration.bounds import betting
from ..calibration.calibration import Calibration, Record
from ..calibration.data import LocalData
from ..calibration.families import Family
from ..calibration.groups.contract import Grouping
from ..calibration.image_hashes import digest_of
from ..calibration.paths.path import Path
from ..calibration.promises import CertifiedPromise, Promise, RiskTarget
from ..calibration.target import RiskTest
from ..calibration.text import ANYTIME
from ..calibration.units import losses_by_unit
from ..images.checks import Limits
from ..images.library import Array
from ..images.measure import Measure
from ..images.source import Source
from ..storage.version import VERSION
from .horizons import EProcesses

_CURVE = 64  # points of the path kept for the report


class Look(NamedTuple):
    """What could be said after a call: images and units that certify so far, and where on the path (-1: nowhere)."""

    images: int
    units: int
    knot: int

    @property
    def certified(self) -> bool:
        """Whether the promises were certified."""
        return self.knot >= 0


@dataclass(frozen=True, eq=False)
class Terms:
    """What is promised, along which path, on what kind of images; `units` is what a unit is called, None for none.

    `promises` are as asked: their risk is 0 and they are certified by 1, until something was seen. They are `plain`
    where they say no more than a risk level.
    """

    method: str
    family: Family
    limits: Limits
    grouping: Grouping
    path: Path
    promises: tuple[CertifiedPromise, ...]
    plain: bool
    failure_prob: float
    units: str | None
    weighting: str
    pixels: tuple[int, ...]
    source: Source
    seed: str
    with_features: bool
    with_labels: bool
    usual: Array  # a widening, and shares of groups, (K,) each, by which bands are described (`calibration/reference`)
    shares: Array
    measure: Measure | None = None

    def promises_within(self, within: Mapping[str, Any] | None) -> list[Promise]:
        """The promises with the regions of some images, by name."""
        if within is not None and not isinstance(within, Mapping):
            raise TypeError(f"within is a {type(within).__name__}; give the region of each promise by its name")
        given = dict(within or {})
        asked = []
        for promise in self.promises:
            region = None
            if promise.place != "all":
                if promise.name not in given:
                    raise ValueError(
                        f"the promise about {promise.name!r} needs its region on these images, too: "
                        f"within={{{promise.name!r}: ...}}"
                    )
                region = given[promise.name]
            asked.append(promise.asked(region))
        strange = sorted(given.keys() - {promise.name for promise in self.promises if promise.place != "all"})
        if strange:
            raise ValueError(f"within names {', '.join(map(repr, strange))}, and no promise is about such a region")
        return asked


@dataclass(frozen=True, eq=False)
class Evidence:
    """What was seen: purses of each promise, how much its units count for in all (J,), prints of all images, those
    that fitted first, prints of all units, the sum of the images' digests, a `Look` for every call, (calls, 3), and
    what bands of the first units are like, averaged over images and of one (`Reference`).
    """

    e_processes: tuple[EProcesses, ...]
    weights: Array
    fitting: int
    certifying: int
    image_hashes: Array
    units: Array
    digest: Array
    looks: Array
    of_units: Array
    of_images: Array

    @classmethod
    def new(cls, e_processes: tuple[EProcesses, ...], image_hashes: Array, units: Array, digest: Array) -> Evidence:
        """Before any image that certifies."""
        looks = np.empty((0, 3), np.int64)
        rows = np.empty((0, len(STATISTICS)), np.float32)
        return cls(
            e_processes,
            np.zeros(len(e_processes)),
            len(image_hashes),
            0,
            image_hashes,
            units,
            digest,
            looks,
            rows,
            rows,
        )

    def after(
        self, pairs: LocalData, targets: tuple[RiskTarget, ...], terms: Terms, unit_of: Array, found: Any
    ) -> Evidence:
        """The evidence after some whole units, numbered in the order of arrival, of which `found` was counted."""
        table, sizes, digest, own = found
        points = len(terms.path)
        e_processes = []
        weights = self.weights.copy()
        for j, (target, promise) in enumerate(zip(targets, terms.promises, strict=True)):
            counts = target.counts(sizes)
            if not counts.any():
                e_processes.append(self.e_processes[j])
                continue
            pooled = sizes[:, target.region] if target.weighting == "pixels" else None
            units = losses_by_unit(unit_of, counts, np.unique(unit_of[counts]), promise.most, pooled)
            risk_test = RiskTest(target, units, betting, terms.failure_prob)
            missed = table[:, target.region * points : (target.region + 1) * points].T
            losses = risk_test.losses(target.losses(missed, sizes[:, target.region]))
            e_processes.append(self.e_processes[j].after(losses.T))
            for weight in units.weights:  # one by one: the same bits however images are cut into calls
                weights[j] += weight
        of_units, of_images = self._described(pairs, terms, unit_of)
        return replace(
            self, e_processes=tuple(e_processes), weights=weights, certifying=self.certifying + int(unit_of.max()) + 1,
            image_hashes=np.concatenate([self.image_hashes, own]), digest=self.digest + digest, of_units=of_units,
            of_images=of_images,
        )  # fmt: skip

    def _described(self, pairs: LocalData, terms: Terms, unit_of: Array) -> tuple[Array, Array]:
        """What bands of the first units are like, with these; beyond so many none is added."""
        means = [self.of_units]
        single = [self.of_images]
        for unit in range(min(int(unit_of.max()) + 1, MOST_UNITS - len(self.of_units))):
            images = np.flatnonzero(unit_of == unit)
            images = images[some_of(0, len(images))]
            given = {"grouping": terms.grouping, "widening": terms.usual, "shares": terms.shares}
            rows = pairs.aggregate(band_rows, images, **given)[0]
            one = int(np.random.default_rng([0, self.certifying + unit]).integers(len(rows)))
            means.append(rows.mean(axis=0, keepdims=True))
            single.append(rows[one : one + 1])
        return np.concatenate(means), np.concatenate(single)

    def looked(self) -> Evidence:
        """The evidence with one more look."""
        look = (len(self.image_hashes) - self.fitting, self.certifying, self.knot)
        return replace(self, looks=np.concatenate([self.looks, np.array([look], np.int64)]))

    @property
    def knot(self) -> int:
        """The narrowest point such that it and all wider ones pass for every promise, -1 where there is none."""
        open_ = np.flatnonzero(~np.logical_and.reduce([e_processes.reached for e_processes in self.e_processes]))
        narrowest = int(open_[-1]) + 1 if len(open_) else 0
        return narrowest if narrowest < len(self.e_processes[0].best) else -1


def unit_prints(names: Array) -> Array:
    """A digest of the name of each unit: (n,) text -> (n,) uint64."""
    found = [int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") for name in map(str, names)]
    return np.array(found, np.uint64)


# ---------------------------------------------------------------- to a calibration


def calibration_of(terms: Terms, evidence: Evidence) -> Calibration | None:
    """The calibration of the certified point, None where there is none yet."""
    knot = evidence.knot
    if knot < 0:
        return None
    kept = tuple(
        replace(promise, risk=_risk(promise, e_processes, weight, knot), certifying=e_processes.count)
        for promise, e_processes, weight in zip(terms.promises, evidence.e_processes, evidence.weights, strict=True)
    )
    first = kept[0]
    curve, chosen = _curve(terms.path, first, evidence.e_processes[0], knot)
    most = max((int(promise.most) for promise in kept if promise.weighting == "images"), default=0)
    by_images = terms.weighting == "images" and most > 0
    record = Record(
        images=len(evidence.image_hashes), fitting=evidence.fitting, certifying=evidence.certifying,
        units=evidence.certifying if terms.units else 0, pixels=terms.pixels, source=terms.source, seed=terms.seed,
        digest=digest_of(evidence.digest), version=VERSION, unit_name=terms.units or "unit",
        weighting="images" if by_images else "units", max_images=most if by_images else 0,
        image_hashes=evidence.image_hashes,
    )  # fmt: skip
    return Calibration(
        terms.method, ANYTIME, terms.family, terms.failure_prob, terms.limits, terms.grouping, terms.path.at(knot),
        kept, curve, chosen, record, terms.measure, _reference(terms, evidence),
    )  # fmt: skip


def _reference(terms: Terms, evidence: Evidence) -> BandStatistics:
    own = evidence.of_units
    return BandStatistics(own, own if terms.units is None else evidence.of_images, terms.usual, terms.shares)


def _risk(promise: CertifiedPromise, e_processes: EProcesses, weight: float, knot: int) -> float:
    """The mean loss that was seen: over units, or over images or pixels where these count (`RiskTest.risk_of`)."""
    mean = float(e_processes.total[knot]) / e_processes.count
    if promise.most:
        mean = max(0.0, e_processes.level + (mean - e_processes.level) * e_processes.count / weight)
    return float(min(promise.cap, promise.cap * mean))


def _curve(path: Path, promise: CertifiedPromise, e_processes: EProcesses, knot: int) -> tuple[Array, int]:
    """Mean widening, mean of what is bounded, and its bound: the level where it passed, else all that is possible."""
    risks = promise.cap * e_processes.total / e_processes.count
    wanted = np.searchsorted(-risks, -np.linspace(min(1.0, 4 * promise.at_most), 0, _CURVE))
    kept = np.unique(np.append(np.minimum(wanted, len(path) - 1), knot))
    bounds = np.where(e_processes.reached[kept], promise.at_most, promise.cap)
    rows = np.stack([path.points[:, kept].mean(axis=0), risks[kept], bounds], axis=1)
    return rows, int(np.searchsorted(kept, knot))
