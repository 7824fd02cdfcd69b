"""Losses of S_rcps at every point of the path, and how far along it all promises are certified (Algorithm 2).

Fixed-sequence testing: test from the wide end and stop before the first point whose bound is not below the level. The
points are fixed before, so at the widest point that is too risky the bound errs with probability at most delta, and
stopping beyond it needs that error (Learn then Test). Several promises need no correction: let t* be the widest point
at which some promise is broken. To end at or before t* the test must pass it, so the bound of a promise that is broken
there must have erred. Each promise is certified alone, and the widest of their points is taken: an intersection-union
test.

A bound that sees only the mean loss is monotone along the path, so there the test may be a bisection, and the exact
place between two points is an order statistic of entry scores. Other bounds are tested point by point.

The table of a million images at some two thousand points takes gigabytes: beyond a limit it is a map of a temporary
file, which changes no bit. The file has no name: however the process ends, nothing is left of it.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ..images.checks import VALIDITY_DOC, NoGuarantee
from ..images.library import Array, Runner
from .block import Statistic, is_known_image
from .bounds import few_units, rejects_mean, sees_mean_only
from .data import CalibrationData, CertifyingImages
from .losses import AnyChannel, Column, ImageLosses, any_channel_misses, points_to_test
from .methods import least_units
from .paths.path import NOT_DESCRIBED, BandStatistics, Path, arriving, group_shares, misses, recorded_misses
from .promises import CertifiedPromise, RiskTarget
from .target import RiskTest, Target, risk_test_of
from .text import second_try

_ENTRIES = 2**20  # of the table, read at a time
_MOST_ENDS = 2**21  # that are held in memory to find the exact place between two points
_STEPS = 1024  # between two points that have more ends between them
_CURVE = 64  # points of the path kept for the report
_ROUNDED = 1e-12  # a mean loss that is rounding alone


@dataclass(frozen=True, eq=False)
class CertifiedPoint:
    """Where all promises are certified: a share `part` of the way from the point before to `point`.

    `curve` holds mean widening, mean loss and bound of the first promise along the path, (rows, 3), with the certified
    point at row `chosen`.
    """

    point: int
    part: float
    promises: tuple[CertifiedPromise, ...]
    curve: Array
    chosen: int


def certify(table: LossTable, target: Target) -> CertifiedPoint:
    """The narrowest point such that at it and all wider ones every promise passes its own test."""
    images = table.images
    data = images.data
    tests = [
        risk_test_of(
            risk, table.sizes, images.images, data.unit_of, images.order, target.bound, target.failure_prob,
            images.shares, zero_one=images.shares is None and _zero_one(risk, data),
        )
        for risk in images.risks
    ]  # fmt: skip
    columns: list[Any] = []
    for i, test in enumerate(tests):
        missed, size = table.missed, table.sizes[:, test.risk.region]
        if isinstance(test.risk.function, AnyChannel) and data.at_hand:  # counted in a pass of its own
            missed, (size,) = tabulated(data, any_channel_misses, path=table.path, loss=test.risk.function)
            tests[i] = test = replace(test, risk=replace(test.risk, function=None, counts_only=True))
        counted = _TableLosses(test, missed, size, len(table.path))
        columns.append(counted if test.risk.counts_only else ImageLosses(test, data, table.path))
    point = 0
    for test, column in zip(tests, columns, strict=True):
        if test.risk.counts_only:
            point = fixed_sequence_test(test, column, len(table.path), point, images.data)
            _check_falling(test.risk, column, (0, point, len(table.path) - 1))
    for test, column in zip(tests, columns, strict=True):
        if not test.risk.counts_only:  # after all others: it need not be tested where these fail
            point = _test_image_loss(test, column, table, point)
    part, losses = 1.0, [column(point).copy() for column in columns]
    if target.of_all_pixels and sees_mean_only(tests[0].bound) and tests[0].risk.weighting != "pixels":
        part, losses[0] = _refined(tests[0], table.images.data, table.path, table.missed, point, losses[0])
    promises = tuple(
        test.risk.certified(test.units.max_images, min(1.0, test.risk.cap * test.risk_of(x)), len(x))
        for test, x in zip(tests, losses, strict=True)
    )
    if not tests[0].risk.counts_only:
        return CertifiedPoint(point, part, promises, np.empty((0, 3)), 0)
    return CertifiedPoint(point, part, promises, *_curve_of(columns[0], table.path, point))


def _zero_one(risk: RiskTarget, data: CalibrationData) -> bool:
    """Whether a loss is 0 or 1 whatever the images: of a tail, or of one number, where every image is a unit."""
    if not data.at_hand or data.units is not None or risk.weighting != "units":
        return False
    return risk.kind == "tail" or (risk.kind == "share" and bool(data.pixels) and prod(data.pixels) == 1)


def fixed_sequence_test(
    test: RiskTest, column: Column, points: int, first: int = 0, data: CalibrationData | None = None, *,
    monotone: bool = True,
) -> int:  # fmt: skip
    """The least point, from `first` on, such that it and all wider ones pass; losses that may rise are not bisected."""
    if not test.passes(column(points - 1)):
        raise NoGuarantee(_cannot(test, column(points - 1), data))
    if monotone and sees_mean_only(test.bound):
        return first + bisect_left(range(first, points - 1), True, key=lambda i: test.passes(column(i)))
    point = points - 1
    while point > first and test.passes(column(point - 1)):
        point -= 1
    return point


def _cannot(test: RiskTest, losses: Array, data: CalibrationData | None) -> str:
    """The remedy, what so many units can certify, and what a second try costs: one line each."""
    name, units, n = getattr(test.bound, "__name__", "the bound"), test.units, len(losses)
    noun, left = "images" if data is None else data.nouns, test.risk_of(losses)
    region = "" if test.risk.place == "all" else " that have the region"
    why = f"{test.risk.words} cannot be certified by {n} {noun}{region} with {name}"
    needed = least_units(test.level, test.failure_prob, test.bound)
    if left >= _ROUNDED and data is not None:
        remedy = (
            f"Use the additive family or wider limits: {why}, as even the widest intervals of the {data.family.name} "
            f"family miss {left:.4g} on average"
        )
    elif units.max_images:
        counted = "images" if units.image_weights is None else "pixels"
        remedy = (
            f"Give more {noun}, or count each alike (weighting='units'): {why}, as those of fewer than "
            f"{units.max_images:g} {counted} count for less"
        )
    elif needed > n:
        remedy = f"Give at least {needed} {noun}{region} that certify, beside those that fit: {why}"
    else:
        remedy = f"Raise the risk level: {why} (the least bound reached is {test.bound(losses, test.failure_prob):.4g})"
    numbers = () if units.weighted else few_units(test.risk, n, test.failure_prob, test.bound, noun)[1:]
    return "\n".join((f"{remedy}.", *numbers, second_try(test.failure_prob)))


# ---------------------------------------------------------------- losses from the table


@dataclass(eq=False)
class _TableLosses:
    """Losses of the units at the points, (units,) each, read from the table a few points at a time."""

    test: RiskTest
    table: Array
    size: Array  # of the region, (n,)
    points: int
    held: tuple[int, Any] = (-1, None)  # number and losses of the points that were read last

    def __post_init__(self) -> None:
        self._step = max(1, _ENTRIES // len(self.size))

    def __call__(self, point: int) -> Array:
        at = point // self._step
        if self.held[0] != at:
            self.held = at, self._read(at)
        return np.asarray(self.held[1][point - at * self._step])

    def means(self) -> Array:
        return np.concatenate([self._read(at).mean(axis=1) for at in range(-(-self.points // self._step))])

    def _read(self, at: int) -> Array:
        first, start = self.test.risk.region * self.points, at * self._step
        missed = self.table[first + start : first + min(self.points, start + self._step)]
        return self.test.losses(self.test.risk.losses(np.array(missed), self.size))


def _curve_of(losses: _TableLosses, path: Path, certified: int) -> tuple[Array, int]:
    """Mean widening, mean of what is bounded, and its bound at some points, the certified one among them."""
    test = losses.test
    means = losses.means()
    wanted = np.searchsorted(-means, -np.linspace(min(1.0, 4 * test.level), 0, _CURVE))
    kept = np.unique(np.append(np.minimum(wanted, len(path) - 1), certified))
    bounds = [float(test.bound(losses(point), test.failure_prob)) for point in kept]
    rows = np.stack([path.points[:, kept].mean(axis=0), means[kept], np.array(bounds)], axis=1)
    return rows * np.array([1.0, test.risk.cap, test.risk.cap]), int(np.searchsorted(kept, certified))


# ---------------------------------------------------------------- between two points


def _refined(
    test: RiskTest, data: CalibrationData, path: Path, table: Array, point: int, losses: Array, *, again: bool = True
) -> tuple[float, Array]:
    """The exact place before a certified point, as a share of the way, and the losses there."""
    if point == 0:
        return 1.0, losses
    before, after = np.array(table[point - 1 : point + 1])[:, test.units.counts]
    if int((before - after).sum(dtype=np.int64)) <= _MOST_ENDS:
        return _between_points(test, data, path, point, losses)
    if not again:  # so many ends arrive together that nothing is gained
        return 1.0, losses
    fine = path.between(point, _STEPS)
    finer, (sizes, *_) = tabulated(data, misses, path=fine)
    column = _TableLosses(test, finer, sizes[:, 0], len(fine))
    at = fixed_sequence_test(test, column, len(fine), 0, data)
    part, losses = _refined(test, data, fine, finer, at, column(at).copy(), again=False)
    return (at - 1 + part) / _STEPS, losses


def _between_points(
    test: RiskTest, data: CalibrationData, path: Path, point: int, at_point: Array
) -> tuple[float, Array]:
    """Of the ends that arrive at a point, leave uncovered as many as are allowed."""
    units, sizes = test.units, data.sizes
    certifying = np.flatnonzero(units.counts)
    arrived, part = data.aggregate(arriving, certifying, path=path, point=point)
    image = np.repeat(certifying, arrived)
    if not len(part):
        return 1.0, at_point
    counts = np.bincount(units.unit_of[certifying], minlength=int(units.unit_of.max()) + 1)
    counted = np.zeros(len(counts))
    counted[units.order] = units.weights
    n = len(units.order)
    weight = counted[units.unit_of[image]] / (counts[units.unit_of[image]] * sizes[image] * n)
    order = np.lexsort((image, part))
    image, part, weight = image[order], part[order], weight[order]
    left = np.concatenate([np.cumsum(weight[::-1])[::-1][1:], [0.0]])  # mean loss of the ends after this one
    base = float(at_point.mean())

    def passes(i: int) -> bool:
        last = int(np.searchsorted(part, part[i], side="right")) - 1  # ties arrive together
        return rejects_mean(test.bound, base + left[last], n, test.failure_prob, test.level)

    good = bisect_left(range(len(part) - 1), True, key=passes)
    missed = part > part[good]
    extra = np.zeros(len(units.counts))
    np.add.at(extra, image[missed], 1.0 / sizes[image[missed]])
    return min(1.0, float(part[good])), at_point + units.means(extra) * units.weights


# ---------------------------------------------------------------- losses that see images


def _test_image_loss(test: RiskTest, column: ImageLosses, table: LossTable, point: int) -> int:
    """The point that such a loss allows, at least the one that others allow."""
    points = points_to_test(test.risk, table.images, table.path)
    _check_falling(test.risk, column, (0, len(table.path) - 1))
    first = int(np.searchsorted(points, point, side="right")) - 1  # where it is kept it is kept at the point
    stop = fixed_sequence_test(test, lambda i: column(int(points[i])), len(points), max(0, first), table.images.data)
    point = max(point, int(points[stop]))
    _check_falling(test.risk, column, sorted({*column.seen, 0, point}))
    return point


def _check_falling(risk: RiskTarget, column: Column, points: Sequence[int]) -> None:
    """A loss of a user's own does not rise where intervals widen, as far as is seen."""
    if risk.function is not None and (np.diff([column(point).mean() for point in points]) > _ROUNDED).any():
        raise ValueError(
            f"the loss {risk.name!r} rises where intervals widen; only a nonincreasing loss can be controlled"
        )


@dataclass(eq=False)
class LossTable:
    """What every image misses at every point of the path.

    missed      of all pixels and of each region, (columns, n): of region r from column r * T on
    sizes       of all regions, (n, 1 + regions)
    digest      sum of the digests of the images, (8,)
    hashes      one of each image, (n,) uint64; empty where images stay elsewhere
    described   what bands of certifying units are like, for monitoring
    """

    images: CertifyingImages
    path: Path
    missed: Array
    sizes: Array
    digest: Array
    hashes: Array
    described: BandStatistics


def loss_table(certifying: CertifyingImages, path: Path, target: Target | None = None) -> LossTable:
    """One pass over the images. Rows of blocks, chunks and sites just stack. No setting of the target matters here."""
    data = certifying.data
    if not data.at_hand:
        missed, (sizes, digest, _) = tabulated(data, misses, path=path, digests=True)
        return LossTable(certifying, path, missed, sizes, digest, np.empty(0, np.uint64), NOT_DESCRIBED)
    shares = group_shares(certifying.fitting.data, certifying.fitting.images, path)
    missed, (sizes, digest, _, hashes, rows) = tabulated(data, recorded_misses, path=path, shares=shares)
    check_not_certifying(path.grouping.fitted_on, hashes, certifying.images)
    warn_duplicates(hashes, data.unit_of)
    described = BandStatistics.of(rows, certifying.images, data.unit_of, certifying.order, path.at(path.usual), shares)
    return LossTable(certifying, path, missed, sizes, digest, hashes, described)


def tabulated(data: CalibrationData, statistic: Statistic, **given: Any) -> tuple[Array, tuple[Array, ...]]:
    """The first column of a statistic of all images, turned over: (columns, n); and the others."""
    table: Array | None = None
    others: list[tuple[Array, ...]] = []
    first = 0
    try:
        for rows, *more in data.parts(statistic, **given):
            table = _blank((rows.shape[1], len(data)), rows.dtype, data.runner) if table is None else table
            np.copyto(table[:, first : first + len(rows)], rows.T, "same_kind")
            first += len(rows)
            others.append(tuple(more))
        assert table is not None
    except BaseException:  # the file goes now, not when nobody holds this frame any more
        del table
        raise
    return table, Statistic(statistic.name, statistic.count, statistic.joins[1:]).merge(others)


def _blank(shape: tuple[int, int], dtype: Any, runner: Runner) -> Array:
    size = shape[0] * shape[1] * dtype.itemsize
    if size <= runner.table_bytes:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(buffering=0, dir=runner.scratch) as file:
        try:
            if hasattr(os, "posix_fallocate"):  # a full disk is an error here, and a crash later
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:  # the file has no name to tell
            folder = str(runner.scratch or tempfile.gettempdir())
            raise OSError(error.errno, f"{error.strerror} for a table of losses", folder) from error
        return np.memmap(file, dtype, "r+", shape=shape)


def check_not_certifying(fitted_on: Array, image_hashes: Array, certifying: Array) -> None:
    """Groups that were shaped by images which now certify make the certificate worthless."""
    if not len(image_hashes) or not len(fitted_on):
        return
    if np.isin(fitted_on, image_hashes[~certifying]).all():
        return  # they were fitted here and now, on fitting images; duplicates of these are reported elsewhere
    again = np.flatnonzero(is_known_image(image_hashes, fitted_on) & certifying)
    if len(again):
        raise ValueError(
            f"the groups were fitted on {len(again)} of the images that would certify now (image {again[0]} is the "
            "first), and a promise made so fails far more often than asked: give other images, or let calibrate fit "
            f"groups on the fitting images ({VALIDITY_DOC})"
        )


def warn_duplicates(image_hashes: Array, unit_of: Array, harm: str = " and the promise does not hold") -> None:
    """Warn where images of different units have one truth, as several noisy views of one image do, or a patient who
    has two names: these units are not independent.
    """
    hashed = np.flatnonzero(image_hashes)  # images of one value are not compared
    kept = np.unique(np.stack([image_hashes[hashed], unit_of[hashed].astype(np.uint64)]), axis=1)[0]
    doubles = len(kept) - len(np.unique(kept))
    if doubles:
        warnings.warn(
            f"{doubles} of {len(image_hashes)} images have the truth of another one, of another unit. Views of one "
            f"image are not independent{harm}: give them one unit (units=). Other repeats stay in ({VALIDITY_DOC})",
            stacklevel=4,
        )
