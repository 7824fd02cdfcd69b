"""Path, bound and data to a `Calibration`.

The calibration images are split at random, never within a unit: the fitting images shape groups and path, the
certifying images alone decide how far to go along it. `calibrate` is the front door: it checks, turns names into
functions, and calls `rcps`, `krcps` or `frontier` for the path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..images import (
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
    one_band,
    to_numpy,
)
from ..images.ragged import Ragged
from ..storage.version import VERSION
from . import groups as rooms
from .certify import Task, certify_l01, certify_loss, curve_of, tabulated
from .choice import Fit, frontier_of, shortest
from .confidence import ConfidenceBound, bound_named
from .families import FAMILIES, check_nested, family_named
from .groups import Grouping
from .groups.positions import NO_GRID
from .losses import Loss, l01
from .pairs import Archive, Pairs, check_features, digest_of, fingerprints
from .paths import GAMMAS, Path, line_path, scalar_path, solve_program, stratified_pixels
from .result import Calibration, Record
from .split import Split, fitting_units, least_units, split_units, unit_numbers

FitPath = Callable[[Any, Array], tuple[Grouping, Path]]  # images, the numbers of those that fit -> groups and path
METHODS = ("frontier", "krcps", "rcps")
_FEW = 8  # fitting units
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
    band           their band, of the same shape; images of different sizes are lists, of truths and of bands, and
                   each counts the same
    method         "frontier" (shortest; like rcps where units are hardly enough to certify), "krcps" (the paper's),
                   "rcps" (one widening for all pixels)
    confidence     name of a function of `pixelbounds.confidence`, or a function (losses, failure_prob) -> bound
    groups         frontier: "learned", "band", by default the shorter of the two on the fitting images ("learned"
                   where k is given; with features the shorter of two kinds of it); krcps: "loss" (default), "squared"
                   or "otsu"; both also take a partition of the pixels (*pixels), a segmentation (n, *pixels) of whole
                   numbers, a Grouping, or a function that fits one, such as
                   partial(pixelbounds.groups.fit_band_groups, width=8, level=4)
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
    pairs = pairs_of(truth, band, family, limits, features, groups)
    unit_of = unit_numbers(units, len(pairs))
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
    count = int(unit_of.max()) + 1
    asked = groups is not None or k is not None or features is not None
    fits = fitting_units(n_opt, method, count, least_units(risk_level, failure_prob, bound), asked)
    if method == "frontier" and not asked:
        groups = groups_for(fits)
    split = split_units(unit_of, fits, rng)
    fit_path: dict[str, FitPath] = {
        "rcps": lambda fit, every: rcps(fit),
        "krcps": partial(
            krcps, rng=rng, risk_level=risk_level, groups=groups, k=k, d_opt=d_opt, direction=direction, gammas=gammas
        ),
        "frontier": partial(
            frontier, rng=rng, risk_level=risk_level, groups=groups, k=k, unit_of=unit_of[split.fitting]
        ),
    }
    _check_family(pairs, np.flatnonzero(split.fitting) if split.fitting.any() else np.arange(min(8, len(pairs))))
    return calibrate_archive(
        pairs, split, fit_path[method], bound, risk_level=risk_level, failure_prob=failure_prob, method=method,
        loss=loss, units=units is not None, seed="generator" if seed is rng else str(seed),
    )  # fmt: skip


def calibrate_archive(
    pairs: Archive,
    split: Split,
    fit_path: FitPath,
    bound: ConfidenceBound,
    *,
    risk_level: float,
    failure_prob: float,
    method: str,
    loss: Loss = l01,
    units: bool,
    seed: str,
) -> Calibration:
    """Fit groups and path on the fitting images, certify on the others; images may lie elsewhere."""
    images = np.flatnonzero(split.fitting)
    fit = pairs.take(images) if len(images) else pairs  # read once; there are few
    grouping, path = fit_path(fit, np.arange(len(images)))
    task = Task(pairs, ~split.fitting, split.unit_of, split.order, bound, risk_level, failure_prob)
    if loss is l01:
        with tabulated(pairs, grouping, path) as (table, prints):
            certificate = certify_l01(task, grouping, path, table)
            curve, chosen = curve_of(task, path, table, certificate.knot)
    else:
        (prints,) = pairs.ask(fingerprints)
        every = np.unique(np.linspace(0, len(path) - 1, min(_USER_KNOTS, len(path))).round().astype(int))
        path = Path(np.ascontiguousarray(path.knots[:, every]))
        certificate = certify_loss(task, grouping, path, loss)
        curve, chosen = np.empty((0, 3)), 0
    return Calibration(
        method, getattr(bound, "__name__", "custom"), pairs.family, getattr(loss, "__name__", "custom"), risk_level,
        failure_prob, pairs.limits, grouping, path.at(certificate.knot, certificate.part),
        float(certificate.losses.mean()), float(bound(certificate.losses, failure_prob)), curve, chosen,
        Record(
            images=len(pairs), fitting=len(images), certifying=task.size, units=task.size if units else 0,
            pixels=pairs.pixels, source=pairs.source, seed=seed, digest=digest_of(prints), version=VERSION,
        ),
    )  # fmt: skip


# ---------------------------------------------------------------- the three methods: groups and path


def rcps(pairs: Archive) -> tuple[Grouping, Path]:
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
    pairs: Any,
    images: Array,
    rng: np.random.Generator,
    risk_level: float,
    *,
    groups: Any = None,
    k: int | None = None,
    unit_of: Array | None = None,
) -> tuple[Grouping, Path]:
    """The path of shortest intervals on the fitting images, each its own unit unless told; one group where none fit."""
    if not len(images):
        return rcps(pairs)
    if groups is None and k is None:
        tried: list[Fit] = [partial(_fit_named, "band"), partial(_fit_named, "learned")]
        if pairs.features is not None:  # with much to learn from, the shortfall's tail can be told apart too
            tried = [partial(rooms.fit_learned_groups, quantile=q) for q in (0.75, 0.9)]
        own = images if unit_of is None else unit_of
        grouping = shortest(pairs, images, rng, risk_level, tried, own)(pairs, images, rng)
    else:
        grouping = _grouping("learned" if groups is None else groups, pairs, images, rng, k)
    return grouping, frontier_of(pairs, images, grouping, risk_level)


def _fit_named(groups: str, pairs: Pairs, images: Array, rng: np.random.Generator) -> Grouping:
    return _grouping(groups, pairs, images, rng, None)


# ---------------------------------------------------------------- at the door


def pairs_of(truth: Any, band: Any, family: Any, limits: Any, features: Any = None, groups: Any = None) -> Pairs:
    """Truth and band, checked, as pairs."""
    band, truth = one_band(band), as_array(truth, "truth")
    if isinstance(truth, Ragged) != isinstance(band.lower, Ragged):
        truth, band = _alike(truth), band.map(_alike, checked=True)
    check_same_shape(band=band.lower, truth=truth)
    segmentation = None
    if isinstance(band.lower, Ragged) and (library_of(groups) or isinstance(groups, list | tuple)):
        raise ValueError(f"groups are a map of pixels, {NO_GRID}")
    if library_of(groups) and tuple(groups.shape) == band.shape:
        segmentation = to_numpy(groups)
        if not np.issubdtype(segmentation.dtype, np.integer):
            raise ValueError(f"groups have dtype {segmentation.dtype}; a segmentation needs whole numbers")
    return Pairs(
        truth, band, family_named(family, band), check_limits(limits), check_features(features, band), segmentation
    )


def _alike(images: Any) -> Ragged:
    """Images of one size as a list of images."""
    return images if isinstance(images, Ragged) else Ragged(list(to_numpy(images)))


def _numbers(values: Any) -> Array | None:
    """Real numbers as float64, None where they are none."""
    try:
        out = np.asarray(values)
        return np.asarray(out, np.float64) if out.dtype.kind in "fiu" else None
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None


def groups_for(fitting: int) -> Any:
    """The frontier's default groups: a choice on the fitting images, but few and by width alone where units are few.

    So few cannot tell groups apart, and the path is followed far beyond them: what is certified is a small risk.
    """
    return None if fitting >= _FEW else partial(rooms.fit_band_groups, width=4 if fitting >= _FEW // 2 else 2, room=1)


def _check_family(pairs: Pairs, images: Array) -> None:
    """A user's own family is tried on the data; ours are known to be nested."""
    if pairs.family.name in FAMILIES:
        if FAMILIES[pairs.family.name] is not pairs.family:
            raise ValueError(f"your family is called {pairs.family.name!r}, a name that is taken; give it another")
        return
    span = pairs.limits[1] - pairs.limits[0]
    for some in np.split(images, len(images)) if isinstance(pairs.band.lower, Ragged) else [images]:
        truth, block = pairs.gather(some)
        check_nested(pairs.family, truth, block.band, span if np.isfinite(span) else float(np.ptp(truth)) or 1.0)


def _grouping(groups: Any, pairs: Pairs, images: Array, rng: np.random.Generator, k: int | None) -> Grouping:
    """The grouping that a name, an array or a Grouping stands for, fitted on the fitting images."""
    if isinstance(groups, str):
        check_choice(groups, ("learned", "band", "loss", "squared", "otsu"), "groups")
        if groups == "learned":
            return rooms.fit_learned_groups(pairs, images, rng, bins_per_side=16 if k is None else check_count(k, "k"))
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
        found = groups
        for _ in pairs.over_blocks(lambda truth, block: found.check(block), images):
            pass
        return found
    if pairs.segmentation is not None:
        return rooms.segmentation(pairs, images)
    if not library_of(groups):
        raise TypeError(
            f"groups is {groups!r}; give a name (learned, band, loss, squared, otsu), a partition (*pixels), a "
            "segmentation (n, *pixels), a Grouping, or a function that fits one"
        )
    return rooms.partition(to_numpy(groups), pairs.pixels)
