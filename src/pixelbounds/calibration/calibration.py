"""`calibrate`, the stages of the pipeline in their order, and what a user keeps (Algorithm 1).

data                 truth and band, validated once                       data.py
target               promises, failure probability, bound                 target.py, promises.py, bounds.py
split                S_opt and S_rcps                                     methods.py
method.fit           groups and path from S_opt                           methods.py, choice.py, groups/, paths/
loss_table           losses of S_rcps at every point of the path          certify.py
certify              fixed-sequence test                                  certify.py

A `Calibration` holds the widening of each group, how to find the groups, and what is promised. Its file is safetensors
with one JSON string: no code runs when it is read (`calibration_file.py`), and a checksum finds accidental damage.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

import numpy as np

from ..images.checks import (
    Limits,
    check_choice,
    check_count,
    check_generator,
    check_limits,
    check_line,
    check_open_unit,
    check_unit_name,
    is_name,
)
from ..images.ends import Band, Interval, check_features, check_labels, one_band
from ..images.foreign import AXES, SIZES, check_same_axes
from ..images.library import Array, alike, block_of, in_threads, like, places_for, sizes_of
from ..images.measure import Measure
from ..images.source import Source
from ..storage.files import check_new_file, replace_file, seal
from ..storage.version import VERSION
from .block import Grouping, digest_of, read_block
from .certify import CertifiedPoint, LossTable, certify, loss_table
from .choice import shortest_band
from .data import CalibrationData
from .families import Family, check_fits
from .groups.labelled import NO_LABELS, LabelledGroups
from .methods import Method, method_of, split, with_data
from .paths.path import NOT_DESCRIBED, STATISTICS, BandStatistics
from .promises import CertifiedPromise, Promise
from .target import WEIGHTINGS, Target, target_of
from .text import GIVEN, description_of
from .words import citation

_MOST_BANDS = 32  # candidates

CALIBRATION_FORMAT = 3
NO_HASHES = np.empty(0, np.uint64)


@dataclass(frozen=True, eq=False)
class Record:
    """How a calibration was reached: counts, source of the bands, seed, data and version, for the file and the report.

    images, fitting, certifying    how many images there were and fitted, how many images (or units) certified
    units          0 where images are independent, else how many units certified, each called `unit_name`
    weighting      "units" where each unit counts the same, "images" where each image does, in units of at most
                   `max_images`
    skipped        images that could not be read and were left out
    image_hashes   one digest per image, (n,), by which a calibration image is recognised; 0 for an image of one value;
                   empty where images stayed at their sites
    """

    images: int
    fitting: int
    certifying: int
    units: int
    pixels: tuple[int, ...]
    source: Source
    seed: str
    digest: str
    version: str
    unit_name: str = "unit"
    weighting: str = "units"
    max_images: int = 0
    skipped: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    image_hashes: Array = field(default_factory=lambda: NO_HASHES)

    def __post_init__(self) -> None:
        for name in ("images", "fitting", "certifying", "units", "max_images", "skipped"):
            check_count(getattr(self, name), f"{name} of a calibration", least=0, most=2**53)
        for size in self.pixels:
            check_count(size, "a size of the images of a calibration")
        for name in ("seed", "digest", "version"):
            check_line(getattr(self, name), f"{name} of a calibration")
        if not isinstance(self.settings, dict):
            raise TypeError(f"settings of a calibration are {self.settings!r}; they must be values by name")
        check_unit_name(self.unit_name)
        check_choice(self.weighting, WEIGHTINGS, "weighting")
        if self.image_hashes.dtype != np.uint64 or self.image_hashes.shape not in ((0,), (self.images,)):
            raise ValueError(f"image_hashes have shape {self.image_hashes.shape}; there must be one per image, or none")

    def state(self) -> dict[str, Any]:
        """What a file holds beside the hashes."""
        return {name: x for name, x in vars(self).items() if name != "image_hashes"} | {"source": self.source.state()}


@dataclass(frozen=True, eq=False)
class Calibration:
    """Widening of each group at which all promises were certified, jointly, with failure probability `failure_prob`.

    Of each promise the level is all that is certified; its `risk` is what was seen on the certifying images. `curve`
    holds mean widening, mean loss and confidence bound of the first promise along the path, (points, 3), with the
    certified point at row `chosen`: each bound is valid for a point chosen beforehand, not for one that the data chose.
    `measure` says what the numbers stand for. `reference` describes bands of certifying images, for monitoring.
    """

    method: str
    bound: str
    family: Family
    failure_prob: float
    limits: Limits
    grouping: Grouping
    widening: Array
    promises: tuple[CertifiedPromise, ...]
    curve: Array
    chosen: int
    record: Record
    measure: Measure | None = None
    reference: BandStatistics = NOT_DESCRIBED

    def __post_init__(self) -> None:
        for name in ("method", "bound"):
            if not is_name(getattr(self, name)):
                raise ValueError(f"{name} of a calibration is {getattr(self, name)!r}; it must be a name")
        check_open_unit(self.failure_prob, "failure_prob")
        check_limits(self.limits)
        if not self.promises:
            raise ValueError("a calibration promises something; promises are empty")
        groups = self.grouping.count
        _check_array("widening", self.widening, np.float64, (groups,))
        if (self.widening < self.family.start).any():
            raise ValueError(f"a widening is below {self.family.start:g}, so intervals could be crossed")
        _check_array("curve", self.curve, np.float64, (len(self.curve), 3))
        if not 0 <= self.chosen <= max(0, len(self.curve) - 1):
            raise ValueError(f"chosen is {self.chosen}, but the curve has {len(self.curve)} rows")
        n = len(self.reference)
        for name, x in vars(self.reference).items():
            rows = name.startswith("of_")
            shape = (n, len(STATISTICS)) if rows else (groups if n else 0,)
            _check_array(f"reference.{name}", x, np.float32 if rows else np.float64, shape)

    @classmethod
    def of(
        cls, table: LossTable, point: CertifiedPoint, target: Target, method: str = "custom", seed: str = "generator",
        settings: dict[str, Any] | None = None,
    ) -> Calibration:  # fmt: skip
        """The calibration of a certified point; method, seed and settings are for the record."""
        images, data, path = table.images, table.images.data, table.path
        units = data.units
        by_images, most = units is not None and units.weighting == "images", 0
        if units is not None and by_images:  # where none fits and none is given, no promise counts images
            most = units.max_images or int(np.bincount(data.unit_of[~images.images]).max(initial=0))
        record = Record(
            images=len(data), fitting=len(images.fitting.images), certifying=len(images.order),
            units=0 if units is None else len(images.order), pixels=data.pixels, source=data.source, seed=seed,
            digest=digest_of(table.digest), version=VERSION, unit_name="unit" if units is None else units.name,
            weighting="images" if by_images else "units", max_images=most,
            settings=settings or {}, image_hashes=table.hashes,
        )  # fmt: skip
        return cls(
            method, target.bound_name, data.family, target.failure_prob, data.limits, path.grouping,
            path.at(point.point, point.part), point.promises, point.curve, point.chosen, record, data.measure,
            table.described,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Calibration({self.method}, {self.bound}, {self.grouping.count} groups): {self.guarantee}"

    def _repr_html_(self) -> str:
        return description_of(self).to_html()

    @property
    def risk_level(self) -> float:
        """Level of the first promise."""
        return self.promises[0].at_most

    @property
    def risk(self) -> float:
        """What was seen of the first promise on the certifying images."""
        return self.promises[0].risk

    @property
    def guarantee(self) -> str:
        """What is promised, as one plain sentence."""
        return description_of(self).guarantee

    @property
    def note(self) -> str:
        """Why more than a level could be seen, or why intervals are as long as bands; else empty."""
        return description_of(self).note

    def citation(self) -> str:
        """BibTeX of the paper, and of the method, bound and sampler that this calibration used."""
        return citation([self.method, self.bound, self.record.source.sampler or ""], len(self.promises) > 1)

    @property
    def labelled(self) -> bool:
        """Whether it uses labels of the images it is applied to."""
        return self.inner is not self.grouping

    @property
    def inner(self) -> Grouping:
        """Its groups, or those within its labels."""
        return self.grouping.inner if isinstance(self.grouping, LabelledGroups) else self.grouping

    # ------------------------------------------------------------ new images

    def apply(self, band: Band, *, features: Any = None, labels: Any = None, threads: bool = True) -> Interval:
        """Intervals for new observations, clipped to the limits and rounded outward: Band (n, *pixels) -> Interval.

        `features` and `labels` as in `calibrate`, for these images; labels that no fitting image had widen as all
        labels together do. Images of different sizes, a list of bands or a Band of lists, give an Interval of `Ragged`.
        Blocks of images run in `threads`, or one after the other for a caller that has threads of its own.
        """
        band, features, labels = self.check_band(band, features, labels)
        dtype = np.dtype(str(band.lower.dtype).removeprefix("torch.").replace("bfloat16", "float32"))
        lower, upper = places_for(band.lower, dtype), places_for(band.lower, dtype)

        def work(start: int, stop: int) -> None:
            for run in alike(band.lower, range(start, stop)):
                a, b = run[0], run[-1] + 1
                block = read_block(band, a, b, self.limits, features, labels)
                if isinstance(lower, np.ndarray):
                    block.widen_into((lower[a:b], upper[a:b]), self.family, self.grouping, self.widening)
                else:
                    ends = np.empty((2, *block.band.shape), dtype)
                    block.widen_into((ends[0], ends[1]), self.family, self.grouping, self.widening)
                    lower[a:b], upper[a:b] = ends

        block = block_of(int(sizes_of(band.lower).mean()), len(band)) if threads else len(band)
        for _ in in_threads(work, len(band), block):
            pass
        return Interval(like(lower, band.lower), like(upper, band.upper), band.axes, self.measure, self.limits)

    def check_band(self, band: Any, features: Any = None, labels: Any = None) -> tuple[Band, Any, Any]:
        """Check a band, features and labels of new images: made as those of the calibration, and of the same shape."""
        band = one_band(band)
        if self.family.centred or band.centre is not None:
            check_fits(self.family, band)
        self.check_grid(band)
        if self.record.source != band.source:
            self.record.source.check(band.source)
        if features is not None and self.inner.kind != "learned":
            raise ValueError(
                f"features belong to learned groups, and these are of kind {self.inner.kind!r}: leave them out"
            )
        if labels is not None and not self.labelled:
            raise ValueError("this calibration was made without labels: leave labels out, or calibrate with them")
        if labels is None and self.labelled:
            raise ValueError(NO_LABELS)
        return band, check_features(features, band), check_labels(labels, band)

    def check_grid(self, ends: Band | Interval) -> None:
        """Images of a band or an interval have the axes of those that calibrated."""
        if not ends.pixels or self.record.pixels != ends.pixels or ends.axes is not None:
            grid = self.record.pixels or tuple(self.record.settings.get(SIZES, ()))
            check_same_axes(grid, self.record.settings.get(AXES), ends)

    def without_hashes(self) -> Calibration:
        """The calibration without hashes and reference of single images, where these must not be disclosed.

        `evaluate` cannot recognise images that calibrated then, and a monitor cannot compare bands.
        """
        record = replace(self.record, image_hashes=NO_HASHES)
        return replace(self, record=record, grouping=self.grouping.on_images(NO_HASHES), reference=NOT_DESCRIBED)

    # ------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration file, aside first and then in place."""
        replace_file(check_new_file(path, "calibration"), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the calibration file; equal calibrations give equal bytes."""
        self.__post_init__()  # arrays may have been changed since
        groups, tensors = self.grouping.packed("groups.")
        tensors |= {"widening": self.widening, "curve": self.curve, "image_hashes": self.record.image_hashes}
        tensors |= {"fitted_on": self.grouping.fitted_on}
        if len(self.reference):
            tensors |= {f"reference.{name}": x for name, x in vars(self.reference).items()}
        text = {
            "format": CALIBRATION_FORMAT, "package": "pixelbounds", "guarantee": self.guarantee,
            "method": self.method, "bound": self.bound, "family": self.family.name,
            "failure_prob": self.failure_prob, "limits": [x if isfinite(x) else None for x in self.limits],
            "measure": None if self.measure is None else self.measure.state(), "chosen": self.chosen,
            "groups": groups, "record": self.record.state(),
            "promises": [promise.state() for promise in self.promises],
        }  # fmt: skip
        return seal(text, tensors)


def _check_array(name: str, x: Array, dtype: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(x, np.ndarray) or x.dtype != dtype or x.shape != shape or not np.isfinite(x).all():
        what = f"{x.dtype} {x.shape}" if isinstance(x, np.ndarray) else f"a {type(x).__name__}"
        raise ValueError(f"{name} is {what}; it must be finite {np.dtype(dtype)} {shape}")


def calibrate(
    truth: Any, band: Band | Mapping[str, Band], *, risk_level: float | None = None,
    promises: Sequence[Promise] | None = None, failure_prob: float = 0.1, bound: Any = "betting",
    method: str | Method = "frontier", units: Any = None, labels: Any = None, features: Any = None,
    limits: Any = (0.0, 1.0), measure: Measure | None = None, seed: Any = 0,
) -> Calibration:  # fmt: skip
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
    bands = band if isinstance(band, Mapping) else {"": band}
    if not 1 <= len(bands) <= _MOST_BANDS:
        raise ValueError(f"band holds {len(bands)} candidates; give 1 to {_MOST_BANDS}, each by a name")
    offered = [CalibrationData(truth, one, units, labels, features, limits, measure) for one in bands.values()]
    fitting, certifying = parts = split(offered[0], target, method, rng)
    settings: dict[str, Any] = {}
    if len(offered) > 1:
        every = {str(name): with_data(parts, one, target) for name, one in zip(bands, offered, strict=True)}
        name, lengths = shortest_band({name: one.fitting for name, one in every.items()}, target, method, rng)
        fitting, certifying = every[name]
        settings = {"band": name, "bands": lengths}
    fitting.data.check_bands(fitting.images)
    path = method.fit(fitting, target, rng)
    table = loss_table(certifying, path, target)
    point = certify(table, target)
    settings |= settings_of(method, certifying.data)
    return Calibration.of(table, point, target, method.name, "generator" if seed is rng else str(seed), settings)


def settings_of(method: Method, data: CalibrationData) -> dict[str, Any]:
    """What else a record keeps: groups of unknown origin, and names and sizes of axes."""
    groups = getattr(method, "groups", None)
    fitted_here = groups is None or isinstance(groups, str) or callable(groups)
    known = fitted_here or getattr(groups, "kind", "") == "single" or len(getattr(groups, "fitted_on", ()))
    return data.grid if known else {GIVEN: True} | data.grid
