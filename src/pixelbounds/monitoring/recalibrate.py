"""Recalibration for a known shift: images of one source, weighed, stand for draws of another.

Let w be the likelihood ratio of the new source to that of the images at hand, known exactly and at most W, and L a loss
with the level eps. Over the old source E[w (L - eps)] is the mean of L - eps over the new one. So the new risk is at
most eps exactly if the mean over the old source of Z = eps + (w / W) (L - eps) is, and Z lies in [0, 1] as L does: it
takes the place of L in every bound, with every promise, unit and method, as it does for units that count unlike
(`calibration.target`). n images count for about n / W: that is what the shift costs.

Weights that were estimated, or divided by their own sum, are not likelihood ratios: nothing is certified with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log, sqrt
from typing import Any

import numpy as np

from ..calibration.bounds import least_images
from ..calibration.calibration import Calibration, settings_of
from ..calibration.certify import certify, loss_table
from ..calibration.data import CalibrationData, FittingImages
from ..calibration.methods import Method, method_of, split
from ..calibration.paths.path import BandStatistics
from ..calibration.promises import Promise
from ..calibration.target import target_of
from ..calibration.text import SHIFT
from ..images.checks import NoGuarantee, check_generator, check_number
from ..images.ends import Band
from ..images.foreign import as_plain_array
from ..images.library import Array, library_of, to_numpy
from ..images.measure import Measure

_FALSE_REFUSAL = 1e-6  # of weights that are likelihood ratios, for their mean


def recalibrate(
    truth: Any, band: Band, *, weights: Any, max_weight: float, risk_level: float | None = None,
    promises: Sequence[Promise] | None = None, failure_prob: float = 0.1, bound: Any = "betting",
    method: str | Method = "frontier", units: Any = None, labels: Any = None, features: Any = None,
    limits: Any = (0.0, 1.0), measure: Measure | None = None, seed: Any = 0,
) -> Calibration:  # fmt: skip
    """Calibrate for a shifted source, on images of the old one; other arguments are those of `pixelbounds.calibrate`.

    weights       likelihood ratio of the new source to the old one at each image, (n,), known and not estimated from
                  these images; the same for all images of a unit
    max_weight    a bound on the weights of all images of the source, known beforehand

    >>> rng = np.random.default_rng(0)
    >>> hard = rng.random((800, 1, 1)) < 0.2  # in the new hospital half of the images are hard
    >>> centre = rng.uniform(0.3, 0.7, (800, 8, 8))
    >>> truth = centre + np.where(hard, 0.1, 0.05) * rng.standard_normal(centre.shape)
    >>> band = Band(np.clip(centre - 0.05, 0, 1), np.clip(centre + 0.05, 0, 1))
    >>> weights = np.where(hard[:, 0, 0], 0.5 / 0.2, 0.5 / 0.8)
    >>> cal = recalibrate(np.clip(truth, 0, 1), band, weights=weights, max_weight=2.5, risk_level=0.1)
    >>> "shifted source" in cal.guarantee, cal.record.settings["shift"]["max_weight"]
    (True, 2.5)
    """
    target, method, rng = target_of(risk_level, promises, failure_prob, bound), method_of(method), check_generator(seed)
    data = CalibrationData(truth, band, units, labels, features, limits, measure)
    ratios, by_unit, most = _check_weights(weights, max_weight, data.unit_of)
    fitting, certifying = split(data, target, method, rng)
    effective = float(by_unit[certifying.order].sum()) / most
    level = min(promise.at_most / (promise.cap or 1) for promise in target.promises)
    needed = least_images(level, target.failure_prob, bound=target.bound)
    if effective < needed:
        why = f"an effective number of {effective:.1f} images (units), and {needed} are the fewest for {level:g}"
        raise NoGuarantee(f"the weights leave {why}: give more, or begin an AnytimeCalibration on the new source")
    fitting.data.check_bands(fitting.images)
    drawn = _draws(fitting, ratios[~certifying.images] / most, most, rng) if len(fitting.images) else fitting
    path = method.fit(drawn, target, rng)
    table = loss_table(replace(certifying, shares=ratios / most), path, target)
    point = certify(table, target)
    table.described = _draws_described(table.described, by_unit[certifying.order] / most, table.digest)
    settings = settings_of(method, certifying.data) | {SHIFT: {"max_weight": most, "effective": effective}}
    return Calibration.of(table, point, target, method.name, "generator" if seed is rng else str(seed), settings)


def _draws(fitting: FittingImages, chance: Array, most: float, rng: np.random.Generator) -> FittingImages:
    """Fitting images that are draws of the new source, each unit kept with its chance; all where none is kept.

    They only shape the path, which may be any that owes nothing to the units that certify: for how many of the new
    source these will count is what is expected, as their weights say what their losses are like.
    """
    kept = np.flatnonzero(rng.random(int(fitting.data.unit_of.max()) + 1)[fitting.unit_of] < chance)
    return replace(fitting.take(kept), certifying=int(fitting.certifying / most)) if len(kept) else fitting


def _draws_described(described: BandStatistics, chance: Array, digest: Array) -> BandStatistics:
    """Statistics of bands of draws of the new source, for monitoring; random numbers come from the images' digest."""
    n = len(described)
    kept = np.random.default_rng(digest.astype(np.uint64)).random(n) < chance[:n]
    return replace(described, of_units=described.of_units[kept], of_images=described.of_images[kept])


def _check_weights(weights: Any, max_weight: float, unit_of: Array) -> tuple[Array, Array, float]:
    """Weights of images, (n,), and of units, which may be likelihood ratios, and their bound."""
    n, most = len(unit_of), check_number(max_weight, "max_weight")
    if most < 1:
        raise ValueError(f"max_weight is {max_weight!r}; likelihood ratios have mean 1, so their bound is at least 1")
    weights = as_plain_array(weights, "weights")
    given = np.asarray(to_numpy(weights) if library_of(weights) else weights)
    if given.shape != (n,) or given.dtype.kind not in "iuf":
        raise ValueError(f"weights are {given.dtype} {given.shape}; give one likelihood ratio for each of {n} images")
    ratios = given.astype(np.float64)
    if not np.isfinite(ratios).all() or ratios.min() < 0:
        raise ValueError("weights must be finite and at least 0; correct or drop those images")
    if ratios.max() > most:
        remedy = "give a bound for every image of the source, known beforehand"
        raise ValueError(f"a weight is {ratios.max():g}, above max_weight {most:g}: {remedy}")
    by_unit = np.zeros(int(unit_of.max()) + 1)
    by_unit[unit_of] = ratios
    if (by_unit[unit_of] != ratios).any():
        raise ValueError("images of one unit have different weights; give each the likelihood ratio of the whole unit")
    slack = most * sqrt(log(2 / _FALSE_REFUSAL) / (2 * len(by_unit)))
    if abs(by_unit.mean() - 1) > slack:
        remedy = "give p_new / p_old itself, not a score or a share"
        raise ValueError(f"the mean weight is {by_unit.mean():.4g}, but likelihood ratios have mean 1: {remedy}")
    return ratios, by_unit, most
