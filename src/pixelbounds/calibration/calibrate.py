"""Path, bound and data to a `Calibration`.

The calibration images are split at random, never within a unit (an image, or all images of a patient or scan): the
fitting images shape groups and path, the certifying images alone decide how far to go along it. `calibrate` is the
front door: it checks, turns names into functions, splits, and calls a procedure for the path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ..images.checks import (
    check_choice,
    check_count,
    check_generator,
    check_open_unit,
    check_unit_name,
    is_name,
)
from ..images.ends import Band
from ..images.foreign import AXES, check_axes
from ..images.library import (
    Array,
)
from ..images.measure import Measure
from ..storage.version import VERSION
from .certify import Losses, RiskTest, certify_l01, certify_loss, curve_of
from .choose_band import choose_band
from .confidence import BOUNDS, ConfidenceBound, bound_named, greatest_loss
from .data import CalibrationData, check_family, check_scales, local_data_of, warn_duplicates
from .groups.contract import Grouping
from .groups.positions import Single
from .image_hashes import digest_of, image_hashes, is_known_image
from .joint_test import OWN_POINTS, CertifyingUnits, certify_jointly, images_having, needs_of
from .loss_table import Path, tabulated, tabulated_regions
from .losses import Loss, l01
from .paths.line import GAMMAS
from .paths.weighted_frontier import objective_of
from .procedures import METHODS, frontier, groups_for, krcps, rcps
from .promises import CertifiedPromise, Promise, RiskTarget, check_promises, path_level, risk_targets_of
from .reference import reference_of
from .result import WEIGHTINGS, Calibration, Record
from .sentence import ANYTIME, GIVEN, VALIDITY_DOC
from .split import Need, Split, fitting_units, least_units, most_in_a_unit, unit_numbers

FitPath = Callable[[Any, Array], tuple[Grouping, Path]]  # images, the numbers of those that fit -> groups and path
_MOST_BANDS = 32  # candidates
_TAKEN = {**BOUNDS, ANYTIME: None}  # names of bounds that are ours


def calibrate(
    truth: Any,
    band: Band | Mapping[str, Band],
    *,
    risk_level: float | None = None,
    promises: Sequence[Promise] | None = None,
    failure_prob: float = 0.1,
    method: str = "frontier",
    confidence: Any = "betting",
    groups: Any = None,
    features: Any = None,
    labels: Any = None,
    family: Any = None,
    loss: Loss = l01,
    k: int | None = None,
    n_opt: int | None = None,
    d_opt: int | None = None,
    direction: Any = None,
    gammas: Sequence[float] = GAMMAS,
    units: Any = None,
    unit_name: str = "unit",
    weighting: str = "units",
    max_images: int | None = None,
    limits: Any = (0.0, 1.0),
    measure: Measure | None = None,
    seed: Any = 0,
) -> Calibration:
    """Widenings such that, with probability 1 - failure_prob, the mean loss of a future image is at most risk_level.

    That holds for one calibration. Choosing among several on the same images (seeds, methods, bounds, looks at a
    growing set) voids it: docs/what_voids_the_promise.md says what is valid. `AnytimeCalibration` may be looked at
    after every image.

    truth          true images, (n, *pixels), within the limits; 8-bit ones span them, 0 the least and 255 the greatest
    band           their band, of the same shape; images of different sizes are lists, of truths and of bands, and
                   each counts the same; of several bands, {"0.05": band, "0.1": other}, the one that is shortest on
                   the fitting images is taken
    risk_level     the share of all pixels that may be missed: the short form of promises=[pb.share(risk_level)]
    promises       what must hold, all of it together, made by `pb.share`, `pb.tail` and `pb.loss`: about all pixels,
                   regions of them or subgroups of images; several need no correction (docs/guarantee.md)
    method         "frontier" (shortest; like rcps where units are hardly enough to certify), "krcps" (the paper's),
                   "rcps" (one widening for all pixels)
    confidence     name of a function of `pixelbounds.confidence`, or a function (losses, failure_prob) -> bound
    groups         frontier: "learned", "band", by default the shorter of the two on the fitting images ("learned"
                   where k is given; with features the shorter of two kinds of it); krcps: "loss" (default), "squared"
                   or "otsu"; both also take a partition of the pixels (*pixels), a Grouping, or a function that fits
                   one, such as
                   partial(pixelbounds.groups.fit_band_groups, width=8, level=4)
    features       further images known at test time: (n, *pixels), (n, f, *pixels), or a list; for "learned"
    labels         whole numbers (n, *pixels), or a list of them: a segmentation of the reconstruction, known at test
                   time too and given to `apply`; groups then lie within labels. It may be wrong, and must be made for
                   new images as it was for these; a region that a promise is about is another array
    family         "additive", "scaled", "multiplicative" or a Family; by default what the band calls for
    loss           function (truth, interval) -> (n,) in [0, 1], nonincreasing as intervals widen
    k              number of groups: of "loss" and "otsu", or of bins per side of "learned"
    n_opt          fitting images (units, where given); the rest certify
    d_opt          krcps: pixels per image in (P_K), stratified by group; by default all
    direction      krcps: direction of the line, one value of at least 0 per group; by default ones
    units          unit (patient, scan) of each image, (n,): losses are averaged per unit before they are bounded, and
                   the promise is about a future unit, averaged over its images
    unit_name      what a unit is, in the singular: "patient", "scan"
    counting       "units": each unit counts the same; "images": each image does, a unit of more than `max_images`
                   as one of so many (unless told, the most that a fitting unit has)
    limits         least and greatest possible value, to which intervals are clipped; None for none
    measure        what the numbers stand for, such as Measure.of_window((400, 40)); kept in the file
    seed           of the split and of all fitting; the same seed gives the same bits

    >>> rng = np.random.default_rng(0)
    >>> centre = rng.uniform(0.3, 0.7, (200, 8, 8))
    >>> truth = centre + 0.05 * rng.standard_normal(centre.shape)
    >>> cal = calibrate(truth, Band(centre - 0.05, centre + 0.05), risk_level=0.1, groups="band")
    >>> cal.risk < cal.risk_level
    True
    >>> from pixelbounds import share
    >>> bright = share(0.15, within=centre > 0.6, name="bright pixels")
    >>> cal = calibrate(truth, Band(centre - 0.05, centre + 0.05), promises=[share(0.1), bright], groups="band")
    >>> [(promise.name, promise.risk < promise.at_most) for promise in cal.promises]
    [('all pixels', True), ('bright pixels', True)]
    """
    asked_for = what_is_promised(risk_level, promises, loss)
    failure_prob = check_open_unit(failure_prob, "failure_prob")
    check_choice(method, METHODS, "method")
    bound = bound_named(confidence)
    if not callable(loss):
        raise TypeError(f"loss is {loss!r}; it must be a function (truth, interval) -> losses (n,)")
    rng = check_generator(seed)
    offered = {
        name: local_data_of(truth, one, family, limits, features, labels) for name, one in _by_name(band).items()
    }
    pairs = next(iter(offered.values()))
    unit_of = unit_numbers(units, len(pairs))
    check_unit_name(unit_name)
    check_choice(weighting, WEIGHTINGS, "weighting")
    if weighting == "images" and units is None:
        weighting = "units"  # every image is its own: the two are one
    if max_images is not None and weighting != "images":
        raise ValueError(f"max_images is {max_images!r}; it belongs to weighting='images' with units: leave it out")
    if max_images is not None:
        check_count(max_images, "max_images")
    if measure is not None and not isinstance(measure, Measure):
        raise TypeError(f"measure is {measure!r}; give a pixelbounds.Measure, or leave it out")
    targets: tuple[RiskTarget, ...] = ()
    needs: list[Need] = []
    if isinstance(asked_for, float):
        risk_level, least = asked_for, least_units(asked_for, failure_prob, bound)
    else:
        for promise in asked_for:
            check_axes(pairs.band.axes, promise.within, f"within of {promise.name!r}")
        targets, regions = risk_targets_of(asked_for, pairs.band.lower, weighting, units is not None, max_images or 0)
        offered = {name: replace(one, regions=regions) for name, one in offered.items()}
        pairs = next(iter(offered.values()))
        risk_level = path_level(targets)
        fits_any = method != "rcps" or bool(n_opt)  # where none fit, certifying will tell
        inside = images_having(pairs) if fits_any and regions else None
        needs = needs_of(targets, inside, unit_of, bound, failure_prob)
        least = max(need.least for need in needs)
    if method == "rcps" and not groups is k is labels is None:
        raise ValueError("rcps has one group only: leave groups, k and labels out, or use method='krcps' or 'frontier'")
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
    values = float(pairs.sizes.sum()) / count
    fits = fitting_units(n_opt, method, count, least, asked or labels is not None, values)
    split = Split.draw(unit_of, fits, rng, needs if n_opt is None else ())
    if method == "frontier" and not asked:
        fits = count - len(split.order)
        groups = groups_for(fits, fits * values)
    objective = objective_of(targets, split, bound, failure_prob) if targets else None
    chosen = choose_band(offered, split, rng, risk_level, objective, method) if len(offered) > 1 else None
    pairs = pairs if chosen is None else chosen.pairs
    fit_path: dict[str, FitPath] = {
        "rcps": lambda fit, every: rcps(fit),
        "krcps": partial(
            krcps, rng=rng, risk_level=risk_level, groups=groups, k=k, d_opt=d_opt, direction=direction, gammas=gammas
        ),
        "frontier": partial(
            frontier,
            rng=rng,
            risk_level=risk_level,
            groups=groups,
            k=k,
            unit_of=unit_of[split.fitting],
            objective=objective,
            certified=greatest_loss(len(split.order), risk_level, failure_prob),
        ),
    }
    check_family(pairs, np.flatnonzero(split.fitting) if split.fitting.any() else np.arange(min(8, len(pairs))))
    check_scales(pairs, np.flatnonzero(split.fitting) if split.fitting.any() else np.arange(len(pairs)))
    found = calibrate_archive(
        pairs, split, fit_path[method], bound, risk_level=risk_level, failure_prob=failure_prob, method=method,
        loss=loss, units=unit_name if units is not None else None, seed="generator" if seed is rng else str(seed),
        max_images=most_in_a_unit(split, max_images) if weighting == "images" else 0, targets=targets,
    )  # fmt: skip
    settings = dict(found.record.settings)
    if chosen is not None:
        settings |= {"band": chosen.name, "bands": chosen.lengths}
    made_here = groups is None or isinstance(groups, str | Single) or callable(groups)
    if not made_here and not len(getattr(groups, "fitted_on", ())):
        settings[GIVEN] = True
    if pairs.band.axes is not None:
        settings[AXES] = [str(name) for name in pairs.band.axes.names[1:]]
    return replace(found, record=replace(found.record, settings=settings), measure=measure)


def _by_name(band: Any) -> dict[str, Any]:
    """Candidates for the band by their names; a single one has none."""
    if not isinstance(band, Mapping):
        return {"": band}
    if not 1 <= len(band) <= _MOST_BANDS:
        raise ValueError(f"band holds {len(band)} candidates; give 1 to {_MOST_BANDS}, each by a name")
    return {str(name): one for name, one in band.items()}


def what_is_promised(risk_level: float | None, promises: Any, loss: Loss = l01) -> float | list[Promise]:
    """The level of one share of all pixels, or promises where they say more than that."""
    if (risk_level is None) == (promises is None):
        raise ValueError(
            "give either risk_level, the share of all pixels that may be missed, such as 0.1, or promises, such as "
            "[pixelbounds.share(0.1)]"
        )
    if risk_level is not None:
        return check_open_unit(risk_level, "risk_level")
    asked = check_promises(promises)
    if loss is not l01:
        raise ValueError("loss= belongs to risk_level=; a loss among promises is pixelbounds.loss(at_most, function)")
    return float(asked[0].at_most) if len(asked) == 1 and asked[0].plain else asked


def calibrate_archive(
    pairs: CalibrationData,
    split: Split,
    fit_path: FitPath,
    bound: ConfidenceBound,
    *,
    risk_level: float,
    failure_prob: float,
    method: str,
    loss: Loss = l01,
    units: str | None,
    seed: str,
    max_images: int = 0,
    targets: Sequence[RiskTarget] = (),
) -> Calibration:
    """Fit groups and path on the fitting images, certify on the others; images may lie elsewhere.

    `units` is what a unit is called, None where images are independent. With `aims`, promises that say more than the
    risk level, all of them are certified together.
    """
    images = np.flatnonzero(split.fitting)
    fit = pairs.take(images) if len(images) else pairs  # read once; there are few
    grouping, path = fit_path(fit, np.arange(len(images)))
    risk_test = RiskTest(pairs, ~split.fitting, split.unit_of, split.order, bound, risk_level, failure_prob, max_images)
    kept: tuple[CertifiedPromise, ...] = ()
    if targets:
        units_certifying = CertifyingUnits(~split.fitting, split.unit_of, split.order, bound, failure_prob)
        with tabulated_regions(pairs, grouping, path) as (table, sizes, total, own):
            knot, kept, curve, chosen = certify_jointly(
                targets, pairs, grouping, path, table, sizes, units_certifying, fit if len(images) else None
            )
        widening, risk, risk_level = path.at(knot), kept[0].risk, kept[0].at_most
    elif loss is l01:
        with tabulated(pairs, grouping, path) as (table, total, own):
            certificate = certify_l01(risk_test, grouping, path, table)
            curve, chosen = curve_of(Losses(risk_test, table, len(path)), path, certificate.knot)
    else:
        total, own = pairs.aggregate(image_hashes)
        every = np.unique(np.linspace(0, len(path) - 1, min(OWN_POINTS, len(path))).round().astype(int))
        path = Path(np.ascontiguousarray(path.knots[:, every]))
        certificate = certify_loss(risk_test, grouping, path, loss)
        curve, chosen = np.empty((0, 3)), 0
    if not targets:
        widening, risk = path.at(certificate.knot, certificate.part), risk_test.risk_of(certificate.losses)
    _check_not_certifying(grouping, own, ~split.fitting)
    warn_duplicates(own, split.unit_of)
    return Calibration(
        method, name_of(bound, _TAKEN), pairs.family, "promises" if targets else name_of(loss, {"l01": l01}), risk_level,  # noqa: E501
        failure_prob, pairs.limits, grouping, widening, risk, curve, chosen,
        Record(
            images=len(pairs), fitting=len(images), certifying=risk_test.size, units=0 if units is None else risk_test.size,  # noqa: E501
            pixels=pairs.pixels, source=pairs.source, seed=seed, digest=digest_of(total), version=VERSION,
            unit_name=units or "unit", weighting="images" if max_images else "units", max_images=max_images,
            image_hashes=own,
        ),
        certified=kept, reference=reference_of(pairs, split, fit, grouping, path, risk_level),
    )  # fmt: skip


def name_of(function: Any, ours: Mapping[str, Any]) -> str:
    """The name of a bound or loss; "custom" for one of the user's without a name, or with that of one of ours."""
    name = getattr(function, "__name__", "custom")
    return name if is_name(name) and ours.get(name, function) is function else "custom"


def _check_not_certifying(grouping: Grouping, image_hashes: Array, certifying: Array) -> None:
    """Groups that were shaped by images which now certify make the certificate worthless."""
    if not len(image_hashes) or not len(grouping.fitted_on):
        return
    if np.array_equal(np.sort(grouping.fitted_on), np.sort(image_hashes[~certifying])):
        return  # they were fitted here and now, on the fitting images; doubles of these are told elsewhere
    again = np.flatnonzero(is_known_image(image_hashes, grouping.fitted_on) & certifying)
    if len(again):
        raise ValueError(
            f"the groups were fitted on {len(again)} of the images that would certify now (image {again[0]} is the "
            "first), and a promise made so fails far more often than asked: give other images, or let calibrate fit "
            f"groups on the fitting images ({VALIDITY_DOC})"
        )
