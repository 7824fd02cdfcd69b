"""An anytime calibration on files: begin it, let images arrive, see what is certified.

The state is one sealed file. A command locks it, and writes it aside before it takes its name: a command that is killed
has counted all of its images or none, and may be run again, since a call with the same images is recognised.
"""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ..execution.runner import Execution, running
from ..formats.arrays import FilePath, Reading
from ..formats.inputs import INDEPENDENT, Bands, open_pair, open_units
from ..formats.opener import check_target
from ..images.ends import Band
from ..monitoring.anytime import AnytimeCalibration
from ..monitoring.arrivals import RepeatedBatch
from ..storage.files import exclusive
from .calibrate import OpenRequest, bands_store, warn_second_try
from .monitor import open_arrivals
from .request import ArrivalOptions, Request, Resources

_STATE = (".safetensors",)


@dataclass(frozen=True, eq=False)
class Arrived:
    """An anytime calibration after some files, how many of their images were counted, and how many were not."""

    anytime: AnytimeCalibration
    counted: int
    repeated: int


def start_files(
    state: FilePath, truth: FilePath, bands: FilePath, request: Request, *, reading: Reading = Reading(),
    replace: bool = False, resources: Resources = Resources(),
) -> AnytimeCalibration:  # fmt: skip
    """Begin an anytime calibration with the images of some files, and write its state."""
    target = check_target(state, _STATE, replace=replace, inputs=(truth, bands, reading.units, *request.files))
    with running(**vars(resources)) as execution, ExitStack() as stack:
        images, made, limits = open_pair(truth, bands, reading, execution)
        band = _whole(made, execution, stack).with_family(request.family)
        arguments = OpenRequest.of(request, images, reading).arguments(images.pixels)
        arguments.pop("bound")  # an anytime calibration has its own
        measure = images.measure or made.measure
        anytime = AnytimeCalibration(images.pixels, band, limits=limits, measure=measure, **arguments)
    what, level = "an anytime calibration", anytime.start.failure_prob
    warn_second_try(target, what, AnytimeCalibration.load, anytime, lambda x: x.image_hashes, level)
    anytime.save(target)
    return anytime


def add_files(
    state: FilePath, truth: FilePath, bands: FilePath, *, out: FilePath | None = None, reading: Reading = Reading(),
    new: ArrivalOptions = ArrivalOptions(), resources: Resources = Resources(),
) -> Arrived:  # fmt: skip
    """Let the images of some files arrive; `out` is the calibration file, written where one can be certified."""
    target = _target(out, state, truth, bands)
    with exclusive(_existing(state)):
        anytime = AnytimeCalibration.load(state)
        with running(**vars(resources)) as execution, ExitStack() as stack:
            images, made, reading, given = open_arrivals(anytime.start, truth, bands, reading, execution, new)
            band, units = _whole(made, execution, stack), None
            if anytime.by_unit or reading.units is not None:
                units = open_units(images, reading)
            else:
                warnings.warn(INDEPENDENT, stacklevel=2)
            try:
                counted = anytime.add(images.pixels, band, units=units, batch=new.batch, **given)
            except RepeatedBatch as repeated:
                if repeated.images < len(images):
                    raise
                counted = 0  # the command was run again
        if counted:
            anytime.save(state)
        save_certified(anytime, target)
    return Arrived(anytime, counted, len(images) - counted)


def anytime_status(state: FilePath, *, out: FilePath | None = None) -> AnytimeCalibration:
    """The state now; `out` is the calibration file, written where one can be certified."""
    target = _target(out, state)
    anytime = AnytimeCalibration.load(_existing(state))
    save_certified(anytime, target)
    return anytime


def _whole(made: Bands, execution: Execution, stack: ExitStack) -> Band:
    return made.whole(execution, bands_store(None, made, execution, stack))[0]


def save_certified(anytime: AnytimeCalibration, target: Path | None) -> None:
    """Write the calibration that is certified now, where there is one, in place of an earlier one."""
    calibration = anytime.certified
    if target is not None and calibration is not None:
        calibration.save(target)


def _target(out: FilePath | None, *inputs: FilePath) -> Path | None:
    return None if out is None else check_target(out, _STATE, replace=True, inputs=inputs)


def _existing(state: FilePath) -> Path:
    path = Path(state)
    if not path.is_file():
        raise ValueError(
            f"there is no anytime calibration at {str(path)!r}; begin one with `pixelbounds anytime start`"
        )
    return path
