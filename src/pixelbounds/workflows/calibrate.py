"""Calibrate on files: truth and bands in, a calibration file out.

Files are read block by block where their kind allows, in threads or on a cluster (`execution`). The bands of samples
are made on the way; they lie in memory, or in a store where they are many or shall be kept.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.calibrate import calibrate
from ..calibration.calibration import Calibration, load_calibration
from ..calibration.image_hashes import is_known_image
from ..calibration.methods import NAMED_GROUPS, method_of
from ..calibration.text import second_try
from ..calibration.units import Units
from ..execution.blocks import pick, readable
from ..execution.progress import Progress, silent
from ..execution.runner import Execution, running
from ..formats.arrays import FilePath, Reading
from ..formats.inputs import Bands, open_bands, open_labels, open_pair, open_units
from ..formats.opener import check_not_read, check_target, open_images
from ..images.checks import check_open_unit
from ..images.ends import Band, Interval
from ..images.library import Array, rows_of, sizes_of
from ..storage.chunks import guarded
from .promise_regions import PromiseRegions, map_paths
from .promise_words import promise_texts
from .resources import Resources

_MOST_IMAGES = 32  # whose lengths are told
_MOST_PIXELS = 2**24


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
    *,
    risk_level: float | None = None,
    promises: Sequence[str] = (),
    reading: Reading = Reading(),  # noqa: B008 - frozen
    groups: str | None = None,
    features: FilePath | None = None,
    labels: FilePath | None = None,
    bands_out: FilePath | None = None,
    unit_name: str | None = None,
    weighting: str = "units",
    max_images: int | None = None,
    method: str = "frontier",
    family: str | None = None,
    k: int | None = None,
    n_fit: int | None = None,
    replace: bool = False,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
    **choices: Any,
) -> Calibrated:
    """Calibrate on files and write the calibration file; `choices` are those of `pixelbounds.calibrate`.

    groups         the name of a grouping, or a file of one map for all images
    labels         a file of labels (n, *pixels) known at test time
    promises       in words (`promise_words`), or files of them; instead of risk_level
    unit_name      what a unit is called; by default what the files call it, a scan, a patient
    bands_out      a .zarr store for the bands of samples, kept for later; an unfinished one is gone on with
    """
    begun = time.monotonic()
    said = promise_texts(promises) if promises else ()
    if (risk_level is None) == (not said):
        raise ValueError("give --risk-level, the share of all pixels that may be missed, such as 0.1, or --promise")
    reads = (truth, bands, groups, features, labels, reading.units, *(map_paths(said) if said else ()))
    target = check_target(out, (".safetensors",), replace=replace, inputs=reads)
    if bands_out is not None:
        check_not_read(Path(bands_out), reads)
    with running(**vars(resources), progress=progress) as execution, ExitStack() as stack:
        levels, reading = _candidates(reading)
        images, made, limits = open_pair(truth, bands, reading, execution)
        partition = groups if groups is None or groups in NAMED_GROUPS else open_labels(groups, images)
        segmented = None if labels is None else open_labels(labels, images)
        known = None if features is None else guarded(open_images(features, window=None).pixels)
        regions = PromiseRegions.open(said, images, reading) if said else None
        opened = {"": made}
        if levels:
            opened = {repr(level): _candidate(bands, level, reading, execution) for level in levels}
        whole = {
            name: each.whole(execution, _bands_store(bands_out, each, execution, stack, name), replace=replace)
            for name, each in opened.items()
        }
        good = np.logical_and.reduce([there for _, there in whole.values()])
        offered = {name: band for name, (band, _) in whole.items()}
        band = next(iter(offered.values()))
        if reading.skip_bad:
            read = [images.pixels, band.lower, band.upper, segmented, *(regions.stores if regions else ())]
            good = good & readable(execution, *(x for x in read if x is not None))
        units = open_units(images, reading)
        if units is None and unit_name is not None:
            raise ValueError(
                f"units are called {unit_name!r}, but nobody says which images belong to one: give --units"
            )
        own = images.unit_name if reading.units is None else None
        offered = {
            name: each.map(lambda x: pick(execution, x, good)).with_family(family) for name, each in offered.items()
        }
        known = pick(execution, known, good)
        segmented = pick(execution, segmented, good)
        true = pick(execution, images.pixels, good)
        calibration = calibrate(
            true,
            offered if levels else offered[""],
            risk_level=risk_level,
            method=method_of(method, groups=partition, k=k, n_fit=n_fit),
            promises=regions.promises(true, lambda x: pick(execution, x, good)) if regions else None,
            features=known,
            labels=segmented,
            units=None
            if units is None
            else Units(pick(execution, units, good), unit_name or own or "unit", weighting, max_images),
            limits=limits,
            measure=images.measure or made.measure,
            **choices,
        )
        lengths = _lengths(calibration, offered[calibration.record.settings.get("band", "")], known, segmented)
    if not good.all():
        calibration = _without(calibration, good)
    _tell_a_second_try(target, calibration)
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
    found = open_bands(bands, dataclasses.replace(reading, miscoverage=level), execution=execution)
    if found.band is not None and found.band.source.miscoverage != Fraction(repr(level)):
        raise ValueError(
            f"{bands} holds bands that were made already, and other miscoverages need samples: give samples, or a run "
            "that kept them (--keep-samples)"
        )
    return found


def _tell_a_second_try(target: Path, calibration: Calibration) -> None:
    """Where another calibration of some of the same images is replaced, say what keeping the better one costs."""
    if not target.exists():
        return
    try:
        before = load_calibration(target)
    except ValueError:  # of another kind, of a family of the user's own, or damaged: nobody can tell
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
    count = int(np.clip(_MOST_PIXELS // max(1, int(sizes.mean())), 1, min(_MOST_IMAGES, len(band))))
    numbers = np.unique(np.linspace(0, len(band) - 1, count).round().astype(int)).tolist()
    known = {"features": features if calibration.inner.kind == "learned" else None, "labels": labels}
    before: list[float] = []
    after: list[float] = []
    for i in numbers:
        one = band.map(lambda x, i=i: rows_of(x, i, i + 1), checked=True)  # type: ignore[misc]
        now = {name: None if x is None else rows_of(x, i, i + 1) for name, x in known.items()}
        interval = calibration.apply(one, threads=False, **now)
        before.append(_mean(one.map(lambda x: np.clip(x, *calibration.limits), checked=True)))
        after.append(_mean(interval))
    return Lengths(float(np.mean(before)), float(np.mean(after)), len(numbers))


def _mean(ends: Band | Interval) -> float:
    return float(np.mean(ends.upper, dtype=np.float64) - np.mean(ends.lower, dtype=np.float64))
