"""`calibrate`: the stages of the pipeline in their order (Algorithm 1 with methods, bounds and risks to choose).

data                 truth and band, validated once                       data.py
target               promises, failure probability, bound                 target.py
split                S_opt and S_rcps                                     split.py
method.fit           groups and path from S_opt                           methods.py, groups/, paths/
loss_table           losses of S_rcps at every point of the path          losses.py
certify              fixed-sequence test                                  certify.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..images.checks import check_generator
from ..images.ends import Band
from ..images.foreign import AXES, SIZES
from ..images.measure import Measure
from .calibration import Calibration
from .certify import certify
from .choice import shortest_band
from .data import CalibrationData
from .losses import loss_table
from .methods import Method, method_of, split, with_data
from .promises import Promise
from .target import target_of
from .text import GIVEN

_MOST_BANDS = 32  # candidates


def calibrate(
    truth: Any,
    band: Band | Mapping[str, Band],
    *,
    risk_level: float | None = None,
    promises: Sequence[Promise] | None = None,
    failure_prob: float = 0.1,
    bound: Any = "betting",
    method: str | Method = "frontier",
    units: Any = None,
    labels: Any = None,
    features: Any = None,
    limits: Any = (0.0, 1.0),
    measure: Measure | None = None,
    seed: Any = 0,
) -> Calibration:
    """Widen a band until every promise holds for future images, with probability 1 - failure_prob.

    That holds for one calibration. Choosing among several on the same images (seeds, methods, bounds, looks at a
    growing set) voids it: docs/what_voids_the_promise.md says what is valid. `AnytimeCalibration` may be looked at
    after every image.

    truth         true images, (n, *pixels), within the limits; 8-bit ones span them, 0 the least and 255 the greatest
    band          their band, of the same shape, which says how it widens (its family); lists of truths and bands where
                  images differ in size; or several bands by name, {"0.05": band, "0.1": other}, of which the fitting
                  images choose the shortest
    risk_level    the share of all pixels that may be missed: the short form of promises=[pb.share(risk_level)]
    promises      what must hold, all of it together, made by `pb.share`, `pb.tail` and `pb.loss`: about all pixels,
                  regions of them or subgroups of images; several need no correction (docs/guarantee.md)
    failure_prob  failure probability (delta): how often the guarantee may fail over calibration sets
    bound         name of a function of `pixelbounds.bounds`, or a function (losses, failure_prob) -> bound
    method        "frontier" (shortest; like rcps where units are hardly enough to certify), "krcps" (the paper's),
                  "rcps" (one widening for all pixels), or an object with settings: pb.Frontier(groups="band"),
                  pb.KRCPS(k=8, d_opt=100), pb.RCPS()
    units         unit (patient, scan) of each image, (n,), or pb.Units(ids, name="patient"): losses are averaged per
                  unit before they are bounded, and the promise is about a future unit, averaged over its images
    labels        a segmentation of the reconstruction, whole numbers (n, *pixels) or a list: groups lie within labels.
                  It may be wrong. `apply` needs that of new images, made in the same way. (The region of a promise
                  is given to the promise.)
    features      further images known at test time: (n, *pixels), (n, f, *pixels), or a list; for learned groups
    limits        least and greatest possible value, to which intervals are clipped; None for none
    measure       what the numbers stand for, such as Measure.of_window((400, 40)); kept in the file
    seed          seed for the split and for fitting; results are reproducible

    >>> rng = np.random.default_rng(0)
    >>> centre = rng.uniform(0.3, 0.7, (200, 8, 8))
    >>> truth = centre + 0.05 * rng.standard_normal(centre.shape)
    >>> cal = calibrate(truth, Band(centre - 0.05, centre + 0.05), risk_level=0.1)
    >>> cal.risk < cal.risk_level
    True
    >>> from pixelbounds import share
    >>> bright = share(0.15, within=centre > 0.6, name="bright pixels")
    >>> cal = calibrate(truth, Band(centre - 0.05, centre + 0.05), promises=[share(0.1), bright])
    >>> [(promise.name, promise.risk < promise.at_most) for promise in cal.promises]
    [('all pixels', True), ('bright pixels', True)]
    """
    target = target_of(risk_level, promises, failure_prob, bound)
    method, rng = method_of(method), check_generator(seed)
    offered = {
        name: CalibrationData(truth, one, units, labels, features, limits, measure)
        for name, one in _by_name(band).items()
    }
    settings: dict[str, Any] = {}
    data = next(iter(offered.values()))
    fitting, certifying = parts = split(data, target, method, rng)
    if len(offered) > 1:
        every = {name: with_data(parts, one, target) for name, one in offered.items()}
        name, lengths = shortest_band({name: one.fitting for name, one in every.items()}, target, method, rng)
        fitting, certifying = every[name]
        settings = {"band": name, "bands": lengths}
    fitting.data.check_bands(fitting.images if len(fitting.images) else np.arange(len(fitting.data)))
    path = method.fit(fitting, target, rng)
    table = loss_table(certifying, path, target)
    point = certify(table, target)
    settings |= settings_of(method, certifying.data)
    return Calibration.of(table, point, target, method.name, "generator" if seed is rng else str(seed), settings)


def _by_name(band: Any) -> dict[str, Any]:
    if not isinstance(band, Mapping):
        return {"": band}
    if not 1 <= len(band) <= _MOST_BANDS:
        raise ValueError(f"band holds {len(band)} candidates; give 1 to {_MOST_BANDS}, each by a name")
    return {str(name): one for name, one in band.items()}


def settings_of(method: Method, data: CalibrationData) -> dict[str, Any]:
    """What else a record keeps: groups of unknown origin, and names of axes."""
    groups = getattr(method, "groups", None)
    given = (
        not (groups is None or isinstance(groups, str) or callable(groups)) and getattr(groups, "kind", "") != "single"
    )
    settings: dict[str, Any] = {GIVEN: True} if given and not len(getattr(groups, "fitted_on", ())) else {}
    if data.at_hand and not data.pixels and any(data.channel_sizes):
        settings[SIZES] = data.channel_sizes
    return settings if data.axis_names is None else settings | {AXES: data.axis_names}
