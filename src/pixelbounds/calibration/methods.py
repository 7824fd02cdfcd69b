"""S_opt and S_rcps: how many units fit and which, and the path that the fitting images make (Section 3.2).

RCPS        one widening for all pixels; nothing is fitted                             Algorithm 2
KRCPS       the line through the solution of (P_K)                                     Algorithm 1
Frontier    the path of shortest intervals on the fitting images                       docs/theory/proof.md

A method is an object that holds its settings. `units_to_fit` says how many units fit; `fit` makes the path, and looks
at no certifying image.

The split is random, and never within a unit. It may look at fitting units one after the other and stop early where
these show that what a promise is about is rare; the others are then as good as new. It never looks at sizes of units
that certify. Keeping all units that have a rare region for certification would certify everything else on a mixture
with too many of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import inf, prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..images.checks import NoGuarantee, check_choice, check_count, check_generator
from ..images.library import Array
from . import groups as groupings
from .bounds import BOUNDS, ConfidenceBound, least_images
from .choice import FEW, FEW_VALUES, few_groups, grouping_of, path_of, shortest_groups
from .data import CalibrationData, CertifyingImages, FittingImages
from .paths.line import GAMMAS, line_path, solve_program, stratified_pixels
from .paths.path import Path, scalar_path
from .promises import RiskTarget
from .target import Target

_SPARE = 1.5  # times the least that must certify a promise are left for it, as far as fitting units can tell


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


@dataclass(frozen=True)
class RCPS(Method):
    """One widening for all pixels (Algorithm 2). `n_fit` units show for how much a unit counts at most."""

    n_fit: int | None = None
    name: ClassVar[str] = "rcps"

    def units_to_fit(self, units: int, least: int, values: float = inf, *, labelled: bool = False) -> int:
        """None by default."""
        return self._asked(units, 0)

    def fit(self, fitting: FittingImages, target: Target, seed: Any = 0) -> Path:
        """A grid of widenings, whatever the images."""
        if fitting.data.labels is not None:
            raise ValueError("rcps has one group only: leave labels out, or use method='krcps' or 'frontier'")
        _refuse_features(fitting.data)
        return scalar_path(fitting.data, groupings.Single(), fitting.images)


@dataclass(frozen=True, eq=False)
class KRCPS(Method):
    """The line through the solution of (P_K) (Algorithm 1).

    k          number of groups of "loss" and "otsu"
    d_opt      pixels per image in (P_K), stratified by group; default: all
    groups     "loss" (default), "otsu", a partition (*pixels), a Grouping, or a function that fits one
    direction  of the line, one value of at least 0 per group; default: ones
    gammas     of the convex surrogate; the one of least objective is taken
    n_fit      fitting images (units, where given)
    """

    k: int | None = None
    d_opt: int | None = None
    groups: Any = None
    direction: Any = None
    gammas: Sequence[float] = GAMMAS
    n_fit: int | None = None
    name: ClassVar[str] = "krcps"

    def fit(self, fitting: FittingImages, target: Target, seed: Any = 0) -> Path:
        """The solution of (P_K) plus t times the direction."""
        data: Any = fitting.data
        rng = check_generator(seed)
        _refuse_features(data)
        usual = "loss" if data.labels is None or self.k is not None else groupings.Single()
        grouping = grouping_of(usual if self.groups is None else self.groups, data, fitting.images, rng, self.k)
        if grouping.sided:
            raise ValueError(
                f"krcps widens both ends of a pixel alike, but groups of kind {grouping.kind!r} treat them apart; "
                "use groups='loss', 'otsu' or a partition, or method='frontier'"
            )
        gammas = np.atleast_1d(_numbers(self.gammas))
        if gammas.ndim > 1 or not gammas.size or not ((gammas >= 0) & (gammas < 1)).all():
            raise ValueError(f"gammas is {self.gammas!r}; give at least one value in [0, 1)")
        pixels = None
        if self.d_opt is not None:
            pixels = stratified_pixels(grouping, data.pixels, check_count(self.d_opt, "d_opt"), rng)
        direction = np.ones(grouping.count) if self.direction is None else _numbers(self.direction)
        above = np.isfinite(direction) & (direction >= 0)
        if direction.shape != (grouping.count,) or not above.all() or not direction.any():
            raise ValueError(
                f"direction is {self.direction!r}; it must hold {grouping.count} finite values of at least 0, not all "
                "of them 0"
            )
        offset = solve_program(data, fitting.images, grouping, target.level, gammas.tolist(), pixels).widening
        if isinstance(grouping, groupings.LabelledGroups):  # labels that none of these images has
            offset[grouping.table[-1]] = offset.max()
        return line_path(data, fitting.images, grouping, offset, direction, target.level)


@dataclass(frozen=True, eq=False)
class Frontier(Method):
    """The path of shortest intervals on the fitting images.

    groups   "learned", "band", a partition (*pixels), a Grouping, or a function (data, images) that fits one; default:
             the shorter of the first two on the fitting images, few groups where few images fit
    k        bins per side of "learned", or bins of width of "band"
    n_fit    fitting images (units, where given)
    """

    groups: Any = None
    k: int | None = None
    n_fit: int | None = None
    name: ClassVar[str] = "frontier"

    @property
    def _chooses(self) -> bool:
        return self.groups is None and self.k is None

    def units_to_fit(self, units: int, least: int, values: float = inf, *, labelled: bool = False) -> int:
        """An eighth but at most 96, and at most a quarter of what is beyond the `least` that certify at all.

        Where the groups are not given: a sixth, and none with fewer than 1.5 times the least, where fewer than FEW
        would fit, or where units have so few values that those tell nothing of groups.
        """
        chooses = self._chooses and not labelled
        fit = min(96, -(-units // 8), (units - least) // (6 if chooses else 4))
        none = chooses and (2 * units < 3 * least or fit < FEW or fit * values < FEW_VALUES)
        return self._asked(units, 0 if none else max(1, fit))

    def fit(self, fitting: FittingImages, target: Target, seed: Any = 0) -> Path:
        """The frontier of the groups, or of the candidate that is shortest; one group where no image fits."""
        data, images, rng = fitting.data, fitting.images, check_generator(seed)
        if not (self.groups is None or (isinstance(self.groups, str) and self.groups == "learned")):
            _refuse_features(data)
        if not len(images):
            return scalar_path(data, groupings.Single())
        groups = self.groups
        if self._chooses and data.features is None:
            groups = few_groups(fitting.units, float(data.sizes.sum()))
        if groups is None and self.k is None:
            grouping = shortest_groups(fitting, target, rng)
        else:
            grouping = grouping_of("learned" if groups is None else groups, data, images, rng, self.k)
        return path_of(fitting, grouping, target, target.level)


METHODS: dict[str, type[Method]] = {"frontier": Frontier, "krcps": KRCPS, "rcps": RCPS}


def method_of(method: Any, **settings: Any) -> Method:
    """The method that a name with settings, or an object, stands for; settings that are None are left out."""
    if isinstance(method, Method):
        return method
    kind = METHODS[check_choice(method, METHODS, "method")]
    given = {name: x for name, x in settings.items() if x is not None}
    strange = sorted(given.keys() - {each.name for each in fields(kind)})  # type: ignore[arg-type]
    if strange:
        raise ValueError(f"{method} has no setting {strange[0]!r}; leave it out, or use another method")
    return kind(**given)


def _refuse_features(data: CalibrationData) -> None:
    if data.features is not None:
        raise ValueError("features are for learned groups: use pb.Frontier() or pb.Frontier('learned'), or leave them")


def _numbers(values: Any) -> Array:
    """Real numbers as float64; NaN where they are none."""
    try:
        out = np.asarray(values)
        return np.asarray(out if out.dtype.kind in "fiu" else np.nan, np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return np.full(1, np.nan)


# ---------------------------------------------------------------- the split


class Split(NamedTuple):
    """Fitting and certifying images."""

    fitting: FittingImages
    certifying: CertifyingImages


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
