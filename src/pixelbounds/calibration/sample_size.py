"""Before any image is collected: how many images and samples a promise needs, and what slack a bound leaves.

The slack is the risk level minus the greatest mean loss that n images can still certify. A bound that sees more than
the mean (betting, empirical Bernstein) profits where images lose alike, so the losses are assumed to spread: those of n
images are quantiles of a gamma law, in random order, whose deviation is `spread` times its mean. Those of a tail are 0
or 1. A promise about a region counts on the images that have it alone, so many of those that certify as of all, and a
cap makes losses shares of the cap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import gamma

from ..bands import least_samples
from ..images.checks import check_choice, check_count, check_generator, check_number, check_open_unit
from ..images.library import Array
from .bounds import BOUNDS, ConfidenceBound, greatest_loss, least_images, rejects
from .methods import METHODS
from .promises import Promise, check_promises

IMAGES = (200, 640, 2000)
SPREAD = 0.5


@dataclass(frozen=True)
class BoundNeeds:
    """What one bound needs: the fewest certifying images, and in all; its slack at each number of images, or None."""

    bound: str
    certifying: int
    images: int
    slack: tuple[float | None, ...]


@dataclass(frozen=True)
class PromiseNeeds:
    """What one promise needs, with the bound that is meant: the fewest certifying images that have its region, and in
    all, if a share `prevalence` of them has it; and the greatest risk that is certified at each number of images in
    all, or None, beside the same without its cap.
    """

    kind: str
    name: str
    at_most: float
    above: float
    cap: float
    prevalence: float
    certifying: int
    images: int
    certified: tuple[float | None, ...]
    images_without_cap: int
    certified_without_cap: tuple[float | None, ...]


@dataclass(frozen=True)
class Needs:
    """What a risk level, or promises, and a failure probability need, bound by bound, at some numbers of images in all.

    Of promises the rows of bounds are about the one that needs most.
    """

    risk_level: float
    failure_prob: float
    method: str
    images: tuple[int, ...]
    bounds: tuple[BoundNeeds, ...]
    limit: tuple[float | None, ...]  # slack that no bound goes below where all images lose alike
    miscoverage: float | None
    samples: int | None
    promises: tuple[PromiseNeeds, ...] = ()


def plan(
    risk_level: float | None = None,
    failure_prob: float = 0.1,
    *,
    promises: Sequence[Promise] | None = None,
    prevalence: Mapping[str, float] | None = None,
    bound: str = "betting",
    method: str = "frontier",
    groups: bool = False,
    images: Sequence[int] = IMAGES,
    miscoverage: float | None = None,
    spread: float = SPREAD,
    seed: int = 0,
) -> Needs:
    """Least images and slack of every bound; the images count in all, of which a method fits on some.

    promises       made by `pb.share`, `pb.tail` and `pb.loss`, without regions, instead of risk_level
    prevalence     by the name of a promise, the share of images (units) that have its region
    bound          the bound that is meant, for promises
    groups         whether `calibrate` will be given groups, k or features; then some images fit however few there are

    >>> found = plan(0.1, 0.1, method="rcps", images=(100,), miscoverage=0.1)
    >>> best = found.bounds[0]
    >>> best.bound, best.images, round(best.slack[0], 3), found.samples
    ('betting', 23, 0.022, 19)
    >>> from pixelbounds import share
    >>> (capped,) = plan(promises=[share(0.05, cap=0.25)], method="rcps", images=(58,), spread=0.3).promises
    >>> [round(x, 2) for x in capped.certified + capped.certified_without_cap], capped.images_without_cap
    ([0.04, 0.01], 47)
    """
    failure_prob = check_open_unit(failure_prob, "failure_prob")
    check_choice(method, METHODS, "method")
    check_choice(bound, BOUNDS, "bound")
    if not isinstance(groups, bool):
        raise TypeError(f"groups is {groups!r}; say True where calibrate will be given groups, k or features")
    if not isinstance(images, Sequence) or isinstance(images, str | bytes):
        raise TypeError(
            f"images is a {type(images).__name__}; give a list of how many you may have, such as [200, 500]"
        )
    numbers = tuple(check_count(n, "images") for n in images)
    if check_number(spread, "spread") < 0:
        raise ValueError(f"spread is {spread}; it must be at least 0, for example 0.5")
    if prevalence is not None and not isinstance(prevalence, Mapping):
        raise TypeError(
            f"prevalence is a {type(prevalence).__name__}; give the share of images by name: {{'heart': 0.1}}"
        )
    wanted = _wanted(risk_level, promises, prevalence or {})
    forecast = _Forecast(failure_prob, method, groups, numbers, spread, check_generator(seed))
    rows = []
    for name in sorted(BOUNDS, key=lambda name: (name == "conformal", name != "betting")):
        hardest = max(wanted, key=lambda one: forecast.in_all(one, BOUNDS[name]))
        slack = forecast.slack(hardest, BOUNDS[name])
        least = forecast.least(hardest, BOUNDS[name])
        rows.append(BoundNeeds(name, least, forecast.in_all(hardest, BOUNDS[name]), slack))
    rows.sort(key=lambda row: (row.bound == "conformal", row.bound != "betting", row.images))
    hardest = max(wanted, key=lambda one: forecast.in_all(one, BOUNDS["betting"]))
    samples = None if miscoverage is None else least_samples(miscoverage)
    asked = () if promises is None else tuple(forecast.needs(one, BOUNDS[bound]) for one in wanted)
    return Needs(
        wanted[0].at_most, failure_prob, method, numbers, tuple(rows), forecast.limit(hardest), miscoverage, samples,
        asked,
    )  # fmt: skip


# ---------------------------------------------------------------- one promise


class _Wanted(NamedTuple):
    """A promise before there are images."""

    kind: str
    name: str
    at_most: float
    above: float
    cap: float
    prevalence: float

    @property
    def level(self) -> float:
        return self.at_most / self.cap


def _wanted(risk_level: float | None, promises: Any, prevalence: Mapping[str, float]) -> list[_Wanted]:
    if (risk_level is None) == (promises is None):
        raise ValueError("give either risk_level, such as 0.1, or promises, such as [pixelbounds.share(0.1)]")
    if risk_level is not None:
        asked = [Promise("share", check_open_unit(risk_level, "risk_level"))]
    else:
        asked = check_promises(promises)
    found = []
    for i, one in enumerate(asked, 1):
        name = one.name or ("all pixels" if one.within is None else f"region {i}")
        share = prevalence.get(name, 1.0)
        if not 0 < check_number(share, f"the prevalence of {name!r}") <= 1:
            raise ValueError(f"the prevalence of {name!r} is {share:g}; give a share of images above 0, such as 0.1")
        found.append(_Wanted(one.kind, name, one.at_most, one.above or 0.0, one.cap or 1.0, float(share)))
    strange = sorted(map(str, set(prevalence) - {one.name for one in found}))
    if strange:
        raise ValueError(f"prevalence names {strange[0]!r}, and no promise has that name; name the promise so")
    return found


@dataclass
class _Forecast:
    """What `calibrate` will do with so many images, if losses are as assumed."""

    failure_prob: float
    method: str
    groups: bool
    numbers: tuple[int, ...]
    spread: float
    order: np.random.Generator
    shapes: dict[int, Array] = field(default_factory=dict)  # one order of losses for all bounds with as many images

    def least(self, one: _Wanted, bound: ConfidenceBound) -> int:
        """Fewest images with the region that certify."""
        return least_images(one.level, self.failure_prob, bound=bound)

    def in_all(self, one: _Wanted, bound: ConfidenceBound) -> int:
        """Fewest images in all such that these and all larger numbers leave enough to certify, on average where a
        region is in some of them: which of these fit is drawn at random.
        """
        least = self.least(one, bound)
        if one.prevalence == 1:
            return _in_all(least, self.method, self.groups)
        numbers = range(ceil(round(least / one.prevalence, 9)), 4 * ceil(least / one.prevalence) + 4)
        return next(n for n in numbers if self.certifying(one, bound, n) >= least)

    def certifying(self, one: _Wanted, bound: ConfidenceBound, images: int) -> int:
        """Images with the region that are left to certify it, of so many in all."""
        left = certifying(images, self.method, self.least(one, bound), self.groups)
        return left if one.prevalence == 1 else int(round(one.prevalence * left, 9))

    def slack(self, one: _Wanted, bound: ConfidenceBound) -> tuple[float | None, ...]:
        """What of the level a bound cannot use, at each number of images; None where it certifies nothing."""
        least = self.least(one, bound)
        left = [self.certifying(one, bound, n) for n in self.numbers]
        return tuple(one.at_most - self._certified(one, bound, n) if n >= least else None for n in left)

    def limit(self, one: _Wanted) -> tuple[float | None, ...]:
        """Slack that no bound goes below where all images lose alike."""
        left = [self.certifying(one, BOUNDS["betting"], n) for n in self.numbers]
        most = [greatest_loss(n, one.level, self.failure_prob) if n > 0 else 0.0 for n in left]
        return tuple(one.at_most - one.cap * loss if loss else None for loss in most)

    def needs(self, one: _Wanted, bound: ConfidenceBound) -> PromiseNeeds:
        """What a promise needs, with and without its cap."""
        plain = one._replace(cap=1.0)
        certified, without = (
            tuple(None if slack is None else one.at_most - slack for slack in self.slack(x, bound))
            for x in (one, plain)
        )
        return PromiseNeeds(
            *one, self.least(one, bound), self.in_all(one, bound), certified, self.in_all(plain, bound), without
        )

    def _certified(self, one: _Wanted, bound: ConfidenceBound, n: int) -> float:
        """The greatest risk that n images certify."""
        if one.kind == "tail":
            return self._bad_images(bound, n, one.level) / n
        if n not in self.shapes:
            self.shapes[n] = _unit_losses(n, self.spread, self.order)
        shape = self.shapes[n]
        low, high = 0.0, one.level
        while high - low > 1e-4 * one.level:
            middle = (low + high) / 2
            passes = rejects(bound, np.minimum(middle * shape, 1.0), self.failure_prob, one.level)
            low, high = (middle, high) if passes else (low, middle)
        return one.cap * low

    def _bad_images(self, bound: ConfidenceBound, n: int, level: float) -> int:
        rank = np.random.default_rng(n).permutation(n)
        low, high = 0, n
        while high - low > 1:
            middle = (low + high) // 2
            passes = rejects(bound, (rank < middle).astype(np.float64), self.failure_prob, level)
            low, high = (middle, high) if passes else (low, middle)
        return low


def certifying(images: int, method: str, least: int, groups: bool = False) -> int:
    """Images left to certify, of which a bound needs `least`, when a method has taken those that it fits on."""
    return images - METHODS[method]().units_to_fit(images, least, labelled=groups)


def _in_all(least: int, method: str, groups: bool) -> int:
    """The fewest images such that they and all larger numbers leave enough to certify."""
    numbers = range(2 * least + 2, least - 1, -1)
    return 1 + next((n for n in numbers if certifying(n, method, least, groups) < least), least - 1)


def _unit_losses(n: int, spread: float, rng: np.random.Generator) -> Array:
    """Losses of n images with mean 1, in random order: (n,)."""
    if spread == 0:
        return np.ones(n)
    losses = gamma.ppf((np.arange(n) + 0.5) / n, spread**-2)
    return rng.permutation(losses / losses.mean())
