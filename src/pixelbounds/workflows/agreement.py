"""What numbers in files stand for: those of new files must stand for what those of the calibration stood for.

A calibration knows its limits, and, made of NIfTI or DICOM files, the window through which their values were seen. New
files are read in the same way, without being told; whatever says otherwise is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from ..formats.arrays import FilePath, Reading
from ..formats.inputs import Bands
from ..formats.maps import measure_of_maps
from ..formats.scans import Images
from ..images.checks import Limits, check_limits
from ..images.measure import Measure


class Measured(Protocol):
    """What is known of the numbers of a calibration (`Calibration`, `AnytimeCalibration`)."""

    @property
    def limits(self) -> Limits:
        """Least and greatest possible value."""

    @property
    def measure(self) -> Measure | None:
        """What they stand for, where that is known."""


def reading_for(calibration: Measured, reading: Reading, bands: Bands | None = None) -> Reading:
    """How files are read where a calibration is applied: through its window, within its limits.

    One that knows no window leaves it to the run that the bands are of, where that knows one.
    """
    told = reading.as_in("the calibration", calibration.measure, calibration.limits)
    if calibration.measure is not None or bands is None:
        return told
    return told.as_in("the run of these bands", bands.measure, None)


def reading_by(path: FilePath, about: Mapping[str, Any], reading: Reading) -> Reading:
    """How truth is read for intervals that say what they are `about`, as maps do too; of some it is not known."""
    measure = about.get("measure")
    limits = about.get("limits")
    known = measure_of_maps(Path(path)) if measure is None else Measure.from_state(measure)
    return reading.as_in(str(path), known, None if limits is None else check_limits(limits))


def check_bands(calibration: Measured, path: FilePath, bands: Bands, told: Reading) -> None:
    """Bands stand for what those of the calibration did, as far as both are known."""
    if bands.images is not None:
        check_images(calibration, path, bands.images, told)
    elif calibration.measure is not None and bands.measure is not None:
        _check_same(calibration.measure, path, bands.measure)
    if bands.limits is not None and bands.limits != calibration.limits:
        ours = " and ".join(f"{x:g}" for x in calibration.limits)
        theirs = " and ".join(f"{x:g}" for x in bands.limits)
        raise ValueError(
            f"{path} has the limits {theirs}, but the calibration has {ours}, and the guarantee does not hold for it: "
            "calibrate again with such bands"
        )


def check_images(calibration: Measured, path: FilePath, images: Images, told: Reading) -> None:
    """Values of NIfTI and DICOM files became numbers as those of the calibration did; nobody guesses how."""
    if images.measure is None:
        return
    if calibration.measure is not None:
        _check_same(calibration.measure, path, images.measure)
    elif told.measure is None:
        raise ValueError(
            f"{path} holds values that a window maps to [0, 1], and the calibration does not know through which its "
            "numbers came about: say it, such as --window 400 40, or --raw where values stayed as they were"
        )


def _check_same(known: Measure, path: FilePath, found: Measure) -> None:
    if not known.same_as(found):
        raise ValueError(
            f"{path} has {found}, but the calibration is about {known}, and its guarantee does not hold for other "
            "numbers: calibrate again with such images"
        )
