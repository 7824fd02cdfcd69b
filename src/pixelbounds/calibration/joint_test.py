"""Several promises at once: one walk along one path, which goes on only while every promise passes its own test.

Let t* be the widest point at which some promise is broken. To end at or before t* the walk must pass it, so the bound
of a promise that is broken there must have erred: probability at most delta, for all promises together, without a
correction. Stopping where any promise fails is stopping at the widest of the points at which each alone would stop; so
each is certified alone, and the widest is taken.

A loss of a user's own that sees images costs a pass for each point, so it is tested at some of the knots alone, fixed
before by the fitting images. If it is the one that is broken at t*, it is broken at the last of its own points up to
t*, too, as losses do not rise; and ending at or before t* needs that point to have passed. So each promise may have its
own points, as long as none depends on what certifies.

For each promise those units count that have its region: given which they are, their losses are independent draws, and
the common random order of units, restricted to them, still tells nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ..images.checks import NoGuarantee
from ..images.ends import Interval
from ..images.library import Array, over_images
from ..images.regions import region_rows
from .block import KeptLabels, Labels
from .certify import Losses, RiskTest, curve_of, fixed_sequence_test, losses_at
from .confidence import BOUNDS, ConfidenceBound
from .data import CalibrationData, LocalData
from .loss_table import Path, Table
from .promises import CertifiedPromise, RiskTarget
from .split import Need, least_units


def needs_of(
    targets: Sequence[RiskTarget], inside: Array | None, unit_of: Array, bound: ConfidenceBound, failure_prob: float
) -> list[Need]:
    """Which units have what each promise is about, and how many must certify it: `inside` as `images_having` tells.

    Without it regions of pixels are taken to be everywhere.
    """
    found = []
    for target in targets:
        having = np.zeros(int(unit_of.max()) + 1, bool)
        having[unit_of[target.subgroup if inside is None else inside[:, target.region] & target.subgroup]] = True
        need = Need(having, least_units(target.level, failure_prob, bound))
        if target.place != "all" and having.sum() < need.least and bound in BOUNDS.values():
            raise NoGuarantee(
                f"{target.words} cannot be certified: {int(having.sum())} of {len(having)} images (units) have the "
                f"region, and with {bound.__name__} at least {need.least} that have it must certify; give more of "
                "them, raise the level of the promise, or leave it out"
            )
        found.append(need)
    return found


def images_having(pairs: LocalData) -> Array:
    """Which images have each region, all pixels first: bool (n, R); regions alone are read."""

    def work(start: int, stop: int) -> Array:
        rows = [region_rows(values, name, start, stop).reshape(stop - start, -1) for name, values in pairs.regions]
        return np.stack([np.ones(stop - start, bool), *((row > 0).any(axis=1) for row in rows)], axis=1)

    reads = [values for _, values in pairs.regions]
    return np.concatenate(list(over_images(work, pairs.band.lower, pairs.runner, reads)))


OWN_POINTS = 256  # knots at which a loss that sees images is tested where no image fits
_SHARES = (0.0, 0.25, *(x / 20 for x in range(10, 31)), 1.75, 2.0, 3.0)  # of the level, about which it is tested
_ROUNDED = 1e-12


class CertifyingUnits(NamedTuple):
    """Who certifies: bool (n,), the unit of each image (n,), the units in random order, and by which bound."""

    certifying: Array
    unit_of: Array
    order: Array
    bound: ConfidenceBound
    failure_prob: float


def risk_test_of(
    target: RiskTarget, pairs: CalibrationData, sizes: Array, units_certifying: CertifyingUnits
) -> RiskTest:
    """What must be certified for one promise: on the images that have its region, sizes (n, R)."""
    counts = target.counts(sizes)
    certifying = units_certifying.certifying & counts
    order = units_certifying.order[np.isin(units_certifying.order, units_certifying.unit_of[certifying])]
    if not len(order):
        raise NoGuarantee(
            f"{target.words} cannot be certified: none of the certifying images has the region; leave the promise out, or "  # noqa: E501
            "give images that have it"
        )
    weights = sizes[:, target.region] if target.weighting == "pixels" else None
    most = 0.0
    if target.weighting != "units":
        most = most_of_a_unit(target, units_certifying, counts, np.ones(len(counts)) if weights is None else weights)
    return RiskTest(
        pairs,
        certifying,
        units_certifying.unit_of,
        order,
        units_certifying.bound,
        target.level,
        units_certifying.failure_prob,
        most,
        weights,
        target.words,
    )


def most_of_a_unit(target: RiskTarget, units_certifying: CertifyingUnits, counts: Array, weight: Array) -> float:
    """For how many images (or pixels) a unit counts at most: as told, or the most that a fitting unit has.

    The certifying units must not say it: their number would then depend on what is bounded.
    """
    if target.weighting == "images" and target.max_images:
        return float(target.max_images)
    fitting = ~units_certifying.certifying & counts
    if not fitting.any():
        raise ValueError(
            f"{target.words}, counting {target.weighting!r}, needs fitting images with the region, which tell for how much a "  # noqa: E501
            "unit counts at most, and there are none; give n_opt, max_images (for images), or weighting='units'"
        )
    return float(np.bincount(units_certifying.unit_of[fitting], weight[fitting]).max())


class Found(NamedTuple):
    """Where all promises are certified, what is kept of each, and the curve of the first (`certify.curve_of`)."""

    knot: int
    promises: tuple[CertifiedPromise, ...]
    curve: Array
    chosen: int


def losses_along(target: RiskTarget, risk_test: RiskTest, table: Table, sizes: Array, points: int) -> Losses:
    """Losses of a promise along the path, from the table of all regions."""
    size = sizes[:, target.region]
    return Losses(risk_test, table, points, target.region * points, lambda missed: target.losses(missed, size))


Column = Callable[[int], Array]  # losses of the units at a knot


def certify_jointly(
    targets: Sequence[RiskTarget],
    pairs: CalibrationData,
    grouping: Labels,
    path: Path,
    table: Table,
    sizes: Array,
    units_certifying: CertifyingUnits,
    fitting: CalibrationData | None = None,
) -> Found:
    """The least knot such that at it and all wider ones every promise passes its own test.

    `fitting` are the fitting images, where there are some: they say at which knots losses that see images are tested.
    """
    risk_tests = [risk_test_of(target, pairs, sizes, units_certifying) for target in targets]
    columns: list[Column] = []
    knot = 0
    for target, risk_test in zip(targets, risk_tests, strict=True):
        if target.counts_only:
            columns.append(losses_along(target, risk_test, table, sizes, len(path)))
            knot = fixed_sequence_test(risk_test, columns[-1], len(path), knot)
            _check_falling(target, columns[-1], (0, knot, len(path) - 1))
        else:
            columns.append(OwnLosses(target, risk_test, grouping, path))
    for target, risk_test, column in zip(targets, risk_tests, columns, strict=True):
        if isinstance(column, OwnLosses):  # after all others: it need not be tested where these fail
            points = tested_knots(target.take(np.flatnonzero(~units_certifying.certifying)), grouping, path, fitting)
            first = int(np.searchsorted(points, knot, side="right")) - 1  # where it is kept it is kept at the knot
            stop = fixed_sequence_test(
                risk_test, lambda i, c=column, p=points: c(int(p[i])), len(points), max(0, first)
            )  # type: ignore[misc]
            knot = max(knot, int(points[stop]))
            _check_falling(target, column, sorted({*column.seen, 0, knot}))
    kept = []
    for target, risk_test, column in zip(targets, risk_tests, columns, strict=True):
        risk = min(1.0, target.cap * risk_test.risk_of(column(knot)))
        kept.append(
            CertifiedPromise(
                target.kind, target.name, target.place, target.at_most, target.above, target.cap, target.weighting, risk_test.max_images, risk,  # noqa: E501
                risk_test.size,
            )
        )  # fmt: skip
    if not isinstance(columns[0], Losses):
        return Found(knot, tuple(kept), np.empty((0, 3)), 0)
    curve, chosen = curve_of(columns[0], path, knot)
    return Found(knot, tuple(kept), curve * np.array([1.0, targets[0].cap, targets[0].cap]), chosen)


# ---------------------------------------------------------------- losses that see images


class OwnLosses:
    """Losses of the units, (units,), at knots of the path, for a promise that sees images: a pass for each knot."""

    def __init__(self, target: RiskTarget, risk_test: RiskTest, grouping: Labels, path: Path) -> None:
        if not isinstance(risk_test.pairs, LocalData):
            raise TypeError("a loss of your own is evaluated on the images themselves, and these are elsewhere")
        self.risk_test = risk_test
        self.seen: dict[int, Array] = {}
        self._at = _losses_at(target, risk_test.pairs, grouping, path)

    def __call__(self, knot: int) -> Array:
        """Losses at a knot."""
        if knot not in self.seen:
            self.seen[knot] = self.risk_test.per_unit(self._at(knot))
        return self.seen[knot]


def _losses_at(target: RiskTarget, pairs: LocalData, grouping: Labels, path: Path) -> Column:
    """Losses of all images, (n,), at a knot."""
    kept = KeptLabels(grouping, pairs.runner.table_bytes)

    def loss(truth: Array, interval: Interval) -> Array:
        return target.losses_of(truth, interval, 0)

    return lambda knot: losses_at(pairs, kept, path.knots[:, knot], loss)


def tested_knots(target: RiskTarget, grouping: Labels, path: Path, fitting: CalibrationData | None) -> Array:
    """Knots at which a loss that sees images is tested, ascending, the last one among them: many near its level.

    They are where its mean over the fitting images, which the aim is about here, is about certain shares of its level;
    without such images they are spread evenly.
    """
    last = len(path) - 1
    if not isinstance(fitting, LocalData) or not target.subgroup.any():
        return np.unique(np.linspace(0, last, min(OWN_POINTS, len(path))).round().astype(int))
    at = _losses_at(target, fitting, grouping, path)
    means: dict[int, float] = {}

    def mean(knot: int) -> float:
        if knot not in means:
            means[knot] = float(at(knot)[target.subgroup].mean())
        return means[knot]

    def first_below(value: float) -> int:
        low, high = -1, last
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if mean(middle) <= value else (middle, high)
        return high

    return np.unique([last, *(first_below(share * target.level) for share in _SHARES)])


def _check_falling(target: RiskTarget, column: Column, knots: Sequence[int]) -> None:
    """A loss of a user's own does not rise where intervals widen, as far as is seen."""
    if target.function is not None and (np.diff([column(knot).mean() for knot in knots]) > _ROUNDED).any():
        raise ValueError(
            f"the loss {target.name!r} rises where intervals widen; a risk can be controlled only for a nonincreasing loss"  # noqa: E501
        )
