"""What numbers in files stand for: those of new files must stand for what those of the calibration stood for.

A calibration knows its limits and, of NIfTI or DICOM files, the window. New files are read in the same way by default;
whatever says otherwise is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from math import inf
from pathlib import Path
from typing import Any

from ..calibration.calibration import Calibration
from ..formats.arrays import FilePath, Reading
from ..formats.inputs import Bands
from ..formats.maps import measure_of_maps
from ..formats.scans import Images
from ..images.checks import check_limits
from ..images.measure import Measure

SPACING = "pixel spacing"  # by this setting a record knows the size of the pixels, in millimetres
_ALIKE = 1.1  # pixels whose sizes differ by a larger factor are said


def reading_for(calibration: Calibration, reading: Reading, bands: Bands | None = None) -> Reading:
    """How files are read where a calibration is applied: through its window, within its limits; through the window of
    the run that the bands are of where the calibration has none.
    """
    seen = reading.as_in("the calibration", calibration.measure, calibration.limits)
    if calibration.measure is not None or bands is None:
        return seen
    return seen.as_in("the run of these bands", bands.measure, None)


def reading_by(path: FilePath, about: Mapping[str, Any], reading: Reading) -> Reading:
    """How truth is read for intervals that say what they are `about`, as most do and maps do."""
    state, limits = about.get("measure"), about.get("limits")
    measure = measure_of_maps(Path(path)) if state is None else Measure.from_state(state)
    return reading.as_in(str(path), measure, None if limits is None else check_limits(limits))


def check_bands(calibration: Calibration, path: FilePath, bands: Bands, reading: Reading) -> None:
    """Bands stand for what those of the calibration did, as far as both are known."""
    if bands.images is not None:
        check_images(calibration, path, bands.images, reading)
    elif calibration.measure is not None and bands.measure is not None:
        _check_same(calibration.measure, path, bands.measure)
    if bands.limits is not None and bands.limits != calibration.limits:
        ours, theirs = (" and ".join(f"{x:g}" for x in limits) for limits in (calibration.limits, bands.limits))
        raise ValueError(
            f"{path} has the limits {theirs}, but the calibration has {ours}, and the guarantee does not hold for it: "
            "calibrate again with such bands"
        )


def check_images(calibration: Calibration, path: FilePath, images: Images, reading: Reading) -> None:
    """Values of NIfTI and DICOM files became numbers as those of the calibration did; nobody guesses how.

    Pixels of another size than the calibration's, as far as files know it, are said.
    """
    if images.measure is None or images.geometry is None:
        return
    (low, high), (least, most) = images.geometry.spacing, calibration.record.settings.get(SPACING) or (0.0, inf)
    if low < least / _ALIKE or high > most * _ALIKE:
        warnings.warn(
            f"{path} has pixels of {_millimetres(low, high)}, and the calibration images had "
            f"{_millimetres(least, most)}: the guarantee is about images like those; is this the same kind of scan?",
            stacklevel=2,
        )
    if calibration.measure is not None:
        _check_same(calibration.measure, path, images.measure)
    elif reading.measure is None:
        raise ValueError(
            f"{path} holds values that a window maps to [0, 1], and the calibration does not know its window: give "
            "one, such as --window 400 40, or --raw where values stayed as they were"
        )


def _millimetres(least: float, most: float) -> str:
    return f"{least:g} mm" if least == most else f"{least:g} to {most:g} mm"


def _check_same(calibrated: Measure, path: FilePath, measure: Measure) -> None:
    if not calibrated.same_as(measure):
        raise ValueError(
            f"{path} has {measure}, but the calibration is about {calibrated}, and its guarantee does not hold for "
            "other numbers: make the bands through the calibration's window, or calibrate again with such images"
        )
