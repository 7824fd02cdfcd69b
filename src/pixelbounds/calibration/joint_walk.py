"""Several promises at once: one walk along one path, which goes on only while every promise passes its own test.

Let t* be the widest point at which some promise is broken. To end at or before t* the walk must pass it, so the bound
of a promise that is broken there must have erred: probability at most delta, for all promises together, without a
correction. Stopping where any promise fails is stopping at the widest of the points at which each alone would stop; so
each is certified alone, and the widest is taken.

For each promise those units count that have its region: given which they are, their losses are independent draws, and
the common random order of units, restricted to them, still tells nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..images.checks import NoGuarantee
from ..images.library import Array, over_images
from ..images.regions import region_rows
from .arrivals import Path, Table
from .certify import Losses, Task, curve_of, walk
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
        most = _most_of_a_unit(aim, jury, counts, np.ones(len(counts)) if weights is None else weights)
    return Task(
        pairs, certifying, jury.unit_of, order, jury.bound, aim.level, jury.failure_prob, most, weights, aim.words
    )


def _most_of_a_unit(aim: Aim, jury: Jury, counts: Array, weight: Array) -> float:
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


def certify_jointly(aims: Sequence[Aim], pairs: Archive, path: Path, table: Table, sizes: Array, jury: Jury) -> Found:
    """The least knot such that at it and all wider ones every promise passes its own test."""
    tasks = [task_of(aim, pairs, sizes, jury) for aim in aims]
    columns = [losses_along(aim, task, table, sizes, len(path)) for aim, task in zip(aims, tasks, strict=True)]
    knot = 0
    for task, column in zip(tasks, columns, strict=True):
        knot = walk(task, column, len(path), knot)
    kept = []
    for aim, task, column in zip(aims, tasks, columns, strict=True):
        risk = min(1.0, aim.cap * task.risk_of(column(knot)))
        kept.append(
            CertifiedPromise(
                aim.kind, aim.name, aim.place, aim.at_most, aim.above, aim.cap, aim.counting, task.most_images, risk,
                task.size,
            )
        )  # fmt: skip
    curve, chosen = curve_of(columns[0], path, knot)
    return Found(knot, tuple(kept), curve * np.array([1.0, aims[0].cap, aims[0].cap]), chosen)
