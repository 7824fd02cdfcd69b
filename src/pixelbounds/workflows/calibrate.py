"""Calibrate on files: truth and bands in, a calibration file out.

Files are read block by block where their kind allows, in threads or on a cluster (`execution`). The bands of samples
are made on the way; they lie in memory, or in a store where they are many or shall be kept.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from fractions import Fraction
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..calibration.block import is_known_image
from ..calibration.calibration import Calibration, calibrate
from ..calibration.calibration_file import load_calibration
from ..calibration.choice import NAMED_GROUPS
from ..calibration.methods import method_of
from ..calibration.target import Units
from ..calibration.text import second_try
from ..execution.blocks import pick, readable
from ..execution.runner import Execution, running
from ..formats.arrays import FilePath, Reading
from ..formats.inputs import Bands, open_bands, open_pair, open_units
from ..formats.label_maps import open_labels
from ..formats.opener import check_not_read, check_target, open_images
from ..formats.scans import Images
from ..images.checks import check_open_unit
from ..images.ends import Band, Interval
from ..images.library import rows_of, sizes_of
from ..storage.chunks import guarded
from .agreement import SPACING
from .promise_words import PromiseRegions, Take
from .request import Request, Resources

_LENGTH_IMAGES, _LENGTH_PIXELS = 32, 2**24  # at most so many show the lengths


class Lengths(NamedTuple):
    """Mean length of the bands and of their intervals on some calibration images, (`images` of them): no promise."""

    band: float
    interval: float
    images: int


class Calibrated(NamedTuple):
    """A calibration, the lengths of bands and intervals that were seen on some of its images, and what it took."""

    calibration: Calibration
    lengths: Lengths
    seconds: float


def calibrate_files(
    truth: FilePath, bands: FilePath, out: FilePath, request: Request, *, reading: Reading = Reading(),
    bands_out: FilePath | None = None, replace: bool = False, resources: Resources = Resources(),
) -> Calibrated:  # fmt: skip
    """Calibrate on files as requested and write the calibration file.

    bands_out      a .zarr store for the bands of samples; an interrupted one resumes
    """
    begun = time.monotonic()
    reads = (truth, bands, reading.units, *request.files)
    target = check_target(out, (".safetensors",), replace=replace, inputs=reads)
    if bands_out is not None:
        check_not_read(Path(bands_out), reads)
    with running(**vars(resources)) as execution, ExitStack() as stack:
        several = _candidates(bands, reading, execution)
        if several:
            reading = dataclasses.replace(reading, miscoverage=float(next(iter(several))))
        images, made, limits = open_pair(truth, bands, reading, execution)
        opened = OpenRequest.of(request, images, reading)
        offered, there = {}, []
        for name, each in (several or {"": made}).items():
            store = bands_store(bands_out, each, execution, stack, name)
            offered[name], complete = each.whole(execution, store, replace=replace)
            there.append(complete)
        good = np.logical_and.reduce(there)
        if reading.skip_bad:
            band = next(iter(offered.values()))
            good = good & readable(execution, images.pixels, band.lower, band.upper, *opened.stores)

        def take(x: Any) -> Any:
            return pick(execution, x, good)

        offered = {name: band.map(take).with_family(request.family) for name, band in offered.items()}
        true = take(images.pixels)
        arguments = opened.arguments(true, take)
        calibration = calibrate(
            true,
            offered if several else offered[""],
            limits=limits,
            measure=images.measure or made.measure,
            **arguments,
        )
        chosen = offered[calibration.record.settings.get("band", "")]
        lengths = _lengths(calibration, chosen, arguments["features"], arguments["labels"])
    bad, record = np.flatnonzero(~good).tolist(), calibration.record
    files: dict[str, Any] = {} if good.all() else {"skipped": bad}
    files |= {} if images.geometry is None else {SPACING: list(images.geometry.spacing)}
    record = dataclasses.replace(record, settings={**record.settings, **files}, skipped=len(bad))
    calibration = dataclasses.replace(calibration, record=record)
    hashes, level = attrgetter("record.image_hashes"), calibration.failure_prob
    warn_second_try(target, "another calibration", load_calibration, calibration, hashes, level)
    calibration.save(target)
    return Calibrated(calibration, lengths, time.monotonic() - begun)


@dataclasses.dataclass(frozen=True, eq=False)
class OpenRequest:
    """A request and what its files hold of all images."""

    request: Request
    groups: Any
    features: Any
    labels: Any
    units: Units
    regions: PromiseRegions | None

    @classmethod
    def of(cls, request: Request, images: Images, reading: Reading) -> OpenRequest:
        """Open its files beside the true images."""
        ids = open_units(images, reading)
        if ids is None and request.unit_name is not None:
            raise ValueError(
                f"units are called {request.unit_name!r}, but which images belong to one is not given: give --units"
            )
        name = request.unit_name or (images.unit_name if reading.units is None else None)
        groups = request.groups
        return cls(
            request,
            groups=groups if groups in (None, *NAMED_GROUPS) else open_labels(str(groups), images),
            **known_of(request.features, request.labels, images),
            units=Units(ids, name or "unit", request.weighting, request.max_images),
            regions=PromiseRegions.open(request.texts, images, reading) if request.texts else None,
        )

    @property
    def stores(self) -> list[Any]:
        """Arrays that may have holes."""
        return [x for x in (self.labels, *(self.regions.stores if self.regions else ())) if x is not None]

    def arguments(self, truth: Any, take: Take = lambda x: x) -> dict[str, Any]:
        """Arguments of `pixelbounds.calibrate` about `truth`, the images that `take` picks."""
        request = self.request
        return {
            "risk_level": request.risk_level,
            "promises": self.regions.promises(truth, take) if self.regions else None,
            "failure_prob": request.failure_prob,
            "bound": request.bound,
            "method": method_of(request.method, groups=self.groups, k=request.k, n_fit=request.n_fit),
            "units": None if self.units.ids is None else dataclasses.replace(self.units, ids=take(self.units.ids)),
            "labels": take(self.labels),
            "features": take(self.features),
            "seed": request.seed,
        }


def known_of(features: FilePath | None, labels: FilePath | None, space: Images | None) -> dict[str, Any]:
    """What else is known of the images at test time; `space` says where these lie, for a DICOM segmentation."""
    images = None if features is None else guarded(open_images(features, window=None).pixels)
    return {"features": images, "labels": None if labels is None else open_labels(labels, space)}


def _candidates(bands: FilePath, reading: Reading, execution: Execution) -> dict[str, Bands]:
    """Bands of several miscoverages, of samples or as a run made them, of which one is chosen; {} for one alone."""
    levels = reading.miscoverage if isinstance(reading.miscoverage, tuple) else ()
    if len(set(levels)) < len(levels):
        raise ValueError(f"--miscoverage is {', '.join(map(str, levels))}; give each of them once")
    offered = {}
    for level in (check_open_unit(level, "miscoverage") for level in levels):
        one = open_bands(bands, dataclasses.replace(reading, miscoverage=level), execution=execution)
        if one.band is not None and one.band.source.miscoverage != Fraction(repr(level)):
            raise ValueError(
                f"{bands} holds bands that were made already, and other miscoverages need samples: give samples, or a "
                "run that kept them (--keep-samples)"
            )
        offered[repr(level)] = one
    return offered


def warn_second_try(
    target: Path, what: str, load: Callable[[Path], Any], made: Any, hashes_of: Callable[[Any], Any],
    failure_prob: float,
) -> None:  # fmt: skip
    """Warn where another calibration of some of the same images is replaced: the better of two is not valid."""
    if not target.exists():
        return
    try:
        before = load(target)
    except (OSError, ValueError):  # of another kind, of a family of the user, or damaged
        return
    again = int(is_known_image(hashes_of(made), hashes_of(before)).sum())
    if again and before.to_bytes() != made.to_bytes():
        warnings.warn(f"{target} held {what} of {again} of these images. {second_try(failure_prob)}", stacklevel=2)


def bands_store(
    wanted: FilePath | None, bands: Bands, execution: Execution, stack: ExitStack, candidate: str = ""
) -> Path | None:
    """Where the bands of samples are kept: where that is asked, else in memory (None), many in a temporary store."""
    if wanted is not None and (candidate or bands.source is not None):
        raise ValueError("--bands-out keeps the bands of one miscoverage of a file of samples; leave it out here")
    if bands.samples is None:
        if wanted is not None:
            raise ValueError("--bands-out keeps the bands of samples, but these are bands already; leave it out")
        return None
    if wanted is not None:
        path = Path(wanted)
        return path if path.exists() else check_target(path, (".zarr",), replace=False)
    if bands.fit_in_memory(execution):
        return None
    return stack.enter_context(execution.folder()) / "bands.zarr"


def _lengths(calibration: Calibration, band: Band, features: Any, labels: Any) -> Lengths:
    sizes = sizes_of(band.lower)
    count = int(np.clip(_LENGTH_PIXELS // max(1, int(sizes.mean())), 1, min(_LENGTH_IMAGES, len(band))))
    numbers = np.unique(np.linspace(0, len(band) - 1, count).round().astype(int)).tolist()
    given = {"features": features if calibration.inner.kind == "learned" else None, "labels": labels}
    before: list[float] = []
    after: list[float] = []
    for i in numbers:
        one = band.map(lambda x, i=i: rows_of(x, i, i + 1), checked=True)  # type: ignore[misc]
        now = {name: None if x is None else rows_of(x, i, i + 1) for name, x in given.items()}
        interval = calibration.apply(one, threads=False, **now)
        before.append(_mean(one.map(lambda x: np.clip(x, *calibration.limits), checked=True)))
        after.append(_mean(interval))
    return Lengths(float(np.mean(before)), float(np.mean(after)), len(numbers))


def _mean(ends: Band | Interval) -> float:
    return float(np.mean(ends.upper, dtype=np.float64) - np.mean(ends.lower, dtype=np.float64))
