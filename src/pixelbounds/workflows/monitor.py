"""Monitor on files: a state that one command a day adds to.

The state is one sealed file with its calibration. A command holds it against others, reads it, counts, and puts the new
state in place of the old in one step: killed at any moment it has counted all of its images or none. Run again it
counts what is missing, since images that were counted are known again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.calibration import load_calibration
from ..execution.progress import Progress, silent
from ..execution.runner import running
from ..formats.arrays import FilePath, Reading
from ..formats.inputs import check_pair, open_truth, open_units
from ..formats.scans import Images
from ..images.checks import check_limits
from ..images.library import Array
from ..monitoring import Monitor, Status, load_monitor, save_monitor
from ..storage.files import exclusive, lock
from .agreement import check_images, reading_for
from .apply import bands_for, known_of
from .promise_regions import named_regions
from .resources import Resources

FALSE_ALARM = 0.01
_TRIES = 20  # to hold a state that others replace


@contextmanager
def held_state(state: FilePath, calibration: FilePath | None, false_alarm: float | None) -> Iterator[Monitor]:
    """The monitor of a state, made of a calibration where there is none, held by this process alone.

    What the block leaves is written at its end; an error leaves the file as it was.
    """
    path = Path(state)
    if not path.exists():
        if calibration is None:
            raise ValueError(f"there is no monitor at {path}; give --calibration to begin one")
        with exclusive(path.absolute().parent):
            if not path.exists():
                level = FALSE_ALARM if false_alarm is None else false_alarm
                save_monitor(Monitor(load_calibration(calibration), level), path)
    handle = _held(path)
    try:
        monitor = load_monitor(path)
        if calibration is not None and load_calibration(calibration).to_bytes() != monitor.calibration.to_bytes():
            raise ValueError(f"{path} watches another calibration than {calibration}; give a state of its own to each")
        if false_alarm is not None and false_alarm != monitor.false_alarm:
            raise ValueError(
                f"{path} was begun with --false-alarm {monitor.false_alarm:g}, which cannot be changed: begin another"
            )
        yield monitor
        save_monitor(monitor, path)
    finally:
        os.close(handle)


def _held(path: Path) -> int:
    """Hold the file that has this name now; one that another process replaced meanwhile is looked for again."""
    for _ in range(_TRIES):
        try:
            return lock(path)
        except FileNotFoundError:
            time.sleep(0.05)
    return lock(path)


def update_state(
    state: FilePath,
    truth: FilePath,
    bands: FilePath,
    *,
    calibration: FilePath | None = None,
    false_alarm: float | None = None,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    regions: Sequence[str] = (),
    features: FilePath | None = None,
    labels: FilePath | None = None,
    when: float | None = None,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> Status:
    """Count images whose truth is known now.

    regions        of promises, on these images: "labels.nii.gz:2,name=heart"
    when           the time in seconds since 1970, by default now
    """
    with held_state(state, calibration, false_alarm) as monitor:
        cal = monitor.calibration
        with running(**vars(resources), progress=progress) as execution:
            made = bands_for(cal, bands, reading, execution)
            own = reading_for(cal, reading, made)
            images = open_truth(truth, own, check_limits(own.limits or (0.0, 1.0)))
            check_images(cal, truth, images, own)
            check_pair(images, made, own)
            band, _ = made.whole(execution, None)
            return monitor.update(
                images.pixels, band, units=open_units(images, own) if cal.record.units else None,
                within=named_regions(regions, images, own), when=time.time() if when is None else when,
                **known_of(features, labels, images),
            )  # fmt: skip


def look_state(
    state: FilePath,
    bands: FilePath,
    *,
    calibration: FilePath | None = None,
    false_alarm: float | None = None,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    features: FilePath | None = None,
    labels: FilePath | None = None,
    when: float | None = None,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> Status:
    """Look at bands of images without truth."""
    with held_state(state, calibration, false_alarm) as monitor:
        cal = monitor.calibration
        with running(**vars(resources), progress=progress) as execution:
            made = bands_for(cal, bands, reading, execution)
            band, _ = made.whole(execution, None)
            units = _units_of(made, reading, len(band)) if cal.record.units else None
            now = time.time() if when is None else when
            return monitor.check_drift(band, units=units, when=now, **known_of(features, labels, made.images))


def _units_of(made: Any, reading: Reading, n: int) -> Array | None:
    """The unit of each image of bands: of a file of names, or what the images' own files say."""
    if made.images is not None:
        return open_units(made.images, reading)
    return None if reading.units is None else open_units(Images(np.empty((n, 0)), ("",) * n), reading)
