"""Calibrate on files: truth and bands in, a calibration file out.

Files are read block by block where their kind allows, in threads or on a cluster (`execution`). The bands of samples
are made on the way; they lie in memory, or in a store where they are many or shall be kept.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.calibrate import calibrate
from ..calibration.calibration import Calibration, load_calibration
from ..calibration.provenance import is_known_image
from ..calibration.text import second_try
from ..execution.blocks import pick, readable
from ..execution.progress import Progress, silent
from ..execution.runner import Execution, running
from ..formats.arrays import FilePath, Reading
from ..formats.inputs import Bands, open_bands, open_pair
from ..formats.opener import check_not_read, check_target
from ..images.checks import check_open_unit
from ..images.ends import Band, Interval
from ..images.library import Array, rows_of, sizes_of
from .request import Request
from .resources import Resources

_LENGTH_IMAGES, _LENGTH_PIXELS = 32, 2**24  # at most so many show the lengths


@dataclass(frozen=True)
class Lengths:
    """Mean length of the bands and of their intervals on some calibration images, (`images` of them): no promise."""

    band: float
    interval: float
    images: int


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A calibration, the lengths of bands and intervals that were seen on some of its images, and what it took."""

    calibration: Calibration
    lengths: Lengths
    seconds: float


def calibrate_files(
    truth: FilePath,
    bands: FilePath,
    out: FilePath,
    request: Request,
    *,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    bands_out: FilePath | None = None,
    replace: bool = False,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> Calibrated:
    """Calibrate on files as requested and write the calibration file.

    bands_out      a .zarr store for the bands of samples; an interrupted one resumes
    """
    begun = time.monotonic()
    reads = (truth, bands, reading.units, *request.files)
    target = check_target(out, (".safetensors",), replace=replace, inputs=reads)
    if bands_out is not None:
        check_not_read(Path(bands_out), reads)
    with running(**vars(resources), progress=progress) as execution, ExitStack() as stack:
        levels, reading = _candidates(reading)
        images, made, limits = open_pair(truth, bands, reading, execution)
        opened = request.open(images, reading)
        candidates = {"": made}
        if levels:
            candidates = {repr(level): _candidate(bands, level, reading, execution) for level in levels}
        offered, there = {}, []
        for name, each in candidates.items():
            store = _bands_store(bands_out, each, execution, stack, name)
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
            true, offered if levels else offered[""], limits=limits, measure=images.measure or made.measure, **arguments
        )
        chosen = offered[calibration.record.settings.get("band", "")]
        lengths = _lengths(calibration, chosen, arguments["features"], arguments["labels"])
    if not good.all():
        calibration = _without(calibration, good)
    _warn_second_try(target, calibration)
    calibration.save(target)
    return Calibrated(calibration, lengths, time.monotonic() - begun)


def _candidates(reading: Reading) -> tuple[tuple[float, ...], Reading]:
    """The miscoverages of which one is chosen, () where none is, and the reading of the first of them."""
    if not isinstance(reading.miscoverage, tuple):
        return (), reading
    levels = tuple(check_open_unit(level, "miscoverage") for level in reading.miscoverage)
    if len(set(levels)) < len(levels):
        raise ValueError(f"--miscoverage is {', '.join(map(str, levels))}; give each of them once")
    return levels, dataclasses.replace(reading, miscoverage=levels[0])


def _candidate(bands: FilePath, level: float, reading: Reading, execution: Execution) -> Bands:
    """The bands of one of several miscoverages: of samples, kept ones among them, or as a run made them."""
    candidate = open_bands(bands, dataclasses.replace(reading, miscoverage=level), execution=execution)
    if candidate.band is not None and candidate.band.source.miscoverage != Fraction(repr(level)):
        raise ValueError(
            f"{bands} holds bands that were made already, and other miscoverages need samples: give samples, or a run "
            "that kept them (--keep-samples)"
        )
    return candidate


def _warn_second_try(target: Path, calibration: Calibration) -> None:
    """Warn where another calibration of some of the same images is replaced: the better of two is not valid."""
    if not target.exists():
        return
    try:
        before = load_calibration(target)
    except ValueError:  # of another kind, of a family of the user, or damaged
        return
    again = int(is_known_image(calibration.record.image_hashes, before.record.image_hashes).sum())
    if again and before.to_bytes() != calibration.to_bytes():
        warnings.warn(
            f"{target} held another calibration of {again} of these images. {second_try(calibration.failure_prob)}",
            stacklevel=2,
        )


def _bands_store(
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


def _without(calibration: Calibration, good: Array) -> Calibration:
    """A calibration that remembers which images were skipped."""
    record = calibration.record
    bad = np.flatnonzero(~good).tolist()
    settings = {**record.settings, "skipped": bad}
    record = dataclasses.replace(record, settings=settings, skipped=len(bad))
    return dataclasses.replace(calibration, record=record)


def _lengths(calibration: Calibration, band: Band, features: Any, labels: Any) -> Lengths:
    """Lengths on a few of the images of a band, evenly among them."""
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
