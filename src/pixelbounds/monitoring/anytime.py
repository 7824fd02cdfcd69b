"""A calibration that grows: images arrive, and it is certified at any time that one cares to look.

The first images fit groups and path, which stay as they are. Every further one, in the order of arrival, lets bettors
at each path point and for each promise bet against "this promise is broken here" (`horizons`). A point passes for a
promise once its bettors' wealth was ever 1 / delta; the certified point is the narrowest such that it and all wider
ones pass for every promise.

Let t* be the widest point at which some promise is broken, and j such a promise. Neither depends on the images that
certify. Whoever looks, at any time, and finds a broken promise certified has found a point at or before t*: then t* has
passed for every promise, so the wealth of j's bettors at t* was 1 / delta at some time. They bet against something
true, so that ever happens with probability at most delta (Ville): for all looks and all promises together, and without
a correction for either.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..calibration.band_statistics import group_shares
from ..calibration.calibration import Calibration
from ..calibration.data import LocalData
from ..calibration.families import Family
from ..calibration.image_hashes import image_hashes, is_known_image
from ..calibration.methods import method_of
from ..calibration.paths.line import GAMMAS
from ..calibration.paths.path import misses
from ..calibration.promises import Promise, RiskTarget, check_same_places, risk_targets_of
from ..calibration.split import FittingImages
from ..calibration.target import target_of
from ..calibration.text import VALIDITY_DOC
from ..calibration.units import Units
from ..images.checks import (
    Limits,
    check_generator,
    check_units,
)
from ..images.ends import Band, one_band
from ..images.library import Array, singly
from ..images.measure import Measure
from ..storage.files import check_new_file, replace_file
from .anytime_file import anytime_from_bytes, growing_to_bytes
from .evidence import Evidence, Look, Terms, calibration_of, unit_prints
from .first_images import as_asked, coming_units, most_of
from .horizons import EProcesses, fewest

_AT_ONCE = 256  # images whose losses are tabulated at a time


class AnytimeCalibration:
    """A calibration of images that keep arriving, which may be looked at after every one of them.

    The images that it is made of fit groups and path and do not certify; for method "rcps", which fits nothing, they
    certify at once. Arguments are those of `pixelbounds.calibrate`; the bound is its own, and needs no number of
    images. `expected`, of images (units) to come, shapes the path for several promises; any is valid.

    >>> rng = np.random.default_rng(0)
    >>> def images(n):
    ...     centre = rng.uniform(0.3, 0.7, (n, 8, 8))
    ...     return centre + 0.05 * rng.standard_normal(centre.shape), Band(centre - 0.05, centre + 0.05)
    >>> growing = AnytimeCalibration(*images(20), risk_level=0.1, groups="band")
    >>> counted = [growing.add(*images(10)) for day in range(5)]
    >>> [look.certified for look in growing.looks]
    [False, False, True, True, True]
    >>> growing.certified.risk_level
    0.1
    """

    def __init__(
        self,
        truth: Any,
        band: Band,
        *,
        risk_level: float | None = None,
        promises: Sequence[Promise] | None = None,
        failure_prob: float = 0.1,
        method: str = "frontier",
        groups: Any = None,
        features: Any = None,
        labels: Any = None,
        family: Any = None,
        k: int | None = None,
        d_opt: int | None = None,
        direction: Any = None,
        gammas: Sequence[float] = GAMMAS,
        units: Any = None,
        unit_name: str = "unit",
        weighting: str = "units",
        max_images: int | None = None,
        limits: Any = (0.0, 1.0),
        measure: Measure | None = None,
        expected: int | None = None,
        seed: Any = 0,
    ) -> None:
        target = target_of(risk_level, promises, failure_prob)
        rng = check_generator(seed)
        own = None if units is None else Units(units, unit_name, weighting, max_images)
        data = LocalData(truth, one_band(band).with_family(family), own, labels, features, limits, measure)
        names = check_units(units, len(data))
        by_unit = units is not None
        data, targets = data.with_promises(target)
        every = np.arange(len(data))
        data.check_bands(every)
        coming = coming_units(targets, int(data.unit_of.max()) + 1, target.failure_prob, expected)
        chosen = method_of(
            method, groups=groups, k=k, d_opt=d_opt, direction=direction, gammas=gammas if method == "krcps" else None
        )
        fits = method != "rcps"
        path = chosen.fit(FittingImages(data, every, targets, coming), target, rng)
        digest, hashes = data.aggregate(image_hashes)
        kept = tuple(as_asked(each, most_of(each, data, fits)) for each in targets)
        shares = group_shares(data, every if fits else every[:0], path)
        self._terms = Terms(
            method, data.family, data.limits, path.grouping, path, kept, target.of_all_pixels, target.failure_prob,
            unit_name if by_unit else None, weighting if by_unit else "units", data.pixels, data.source,
            "generator" if seed is rng else str(seed), features is not None, labels is not None, path.at(path.usual),
            shares, measure,
        )  # fmt: skip
        e_processes = tuple(
            EProcesses.new(each.level, target.failure_prob, len(path), each.kind == "tail") for each in targets
        )
        known = np.unique(unit_prints(names)) if by_unit and fits else np.empty(0, np.uint64)
        self._evidence = Evidence.new(
            e_processes, hashes if fits else hashes[:0], known, digest if fits else digest * 0
        )
        if not fits:
            self._count(data, targets, names if by_unit else None, hashes, skip_known=False)

    # ------------------------------------------------------------ images arrive

    def add(
        self,
        truth: Any,
        band: Band,
        *,
        within: Mapping[str, Any] | None = None,
        features: Any = None,
        labels: Any = None,
        units: Any = None,
        skip_known: bool = False,
    ) -> int:
        """Count further images, in the order of their arrival, and say how many were counted.

        within      of each promise about a region, by its name: the region of these images
        features    and `labels`, where those of the first images were given
        units       of these images, where those of the first were given; each call brings whole units
        skip_known  leave out images that were counted before, and units all of whose images were, instead of refusing
                    the call: a command that was killed may be run again

        An image counts once, and never if it fitted; a call counts all of its images or, where it fails, none.
        """
        terms = self._terms
        if not isinstance(skip_known, bool):
            raise TypeError(f"skip_known is a {type(skip_known).__name__}; say True or False")
        band = one_band(band)
        differences = terms.source.differences(band.source)
        if differences:
            raise ValueError(
                f"this band was made in another way than the first ones ({'; '.join(differences)}): make it in the "
                f"same way, or begin another anytime calibration ({VALIDITY_DOC})"
            )
        if (features is not None, labels is not None) != (terms.with_features, terms.with_labels):
            raise ValueError("give features= and labels= of these images exactly where those of the first were given")
        if not terms.pixels:  # images differ in size, even if these do not
            band = band.map(singly, checked=True)
        pairs = LocalData(truth, band.with_family(terms.family), None, labels, features, terms.limits)
        if pairs.pixels != terms.pixels:
            raise ValueError(f"these images have shape {pairs.pixels}, the first ones {terms.pixels}; they must agree")
        if (units is None) != (terms.units is None):
            how = "came with units: give units= here, too" if units is None else "had no units: leave units= out"
            raise ValueError(f"the first images {how}")
        asked = terms.promises_within(within)
        targets, regions = risk_targets_of(asked, pairs.band.lower, terms.weighting, units is not None)
        check_same_places(terms.promises, targets)
        pairs = pairs.with_regions(regions)
        names = None if units is None else check_units(units, len(pairs))
        return self._count(pairs, targets, names, pairs.aggregate(image_hashes)[1], skip_known=skip_known)

    def _count(
        self, pairs: LocalData, targets: tuple[RiskTarget, ...], names: Array | None, own: Array, *, skip_known: bool
    ) -> int:
        """Let images that are new certify, a few units at a time."""
        images = self._new_ones(own, names, skip_known)
        if not len(images):
            return 0
        evidence = self._evidence
        terms = self._terms
        for some, unit_of in _whole_units(images, names):
            part = pairs.take(some)
            here = tuple(target.take(some) for target in targets)
            found = *part.aggregate(misses, path=terms.path, digests=True)[:3], own[some]
            evidence = evidence.after(part, here, terms, unit_of, found)
        if names is not None:
            fresh = unit_prints(names[np.sort(np.unique(names, return_index=True)[1])])
            fresh = fresh[~np.isin(fresh, evidence.units)]
            evidence = replace(evidence, units=np.concatenate([evidence.units, fresh]))
        self._evidence = evidence.looked()
        return len(images)

    def _new_ones(self, own: Array, names: Array | None, skip_known: bool) -> Array:
        """The numbers of images that were not counted before, and did not fit; refused where that cannot be told."""
        known = is_known_image(own, np.concatenate([self._evidence.image_hashes, self._terms.grouping.fitted_on]))
        before = known
        if names is not None:
            before = np.isin(unit_prints(names), self._evidence.units)
            strange = np.flatnonzero((before & ~known & (own != 0)) | (known & ~before))
            if len(strange):
                at = int(strange[0])
                raise ValueError(
                    f"{self._terms.units} {str(names[at])!r} was counted before with other images than image {at}, or "
                    "that image under another name; a call brings whole units, each once: give new ones"
                )
        if before.any() and not skip_known:
            raise ValueError(
                f"{int(before.sum())} of these {len(own)} images fitted or were counted before (image "
                f"{int(np.flatnonzero(before)[0])} is the first), and none counts twice: leave them out, or say "
                "skip_known=True"
            )
        images = np.flatnonzero(~before)
        label = np.arange(len(own)) if names is None else names
        once = {(int(own[i]), str(label[i])) for i in images if own[i]}
        if len(once) > len({print_ for print_, _ in once}) or (
            names is None and len(once) < int((own[images] != 0).sum())
        ):
            raise ValueError(
                "some of these images have the truth of another one, so they are not independent: leave them out, or "
                f"give units= the same name for images of one truth ({VALIDITY_DOC})"
            )
        return images

    # ------------------------------------------------------------ what can be said

    @property
    def certified(self) -> Calibration | None:
        """The calibration as it can be certified now, None where it cannot; looking costs nothing."""
        return calibration_of(self._terms, self._evidence)

    @property
    def looks(self) -> tuple[Look, ...]:
        """After each call of `add`: how many images and units certify, and where on the path it is certified."""
        return tuple(Look(*map(int, row)) for row in self._evidence.looks)

    @property
    def images(self) -> int:
        """Images that certify so far; those that fitted do not."""
        return len(self._evidence.image_hashes) - self._evidence.fitting

    @property
    def limits(self) -> Limits:
        """Least and greatest possible value."""
        return self._terms.limits

    @property
    def measure(self) -> Measure | None:
        """What the numbers stand for, where that is known."""
        return self._terms.measure

    @property
    def failure_prob(self) -> float:
        """The probability with which what is certified may fail, at all looks together."""
        return self._terms.failure_prob

    @property
    def by_unit(self) -> bool:
        """Whether images come in units, which are told with each call."""
        return self._terms.units is not None

    @property
    def image_hashes(self) -> Array:
        """A digest of each image, those that fitted first: (n,) uint64."""
        return self._evidence.image_hashes

    @property
    def least(self) -> int:
        """Images (units) below which nothing can certify these promises, even if no pixel is missed."""
        return max(fewest(e_processes.level, e_processes.failure_prob) for e_processes in self._evidence.e_processes)

    def __repr__(self) -> str:
        found = self.certified
        if found is not None:
            return f"AnytimeCalibration, {self.images} images: {found.guarantee}"
        return f"AnytimeCalibration, {self.images} images: nothing certified yet; at least {self.least} must certify"

    # ------------------------------------------------------------ files

    def to_bytes(self) -> bytes:
        """The content of the state's file: the same images, in the same calls, give the same bytes."""
        return growing_to_bytes(self._terms, self._evidence)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state, aside first and then in place: whatever happens, the file holds the old state or the new."""
        target = check_new_file(path, "anytime calibration")
        replace_file(target, self.to_bytes())

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "file", family: Family | None = None) -> AnytimeCalibration:
        """The anytime calibration that the content of a file holds."""
        made = cls.__new__(cls)
        made._terms, made._evidence = anytime_from_bytes(data, name, family)
        return made

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, family: Family | None = None) -> AnytimeCalibration:
        """Read a state that `save` wrote, and go on; a user's own family must be given again."""
        with open(path, "rb") as file:
            return cls.from_bytes(file.read(), str(path), family)


def _whole_units(images: Array, names: Array | None) -> Iterator[tuple[Array, Array]]:
    """Some images (ascending) at a time, whole units in the order of arrival, and the number of each image's unit."""
    label = images if names is None else names[images]
    values, first, number = np.unique(label, return_index=True, return_inverse=True)
    arrival = np.empty(len(values), np.int64)
    arrival[np.argsort(first)] = np.arange(len(values))
    arrival = arrival[number]
    ends = np.cumsum(np.bincount(arrival))
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _AT_ONCE, side="right")))
        here = (arrival >= start) & (arrival < stop)
        yield images[here], arrival[here] - start
        start = stop
