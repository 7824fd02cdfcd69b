"""Intervals in files: what `pixelbounds apply` wrote, in any of its formats, and what else has lower and upper."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..images.ends import Interval
from ..images.library import Array
from ..images.measure import Measure
from ..storage.store import BAD, MARKS
from .arrays import FilePath, Reading, existing, is_store, parts_at, store_at, told
from .inputs import folder_parts
from .maps import maps_of, measure_of_maps
from .nifti import NIFTI_SUFFIXES
from .opener import open_images


def open_interval(path: FilePath, reading: Reading = Reading()) -> Interval:  # noqa: B008
    """The intervals that `pixelbounds apply` wrote, or anything else with `lower` and `upper`."""
    path = Path(path)
    if path.name.endswith(NIFTI_SUFFIXES) and not path.exists():  # written as NAME_lower.nii.gz and so on
        files = {part: maps_of(path, part) for part in ("lower", "upper")}
        if files["lower"] and len(files["lower"]) == len(files["upper"]):
            ends = {part: _together(found, reading) for part, found in files.items()}
            return Interval(ends["lower"], ends["upper"], measure=measure_of_maps(path))
    path = existing(path, "intervals: a file or folder with lower and upper of shape (n, *pixels)")
    if path.is_dir() and not is_store(path):
        parts = folder_parts(path, reading)
        return Interval(parts["lower"].pixels, parts["upper"].pixels, measure=parts["lower"].measure)
    arrays = parts_at(path, reading)
    if not {"lower", "upper"} <= arrays.keys():
        held = ", ".join(name or "one array" for name in arrays)
        raise ValueError(
            f"{path} holds {held}, not lower and upper; give intervals, or bands and the calibration (--calibration)"
        )
    measure = told(path).get("measure")
    known = None if measure is None else Measure.from_state(measure)
    return Interval(arrays["lower"], arrays["upper"], measure=known)


def open_marks(path: FilePath, n: int) -> Array:
    """Which images a store of intervals has, (n,) bool: all but those that were skipped."""
    node = store_at(Path(path)) if told(path) else {}
    return np.asarray(node[MARKS][:]) != BAD if MARKS in node else np.ones(n, bool)


def _together(files: list[Path], reading: Reading) -> Array:
    """The slices of several scans."""
    return np.concatenate([open_images(file, window=reading.mapping).pixels for file in files])
