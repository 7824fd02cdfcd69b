"""A anytime calibration on files: begin it, let images arrive, look.

The state is one sealed file. Who adds to it holds it against others, and writes it aside before it takes its name: a
command that is killed has counted all of its images or none, and may be run again, for an image counts once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..calibration.image_hashes import is_known_image
from ..calibration.methods import NAMED_GROUPS
from ..calibration.text import second_try
from ..execution.progress import Progress, silent
from ..execution.runner import running
from ..formats.arrays import FilePath, Reading
from ..formats.inputs import INDEPENDENT, check_pair, open_bands, open_labels, open_pair, open_truth, open_units
from ..formats.opener import check_target, open_images
from ..images.checks import check_limits
from ..images.ends import Band
from ..images.library import Array
from ..monitoring.anytime import AnytimeCalibration
from ..storage.chunks import guarded
from ..storage.files import exclusive
from .agreement import check_bands, check_images, reading_for
from .promise_regions import PromiseRegions, map_paths, named_regions
from .promise_words import promise_texts
from .resources import Resources

_STATE = (".safetensors",)


@dataclass(frozen=True, eq=False)
class Arrived:
    """A anytime calibration after some files, how many of their images were counted, and how many were before."""

    growing: AnytimeCalibration
    counted: int
    known: int


def start_files(
    state: FilePath,
    truth: FilePath,
    bands: FilePath,
    *,
    risk_level: float | None = None,
    promises: Sequence[str] = (),
    reading: Reading = Reading(),  # noqa: B008 - frozen
    groups: str | None = None,
    features: FilePath | None = None,
    labels: FilePath | None = None,
    unit_name: str | None = None,
    replace: bool = False,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
    **choices: Any,
) -> AnytimeCalibration:
    """Begin an anytime calibration with the images of some files, and write its state.

    Options are those of `calibrate_files`.
    """
    said = promise_texts(promises) if promises else ()
    if (risk_level is None) == (not said):
        raise ValueError("give --risk-level, the share of all pixels that may be missed, such as 0.1, or --promise")
    reads = (truth, bands, groups, features, labels, reading.units, *(map_paths(said) if said else ()))
    target = check_target(state, _STATE, replace=replace, inputs=reads)
    with running(**vars(resources), progress=progress) as execution, ExitStack() as stack:
        images, made, limits = open_pair(truth, bands, reading, execution)
        band = stack.enter_context(_whole(made, execution))
        units = open_units(images, reading)
        own = images.unit_name if reading.units is None else None
        regions = PromiseRegions.open(said, images, reading) if said else None
        growing = AnytimeCalibration(
            images.pixels, band, risk_level=risk_level,
            promises=regions.promises(images.pixels, lambda x: x) if regions else None,
            groups=groups if groups is None or groups in NAMED_GROUPS else open_labels(groups, images),
            features=_features(features), labels=None if labels is None else open_labels(labels, images), units=units,
            unit_name=unit_name or own or "unit", limits=limits, measure=images.measure or made.measure, **choices,
        )  # fmt: skip
    _tell_a_second_start(target, growing)
    growing.save(target)
    return growing


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
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> Arrived:
    """Let the images of some files arrive; `out` is the calibration file, written where one can be certified.

    `regions` of promises are texts, "heart.npy,name=heart". Images that were counted before are left out.
    """
    target = _target(out, state, truth, bands)
    with exclusive(_existing(state)):
        growing = AnytimeCalibration.load(state)
        asked = reading
        reading = reading_for(growing, reading)
        with running(**vars(resources), progress=progress) as execution, ExitStack() as stack:
            made = open_bands(bands, reading, execution=execution)
            check_bands(growing, bands, made, asked)
            reading = reading_for(growing, reading, made)
            images = open_truth(truth, reading, check_limits(reading.limits))
            check_images(growing, truth, images, reading)
            check_pair(images, made, reading)
            band = stack.enter_context(_whole(made, execution))
            units = None
            if growing.by_unit or reading.units is not None:
                units = open_units(images, reading)
            else:
                warnings.warn(INDEPENDENT, stacklevel=2)
            counted = growing.add(
                images.pixels, band, within=named_regions(regions, images, reading), features=_features(features),
                labels=None if labels is None else open_labels(labels, images), units=units, skip_known=True,
            )  # fmt: skip
        if counted:
            growing.save(state)
        save_certified(growing, target)
    return Arrived(growing, counted, len(images) - counted)


def look_files(state: FilePath, *, out: FilePath | None = None) -> AnytimeCalibration:
    """What a state says now; `out` is the calibration file, written where one can be certified."""
    target = _target(out, state)
    growing = AnytimeCalibration.load(_existing(state))
    save_certified(growing, target)
    return growing


def save_certified(growing: AnytimeCalibration, target: Path | None) -> None:
    """Write the calibration that is certified now, where there is one, in place of an earlier one."""
    found = growing.certified
    if target is not None and found is not None:
        found.save(target)


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


def _features(features: FilePath | None) -> Any:
    return None if features is None else guarded(open_images(features, window=None).pixels)


def _tell_a_second_start(target: Path, growing: AnytimeCalibration) -> None:
    """Where a state that saw some of the same images is replaced, say what keeping the better one costs."""
    if not target.exists():
        return
    try:
        before: Array = AnytimeCalibration.load(target).image_hashes
    except (OSError, ValueError):  # of another kind, of a family of the user's own, or damaged: nobody can tell
        return
    again = int(is_known_image(growing.image_hashes, before).sum())
    if again:
        warnings.warn(
            f"{target} held an anytime calibration of {again} of these images. {second_try(growing.failure_prob)}",
            stacklevel=2,
        )
