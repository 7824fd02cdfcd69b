"""Before any image is collected: how many images and samples a promise needs, and what slack a bound leaves.

The slack is the risk level minus the greatest mean loss that n images can still certify. A bound that sees more than
the mean (betting, empirical Bernstein) profits where images lose alike, so the losses are assumed to spread: those of n
images are quantiles of a gamma law, in random order, whose deviation is `spread` times its mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import gamma

from ..bands import least_samples
from ..images.checks import check_choice, check_count, check_number, check_open_unit
from ..images.library import Array
from .confidence import BOUNDS, ConfidenceBound, greatest_loss, least_images, rejects
from .procedures import METHODS
from .split import fitting_units

IMAGES = (200, 640, 2000)
SPREAD = 0.5


@dataclass(frozen=True)
class BoundNeeds:
    """What one bound needs: the fewest certifying images, and in all; its slack at each number of images, or None."""

    confidence: str
    certifying: int
    images: int
    slack: tuple[float | None, ...]


@dataclass(frozen=True)
class Needs:
    """What a risk level and a failure probability need, bound by bound, at some numbers of images in all."""

    risk_level: float
    failure_prob: float
    method: str
    images: tuple[int, ...]
    bounds: tuple[BoundNeeds, ...]
    limit: tuple[float | None, ...]  # slack that no bound goes below where all images lose alike
    miscoverage: float | None
    samples: int | None


def plan(
    risk_level: float,
    failure_prob: float = 0.1,
    *,
    method: str = "frontier",
    groups: bool = False,
    images: Sequence[int] = IMAGES,
    miscoverage: float | None = None,
    spread: float = SPREAD,
    seed: int = 0,
) -> Needs:
    """Least images and slack of every bound; the images count in all, of which a method fits on some.

    `groups`: whether `calibrate` will be given groups, k or features; then some images fit however few there are.

    >>> found = plan(0.1, 0.1, method="rcps", images=(100,), miscoverage=0.1)
    >>> best = found.bounds[0]
    >>> best.confidence, best.images, round(best.slack[0], 3), found.samples
    ('betting', 23, 0.022, 19)
    """
    risk_level, failure_prob = check_open_unit(risk_level, "risk_level"), check_open_unit(failure_prob, "failure_prob")
    check_choice(method, METHODS, "method")
    if not isinstance(groups, bool):
        raise TypeError(f"groups is {groups!r}; say True where calibrate will be given groups, k or features")
    numbers = tuple(check_count(n, "images") for n in images)
    if check_number(spread, "spread") < 0:
        raise ValueError(f"spread is {spread}; it must be at least 0, for example 0.5")
    order = np.random.default_rng(check_count(seed, "seed", least=0))
    shapes: dict[int, Array] = {}  # one order of losses for all bounds with as many images

    def losses(n: int) -> Array:
        if n not in shapes:
            shapes[n] = _unit_losses(n, spread, order)
        return shapes[n]

    rows = []
    for name in sorted(BOUNDS, key=lambda name: (name == "conformal", name != "betting")):
        least = least_images(risk_level, failure_prob, confidence=name)
        left = [certifying(n, method, least, groups) for n in numbers]
        slack = tuple(_slack(BOUNDS[name], losses(n), risk_level, failure_prob) if n >= least else None for n in left)
        rows.append(BoundNeeds(name, least, _in_all(least, method, groups), slack))
    rows.sort(key=lambda row: (row.confidence == "conformal", row.confidence != "betting", row.images))
    left = [certifying(n, method, rows[0].certifying, groups) for n in numbers]
    most = [greatest_loss(n, risk_level, failure_prob) for n in left]
    limit = tuple(risk_level - loss if loss else None for loss in most)
    samples = None if miscoverage is None else least_samples(miscoverage)
    return Needs(risk_level, failure_prob, method, numbers, tuple(rows), limit, miscoverage, samples)


def certifying(images: int, method: str, least: int, groups: bool = False) -> int:
    """Images left to certify, of which a bound needs `least`, when a method has taken those that it fits on."""
    return images - fitting_units(None, method, images, least, groups and method == "frontier")


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


def _slack(bound: ConfidenceBound, losses: Array, risk_level: float, failure_prob: float) -> float:
    low, high = 0.0, risk_level
    while high - low > 1e-4 * risk_level:
        middle = (low + high) / 2
        passes = rejects(bound, np.minimum(middle * losses, 1.0), failure_prob, risk_level)
        low, high = (middle, high) if passes else (low, middle)
    return risk_level - low
