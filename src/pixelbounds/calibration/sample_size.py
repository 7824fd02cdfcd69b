"""How many images (units) a promise needs, before any is collected (Appendix C).

The slack is the risk level minus the greatest mean loss that n images can still certify, if these spread as assumed
(`bounds.CertifiableRisks`). A promise about a region counts on the images that have it alone, and a cap makes losses
shares of the cap. Where images are counted in units, large units count for more (`target`): their sizes decide how many
are needed. What chance decides, which units have a region and how large they are, suffices with probability 90%.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..bands import least_samples
from ..images.checks import check_choice, check_count, check_number, check_open_unit
from .bounds import (
    BOUNDS,
    SPREAD,
    CertifiableRisks,
    ConfidenceBound,
    binomial_tail,
    greatest_loss,
    least_images,
    rejects,
)
from .methods import METHODS, Method
from .promises import Promise
from .target import target_of
from .words import level_in_words

IMAGES = (200, 640, 2000)
SURE = 0.9  # that chance leaves as many as are needed
_DRAWS = 400  # of units, to see how many of their sizes are needed


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

    def __str__(self) -> str:
        least = self.bounds[0]
        lines = [
            f"At most {level_in_words(self.risk_level)} with {self.method} and {least.bound}: at least {least.images} "
            f"images (or units) in all, {least.certifying} of which certify."
        ]
        for row in self.bounds[1:]:
            lines.append(f"  with {row.bound}: {row.images}")
        for n, slack in zip(self.images, least.slack, strict=True):
            certified = "" if slack is None else f", if on average at most {self.risk_level - slack:.3g} is missed"
            lines.append(f"{n} images certify {'nothing' if slack is None else 'the promise'}{certified}.")
        for one in self.promises:
            lines.append(f"{one.name}, {one.kind} of at most {one.at_most:g}, cap {one.cap:g}: {one.images} images.")
        if self.samples is not None:
            lines.append(f"A miscoverage of {self.miscoverage:g} takes {self.samples} samples of each image.")
        return "\n".join(lines)


def plan(
    risk_level: float | None = None, failure_prob: float = 0.1, *, promises: Sequence[Promise] | None = None,
    prevalence: Mapping[str, float] | None = None, unit_sizes: Sequence[float] | None = None, bound: str = "betting",
    method: str = "frontier", groups: bool = False, images: Sequence[int] = IMAGES, miscoverage: float | None = None,
    spread: float = SPREAD,
) -> Needs:  # fmt: skip
    """Least images and slack of every bound; the images count in all, of which a method fits on some.

    promises       made by `pb.share`, `pb.tail` and `pb.loss`, without regions, instead of risk_level
    prevalence     by the name of a promise, the share of images (units) that have its region
    unit_sizes     typical numbers of images (or pixels) of a unit, for promises that are weighted by these
    bound          the bound that is meant, for promises
    groups         whether `calibrate` will be given groups, k or features; then some images fit however few there are

    >>> needs = plan(0.1, 0.1, method="rcps", images=(100,), miscoverage=0.1)
    >>> best = needs.bounds[0]
    >>> best.bound, best.images, round(best.slack[0], 3), needs.samples
    ('betting', 23, 0.022, 19)
    >>> from pixelbounds import share
    >>> (capped,) = plan(promises=[share(0.05, cap=0.25)], method="rcps", images=(58,), spread=0.3).promises
    >>> [round(x, 2) for x in capped.certified + capped.certified_without_cap], capped.images_without_cap
    ([0.04, 0.01], 46)
    """
    failure_prob = check_open_unit(failure_prob, "failure_prob")
    check_choice(method, METHODS, "method")
    check_choice(bound, BOUNDS, "bound")
    if not isinstance(images, Sequence) or isinstance(images, str | bytes):
        raise TypeError(
            f"images is a {type(images).__name__}; give a list of how many you may have, such as [200, 500]"
        )
    numbers = tuple(check_count(n, "images") for n in images)
    if check_number(spread, "spread") < 0:
        raise ValueError(f"spread is {spread}; it must be at least 0, for example 0.5")
    wanted = _wanted(risk_level, promises, prevalence, unit_sizes)
    risks = CertifiableRisks(failure_prob, spread, np.random.default_rng(0))
    forecast = _Forecast(failure_prob, METHODS[method](), groups, numbers, risks)
    rows = []
    for name in sorted(BOUNDS, key=lambda name: (name == "conformal", name != "betting")):
        hardest = max(wanted, key=lambda one: forecast.in_all(one, BOUNDS[name]))
        certified = forecast.certified(hardest, BOUNDS[name])
        slack = tuple(None if risk is None else hardest.at_most - risk for risk in certified)
        least = forecast.least(hardest, BOUNDS[name])
        rows.append(BoundNeeds(name, least, forecast.in_all(hardest, BOUNDS[name]), slack))
    rows.sort(key=lambda row: (row.bound == "conformal", row.bound != "betting", row.images))
    hardest = max(wanted, key=lambda one: forecast.in_all(one, BOUNDS["betting"]))
    samples = None if miscoverage is None else least_samples(miscoverage)
    asked = () if promises is None else tuple(forecast.needs(one, BOUNDS[bound]) for one in wanted)
    limit = forecast.limit(hardest)
    return Needs(wanted[0].at_most, failure_prob, method, numbers, tuple(rows), limit, miscoverage, samples, asked)


class _Wanted(NamedTuple):
    """A promise before there are images."""

    kind: str
    name: str
    at_most: float
    above: float
    cap: float
    prevalence: float
    weights: tuple[float, ...]  # of units that are as good as any other; empty: all count the same

    @property
    def level(self) -> float:
        return self.at_most / self.cap


def _wanted(risk_level: float | None, promises: Any, prevalence: Any, unit_sizes: Any) -> list[_Wanted]:
    asked, shares = target_of(risk_level, promises).promises, {} if prevalence is None else prevalence
    if not isinstance(shares, Mapping):
        raise TypeError(f"prevalence is a {type(shares).__name__}; give the share of images by name: {{'heart': 0.1}}")
    names = [one.name or ("all pixels" if one.within is None else f"region {i}") for i, one in enumerate(asked, 1)]
    strange = sorted(map(str, set(shares) - set(names)))
    if strange:
        raise ValueError(f"prevalence names {strange[0]!r}, and no promise has that name; name the promise so")
    sizes = np.asarray([] if unit_sizes is None else unit_sizes, np.float64)
    if sizes.ndim != 1 or not (np.isfinite(sizes) & (sizes > 0)).all():
        raise ValueError(f"unit_sizes is {unit_sizes!r}; give typical numbers of images of a unit, such as [1, 2, 10]")
    out = []
    for name, one in zip(names, asked, strict=True):
        share = shares.get(name, 1.0)
        if not 0 < check_number(share, f"the prevalence of {name!r}") <= 1:
            raise ValueError(f"the prevalence of {name!r} is {share:g}; give a share of images above 0, such as 0.1")
        by_size = one.weighting in ("images", "pixels")
        if by_size and not len(sizes):
            raise ValueError(
                f"{name!r} counts {one.weighting}, so how many units it takes depends on their sizes: give unit_sizes, "
                f"typical numbers of {one.weighting} of a unit, such as [1, 2, 10]"
            )
        weights = tuple((sizes / sizes.max()).tolist()) if by_size else ()
        out.append(_Wanted(one.kind, name, one.at_most, one.above or 0.0, one.cap or 1.0, float(share), weights))
    return out


@dataclass(eq=False)
class _Forecast:
    """What `calibrate` will do with so many images, if losses are as assumed."""

    failure_prob: float
    method: Method
    groups: bool
    numbers: tuple[int, ...]
    risks: CertifiableRisks

    def least(self, one: _Wanted, bound: ConfidenceBound) -> int:
        """Fewest images with the region that certify."""
        least = least_images(one.level, self.failure_prob, bound=bound)  # where all count alike
        if len(set(one.weights)) < 2:
            return least
        draws = np.random.default_rng(0).choice(one.weights, (_DRAWS, 4096))

        def enough(n: int) -> bool:
            losses = one.level * (1 - draws[:, :n])  # Z of `target` where nothing is lost
            return bool(np.mean([rejects(bound, row, self.failure_prob, one.level) for row in losses]) >= SURE)

        return _first(enough, least, draws.shape[1])

    def in_all(self, one: _Wanted, bound: ConfidenceBound) -> int:
        """Fewest images in all such that these and all larger numbers leave enough to certify."""
        least = self.least(one, bound)
        if one.prevalence < 1:
            most = int(4 * least / one.prevalence) + 99
            return _first(lambda n: self.certifying(one, bound, n) >= least, least, most)
        numbers = range(2 * least + 2, least - 1, -1)
        return 1 + next((n for n in numbers if self.certifying(one, bound, n) < least), least - 1)

    def certifying(self, one: _Wanted, bound: ConfidenceBound, images: int) -> int:
        """Images with the region that are left to certify it, of so many in all, with probability `SURE`."""
        alike = least_images(one.level, self.failure_prob, bound=bound)  # by these it is decided how many fit
        left = images - self.method.units_to_fit(images, alike, labelled=self.groups)
        if one.prevalence == 1:
            return left
        return _first(lambda k: binomial_tail(k, left, one.prevalence) >= 1 - SURE, 0, max(0, left))

    def certified(self, one: _Wanted, bound: ConfidenceBound) -> tuple[float | None, ...]:
        """The greatest risk that a bound certifies at each number of images; None where it certifies nothing."""
        least = self.least(one, bound)
        left = [self.certifying(one, bound, n) for n in self.numbers]
        return tuple(one.cap * self.risks.greatest(one.kind, one.level, bound, n) if n >= least else None for n in left)

    def limit(self, one: _Wanted) -> tuple[float | None, ...]:
        """Slack that no bound goes below where all images lose alike."""
        left = [self.certifying(one, BOUNDS["betting"], n) for n in self.numbers]
        most = [greatest_loss(n, one.level, self.failure_prob) if n > 0 else 0.0 for n in left]
        return tuple(one.at_most - one.cap * loss if loss else None for loss in most)

    def needs(self, one: _Wanted, bound: ConfidenceBound) -> PromiseNeeds:
        """What a promise needs, with and without its cap."""
        plain = one._replace(cap=1.0)
        images, certified = self.in_all(one, bound), self.certified(one, bound)
        without = self.in_all(plain, bound), self.certified(plain, bound)
        return PromiseNeeds(*one[:-1], self.least(one, bound), images, certified, *without)


def _first(test: Callable[[int], bool], low: int, high: int) -> int:
    """The first number from low to high at which a monotone test holds; high if none."""
    return low + bisect_left(range(low, high), True, key=test)
