"""Monitor on files: a state that one command a day adds to.

The state is one sealed file with its calibration. A command locks it, counts, and replaces it in one step: killed at
any moment it has counted all of its images or none. Run again it counts nothing twice: the same images are recognised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..calibration.calibration import Calibration, load_calibration
from ..execution.runner import Execution, running
from ..formats.arrays import FilePath, Reading
from ..formats.inputs import Bands, check_pair, open_truth, open_units
from ..formats.scans import Images
from ..images.checks import check_limits
from ..images.library import Array
from ..monitoring import Monitor, Status, load_monitor, save_monitor
from ..monitoring.arrivals import RepeatedBatch
from ..storage.files import exclusive
from .agreement import check_images, reading_for
from .apply import bands_for
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
    state: FilePath,
    truth: FilePath,
    bands: FilePath,
    *,
    calibration: FilePath | None = None,
    false_alarm: float | None = None,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    new: ArrivalOptions = ArrivalOptions(),  # noqa: B008 - frozen
    when: float | None = None,
    resources: Resources = Resources(),  # noqa: B008 - frozen
) -> Status:
    """Count images whose truth is known now; `when` is the time in seconds since 1970, by default now."""
    with held_state(state, calibration, false_alarm) as monitor, running(**vars(resources)) as run:
        arrived = open_arrivals(monitor.calibration, truth, bands, reading, run, new)
        band, _ = arrived.bands.whole(run, None)
        units = open_units(arrived.images, arrived.reading) if monitor.calibration.record.units else None
        update = partial(monitor.update, arrived.images.pixels, band, units=units, **arrived.given)
        return _status_of(monitor, len(band), update, when, new.batch)


class Arrivals(NamedTuple):
    """True images and bands in files, how they are read, and what else is given with them."""

    images: Images
    bands: Bands
    reading: Reading
    given: dict[str, Any]


def open_arrivals(
    calibration: Calibration, truth: FilePath, bands: FilePath, reading: Reading, run: Execution, new: ArrivalOptions
) -> Arrivals:
    """Open images with their truth as those of a calibration were."""
    made = bands_for(calibration, bands, reading, run)
    reading = reading_for(calibration, reading, made)
    images = open_truth(truth, reading, check_limits(reading.limits or (0.0, 1.0)), made)
    check_images(calibration, truth, images, reading)
    check_pair(images, made, reading)
    within = named_regions(new.regions or (), images, reading)
    given = {"within": within, **known_of(new.features, new.labels, images)}
    return Arrivals(images, made, reading, given)


def check_drift_state(
    state: FilePath,
    bands: FilePath,
    *,
    calibration: FilePath | None = None,
    false_alarm: float | None = None,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    new: ArrivalOptions = ArrivalOptions(),  # noqa: B008 - frozen
    when: float | None = None,
    resources: Resources = Resources(),  # noqa: B008 - frozen
) -> Status:
    """Check bands of images without truth for drift."""
    with held_state(state, calibration, false_alarm) as monitor, running(**vars(resources)) as run:
        made = bands_for(monitor.calibration, bands, reading, run)
        band, _ = made.whole(run, None)
        units = _units_of(made, reading, len(band)) if monitor.calibration.record.units else None
        check = partial(monitor.check_drift, band, units=units, **known_of(new.features, new.labels, made.images))
        return _status_of(monitor, len(band), check, when, new.batch)


def _status_of(
    monitor: Monitor, images: int, count: Callable[..., Status], when: float | None, batch: str | None
) -> Status:
    """The status once so many images are counted; it says where the command was run again and all were before."""
    try:
        return count(when=time.time() if when is None else when, batch=batch)
    except RepeatedBatch as repeated:
        if repeated.images < images:
            raise
        return monitor.status(repeated=images)


def _units_of(made: Any, reading: Reading, n: int) -> Array | None:
    """The unit of each image of bands: of a file of names, or what the images' own files say."""
    if made.images is not None:
        return open_units(made.images, reading)
    return None if reading.units is None else open_units(Images(np.empty((n, 0)), ("",) * n), reading)
