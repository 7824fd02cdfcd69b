"""Path, bound and data to a `Calibration`.

The calibration images are split at random, never within a unit: the fitting images shape groups and path, the
certifying images alone decide how far to go along it. `calibrate` is the front door: it checks, turns names into
functions, and calls `rcps`, `krcps` or `frontier` for the path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from . import groups as rooms
from .arrays import (
    Array,
    Band,
    as_array,
    check_choice,
    check_count,
    check_generator,
    check_limits,
    check_open_unit,
    check_same_shape,
    library_of,
    to_numpy,
)
from .calibration import Calibration, Record
from .certify import Task, certify_l01, certify_loss, loss_table
from .choice import frontier_of, shortest
from .confidence import bound_named
from .families import FAMILIES, check_nested, family_named
from .groups import Grouping
from .losses import Loss, l01
from .pairs import Pairs, check_features
from .paths import GAMMAS, Path, line_path, scalar_path, solve_program, stratified_pixels
from .version import VERSION

METHODS = ("frontier", "krcps", "rcps")
_CURVE = 64  # points of the path kept for the report
_USER_KNOTS = 256  # knots at which a user's loss may be evaluated


def calibrate(
    truth: Any,
    band: Band,
    *,
    risk_level: float,
    failure_prob: float = 0.1,
    method: str = "frontier",
    confidence: Any = "betting",
    groups: Any = None,
    features: Any = None,
    family: Any = None,
    loss: Loss = l01,
    k: int | None = None,
    n_opt: int | None = None,
    d_opt: int | None = None,
    direction: Any = None,
    gammas: Sequence[float] = GAMMAS,
    units: Any = None,
    limits: Any = (0.0, 1.0),
    seed: Any = 0,
) -> Calibration:
    """Widenings such that, with probability 1 - failure_prob, the mean loss of a future image is at most risk_level.

    truth          true images, (n, *pixels), within the limits
    band           their band, of the same shape
    method         "frontier" (shortest), "krcps" (the paper's), "rcps" (one widening for all pixels)
    confidence     name of a function of `pixelbounds.confidence`, or a function (losses, failure_prob) -> bound
    groups         frontier: "learned", "band", by default the shorter of the two on the fitting images ("learned"
                   where features or k are given); krcps: "loss" (default), "squared" or "otsu"; both also take a
                   partition of the pixels (*pixels), a segmentation (n, *pixels) of whole numbers, a Grouping, or a
                   function that fits one, such as partial(pixelbounds.groups.fit_band_groups, width=8, level=4)
    features       further images known at test time: (n, *pixels), (n, f, *pixels), or a list; for "learned"
    family         "additive", "scaled", "multiplicative" or a Family; by default what the band calls for
    loss           function (truth, interval) -> (n,) in [0, 1], nonincreasing as intervals widen
    k              number of groups: of "loss" and "otsu", or of bins per side of "learned"
    n_opt          fitting images (units, where given); the rest certify
    d_opt          krcps: pixels per image in (P_K), stratified by group; by default all
    direction      krcps: direction of the line, one value of at least 0 per group; by default ones
    units          unit (patient, scan) of each image, (n,): losses are averaged per unit before they are bounded
    limits         least and greatest possible value, to which intervals are clipped; None for none
    seed           of the split and of all fitting; the same seed gives the same bits

    >>> rng = np.random.default_rng(0)
    >>> centre = rng.uniform(0.3, 0.7, (200, 8, 8))
    >>> truth = centre + 0.05 * rng.standard_normal(centre.shape)
    >>> cal = calibrate(truth, Band(centre - 0.05, centre + 0.05), risk_level=0.1, groups="band")
    >>> cal.risk < cal.bound < 0.1
    True
    """
    risk_level = check_open_unit(risk_level, "risk_level")
    failure_prob = check_open_unit(failure_prob, "failure_prob")
    check_choice(method, METHODS, "method")
    bound = bound_named(confidence)
    if not callable(loss):
        raise TypeError(f"loss is {loss!r}; it must be a function (truth, interval) -> losses (n,)")
    rng = check_generator(seed)
    pairs = _pairs(truth, band, family, limits, features, groups)
    unit_of = _units(units, len(pairs))
    if method == "rcps" and (groups is not None or k is not None):
        raise ValueError("rcps has one group only: leave groups and k out, or use method='krcps' or 'frontier'")
    if features is not None and (
        method != "frontier" or not (groups is None or (isinstance(groups, str) and groups == "learned"))
    ):
        raise ValueError(
            "features are for learned groups: use method='frontier' with groups='learned', or leave them out"
        )
    if d_opt is not None and method != "krcps":
        raise ValueError(f"d_opt belongs to method='krcps', not to {method!r}; leave it out")
    if direction is not None and method != "krcps":
        raise ValueError(f"direction belongs to method='krcps', not to {method!r}; leave it out")
    fitting, order = _split(unit_of, _fitting_units(n_opt, method, int(unit_of.max()) + 1), rng)
    images = np.flatnonzero(fitting)
    _check_family(pairs, images if len(images) else np.arange(min(8, len(pairs))))
    if method == "rcps":
        grouping, path = rcps(pairs)
    else:
        fit, every = pairs.take(images), np.arange(len(images))  # read once; there are few
        if method == "krcps":
            line = {"d_opt": d_opt, "direction": direction, "gammas": gammas}
            grouping, path = krcps(fit, every, rng, risk_level, groups=groups, k=k, **line)
        else:
            grouping, path = frontier(fit, every, rng, risk_level, groups=groups, k=k)
    task = Task(pairs, ~fitting, unit_of, order, bound, risk_level, failure_prob)
    if loss is l01:
        table = loss_table(pairs, grouping, path)
        certificate = certify_l01(task, grouping, path, table)
        curve, chosen = _curve(task, path, table, certificate.knot)
    else:
        every = np.unique(np.linspace(0, len(path) - 1, min(_USER_KNOTS, len(path))).round().astype(int))
        path = Path(np.ascontiguousarray(path.knots[:, every]))
        certificate = certify_loss(task, grouping, path, loss)
        curve, chosen = np.empty((0, 3)), 0
    return Calibration(
        method, getattr(bound, "__name__", "custom"), pairs.family, getattr(loss, "__name__", "custom"), risk_level,
        failure_prob, pairs.limits, grouping, path.at(certificate.knot, certificate.part),
        float(certificate.losses.mean()), float(bound(certificate.losses, failure_prob)), curve, chosen,
        Record(
            images=len(pairs), fitting=int(fitting.sum()), certifying=task.size,
            units=0 if units is None else task.size,
            pixels=pairs.band.pixels, source=band.source, seed="generator" if seed is rng else str(seed),
            digest=hashlib.sha256(b"".join(pairs.digests())).hexdigest(), version=VERSION,
        ),
    )  # fmt: skip


# ---------------------------------------------------------------- the three methods: groups and path


def rcps(pairs: Pairs) -> tuple[Grouping, Path]:
    """One widening for all pixels (Algorithm 2); nothing is fitted."""
    return rooms.Single(), scalar_path(pairs)


def krcps(
    pairs: Pairs,
    images: Array,
    rng: np.random.Generator,
    risk_level: float,
    *,
    groups: Any = None,
    k: int | None = None,
    d_opt: int | None = None,
    direction: Any = None,
    gammas: Sequence[float] = GAMMAS,
) -> tuple[Grouping, Path]:
    """The line through the solution of (P_K) (Algorithm 1)."""
    grouping = _grouping("loss" if groups is None else groups, pairs, images, rng, k)
    if grouping.sided:
        raise ValueError(
            f"krcps widens both ends of a pixel alike, but groups of kind {grouping.kind!r} treat them apart; "
            "use groups='loss', 'otsu' or a partition, or method='frontier'"
        )
    values = _numbers(gammas)
    if values is None or values.ndim > 1 or not values.size or not ((values >= 0) & (values < 1)).all():
        raise ValueError(f"gammas is {gammas!r}; give at least one value in [0, 1)")
    pixels = None
    if d_opt is not None:
        pixels = stratified_pixels(grouping, pairs.band.pixels, check_count(d_opt, "d_opt"), rng)
    eta = np.ones(grouping.count) if direction is None else _numbers(direction)
    if (
        eta is None
        or eta.shape != (grouping.count,)
        or not (eta >= 0).all()
        or not np.isfinite(eta).all()
        or not eta.any()
    ):
        raise ValueError(
            f"direction is {direction!r}; it must hold {grouping.count} finite values of at least 0, not all of them 0"
        )
    offset = solve_program(pairs, images, grouping, risk_level, np.atleast_1d(values).tolist(), pixels).widening
    return grouping, line_path(pairs, images, grouping, offset, eta, risk_level)


def frontier(
    pairs: Pairs,
    images: Array,
    rng: np.random.Generator,
    risk_level: float,
    *,
    groups: Any = None,
    k: int | None = None,
) -> tuple[Grouping, Path]:
    """The path of shortest intervals on the fitting images."""
    if groups is None and k is None and pairs.features is None:
        named = [partial(_fit_named, "band"), partial(_fit_named, "learned")]
        grouping = shortest(pairs, images, rng, risk_level, named)(pairs, images, rng)
    else:
        grouping = _grouping("learned" if groups is None else groups, pairs, images, rng, k)
    return grouping, frontier_of(pairs, images, grouping, risk_level)


def _fit_named(groups: str, pairs: Pairs, images: Array, rng: np.random.Generator) -> Grouping:
    return _grouping(groups, pairs, images, rng, None)


# ---------------------------------------------------------------- at the door


def _pairs(truth: Any, band: Any, family: Any, limits: Any, features: Any, groups: Any) -> Pairs:
    if not isinstance(band, Band):
        raise TypeError(f"band is a {type(band).__name__}; wrap your bounds as pixelbounds.Band(lower, upper)")
    truth = as_array(truth, "truth")
    check_same_shape(band=band.lower, truth=truth)
    segmentation = None
    if library_of(groups) and tuple(groups.shape) == band.shape:
        segmentation = to_numpy(groups)
        if not np.issubdtype(segmentation.dtype, np.integer):
            raise ValueError(f"groups have dtype {segmentation.dtype}; a segmentation needs whole numbers")
    return Pairs(
        truth, band, family_named(family, band), check_limits(limits), check_features(features, band), segmentation
    )


def _units(units: Any, n: int) -> Array:
    """Number of each image's unit, (n,); without units every image is its own."""
    if units is None:
        return np.arange(n)
    try:
        labels = to_numpy(units) if library_of(units) else np.asarray(units)
    except ValueError as error:
        raise ValueError(f"units do not form an array; give the unit (patient, scan) of each of {n} images") from error
    if labels.shape != (n,):
        raise ValueError(f"units have shape {labels.shape}; give the unit (patient, scan) of each of the {n} images")
    missing = sum(label is None or label != label for label in labels.tolist())  # NaN differs from itself
    if missing:
        raise ValueError(f"units of {missing} images are missing; give the unit (patient, scan) of each")
    return np.unique(labels.astype(str), return_inverse=True)[1]


def _numbers(values: Any) -> Array | None:
    """Real numbers as float64, None where they are none."""
    try:
        out = np.asarray(values)
        return np.asarray(out, np.float64) if out.dtype.kind in "fiu" else None
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None


def _fitting_units(n_opt: int | None, method: str, units: int) -> int:
    """How many units fit: none for rcps, a quarter but at most 128 for krcps, an eighth but at most 96 for frontier."""
    if n_opt is None:
        return {"rcps": 0, "krcps": min(128, -(-units // 4)), "frontier": min(96, -(-units // 8))}[method]
    n_opt = check_count(n_opt, "n_opt", least=0 if method == "rcps" else 1)
    if n_opt >= units:
        raise ValueError(
            f"n_opt is {n_opt}, but there are only {units} images (units); some must be left to certify: "
            "lower n_opt or give more images"
        )
    return n_opt


def _split(unit_of: Array, fit: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Which images fit (bool (n,)), and the certifying units in random order: bets need an order that tells nothing."""
    shuffled = rng.permutation(int(unit_of.max()) + 1)
    if fit >= len(shuffled):
        raise ValueError(f"{len(shuffled)} image (unit) cannot both fit and certify; give more images")
    return np.isin(unit_of, shuffled[:fit]), shuffled[fit:]


def _check_family(pairs: Pairs, images: Array) -> None:
    """A user's own family is tried on the data; ours are known to be nested."""
    if pairs.family.name in FAMILIES:
        if FAMILIES[pairs.family.name] is not pairs.family:
            raise ValueError(f"your family is called {pairs.family.name!r}, a name that is taken; give it another")
        return
    truth, block = pairs.gather(images)
    span = pairs.limits[1] - pairs.limits[0]
    check_nested(pairs.family, truth, block.band, span if np.isfinite(span) else float(np.ptp(truth)) or 1.0)


def _grouping(groups: Any, pairs: Pairs, images: Array, rng: np.random.Generator, k: int | None) -> Grouping:
    """The grouping that a name, an array or a Grouping stands for, fitted on the fitting images."""
    if isinstance(groups, str):
        check_choice(groups, ("learned", "band", "loss", "squared", "otsu"), "groups")
        if groups == "learned":
            return rooms.fit_learned_groups(pairs, images, rng, bins_per_side=32 if k is None else check_count(k, "k"))
        if groups == "band":
            return rooms.fit_band_groups(pairs, images, width=12 if k is None else check_count(k, "k", most=4096))
        if groups in ("loss", "squared"):
            return rooms.by_loss(pairs, images, 8 if k is None else k, "l01" if groups == "loss" else "squared")
        return rooms.by_otsu(pairs, images, 4 if k is None else check_count(k, "k"))
    if k is not None:
        raise ValueError("k sets the number of groups of a named grouping; leave it out where you give the groups")
    if callable(groups):
        groups = groups(pairs, images)
        if not isinstance(groups, Grouping):
            raise TypeError(f"groups is a function that returned a {type(groups).__name__}; it must return a Grouping")
    if isinstance(groups, Grouping):
        groups.check(pairs.gather(images)[1])
        return groups
    if pairs.segmentation is not None:
        return rooms.segmentation(pairs, images)
    if not library_of(groups):
        raise TypeError(
            f"groups is {groups!r}; give a name (learned, band, loss, squared, otsu), a partition (*pixels), a "
            "segmentation (n, *pixels), a Grouping, or a function that fits one"
        )
    return rooms.partition(to_numpy(groups), pairs.band.pixels)


def _curve(task: Task, path: Path, table: Array, certified: int) -> tuple[Array, int]:
    """Mean widening, risk and bound at some knots, the certified one among them, for the report."""
    risks = task.per_unit(table / task.pairs.image_size).mean(axis=0)
    wanted = np.searchsorted(-risks, -np.linspace(min(1.0, 4 * task.risk_level), 0, _CURVE))
    kept = np.unique(np.append(np.minimum(wanted, len(path) - 1), certified))
    losses = task.per_unit(table[:, kept] / task.pairs.image_size)
    bounds = [task.bound(column, task.failure_prob) for column in losses.T]
    rows = np.stack([path.knots[:, kept].mean(axis=0), losses.mean(axis=0), np.array(bounds)], axis=1)
    return rows, int(np.searchsorted(kept, certified))
