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
from .arrivals import Path, Table
from .block import KeptLabels, Labels
from .certify import Losses, Task, curve_of, losses_at, walk
from .confidence import BOUNDS, ConfidenceBound
from .pairs import Archive, Pairs
from .promises import Aim, CertifiedPromise
from .split import Need, least_units


def needs_of(
    aims: Sequence[Aim], inside: Array | None, unit_of: Array, bound: ConfidenceBound, failure_prob: float
) -> list[Need]:
    """Which units have what each promise is about, and how many must certify it: `inside` as `images_having` tells.

    Without it regions of pixels are taken to be everywhere.
    """
    found = []
    for aim in aims:
        having = np.zeros(int(unit_of.max()) + 1, bool)
        having[unit_of[aim.subgroup if inside is None else inside[:, aim.region] & aim.subgroup]] = True
        need = Need(having, least_units(aim.level, failure_prob, bound))
        if aim.place != "all" and having.sum() < need.least and bound in BOUNDS.values():
            raise NoGuarantee(
                f"{aim.words} cannot be certified: {int(having.sum())} of {len(having)} images (units) have the "
                f"region, and with {bound.__name__} at least {need.least} that have it must certify; give more of "
                "them, raise the level of the promise, or leave it out"
            )
        found.append(need)
    return found


def images_having(pairs: Pairs) -> Array:
    """Which images have each region, all pixels first: bool (n, R); regions alone are read."""

    def work(start: int, stop: int) -> Array:
        rows = [region_rows(values, name, start, stop).reshape(stop - start, -1) for name, values in pairs.regions]
        return np.stack([np.ones(stop - start, bool), *((row > 0).any(axis=1) for row in rows)], axis=1)

    reads = [values for _, values in pairs.regions]
    return np.concatenate(list(over_images(work, pairs.band.lower, pairs.runner, reads)))


OWN_POINTS = 256  # knots at which a loss that sees images is tested where no image fits
_SHARES = (0.0, 0.25, *(x / 20 for x in range(10, 31)), 1.75, 2.0, 3.0)  # of the level, about which it is tested
_ROUNDED = 1e-12


class Jury(NamedTuple):
    """Who certifies: bool (n,), the unit of each image (n,), the units in random order, and by which bound."""

    certifying: Array
    unit_of: Array
    order: Array
    bound: ConfidenceBound
    failure_prob: float


def task_of(aim: Aim, pairs: Archive, sizes: Array, jury: Jury) -> Task:
    """What must be certified for one promise: on the images that have its region, sizes (n, R)."""
    counts = aim.counts(sizes)
    certifying = jury.certifying & counts
    order = jury.order[np.isin(jury.order, jury.unit_of[certifying])]
    if not len(order):
        raise NoGuarantee(
            f"{aim.words} cannot be certified: none of the certifying images has the region; leave the promise out, or "
            "give images that have it"
        )
    weights = sizes[:, aim.region] if aim.counting == "pixels" else None
    most = 0.0
    if aim.counting != "units":
        most = most_of_a_unit(aim, jury, counts, np.ones(len(counts)) if weights is None else weights)
    return Task(
        pairs, certifying, jury.unit_of, order, jury.bound, aim.level, jury.failure_prob, most, weights, aim.words
    )


def most_of_a_unit(aim: Aim, jury: Jury, counts: Array, weight: Array) -> float:
    """For how many images (or pixels) a unit counts at most: as told, or the most that a fitting unit has.

    The certifying units must not say it: their number would then depend on what is bounded.
    """
    if aim.counting == "images" and aim.most_images:
        return float(aim.most_images)
    fitting = ~jury.certifying & counts
    if not fitting.any():
        raise ValueError(
            f"{aim.words}, counting {aim.counting!r}, needs fitting images with the region, which tell for how much a "
            "unit counts at most, and there are none; give n_opt, most_images (for images), or counting='units'"
        )
    return float(np.bincount(jury.unit_of[fitting], weight[fitting]).max())


class Found(NamedTuple):
    """Where all promises are certified, what is kept of each, and the curve of the first (`certify.curve_of`)."""

    knot: int
    promises: tuple[CertifiedPromise, ...]
    curve: Array
    chosen: int


def losses_along(aim: Aim, task: Task, table: Table, sizes: Array, points: int) -> Losses:
    """Losses of a promise along the path, from the table of all regions."""
    size = sizes[:, aim.region]
    return Losses(task, table, points, aim.region * points, lambda missed: aim.losses(missed, size))


Column = Callable[[int], Array]  # losses of the units at a knot


def certify_jointly(
    aims: Sequence[Aim],
    pairs: Archive,
    grouping: Labels,
    path: Path,
    table: Table,
    sizes: Array,
    jury: Jury,
    fitting: Archive | None = None,
) -> Found:
    """The least knot such that at it and all wider ones every promise passes its own test.

    `fitting` are the fitting images, where there are some: they say at which knots losses that see images are tested.
    """
    tasks = [task_of(aim, pairs, sizes, jury) for aim in aims]
    columns: list[Column] = []
    knot = 0
    for aim, task in zip(aims, tasks, strict=True):
        if aim.counts_only:
            columns.append(losses_along(aim, task, table, sizes, len(path)))
            knot = walk(task, columns[-1], len(path), knot)
            _check_falling(aim, columns[-1], (0, knot, len(path) - 1))
        else:
            columns.append(OwnLosses(aim, task, grouping, path))
    for aim, task, column in zip(aims, tasks, columns, strict=True):
        if isinstance(column, OwnLosses):  # after all others: it need not be tested where these fail
            points = tested_knots(aim.take(np.flatnonzero(~jury.certifying)), grouping, path, fitting)
            first = int(np.searchsorted(points, knot, side="right")) - 1  # where it is kept it is kept at the knot
            stop = walk(task, lambda i, c=column, p=points: c(int(p[i])), len(points), max(0, first))  # type: ignore[misc]
            knot = max(knot, int(points[stop]))
            _check_falling(aim, column, sorted({*column.seen, 0, knot}))
    kept = []
    for aim, task, column in zip(aims, tasks, columns, strict=True):
        risk = min(1.0, aim.cap * task.risk_of(column(knot)))
        kept.append(
            CertifiedPromise(
                aim.kind, aim.name, aim.place, aim.at_most, aim.above, aim.cap, aim.counting, task.most_images, risk,
                task.size,
            )
        )  # fmt: skip
    if not isinstance(columns[0], Losses):
        return Found(knot, tuple(kept), np.empty((0, 3)), 0)
    curve, chosen = curve_of(columns[0], path, knot)
    return Found(knot, tuple(kept), curve * np.array([1.0, aims[0].cap, aims[0].cap]), chosen)


# ---------------------------------------------------------------- losses that see images


class OwnLosses:
    """Losses of the units, (units,), at knots of the path, for a promise that sees images: a pass for each knot."""

    def __init__(self, aim: Aim, task: Task, grouping: Labels, path: Path) -> None:
        if not isinstance(task.pairs, Pairs):
            raise TypeError("a loss of your own is evaluated on the images themselves, and these are elsewhere")
        self.task = task
        self.seen: dict[int, Array] = {}
        self._at = _losses_at(aim, task.pairs, grouping, path)

    def __call__(self, knot: int) -> Array:
        """Losses at a knot."""
        if knot not in self.seen:
            self.seen[knot] = self.task.per_unit(self._at(knot))
        return self.seen[knot]


def _losses_at(aim: Aim, pairs: Pairs, grouping: Labels, path: Path) -> Column:
    """Losses of all images, (n,), at a knot."""
    kept = KeptLabels(grouping, pairs.runner.table_bytes)

    def loss(truth: Array, interval: Interval) -> Array:
        return aim.losses_of(truth, interval, 0)

    return lambda knot: losses_at(pairs, kept, path.knots[:, knot], loss)


def tested_knots(aim: Aim, grouping: Labels, path: Path, fitting: Archive | None) -> Array:
    """Knots at which a loss that sees images is tested, ascending, the last one among them: many near its level.

    They are where its mean over the fitting images, which the aim is about here, is about certain shares of its level;
    without such images they are spread evenly.
    """
    last = len(path) - 1
    if not isinstance(fitting, Pairs) or not aim.subgroup.any():
        return np.unique(np.linspace(0, last, min(OWN_POINTS, len(path))).round().astype(int))
    at = _losses_at(aim, fitting, grouping, path)
    means: dict[int, float] = {}

    def mean(knot: int) -> float:
        if knot not in means:
            means[knot] = float(at(knot)[aim.subgroup].mean())
        return means[knot]

    def first_below(value: float) -> int:
        low, high = -1, last
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if mean(middle) <= value else (middle, high)
        return high

    return np.unique([last, *(first_below(share * aim.level) for share in _SHARES)])


def _check_falling(aim: Aim, column: Column, knots: Sequence[int]) -> None:
    """A loss of a user's own does not rise where intervals widen, as far as is seen."""
    if aim.function is not None and (np.diff([column(knot).mean() for knot in knots]) > _ROUNDED).any():
        raise ValueError(
            f"the loss {aim.name!r} rises where intervals widen; a risk can be controlled only for a nonincreasing loss"
        )
