"""S_opt and S_rcps: which images fit groups and path and which certify, never within a unit (Section 3.2).

The split is random. It may look at fitting units one after the other and stop early where these show that what a
promise is about is rare; the others are then as good as new. It never looks at sizes of units that certify. Keeping all
units that have a rare region for certification would certify everything else on a mixture with too many of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..images.checks import NoGuarantee, check_count, check_generator
from ..images.library import Array
from .bounds import BOUNDS, ConfidenceBound, least_images
from .data import CalibrationData
from .paths.path import Path
from .promises import RiskTarget
from .target import Target

_SPARE = 1.5  # times the least that must certify a promise are left for it, as far as fitting units can tell


@dataclass(frozen=True, eq=False)
class FittingImages:
    """S_opt: images that shape groups and path.

    data        these images alone; all images where none fits
    images      their numbers in `data`, ascending; empty where none fits
    risks       the promises as they are counted on these images
    certifying  how many units will certify
    """

    data: CalibrationData
    images: Array
    risks: tuple[RiskTarget, ...]
    certifying: int

    @property
    def unit_of(self) -> Array:
        """Number of each fitting image's unit."""
        return self.data.unit_of[self.images]

    @property
    def units(self) -> int:
        """How many units fit."""
        return len(np.unique(self.unit_of))

    def take(self, images: Array) -> FittingImages:
        """Some of them alone, by their places among these; read once."""
        risks = tuple(risk.take(images) for risk in self.risks)
        return FittingImages(self.data.take(self.images[images]), np.arange(len(images)), risks, self.certifying)


@dataclass(frozen=True, eq=False)
class CertifyingImages:
    """S_rcps: images that decide how far along the path to go.

    data      all images
    images    which of them certify, bool (n,)
    order     the certifying units in random order, as bets need it
    risks     the promises as they are counted on all images
    fitting   the images that fit
    shares    how much the unit of each image counts, (n,), in [0, 1]; None: all the same
    """

    data: CalibrationData
    images: Array
    order: Array
    risks: tuple[RiskTarget, ...]
    fitting: FittingImages
    shares: Array | None = None


class Split(NamedTuple):
    """Fitting and certifying images."""

    fitting: FittingImages
    certifying: CertifyingImages


class Method(ABC):
    """How the fitting images make a path. `n_fit` units fit; by default the method decides."""

    name: ClassVar[str] = "custom"
    n_fit: int | None = None

    def units_to_fit(self, units: int, least: int, values: float = inf, *, labelled: bool = False) -> int:
        """How many of the units fit: a quarter but at most 128, and at most a quarter of what is beyond the `least`
        that certify at all. Units have at least so many `values` each, by the shape of one image.
        """
        return self._asked(units, max(1, min(128, -(-units // 4), (units - least) // 4)))

    def _asked(self, units: int, default: int) -> int:
        if self.n_fit is None:
            return default
        count = check_count(self.n_fit, "n_fit", least=0 if self.name == "rcps" else 1)
        if count >= units:
            raise ValueError(
                f"n_fit is {count}, but there are only {units} images (units); some must be left to certify: lower "
                "n_fit or give more images"
            )
        return count

    @abstractmethod
    def fit(self, fitting: FittingImages, target: Target, seed: Any = 0) -> Path:
        """The path, with its groups."""


def split(data: CalibrationData, target: Target, method: Method, seed: Any = 0) -> Split:
    """Draw the units that fit, as many as the method asks for; the others certify.

    >>> from pixelbounds import Band, CalibrationData, RCPS, share
    >>> images = CalibrationData(np.zeros((40, 2)), Band(np.zeros((40, 2)), np.ones((40, 2))))
    >>> fitting, certifying = split(images, Target([share(0.1)]), RCPS())
    >>> fitting.units, len(certifying.order)
    (0, 40)
    """
    rng = check_generator(seed)
    data, risks = data.with_promises(target)
    needs = needs_of(risks, data, target, look=method.name != "rcps" or bool(method.n_fit))
    least = max(need.least for need in needs)
    unit_of = data.unit_of
    units = int(unit_of.max()) + 1
    labelled = data.labels is not None or data.features is not None
    count = method.units_to_fit(units, least, prod(data.pixels) if data.pixels else inf, labelled=labelled)
    shuffled = rng.permutation(units)
    if count >= units:
        raise NoGuarantee(f"give more {data.nouns}: {units} cannot both fit and certify")
    if method.n_fit is None and not target.of_all_pixels:
        count = min(_enough(need, shuffled, count) for need in needs)
    return split_at(data, risks, shuffled[:count], shuffled[count:])


def split_at(
    data: CalibrationData, risks: Sequence[RiskTarget], fitting_units: Array, certifying_units: Array
) -> Split:
    """The split in which some units fit and others certify, in this order; both by number."""
    fits = np.isin(data.unit_of, fitting_units)
    images = np.flatnonzero(fits)
    fitting = FittingImages(data, np.arange(len(data)), tuple(risks), len(certifying_units))
    fitting = fitting.take(images) if len(images) else replace(fitting, images=images)
    return Split(fitting, CertifyingImages(data, ~fits, certifying_units, tuple(risks), fitting))


class Need(NamedTuple):
    """Which units have what a promise is about, bool (units,), and how many of these must certify it at the least."""

    having: Array
    least: int


def needs_of(risks: Sequence[RiskTarget], data: CalibrationData, target: Target, *, look: bool = True) -> list[Need]:
    """What each promise needs; without a `look` at regions they are taken to be everywhere."""
    units = int(data.unit_of.max()) + 1
    inside = data.having() if look and any(risk.region for risk in risks) else None
    needs = []
    for risk in risks:
        has = risk.subgroup if inside is None else inside[:, risk.region] & risk.subgroup
        having = np.zeros(units, bool)
        having[data.unit_of[has]] = True
        need = Need(having, least_units(risk.level, target.failure_prob, target.bound))
        if risk.place != "all" and having.sum() < need.least and target.bound in BOUNDS.values():
            raise NoGuarantee(
                f"Give more {data.nouns} with the region, raise the level of the promise, or leave it out: "
                f"{risk.words} cannot be certified, as {int(having.sum())} of {units} have the region, and with "
                f"{target.bound_name} at least {need.least} of them must certify"
            )
        needs.append(need)
    return needs


def least_units(level: float, failure_prob: float, bound: ConfidenceBound) -> int:
    """Fewest units that certify at all; 0 where a user's bound says that none do, which certifying will report."""
    try:
        return least_images(level, failure_prob, bound=bound)
    except ValueError:
        return 0


def _enough(need: Need, shuffled: Array, fit: int) -> int:
    """After how many of the units, in random order, as many are likely left as must certify; none where none fit.

    What is likely is estimated from the units before, with one that has it added.
    """
    for count in range(1, fit):
        share = (int(need.having[shuffled[:count]].sum()) + 1) / (count + 1)
        if (len(shuffled) - count - 1) * share < _SPARE * need.least:
            return count
    return fit


def with_data(parts: Split, data: CalibrationData, target: Target) -> Split:
    """The same split of other data of the same images, such as another band."""
    data, risks = data.with_promises(target)
    fitting_units = np.unique(parts.certifying.data.unit_of[~parts.certifying.images])
    return split_at(data, risks, fitting_units, parts.certifying.order)
