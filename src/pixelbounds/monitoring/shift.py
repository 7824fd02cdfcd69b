"""Recalibration for a known shift: images of one source, weighed, stand for draws of another.

Let w(image) be the likelihood ratio of the new source to that of the images at hand, known exactly and at most W. An
image that is kept with probability w / W, by a coin of its own, is then a draw of the new source: E[w f] / W over the
old source is E[f] / W over the new one, for every f. So the images that are kept calibrate as any others do, with every
promise, unit and method, and what is certified holds on the new source. About n / W of n images are kept: that is what
the shift costs. A bound on the weighted losses w L / W, the usual way, needs the same number and no fewer.

Weights that were estimated, or divided by their own sum, are not likelihood ratios: nothing is certified with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log, sqrt
from typing import Any

import numpy as np

from ..calibration.bounds import least_images
from ..calibration.calibrate import calibrate
from ..calibration.calibration import Calibration
from ..calibration.data import LocalData
from ..calibration.promises import Promise
from ..calibration.target import target_of
from ..calibration.text import SHIFT
from ..images.checks import NoGuarantee, check_generator, check_number, check_units
from ..images.ends import Band, one_band
from ..images.foreign import as_plain_array
from ..images.library import Array, differ_in_size, library_of, to_numpy
from ..images.regions import region_array

_FALSE_REFUSAL = 1e-6  # of weights that are likelihood ratios, for their mean


def recalibrate(
    truth: Any,
    band: Band,
    *,
    weights: Any,
    most_weight: float,
    risk_level: float | None = None,
    promises: Sequence[Promise] | None = None,
    failure_prob: float = 0.1,
    features: Any = None,
    labels: Any = None,
    family: Any = None,
    units: Any = None,
    limits: Any = (0.0, 1.0),
    seed: Any = 0,
    **choices: Any,
) -> Calibration:
    """Calibrate for a shifted source, on images of the old one: as `pixelbounds.calibrate`, on images kept by weight.

    weights        likelihood ratio of the new source to the old one at each image, (n,), known and not estimated from
                   these images; the same for all images of a unit
    most_weight    a bound on the weights of all images of the source, known beforehand
    seed           of the choice, too: choosing among several voids the promise

    >>> rng = np.random.default_rng(0)
    >>> hard = rng.random((800, 1, 1)) < 0.2  # in the new hospital half of the images are hard
    >>> centre = rng.uniform(0.3, 0.7, (800, 8, 8))
    >>> truth = centre + np.where(hard, 0.1, 0.05) * rng.standard_normal(centre.shape)
    >>> band = Band(np.clip(centre - 0.05, 0, 1), np.clip(centre + 0.05, 0, 1))
    >>> weights = np.where(hard[:, 0, 0], 0.5 / 0.2, 0.5 / 0.8)
    >>> cal = recalibrate(np.clip(truth, 0, 1), band, weights=weights, most_weight=2.5, risk_level=0.1)
    >>> "shifted source" in cal.guarantee, 250 < cal.record.images < 400
    (True, True)
    """
    rng = check_generator(seed)
    pairs = LocalData(truth, one_band(band).with_family(family), None, labels, features, limits)
    ratios, most = _check_weights(weights, most_weight, len(pairs))
    names = check_units(units, len(pairs))
    unit_of = np.unique(names, return_inverse=True)[1]
    _check_mean(_per_unit(ratios, unit_of), most)
    images = np.flatnonzero(_kept(ratios / most, unit_of, rng if seed is rng else np.random.default_rng([seed, 1])))
    asked = target_of(risk_level, promises, failure_prob).promises
    level = min(promise.at_most / (promise.cap or 1) for promise in asked)
    _check_enough(_per_unit(ratios, unit_of).sum() / most, level, failure_prob, choices.get("bound", "betting"))
    regions = _regions(asked, pairs.band.lower)
    some = pairs.with_regions(tuple((f"within {i}", x) for i, x in regions.items())).take(images)
    kept = {i: x for i, (_, x) in zip(regions, some.regions, strict=True)}
    here = [_within(promise, kept.get(i), images) for i, promise in enumerate(asked)]
    found = calibrate(
        some.truth, some.band, promises=here, failure_prob=failure_prob,
        features=some.features, labels=some.labels,
        units=None if units is None else names[images], limits=limits, seed=seed, **choices,
    )  # fmt: skip
    settings = {**found.record.settings, SHIFT: {"most_weight": most, "offered": len(pairs)}}
    return replace(found, record=replace(found.record, settings=settings))


def _check_weights(weights: Any, most_weight: float, n: int) -> tuple[Array, float]:
    """Finite weights of n images, of at least 0 and at most their bound."""
    most = check_number(most_weight, "most_weight")
    if most < 1:
        raise ValueError(f"most_weight is {most_weight!r}; likelihood ratios have mean 1, so their bound is at least 1")
    weights = as_plain_array(weights, "weights")
    given = np.asarray(to_numpy(weights) if library_of(weights) else weights)
    if given.shape != (n,) or given.dtype.kind not in "iuf":
        raise ValueError(
            f"weights have shape {given.shape}, {given.dtype}; give one likelihood ratio for each of {n} images"
        )
    ratios = given.astype(np.float64)
    if not np.isfinite(ratios).all() or ratios.min() < 0:
        raise ValueError("weights must be finite and at least 0; mend or drop those images")
    if ratios.max() > most:
        raise ValueError(
            f"a weight is {ratios.max():g}, above most_weight {most:g}: give a bound that holds for every image of the "
            "source, known beforehand"
        )
    return ratios, most


def _per_unit(ratios: Array, unit_of: Array) -> Array:
    """The weight of each unit, which all of its images share: (n,), (n,) -> (units,)."""
    found = np.zeros(int(unit_of.max()) + 1)
    found[unit_of] = ratios
    if (found[unit_of] != ratios).any():
        raise ValueError("images of one unit have different weights; give each the likelihood ratio of the whole unit")
    return found


def _check_mean(ratios: Array, most: float) -> None:
    """Likelihood ratios have mean 1; what lies too far from it is something else."""
    slack = most * sqrt(log(2 / _FALSE_REFUSAL) / (2 * len(ratios)))
    if abs(ratios.mean() - 1) > slack:
        raise ValueError(
            f"the mean weight is {ratios.mean():.4g}, but likelihood ratios have mean 1 on the source of the images: "
            "give p_new / p_old itself, not a score or a share"
        )


def _kept(chance: Array, unit_of: Array, rng: np.random.Generator) -> Array:
    """Which images are kept, whole units at a time: (n,), (n,) -> bool (n,)."""
    return np.asarray(rng.random(int(unit_of.max()) + 1)[unit_of] < chance)


def _check_enough(effective: float, level: float, failure_prob: float, confidence: Any) -> None:
    """Refuse where the weights leave fewer images than certify anything."""
    needed = least_images(level, failure_prob, bound=confidence)
    if effective < needed:
        raise NoGuarantee(
            f"the weights leave an effective number of {effective:.1f} images (units), and {needed} are the fewest "
            f"that certify a level of {level:g}: give more images, or begin a AnytimeCalibration on images of the new "
            "source"
        )


def _regions(promises: Sequence[Promise], band: Any) -> dict[int, Any]:
    """Masks and weights of pixels, by the number of their promise."""
    found = {}
    for i, promise in enumerate(promises):
        if promise.within is not None:
            values = region_array(promise.within, band, f"within of promise {i + 1}")
            if differ_in_size(values) or len(values.shape) > 1:
                found[i] = values
    return found


def _within(promise: Promise, region: Any, images: Array) -> Promise:
    """A promise about some of the images."""
    if promise.within is None:
        return promise
    if region is not None:
        return replace(promise, within=region)
    within = as_plain_array(promise.within, f"within of {promise.name!r}")
    subgroup = to_numpy(within) if library_of(within) else np.asarray(within)
    return replace(promise, within=subgroup[images])
