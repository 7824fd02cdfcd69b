"""Anytime calibration: images arrive, and it may be certified at any time.

The first images fit groups and path, which stay as they are. Every further one, in the order of arrival, updates an
e-process at each path point and for each promise against "this promise is broken here" (`PathEProcess`). A point passes
for a promise once that e-process ever was 1 / delta; the certified point is the narrowest such that it and all wider
ones pass for every promise.

Let t* be the widest point at which some promise is broken, and j such a promise. Neither depends on the images that
certify. Where a broken promise is certified at any time, the certified point is at or before t*: then t* has passed for
every promise, so j's e-process at t* was 1 / delta at some time. Its hypothesis is true, so that ever happens with
probability at most delta (Ville): at all times and for all promises together, without a correction for either.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..calibration.block import image_hashes, is_known_image
from ..calibration.calibration import Calibration, Record
from ..calibration.data import ROWS, CalibrationData, FittingImages, Statistic
from ..calibration.families import Family
from ..calibration.methods import Method, method_of
from ..calibration.paths.path import group_shares, region_sizes
from ..calibration.promises import CertifiedPromise, Promise, RiskTarget, check_same_places, promise_key
from ..calibration.provenance import all_known
from ..calibration.target import Target, Units, most_of_a_unit, target_of
from ..calibration.text import ANYTIME
from ..images.checks import VALIDITY_DOC, check_count, check_generator, check_units
from ..images.ends import Band
from ..images.library import Array, singly
from ..images.measure import Measure
from ..kernels.bets import min_losses
from ..storage.files import check_new_file, read_file, replace_file
from ..storage.version import VERSION
from .arrivals import NewImages, unit_digests
from .evidence import Check, Evidence
from .promise_monitors import regions_by_name
from .state_file import anytime_bytes, evidence_from_bytes

_AT_ONCE = 256  # images whose losses are tabulated at a time
_EXPECTED = 7  # times as many units as the first ones, by default
_sizes = Statistic("sizes", lambda truth, block, family: (region_sizes(block),), (ROWS,))


class AnytimeCalibration:
    """A calibration of images that keep arriving, which may be used and checked after every one of them.

    The images that it is made of fit groups and path and do not certify; for method "rcps", which fits nothing, they
    certify at once. Arguments are those of `pixelbounds.calibrate`; the bound is its own, and needs no number of
    images. `expected`, of images (units) to come, shapes the path; any is valid.

    start         what is promised and on what kind of images, before anything is certified
    by_unit       whether images come in units
    images        images that certify so far; those that fitted do not
    image_hashes  short hashes of the truth of all images, those that fitted first
    checks        after each call of `add`: how many images and units certify, and where on the path it is certified

    >>> rng = np.random.default_rng(0)
    >>> def images(n):
    ...     centre = rng.uniform(0.3, 0.7, (n, 8, 8))
    ...     return centre + 0.05 * rng.standard_normal(centre.shape), Band(centre - 0.05, centre + 0.05)
    >>> from pixelbounds import Frontier
    >>> anytime = AnytimeCalibration(*images(20), risk_level=0.1, method=Frontier(groups="band"))
    >>> counted = [anytime.add(*images(10)) for day in range(5)]
    >>> [check.certified for check in anytime.checks]
    [False, False, True, True, True]
    >>> anytime.certified.risk_level
    0.1
    """

    def __init__(
        self, truth: Any, band: Band, *, risk_level: float | None = None, promises: Sequence[Promise] | None = None,
        failure_prob: float = 0.1, method: str | Method = "frontier", units: Any = None, labels: Any = None,
        features: Any = None, limits: Any = (0.0, 1.0), measure: Measure | None = None, expected: int | None = None,
        seed: Any = 0,
    ) -> None:  # fmt: skip
        target, method, rng = target_of(risk_level, promises, failure_prob), method_of(method), check_generator(seed)
        data, risks = CalibrationData(truth, band, units, labels, features, limits, measure).with_promises(target)
        if not all(risk.counts_only for risk in risks):
            raise ValueError("a loss that sees images cannot be certified at any time; give shares and tails")
        fits = method.name != "rcps"
        fitting = np.arange(len(data)) if fits else np.arange(0)
        if expected is None:
            fewest = max(min_losses(risk.level, target.failure_prob) for risk in risks)
            expected = max(_EXPECTED * (int(data.unit_of.max()) + 1), 2 * fewest)
        data.check_bands(np.arange(len(data)))
        path = method.fit(FittingImages(data, fitting, risks, check_count(expected, "expected")), target, rng)
        digest, hashes = data.aggregate(image_hashes)
        asked = _as_asked(data, risks, fits=fits)
        most = max((int(promise.most) for promise in asked if promise.weighting == "images"), default=0)
        record = Record(
            images=len(data), fitting=len(fitting), certifying=0, units=0, pixels=data.pixels, source=data.source,
            seed="generator" if seed is rng else str(seed), digest="none yet", version=VERSION, max_images=most,
            unit_name=data.units.name if data.units else "unit",
            weighting=data.units.weighting if data.units and most else "units",
        )  # fmt: skip
        start = Calibration(  # nothing is certified
            method.name, ANYTIME, data.family, target.failure_prob, data.limits, path.grouping, path.at(-1),
            asked, np.empty((0, 3)), 0, record, data.measure,
        )  # fmt: skip
        names = None if data.units is None else check_units(data.units.ids, len(data))[: len(fitting)]
        units_here = None if names is None else np.unique(unit_digests(names))
        shares, fitted = group_shares(data, fitting, path), len(fitting)
        self._hold(Evidence.new(start, path, shares, hashes[:fitted], units_here, digest if fits else digest * 0))
        if not fits:
            self._count(data, risks, hashes, None)

    def add(
        self, truth: Any, band: Band, *, within: Mapping[str, Any] | None = None, features: Any = None,
        labels: Any = None, units: Any = None, batch: str | None = None,
    ) -> int:  # fmt: skip
        """Count further images, in the order of their arrival; returns how many were counted.

        within      of each promise about a region, by its name: the region of these images
        features    and `labels`, where those of the first images were given
        units       of these images, where those of the first were given; each call brings whole units, and units that
                    fitted or were counted before do not count again
        batch       a name of this call: a batch counts once. Without names and units, a call that begins with all
                    images of an earlier one is refused

        Images that are like earlier ones count: they may repeat honestly (slices of air). A call counts all of its
        images or, where it fails, none.
        """
        start, record = self.start, self.start.record
        band, features, labels = start.check_band(band, features, labels)
        if not record.pixels:  # images differ in size, even if these do not
            band = band.map(singly, checked=True)
        if (units is not None) != self.by_unit:
            how = "came with units: give units= here, too" if self.by_unit else "had no units: leave units= out"
            raise ValueError(f"the first images {how}")
        units = Units(units, record.unit_name, record.weighting) if self.by_unit else None
        family = band.with_family(start.family)
        data = CalibrationData(truth, family, units, labels, features, start.limits, start.measure)
        if data.pixels != record.pixels:
            raise ValueError(f"these images have shape {data.pixels}, the first ones {record.pixels}; they must agree")
        regions = regions_by_name(start.promises, within)
        promises = [promise.asked(regions.get(promise.name)) for promise in start.promises]
        data, risks = data.with_promises(Target(promises, start.failure_prob))
        check_same_places(start.promises, risks)
        return self._count(data, risks, data.aggregate(image_hashes)[1], batch)

    def _count(self, data: CalibrationData, risks: Sequence[RiskTarget], hashes: Array, batch: str | None) -> int:
        evidence = self._evidence
        names = data.units.ids if data.units else None
        arrivals = evidence.counted.arrivals(names, batch, data.truth, *data.band.arrays, runner=data.runner)
        if names is None and len(arrivals.images):
            fitted = evidence.image_hashes[: len(evidence.image_hashes) - evidence.counted.images]
            _check_not_fitted(hashes, np.append(fitted, self.start.grouping.fitted_on))
        if not len(arrivals.images):
            return 0
        for some, unit_of in _whole_units(arrivals):
            here = tuple(risk.take(some) for risk in risks)
            evidence = evidence.update(data.take(some), here, unit_of)
        self._hold(evidence.checked(arrivals))
        return len(arrivals.images)

    def _hold(self, evidence: Evidence) -> None:
        self._evidence, self.start, self.by_unit = evidence, evidence.start, evidence.by_unit
        self.images, self.image_hashes = evidence.counted.images, evidence.image_hashes
        self.checks = tuple(Check(*map(int, row)) for row in evidence.checks)

    @property
    def certified(self) -> Calibration | None:
        """The calibration as it can be certified now, None where it cannot; asking costs nothing."""
        return self._evidence.calibration

    @property
    def min_images(self) -> int:
        """Images (units) below which nothing can certify these promises, even if no pixel is missed."""
        return max(min_losses(x.level, x.failure_prob) for x in self._evidence.e_processes)

    def __repr__(self) -> str:
        certified = self.certified
        none = f"nothing certified yet; at least {self.min_images} must certify"
        return f"AnytimeCalibration, {self.images} images: {none if certified is None else certified.guarantee}"

    def to_bytes(self) -> bytes:
        """The content of the state's file: the same images, in the same calls, give the same bytes."""
        return anytime_bytes(self._evidence)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state, aside first and then in place: whatever happens, the file holds the old state or the new."""
        replace_file(check_new_file(path, "anytime calibration"), self.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "file", family: Family | None = None) -> AnytimeCalibration:
        """The anytime calibration that the content of a file holds."""
        made = cls.__new__(cls)
        made._hold(evidence_from_bytes(data, name, family))
        return made

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, family: Family | None = None) -> AnytimeCalibration:
        """Read a state that `save` wrote; a user's own family must be given again."""
        return cls.from_bytes(read_file(path, "anytime calibration"), str(path), family)


def _as_asked(data: CalibrationData, risks: Sequence[RiskTarget], *, fits: bool) -> tuple[CertifiedPromise, ...]:
    """The promises before anything was seen: with a risk of 0, and for how much a unit counts at most."""
    sizes = data.aggregate(_sizes)[0] if any(risk.weighting != "units" for risk in risks) else np.empty(0)

    def seen(risk: RiskTarget) -> tuple[Any, ...]:
        alike = risk.weighting == "units"
        return 0.0 if alike else most_of_a_unit(risk, sizes, risk.counts(sizes) & fits, data.unit_of), 0.0, 1

    return tuple(CertifiedPromise(*promise_key(risk), *seen(risk)) for risk in risks)


def _check_not_fitted(hashes: Array, fitted: Array) -> None:
    """Refuse a call all of whose images fitted; some of them may repeat honestly, and are warned of."""
    if all_known(hashes, fitted):
        raise ValueError("these images fitted groups and path, so they do not certify: give images that arrived later")
    same = int(is_known_image(hashes, fitted).sum())
    if same:
        what = f"{same} of {len(hashes)} images have the truth of one that fitted. If they are the same, they must not"
        warnings.warn(f"{what} certify: begin again without them ({VALIDITY_DOC})", stacklevel=4)


def _whole_units(arrivals: NewImages) -> Iterator[tuple[Array, Array]]:
    """Some images (ascending) at a time, whole units in the order of arrival, and the number of each image's unit."""
    unit_of, start = arrivals.unit_of, 0
    ends = np.cumsum(np.bincount(unit_of))
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _AT_ONCE, side="right")))
        here = (unit_of >= start) & (unit_of < stop)
        yield arrivals.images[here], unit_of[here] - start
        start = stop
