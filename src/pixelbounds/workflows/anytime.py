"""An anytime calibration on files: begin it, let images arrive, see what is certified.

The state is one sealed file. A command locks it, and writes it aside before it takes its name: a command that is killed
has counted all of its images or none, and may be run again, since a call with the same images is recognised.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..calibration.provenance import is_known_image
from ..calibration.text import second_try
from ..execution.progress import Progress, silent
from ..execution.runner import running
from ..formats.arrays import FilePath, Reading
from ..formats.inputs import INDEPENDENT, open_pair, open_units
from ..formats.opener import check_target
from ..images.ends import Band
from ..images.library import Array
from ..monitoring.anytime import AnytimeCalibration
from ..monitoring.arrivals import RepeatedBatch
from ..storage.files import exclusive
from .monitor import open_arrivals
from .request import Request
from .resources import Resources

_STATE = (".safetensors",)


@dataclass(frozen=True, eq=False)
class Arrived:
    """An anytime calibration after some files, how many of their images were counted, and how many were not."""

    anytime: AnytimeCalibration
    counted: int
    repeated: int


def start_files(
    state: FilePath,
    truth: FilePath,
    bands: FilePath,
    request: Request,
    *,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    replace: bool = False,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> AnytimeCalibration:
    """Begin an anytime calibration with the images of some files, and write its state."""
    target = check_target(state, _STATE, replace=replace, inputs=(truth, bands, reading.units, *request.files))
    with running(**vars(resources), progress=progress) as execution, ExitStack() as stack:
        images, made, limits = open_pair(truth, bands, reading, execution)
        band = stack.enter_context(_whole(made, execution)).with_family(request.family)
        arguments = request.open(images, reading).arguments(images.pixels)
        arguments.pop("bound")  # an anytime calibration has its own
        measure = images.measure or made.measure
        anytime = AnytimeCalibration(images.pixels, band, limits=limits, measure=measure, **arguments)
    _warn_second_start(target, anytime)
    anytime.save(target)
    return anytime


def add_files(
    state: FilePath,
    truth: FilePath,
    bands: FilePath,
    *,
    out: FilePath | None = None,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    regions: Sequence[str] = (),
    features: FilePath | None = None,
    labels: FilePath | None = None,
    batch: str | None = None,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> Arrived:
    """Let the images of some files arrive; `out` is the calibration file, written where one can be certified.

    regions    of promises, as texts, on these images: "heart.npy,name=heart"
    batch      a name of these images, which count once under it
    """
    target = _target(out, state, truth, bands)
    with exclusive(_existing(state)):
        anytime = AnytimeCalibration.load(state)
        with running(**vars(resources), progress=progress) as execution, ExitStack() as stack:
            new = open_arrivals(anytime.start, truth, bands, reading, execution, regions, features, labels)
            images, band = new.images, stack.enter_context(_whole(new.bands, execution))
            units = None
            if anytime.by_unit or new.reading.units is not None:
                units = open_units(images, new.reading)
            else:
                warnings.warn(INDEPENDENT, stacklevel=2)
            try:
                counted = anytime.add(images.pixels, band, units=units, batch=batch, **new.given)
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


@contextmanager
def _whole(made: Any, execution: Any) -> Iterator[Band]:
    """The band of all images: as it lies, or of samples, in memory or in a temporary store."""
    with ExitStack() as stack:
        store = None
        if made.samples is not None and not made.fit_in_memory(execution):
            store = stack.enter_context(execution.folder()) / "bands.zarr"
        yield made.whole(execution, store)[0]


def _warn_second_start(target: Path, anytime: AnytimeCalibration) -> None:
    """Warn where a state that saw some of the same images is replaced: keeping the better one voids the promise."""
    if not target.exists():
        return
    try:
        before: Array = AnytimeCalibration.load(target).image_hashes
    except (OSError, ValueError):  # of another kind, of a user's own family, or damaged
        return
    again = int(is_known_image(anytime.image_hashes, before).sum())
    if again:
        warnings.warn(
            f"{target} held an anytime calibration of {again} of these images. "
            f"{second_try(anytime.start.failure_prob)}",
            stacklevel=2,
        )
