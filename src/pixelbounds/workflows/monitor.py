"""Monitor on files: a state that one command a day adds to.

The state is one sealed file with its calibration. A command locks it, counts, and replaces it in one step: killed at
any moment it has counted all of its images or none. Run again it counts nothing twice: the same images are recognised.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.calibration import Calibration
from ..calibration.calibration_file import load_calibration
from ..execution.runner import Execution, running
from ..formats.arrays import FilePath, Reading
from ..formats.inputs import Bands, open_units
from ..formats.scans import Images
from ..monitoring import Monitor, Status, load_monitor, save_monitor
from ..monitoring.arrivals import RepeatedBatch
from ..storage.files import exclusive
from .apply import bands_for, open_beside
from .calibrate import known_of
from .promise_words import named_regions
from .request import ArrivalOptions, Resources

FALSE_ALARM = 0.01


@contextmanager
def held_state(state: FilePath, calibration: FilePath | None, false_alarm: float | None) -> Iterator[Monitor]:
    """The monitor of a state, made of a calibration where there is none, locked by this process alone.

    It is written at the end of the block; an error leaves the file as it was.
    """
    path = Path(state)
    if not path.exists():
        if calibration is None:
            raise ValueError(f"there is no monitor at {path}; give --calibration to begin one")
        with exclusive(path.absolute().parent):
            if not path.exists():
                level = FALSE_ALARM if false_alarm is None else false_alarm
                save_monitor(Monitor(load_calibration(calibration), level), path)
    with exclusive(path):
        monitor = load_monitor(path)
        if calibration is not None and load_calibration(calibration).to_bytes() != monitor.calibration.to_bytes():
            raise ValueError(f"{path} monitors another calibration than {calibration}; give a state of its own to each")
        if false_alarm is not None and false_alarm != monitor.false_alarm:
            raise ValueError(
                f"{path} was begun with --false-alarm {monitor.false_alarm:g}, which cannot be changed: begin another"
            )
        yield monitor
        save_monitor(monitor, path)


def update_state(
    state: FilePath, truth: FilePath | None, bands: FilePath, *, calibration: FilePath | None = None,
    false_alarm: float | None = None, reading: Reading = Reading(), new: ArrivalOptions = ArrivalOptions(),
    when: float | None = None, resources: Resources = Resources(),
) -> Status:  # fmt: skip
    """Count images whose truth is known now, or without `truth` compare their bands with those of the calibration.

    `when` is the time in seconds since 1970, by default now. The status says where the command was run again and all
    images were counted before.
    """
    with held_state(state, calibration, false_alarm) as monitor, running(**vars(resources)) as run:
        images: Images | None
        if truth is None:
            made = bands_for(monitor.calibration, bands, reading, run)
            images, given = made.images, known_of(new.features, new.labels, made.images)
            if images is None and reading.units is not None:  # a file of names says whose the bands are
                images = Images(np.empty((len(made), 0)), ("",) * len(made))
        else:
            images, made, reading, given = open_arrivals(monitor.calibration, truth, bands, reading, run, new)
            given = {"truth": images.pixels, **given}
        band, _ = made.whole(run, None)
        units = open_units(images, reading) if monitor.calibration.record.units and images is not None else None
        count = monitor.check_drift if truth is None else monitor.update
        when = time.time() if when is None else when
        try:
            return count(band=band, units=units, when=when, batch=new.batch, **given)
        except RepeatedBatch as repeated:
            if repeated.images < len(band):
                raise
            return monitor.status(repeated=len(band))


def open_arrivals(
    calibration: Calibration, truth: FilePath, bands: FilePath, reading: Reading, run: Execution, new: ArrivalOptions
) -> tuple[Images, Bands, Reading, dict[str, Any]]:
    """True images and bands in files, how they are read, and what else is given with them."""
    images, made, reading = open_beside(calibration, truth, bands, reading, run)
    within = named_regions(new.regions or (), images, reading)
    return images, made, reading, {"within": within, **known_of(new.features, new.labels, images)}
