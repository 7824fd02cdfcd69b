"""How a band widens: set and score as a dual pair (nesting, Section 2.3; the sets of Section 4).

`widen(band, w)` gives the two ends at widening w; `score(truth, band)` gives the least w at which each pixel is
covered, at most `start` where the narrowest set covers it already. Sets are nested in w, end by end. Everything is
computed in float64, and ends are moved outward by a few rounding errors, so that `score <= w` always means covered.

additive        [l - w, u + w],                     w >= 0
scaled          [c - w (c - l), c + w (u - c)],     w >= 0    MC-Dropout, quantile regression
multiplicative  [l / w, w u],                       w >= 1    Conffusion; needs l >= 0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..images.checks import check_choice, check_number, check_same_shape
from ..images.ends import Band
from ..images.library import Array, as_array, to_numpy

_ROUNDING = 2.0**-50
_TINY = float(np.finfo(np.float64).tiny)


class Ends(NamedTuple):
    """Ends that move linearly, lower = anchor - w * slope and upper = anchor + w * slope: (n, *pixels) each."""

    lower: Array
    upper: Array
    lower_slope: Array
    upper_slope: Array


@dataclass(frozen=True)
class Family:
    """A dual pair: `widen(band, widening) -> (lower, upper)`, `score(truth, band) -> widening`.

    `start` is the least widening allowed. `ends` is given where both ends move linearly: then lengths and surrogate
    losses have closed forms.
    """

    name: str
    widen: Callable[[Band, Any], tuple[Array, Array]]
    score: Callable[[Array, Band], Array]
    start: float = 0.0
    centred: bool = False
    ends: Callable[[Band], Ends] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"the name of a family is {self.name!r}; it must be a string that is not empty")
        for part in ("widen", "score"):
            if not callable(getattr(self, part)):
                raise TypeError(f"{part} of family {self.name!r} is {getattr(self, part)!r}; it must be a function")
        check_number(self.start, "start")

    def __reduce_ex__(self, protocol: Any) -> Any:
        """To other processes a family of ours goes by name, so that it is the same one there."""
        if FAMILIES.get(self.name) is self:
            return _ours, (self.name,)
        return super().__reduce_ex__(protocol)


def _linear(name: str, ends: Callable[[Band], Ends], *, centred: bool) -> Family:
    def widen(band: Band, widening: Any) -> tuple[Array, Array]:
        at = ends(band)
        with np.errstate(over="ignore"):  # an end beyond all numbers is infinite, and holds whatever there is
            below, above = widening * at.lower_slope, widening * at.upper_slope
        return (
            at.lower - below - _ROUNDING * (np.abs(at.lower) + below),
            at.upper + above + _ROUNDING * (np.abs(at.upper) + above),
        )

    def score(truth: Array, band: Band) -> Array:
        at, x = ends(band), np.asarray(truth, np.float64)
        below, above = at.lower - x, x - at.upper
        with np.errstate(all="ignore"):
            need = np.fmax(below / at.lower_slope, above / at.upper_slope)
        need = np.where(np.isnan(need), 0.0, need)  # 0 / 0: the end needs nothing, the other end decides
        return np.where(np.maximum(below, above) > 0, np.maximum(need, _TINY), need)  # no quotient may vanish

    return Family(name, widen, score, centred=centred, ends=ends)


def _additive_ends(band: Band) -> Ends:
    one = np.ones((1,) * np.ndim(band.lower))
    return Ends(np.asarray(band.lower, np.float64), np.asarray(band.upper, np.float64), one, one)


def _scaled_ends(band: Band) -> Ends:
    check_fits(scaled, band)
    c = np.asarray(band.centre, np.float64)
    below, above = c - band.lower + 0.0, band.upper - c + 0.0  # 0.0 makes -0.0 positive
    if below.min() < 0 or above.min() < 0:
        raise ValueError(
            f"the centre lies outside its band at {int(((below < 0) | (above < 0)).sum())} pixels, so an end would "
            "move inward as the band widens; give lower <= centre <= upper, or drop the centre"
        )
    return Ends(c, c, below, above)


def _multiply(band: Band, widening: Any) -> tuple[Array, Array]:
    lower, upper = np.asarray(band.lower, np.float64), np.asarray(band.upper, np.float64)
    if (lower < 0).any():
        raise ValueError(
            f"the multiplicative family needs lower ends of at least 0, but {int((lower < 0).sum())} are negative "
            f"(the least is {lower.min():.6g}); shift the images, or use the additive family"
        )
    with np.errstate(over="ignore", under="ignore"):
        return lower / widening * (1 - _ROUNDING), upper * widening * (1 + _ROUNDING)


def _ratio(truth: Array, band: Band) -> Array:
    x = np.asarray(truth, np.float64)
    with np.errstate(all="ignore"):
        below = np.where(band.lower > x, band.lower / x, 1.0)
        above = np.where(x > band.upper, x / band.upper, 1.0)
    # l > x: l / x is the need where x > 0; no widening brings l / w down to x <= 0
    below = np.where((band.lower > x) & (x <= 0), np.inf, below)
    above = np.where((x > band.upper) & (np.asarray(band.upper) <= 0), np.inf, above)
    return np.maximum(below, above)


additive = _linear("additive", _additive_ends, centred=False)
scaled = _linear("scaled", _scaled_ends, centred=True)
multiplicative = Family("multiplicative", _multiply, _ratio, start=1.0)

FAMILIES = {family.name: family for family in (additive, scaled, multiplicative)}


def _ours(name: str) -> Family:
    return FAMILIES[name]


def family_named(family: Any, band: Band) -> Family:
    """The family that a name, a Family or None stands for; None follows from whether the band has a centre."""
    if family is None:
        family = "additive" if band.centre is None else "scaled"
    if not isinstance(family, Family):
        family = FAMILIES[check_choice(family, FAMILIES, "family")]
    check_fits(family, band)
    return family


def check_fits(family: Family, band: Band) -> None:
    """The band has a centre exactly if the family widens about one."""
    if family.centred and band.centre is None:
        raise ValueError(
            f"the {family.name} family widens about a centre, and this band has none; make it with mean_and_std or "
            "quantile_regression, or give Band(lower, upper, centre)"
        )
    if band.centre is not None and family.name in FAMILIES and not family.centred:
        raise ValueError(
            f"this band widens about its centre, but the family is {family.name}; use 'scaled', or drop the centre"
        )


def check_nested(family: Family, truth: Array, band: Band, scale: float) -> None:
    """Refuse a family whose sets do not grow, or whose score is not their score, on these images."""
    if not isinstance(family, Family) or not isinstance(band, Band):
        raise TypeError(
            f"family is a {type(family).__name__} and band a {type(band).__name__}; give a pixelbounds.Family and a "
            "pixelbounds.Band"
        )
    check_fits(family, band)
    truth, scale = to_numpy(as_array(truth, "truth")), check_number(scale, "scale")
    check_same_shape(band=band.lower, truth=truth)
    ladder = family.start + scale * np.array([0.0, 0.01, 0.03, 0.1, 0.3, 1.0])
    need = np.asarray(family.score(truth, band), np.float64)
    if np.isnan(need).any():
        raise ValueError(f"family {family.name!r}: score is NaN at {int(np.isnan(need).sum())} pixels")
    if need.shape != np.shape(truth):
        raise ValueError(
            f"family {family.name!r}: score returned shape {need.shape} for a truth of shape {np.shape(truth)}"
        )
    previous = None
    for w in ladder:
        lower, upper = (np.asarray(end, np.float64) for end in family.widen(band, np.float64(w)))
        if previous is not None:
            worse = (lower > previous[0] + 1e-12 * scale) | (upper < previous[1] - 1e-12 * scale)
            if worse.any():
                raise ValueError(
                    f"family {family.name!r} is not nested: from widening {previous[2]:g} to {w:g} an end moved inward "
                    f"at {int(worse.sum())} of {worse.size} pixels, so no risk can be controlled along it; "
                    "lower ends must not rise and upper ends must not fall"
                )
        covered = (truth >= lower) & (truth <= upper)
        slack = 1e-9 * max(scale, 1.0)
        wrong = ((need <= w - slack) & ~covered) | ((need > w + slack) & covered)
        if wrong.any():
            raise ValueError(
                f"family {family.name!r}: at widening {w:g} score and widen disagree at {int(wrong.sum())} of "
                f"{wrong.size} pixels; score must be the least widening that covers the truth"
            )
        previous = lower, upper, w
