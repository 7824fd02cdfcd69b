"""What a calibration must achieve: promises, a failure probability and a confidence bound (Section 2, equation (1)).

The paper asks for one risk, the share of missed pixels, to be at most epsilon (`share(epsilon)`) with probability at
least 1 - delta (`failure_prob`) over the draw of the calibration images. Here several risks may be asked for at once.
Each has a test of its own (`RiskTest`) of the hypothesis that the risk is at least its level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..images.checks import NoGuarantee, check_open_unit, is_name
from ..images.library import Array
from .bounds import BOUNDS, ConfidenceBound, bound_named, rejects
from .promises import Promise, Regions, RiskTarget, check_promises, risk_targets_of, share
from .units import UnitLosses, Units, largest_unit, losses_by_unit


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

    def risks_of(self, band: Any, units: Units | None) -> tuple[tuple[RiskTarget, ...], Regions]:
        """The promises as they are counted on the images of a band (n, *pixels), and the regions that they are in."""
        weighting = units.weighting if units else "units"
        most = units.max_images if units else None
        return risk_targets_of(self.promises, band, weighting, units is not None, most or 0)


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
        """What is bounded of each unit (`units.py`): losses of images (..., n) -> (..., units)."""
        means = self.units.means(by_image)
        return self.level + self.units.weights * (means - self.level) if self.units.weighted else means

    def more_losses(self, by_image: Array) -> Array:
        """What further losses of images add to `losses`: (..., n) -> (..., units)."""
        means = self.units.means(by_image)
        return means * self.units.weights if self.units.weighted else means

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
    risk: RiskTarget,
    sizes: Array,
    certifying: Array,
    unit_of: Array,
    order: Array,
    bound: ConfidenceBound,
    failure_prob: float,
    shares: Array | None = None,
) -> RiskTest:
    """The test of a promise on certifying images, bool (n,), from the sizes of regions (n, 1 + regions).

    Those units count that have the region: given which they are, their losses are independent draws.
    """
    counts = risk.counts(sizes)
    weights = sizes[:, risk.region] if risk.weighting == "pixels" else None
    units = losses_by_unit(unit_of, certifying & counts, order, 0.0, weights)
    if not len(units.order):
        raise NoGuarantee(
            f"{risk.words} cannot be certified: none of the certifying images has the region; leave the promise out, "
            "or give images that have it"
        )
    most = 0.0
    if risk.weighting != "units":
        most = most_of_a_unit(risk, sizes, ~certifying & counts, unit_of)
    units = UnitLosses(unit_of, units.counts, units.order, most, weights, shares)
    return RiskTest(risk, units, bound, failure_prob)


def most_of_a_unit(risk: RiskTarget, sizes: Array, fitting: Array, unit_of: Array) -> float:
    """For how many images (or pixels) a unit counts at most: as asked, or the most that a fitting unit has.

    The certifying units must not decide it: their number would then depend on what is bounded.
    """
    if risk.weighting == "images" and risk.max_images:
        return float(risk.max_images)
    if not fitting.any():
        raise ValueError(
            f"{risk.words}, with weighting={risk.weighting!r}, needs fitting images with the region, which say for how "
            "much a unit counts at most, and there are none; give n_fit, max_images (for images), or weighting='units'"
        )
    return largest_unit(unit_of, fitting, sizes[:, risk.region] if risk.weighting == "pixels" else np.ones(len(sizes)))
