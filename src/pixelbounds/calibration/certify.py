"""How far along the path the risk is certified, from the table of losses (`arrivals`).

Walk from the wide end and stop before the first point whose bound is not below the risk level. The points are fixed
before, so at the widest point that is too risky the bound errs with probability at most delta, and stopping beyond it
needs that error. A bound that sees only the mean loss is monotone along the path, so there the walk may be a bisection,
and the exact place between two knots is an order statistic of arrival times. Other bounds must really be walked.

The table has a row per image, so it may be larger than memory; it is read a few columns at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..images.checks import NoGuarantee
from ..images.ends import Interval
from ..images.foreign import as_plain_array
from ..images.library import Array
from .block import Block, KeptLabels, Labels
from .confidence import ConfidenceBound, check_losses, least_images, rejects, rejects_mean, sees_mean_only
from .data import CalibrationData, LocalData
from .loss_table import Path, Table, arriving, tabulated
from .losses import Loss
from .sentence import second_try

_ENTRIES = 2**20  # of the table, read at a time
_MOST_ENDS = 2**21  # that are held in memory to find the exact place between two knots
_STEPS = 1024  # between two knots that have more ends between them
_CURVE = 64  # points of the path kept for the report
_ROUNDED = 1e-12  # a mean loss that is rounding alone


@dataclass(frozen=True, eq=False)
class Certificate:
    """Where the risk is certified, a share `part` of the way from the knot before to `knot`, with losses (units,)."""

    knot: int
    part: float
    losses: Array


@dataclass(frozen=True, eq=False)
class RiskTest:
    """What must be certified, on which images (bool (n,)), averaged over which units (n,).

    Each unit counts the same, unless `max_images`, B, is given: then each image does. With S images in a unit of mean
    loss L the mean over images is at most the level exactly if E[min(S, B) (L - level)] <= 0, that is, if the mean over
    units of Z = level + min(S, B) / B (L - level), which lies in [0, 1] as L does, is at most the level. So Z takes the
    place of L, whatever the bound; a unit of more than B images counts as one of B. With `image_weights` (n,), such as
    the pixels of a region, S is their sum over the unit and L the mean loss so weighted: pixels are pooled.
    `promise` says what is certified, for messages.
    """

    pairs: CalibrationData
    certifying: Array
    unit_of: Array
    order: Array
    bound: ConfidenceBound
    risk_level: float
    failure_prob: float
    max_images: float = 0
    image_weights: Array | None = None
    promise: str = ""

    @property
    def size(self) -> int:
        """Number of independent units."""
        return len(self.order)

    def per_unit(self, losses: Array) -> Array:
        """What is bounded of each unit, units in the order of certification: (..., n) -> (..., units)."""
        means = self._means(losses)
        if not self.max_images:
            return means
        return self.risk_level + self.weights * (means - self.risk_level)

    def per_unit_more(self, losses: Array) -> Array:
        """What further losses of images add to `per_unit`: (..., n) -> (..., units)."""
        return self._means(losses) * self.weights if self.max_images else self._means(losses)

    def risk_of(self, losses: Array) -> float:
        """The mean loss over units, or over images where each of them counts, from what `per_unit` gave."""
        mean = float(losses.mean())
        if not self.max_images:
            return mean
        return max(0.0, self.risk_level + (mean - self.risk_level) / float(self.weights.mean()))

    @cached_property
    def weights(self) -> Array:
        """How much each unit counts, in the order of certification: (units,)."""
        if not self.max_images:
            return np.ones(self.size)
        return np.minimum(self._counts[1][self.order], self.max_images) / self.max_images

    def _means(self, losses: Array) -> Array:
        """Mean over the images of each unit, units in the order of certification: (..., n) -> (..., units)."""
        if len(self.unit_of) == self.unit_of.max() + 1:  # every image is its own unit
            return np.take(losses, self._image_of, axis=-1)
        units, counts = self._counts
        if self.image_weights is not None:
            losses = losses * self.image_weights
        rows = [np.bincount(units, x[self.certifying], len(counts)) for x in losses.reshape(-1, losses.shape[-1])]
        means = (np.stack(rows) / counts)[:, self.order]
        return np.ascontiguousarray(means).reshape(*losses.shape[:-1], self.size)

    @cached_property
    def sizes(self) -> Array:
        """Pixels of each image, (n,)."""
        return self.pairs.sizes

    @cached_property
    def _image_of(self) -> Array:
        return np.argsort(self.unit_of)[self.order]

    @cached_property
    def _counts(self) -> tuple[Array, Array]:
        """Unit of each certifying image, and how many, or which weight, each unit has (1 where there is none)."""
        units = self.unit_of[self.certifying]
        weights = None if self.image_weights is None else self.image_weights[self.certifying]
        counts = np.bincount(units, weights, minlength=int(self.unit_of.max()) + 1)
        return units, np.where(counts > 0, counts, 1)

    def passes(self, losses: Array) -> bool:
        """Whether the bound on the unit losses is below the risk level."""
        return rejects(self.bound, losses, self.failure_prob, self.risk_level)


@dataclass(eq=False)
class Losses:
    """Losses of the units at the path points, (units,) each, read from the table a few points at a time.

    Columns begin at `first`; `loss_of` makes losses of what images miss, (..., n), by default the share of all pixels.
    """

    risk_test: RiskTest
    table: Table
    points: int
    first: int = 0
    loss_of: Callable[[Array], Array] | None = None

    def __post_init__(self) -> None:
        self._step = max(1, _ENTRIES // len(self.table))
        self._at = -1  # which of the steps is held
        self._held = np.empty((0, 0))

    def __call__(self, point: int) -> Array:
        """Losses at a point."""
        at = point // self._step
        if self._at != at:
            self._held = self._read(at)
            self._at = at
        row: Array = self._held[point - at * self._step]
        return row

    def means(self) -> Array:
        """Mean loss at every point, (T,)."""
        return np.concatenate([self._read(at).mean(axis=1) for at in range(-(-self.points // self._step))])

    def _read(self, at: int) -> Array:
        start = at * self._step
        missed = self.table.columns(self.first + start, self.first + min(self.points, start + self._step))
        return self.risk_test.per_unit(missed / self.risk_test.sizes if self.loss_of is None else self.loss_of(missed))


def certify_l01(risk_test: RiskTest, grouping: Labels, path: Path, table: Table, *, refine: bool = True) -> Certificate:
    """The least certified position on the path for the share of missed pixels."""
    losses = Losses(risk_test, table, len(path))
    knot = fixed_sequence_test(risk_test, losses, len(path))
    at_knot = losses(knot).copy()
    if knot == 0 or not sees_mean_only(risk_test.bound):
        return Certificate(knot, 1.0, at_knot)
    before, after = table.columns(knot - 1, knot + 1)[:, risk_test.certifying]
    if int((before - after).sum(dtype=np.int64)) <= _MOST_ENDS:
        return _between_knots(risk_test, grouping, path, knot, at_knot)
    if not refine:  # so many ends arrive together that nothing is gained
        return Certificate(knot, 1.0, at_knot)
    fine = path.between(knot, _STEPS)
    with tabulated(risk_test.pairs, grouping, fine) as (finer, _, _):
        found = certify_l01(risk_test, grouping, fine, finer, refine=False)
    return Certificate(knot, (found.knot - 1 + found.part) / _STEPS, found.losses)


def curve_of(losses: Losses, path: Path, certified: int) -> tuple[Array, int]:
    """Mean widening, mean of what is bounded, and its bound at some knots, the certified one among them."""
    risk_test = losses.risk_test
    risks = losses.means()
    wanted = np.searchsorted(-risks, -np.linspace(min(1.0, 4 * risk_test.risk_level), 0, _CURVE))
    kept = np.unique(np.append(np.minimum(wanted, len(path) - 1), certified))
    bounds = [float(risk_test.bound(losses(knot), risk_test.failure_prob)) for knot in kept]
    rows = np.stack([path.knots[:, kept].mean(axis=0), risks[kept], np.array(bounds)], axis=1)
    return rows, int(np.searchsorted(kept, certified))


def certify_loss(risk_test: RiskTest, grouping: Labels, path: Path, loss: Loss) -> Certificate:
    """The least certified knot for any loss, which is evaluated on the intervals of the knots that the walk visits."""
    seen: dict[int, Array] = {}
    pairs = risk_test.pairs
    kept = KeptLabels(grouping, pairs.runner.table_bytes)
    if not isinstance(pairs, LocalData):
        raise TypeError("a loss of your own is evaluated on the images themselves, and these are elsewhere")

    def column(j: int) -> Array:
        if j not in seen:
            seen[j] = risk_test.per_unit(losses_at(pairs, kept, path.knots[:, j], loss))
        return seen[j]

    def check_falling() -> None:
        means = [seen[j].mean() for j in sorted(seen)]
        if (np.diff(means) > 1e-12).any():
            raise ValueError(
                "the loss rises where intervals widen; a risk can be controlled only for a nonincreasing loss"
            )

    column(0), column(len(path) - 1)
    check_falling()
    knot = fixed_sequence_test(risk_test, column, len(path))
    check_falling()
    return Certificate(knot, 1.0, seen[knot])


def losses_at(pairs: LocalData, kept: KeptLabels, widening: Array, loss: Loss) -> Array:
    """Loss of every image at one widening: (n,)."""

    def work(truth: Array, block: Block) -> Array:
        lower, upper = block.widen(pairs.family, kept.grouping, widening, kept.of(block))
        value = np.asarray(as_plain_array(loss(truth, Interval(lower, upper)), "losses"))
        if value.shape != (len(truth),):
            raise ValueError(f"the loss returned shape {value.shape} for {len(truth)} images; it must be one per image")
        return check_losses(value, block.start)

    return np.concatenate(list(pairs.over_blocks(work)))


def fixed_sequence_test(risk_test: RiskTest, column: Callable[[int], Array], points: int, least: int = 0) -> int:
    """The least knot, from `least` on, such that it and all wider ones pass."""
    if not risk_test.passes(column(points - 1)):
        raise NoGuarantee(_cannot(risk_test, column(points - 1)))
    if sees_mean_only(risk_test.bound):
        low, high = least - 1, points - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if risk_test.passes(column(middle)) else (middle, high)
        return high
    knot = points - 1
    while knot > least and risk_test.passes(column(knot - 1)):
        knot -= 1
    return knot


def _cannot(risk_test: RiskTest, losses: Array) -> str:
    name = getattr(risk_test.bound, "__name__", "the bound")
    reached = float(risk_test.bound(losses, risk_test.failure_prob))
    try:
        needed = least_images(risk_test.risk_level, risk_test.failure_prob, confidence=risk_test.bound)
        more = (
            f"; with this bound at least {needed} must certify, beside those that fit"
            if needed > risk_test.size
            else ""
        )
    except ValueError:
        more = ""
    left = risk_test.risk_of(losses)
    if risk_test.max_images and left < _ROUNDED:
        counted = "images" if risk_test.image_weights is None else "pixels"
        more += (
            f"; units of fewer than {risk_test.max_images:g} {counted} count for less, as weighting={counted!r} asks"
        )
    stuck = (
        ""
        if left < _ROUNDED
        else f"; even the widest intervals miss {left:.4g} on average, more than any widening of the "
        f"{risk_test.pairs.family.name} family mends: use the additive family or wider limits"
    )
    what = risk_test.promise or f"a risk level of {risk_test.risk_level:g}"
    region = " that have the region" if risk_test.promise else ""
    return (
        f"{what} cannot be certified: with {risk_test.size} certifying images (units){region} the "
        f"least {name} bound reached is {reached:.4g}{more}{stuck}. {second_try(risk_test.failure_prob)}. With fresh "
        "images, more of them, a higher risk level or a higher failure probability help"
    )


def _between_knots(risk_test: RiskTest, grouping: Labels, path: Path, knot: int, at_knot: Array) -> Certificate:
    """Exact position before a certified knot: of the ends that arrive there, leave uncovered as many as are allowed."""
    certifying, sizes = np.flatnonzero(risk_test.certifying), risk_test.sizes
    arrived, part = risk_test.pairs.aggregate(arriving, certifying, grouping=grouping, path=path, knot=knot)
    image = np.repeat(certifying, arrived)
    if not len(part):
        return Certificate(knot, 1.0, at_knot)
    counts = np.bincount(risk_test.unit_of[risk_test.certifying], minlength=int(risk_test.unit_of.max()) + 1)
    counted = np.zeros(len(counts))
    counted[risk_test.order] = risk_test.weights
    weight = counted[risk_test.unit_of[image]] / (counts[risk_test.unit_of[image]] * sizes[image] * risk_test.size)
    order = np.lexsort((image, part))
    image, part, weight = image[order], part[order], weight[order]
    left = np.concatenate([np.cumsum(weight[::-1])[::-1][1:], [0.0]])  # mean loss of the ends after this one
    base = float(at_knot.mean())

    def passes(i: int) -> bool:
        last = int(np.searchsorted(part, part[i], side="right")) - 1  # ties arrive together
        return rejects_mean(
            risk_test.bound, base + left[last], risk_test.size, risk_test.failure_prob, risk_test.risk_level
        )

    bad, good = -1, len(part) - 1
    while good - bad > 1:
        middle = (bad + good) // 2
        bad, good = (bad, middle) if passes(middle) else (middle, good)
    missed = part > part[good]
    extra = np.zeros((len(risk_test.certifying),))
    np.add.at(extra, image[missed], 1.0 / sizes[image[missed]])
    return Certificate(knot, min(1.0, float(part[good])), at_knot + risk_test.per_unit_more(extra))
