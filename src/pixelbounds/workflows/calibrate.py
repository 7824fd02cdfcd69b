"""Calibrate on files: truth and bands in, a calibration file out.

Files are read block by block where their kind allows, in threads or on a cluster (`execution`). The bands of samples
are made on the way; they lie in memory, or in a store where they are many or shall be kept.
"""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.front_door import calibrate
from ..calibration.result import Calibration
from ..execution.blocks import pick, readable
from ..execution.progress import Progress, silent
from ..execution.runner import Execution, running
from ..formats.arrays import FilePath, Reading
from ..formats.inputs import Bands, open_labels, open_pair, open_units
from ..formats.opener import check_not_read, check_target, open_images
from ..images.library import Array
from ..storage.chunks import guarded
from .resources import Resources

_NAMED_GROUPS = ("learned", "band", "loss", "squared", "otsu")


def calibrate_files(
    truth: FilePath,
    bands: FilePath,
    out: FilePath,
    *,
    risk_level: float,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    groups: str | None = None,
    features: FilePath | None = None,
    bands_out: FilePath | None = None,
    replace: bool = False,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
    **choices: Any,
) -> Calibration:
    """Calibrate on files and write the calibration file; `choices` are those of `pixelbounds.calibrate`.

    bands_out      a .zarr store for the bands of samples, kept for later; an unfinished one is gone on with
    """
    reads = (truth, bands, groups, features, reading.units)
    target = check_target(out, (".safetensors",), replace=replace, inputs=reads)
    if bands_out is not None:
        check_not_read(Path(bands_out), reads)
    with running(**vars(resources), progress=progress) as execution, ExitStack() as stack:
        images, made, limits = open_pair(truth, bands, reading, execution)
        labels = groups if groups is None or groups in _NAMED_GROUPS else open_labels(groups)
        known = None if features is None else guarded(open_images(features, window=None).pixels)
        band, good = made.whole(execution, _bands_store(bands_out, made, execution, stack), replace=replace)
        if reading.skip_bad:
            good = good & readable(execution, images.pixels, band.lower, band.upper)
        units = open_units(images, reading)
        if isinstance(labels, np.ndarray) and labels.shape == band.shape:
            labels = pick(execution, labels, good)
        calibration = calibrate(
            pick(execution, images.pixels, good),
            band.map(lambda x: pick(execution, x, good)),
            risk_level=risk_level,
            groups=labels,
            features=pick(execution, known, good),
            units=pick(execution, units, good),
            limits=limits,
            **choices,
        )
    if not good.all():
        calibration = _without(calibration, good)
    calibration.save(target)
    return calibration


def _bands_store(wanted: FilePath | None, bands: Bands, execution: Execution, stack: ExitStack) -> Path | None:
    """Where the bands of samples are kept: where that is asked, else in memory (None), many in a temporary store."""
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
    settings = {**record.settings, "skipped": np.flatnonzero(~good).tolist()}
    return dataclasses.replace(calibration, record=dataclasses.replace(record, settings=settings))
