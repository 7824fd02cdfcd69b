"""What a calibration must achieve: promises, a failure probability and a confidence bound (Definition 2.2).

The paper asks for one risk, the share of missed pixels, to be at most epsilon (`share(epsilon)`) with probability at
least 1 - delta (`failure_prob`) over the draw of the calibration images. Here several risks may be asked for at once.
Each has a test of its own (`RiskTest`) of the hypothesis that the risk is at least its level.

Units are what is independent of what (patients, scans). Losses of one patient's images are averaged first: the n of
every bound counts units, and a promise is about a future unit. With `weighting="images"` each image counts the same
instead. Let S be the number of images in a unit, L their mean loss and B a number that is fixed beforehand. The mean
over images is at most the level exactly if E[min(S, B) (L - level)] <= 0, that is, if the mean over units of Z = level
+ min(S, B) / B (L - level) is at most the level. Z lies in [0, 1] as L does, so it takes the place of L in every bound;
a unit of more than B images counts as one of B. With weights of images, such as the pixels of a region, S is their sum
and L the mean so weighted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..images.checks import (
    NoGuarantee,
    check_choice,
    check_count,
    check_open_unit,
    check_unit_name,
    check_units,
    is_name,
)
from ..images.library import Array
from .bounds import BOUNDS, ConfidenceBound, bound_named, for_zero_one, rejects
from .promises import Promise, RiskTarget, check_promises, share

WEIGHTINGS = ("units", "images")


@dataclass(frozen=True, eq=False)
class Units:
    """The unit of each image, (n,), and how units count.

    name          a noun in the singular: "patient", "scan"
    weighting     "units": each unit counts the same; "images": each image does
    max_images    with "images": the most images for which a unit counts; default: the most of a fitting unit

    >>> Units(["a", "a", "b"], name="patient").weighting
    'units'
    """

    ids: Any
    name: str = "unit"
    weighting: str = "units"
    max_images: int | None = None

    def __post_init__(self) -> None:
        check_unit_name(self.name)
        check_choice(self.weighting, WEIGHTINGS, "weighting")
        if self.max_images is not None:
            check_count(self.max_images, "max_images")
            if self.weighting != "images":
                raise ValueError(f"max_images is {self.max_images}; it needs weighting='images': leave it out")


def units_of(units: Any, n: int) -> tuple[Units | None, Array]:
    """Units of n images from plain ids, `Units` or None, and the number of each image's unit, (n,)."""
    if units is None:
        return None, np.arange(n)
    units = units if isinstance(units, Units) else Units(units)
    return units, np.unique(check_units(units.ids, n), return_inverse=True)[1]


@dataclass(frozen=True, eq=False)
class UnitLosses:
    """Losses of images to losses of those units that have an image which counts.

    unit_of        number of each image's unit, (n,)
    counts         which images count, bool (n,)
    order          units in the order in which their losses are returned; those without such an image are left out
    max_images     B of the module's text; 0: each unit counts the same
    image_weights  what an image counts for within its unit, (n,); None: all the same
    shares         how much the unit of each image counts, (n,), in [0, 1]; None: 1 (`monitoring.recalibrate`)
    """

    unit_of: Array
    counts: Array
    order: Array
    max_images: float = 0.0
    image_weights: Array | None = None
    shares: Array | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", self.order[np.isin(self.order, self.unit_of[self.counts])])

    def means(self, losses: Array) -> Array:
        """Mean loss of each unit: (..., n) -> (..., units)."""
        if len(self.unit_of) == self.unit_of.max() + 1:  # every image is its own unit
            return np.take(losses, self._image_of, axis=-1)
        units, sizes = self._sizes
        if self.image_weights is not None:
            losses = losses * self.image_weights
        rows = [np.bincount(units, x[self.counts], len(sizes)) for x in losses.reshape(-1, losses.shape[-1])]
        means = (np.stack(rows) / np.where(sizes > 0, sizes, 1))[:, self.order]
        return np.ascontiguousarray(means).reshape(*losses.shape[:-1], len(self.order))

    @cached_property
    def weights(self) -> Array:
        """How much each unit counts, (units,): min(S, B) / B where B is given, times its share."""
        weights = np.ones(len(self.order))
        if self.max_images:
            weights = np.minimum(self._sizes[1][self.order], self.max_images) / self.max_images
        if self.shares is not None:
            by_unit = np.zeros(int(self.unit_of.max()) + 1)
            by_unit[self.unit_of] = self.shares
            weights = weights * by_unit[self.order]
        return weights

    @property
    def weighted(self) -> bool:
        """Whether units count unlike."""
        return bool(self.max_images) or self.shares is not None

    @cached_property
    def _image_of(self) -> Array:
        return np.argsort(self.unit_of)[self.order]

    @cached_property
    def _sizes(self) -> tuple[Array, Array]:
        """Unit of each image that counts, and how many images, or which weight, each unit has."""
        weights = None if self.image_weights is None else self.image_weights[self.counts]
        units = self.unit_of[self.counts]
        return units, np.bincount(units, weights, minlength=int(self.unit_of.max()) + 1)


def largest_unit(unit_of: Array, counts: Array, weight: Array) -> float:
    """The greatest weight of a unit, over the images that count."""
    return float(np.bincount(unit_of[counts], weight[counts]).max())


# ---------------------------------------------------------------- what is asked for


@dataclass(frozen=True, eq=False)
class Target:
    """Promises that must hold jointly with probability 1 - failure_prob.

    promises    made by `share`, `tail` and `loss`
    bound       the name of a function of `pixelbounds.bounds`, or a function (losses (n,), failure_prob) -> float

    >>> Target([share(0.05)], failure_prob=0.1).level
    0.05
    """

    promises: Sequence[Promise]
    failure_prob: float = 0.1
    bound: Any = "betting"

    def __post_init__(self) -> None:
        object.__setattr__(self, "promises", tuple(check_promises(self.promises)))
        object.__setattr__(self, "failure_prob", check_open_unit(self.failure_prob, "failure_prob"))
        object.__setattr__(self, "bound", bound_named(self.bound))

    @property
    def bound_name(self) -> str:
        """Name of the bound; "custom" for a function without a name, or with that of one of ours."""
        name = getattr(self.bound, "__name__", "custom")
        return name if is_name(name) and BOUNDS.get(name, self.bound) is self.bound and name != "anytime" else "custom"

    @property
    def level(self) -> float:
        """The share of missed pixels about which a path should be finest: the least that is asked for."""
        shares = [p.at_most for p in self.promises if p.kind != "tail"]
        return min(shares or [min(max(p.above or 0.0, p.at_most / 10), 0.9) for p in self.promises])

    @property
    def of_all_pixels(self) -> bool:
        """Whether it is the paper's: one share of all pixels, without a cap."""
        first, *others = self.promises
        return not others and first.kind == "share" and first.within is first.cap is None


def target_of(risk_level: float | None, promises: Any, failure_prob: float = 0.1, bound: Any = "betting") -> Target:
    """The target that either a risk level or promises ask for."""
    if (risk_level is None) == (promises is None):
        raise ValueError(
            "give either risk_level, the share of all pixels that may be missed, such as 0.1, or promises, such as "
            "[pixelbounds.share(0.1)]"
        )
    if risk_level is not None:
        promises = [share(check_open_unit(risk_level, "risk_level"))]
    return Target(promises, failure_prob, bound)


# ---------------------------------------------------------------- the test of one promise


@dataclass(frozen=True, eq=False)
class RiskTest:
    """The test of "the risk is at least its level" on the units that certify one promise."""

    risk: RiskTarget
    units: UnitLosses
    bound: ConfidenceBound
    failure_prob: float

    @property
    def level(self) -> float:
        """What the mean loss must not exceed."""
        return self.risk.level

    def losses(self, by_image: Array) -> Array:
        """What is bounded of each unit (Z of the module's text): losses of images (..., n) -> (..., units)."""
        means = self.units.means(by_image)
        return self.level + self.units.weights * (means - self.level) if self.units.weighted else means

    def risk_of(self, losses: Array) -> float:
        """The mean loss over units, or over images where each of them counts, from what `losses` returned."""
        mean = float(losses.mean())
        if not self.units.weighted:
            return mean
        return max(0.0, self.level + (mean - self.level) / float(self.units.weights.mean()))

    def passes(self, losses: Array) -> bool:
        """Whether the bound on these losses is below the level."""
        return rejects(self.bound, losses, self.failure_prob, self.level)


def risk_test_of(
    risk: RiskTarget, sizes: Array, certifying: Array, unit_of: Array, order: Array, bound: ConfidenceBound,
    failure_prob: float, shares: Array | None = None, *, zero_one: bool = False,
) -> RiskTest:  # fmt: skip
    """The test of a promise on certifying images, bool (n,), from the sizes of regions (n, 1 + regions).

    Those units count that have the region: given which they are, their losses are independent draws. Where these are
    all 0 or 1, whatever the images, there is an exact test.
    """
    counts = risk.counts(sizes)
    weights = sizes[:, risk.region] if risk.weighting == "pixels" else None
    if not (certifying & counts).any():
        raise NoGuarantee(
            f"{risk.words} cannot be certified: none of the certifying images has the region; leave the promise out, "
            "or give images that have it"
        )
    most = 0.0 if risk.weighting == "units" else most_of_a_unit(risk, sizes, ~certifying & counts, unit_of)
    units = UnitLosses(unit_of, certifying & counts, order, most, weights, shares)
    if zero_one:
        bound = for_zero_one(bound, len(units.order), failure_prob, risk.level)
    return RiskTest(risk, units, bound, failure_prob)


def most_of_a_unit(risk: RiskTarget, sizes: Array, fitting: Array, unit_of: Array) -> float:
    """For how many images (or pixels) a unit counts at most: as asked, or the most that a fitting unit has.

    The certifying units must not decide it: their number would then depend on what is bounded.
    """
    if risk.weighting == "images" and risk.max_images:
        return float(risk.max_images)
    if not fitting.any():
        raise NoGuarantee(
            f"{risk.words}, with weighting={risk.weighting!r}, needs fitting images with the region, which say for how "
            "much a unit counts at most, and there are none; give n_fit, max_images (for images), or weighting='units'"
        )
    return largest_unit(unit_of, fitting, sizes[:, risk.region] if risk.weighting == "pixels" else np.ones(len(sizes)))
