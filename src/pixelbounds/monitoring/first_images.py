"""What the first images of an anytime calibration settle: groups and path, and for how much a unit counts at most."""

from __future__ import annotations

from ..calibration.data import ROWS, LocalData, Statistic
from ..calibration.paths.path import region_sizes
from ..calibration.promises import CertifiedPromise, RiskTarget
from ..calibration.target import most_of_a_unit
from ..images.checks import check_count
from .horizons import fewest

_COMING = 7  # times as many as the first ones, where nobody says how many images are expected
_sizes = Statistic("sizes", lambda truth, block, family: (region_sizes(block),), (ROWS,))


def coming_units(targets: tuple[RiskTarget, ...], units: int, failure_prob: float, expected: int | None) -> int:
    """How many units are expected to certify."""
    if expected is not None:
        return check_count(expected, "expected")
    return max(_COMING * units, 2 * max(fewest(target.level, failure_prob) for target in targets))


def most_of(target: RiskTarget, data: LocalData, fits: bool) -> float:
    """For how many images or pixels a unit counts at most, from the first images; 0 where units count the same."""
    if target.weighting == "units":
        return 0.0
    sizes = data.aggregate(_sizes)[0]
    return most_of_a_unit(target, sizes, target.counts(sizes) & fits, data.unit_of)


def as_asked(target: RiskTarget, most: float) -> CertifiedPromise:
    """A promise before anything was seen."""
    return CertifiedPromise(
        target.kind, target.name, target.place, target.at_most, target.above, target.cap, target.weighting, most, 0.0, 1
    )  # fmt: skip
