"""Bands in files to intervals: in a store that goes on where it stopped, in memory, or in a temporary store.

Images of different sizes are widened one by one and written in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from ..bands import calibrated_miscoverage
from ..calibration.result import Calibration
from ..execution import DONE, BadChunk, Execution, Maker, block_rows, fill, gather, growing, numbered, watched
from ..execution.blocks import each_image, ragged_to
from ..formats import open_images
from ..formats.inputs import Bands, open_bands, open_interval, open_labels
from ..formats.outputs import settle
from ..formats.stores import FilePath, Reading
from ..images import Array, Interval

_IN_MEMORY = 2**30  # bytes of intervals; more are kept in a temporary store


def bands_for(calibration: Calibration, path: FilePath, reading: Reading) -> Bands:
    """Bands of the kind that was calibrated: samples get the miscoverage that they had then."""
    level = calibrated_miscoverage(calibration.record.source)
    return open_bands(path, reading) if level is None else open_bands(path, reading, miscoverage=level)


def known_of(features: FilePath | None, groups: FilePath | None) -> dict[str, Any]:
    """What else is known of the images at test time."""
    images = None if features is None else open_images(features, window=None).pixels
    return {"features": images, "groups": None if groups is None else open_labels(groups)}


def _maker(calibration: Calibration, bands: Bands, known: dict[str, Any]) -> Maker:
    """What makes the intervals of images start..stop, with the mean length of each."""
    read, there = bands.reader(), bands.there

    def make(start: int, stop: int) -> dict[str, Array]:
        if there is not None and not there[start:stop].all():
            raise BadChunk(f"the bands of images {start} to {stop - 1} lack some that were skipped")
        now: dict[str, Any] = {name: None if x is None else x[start:stop] for name, x in known.items()}
        with numbered(start):
            interval = calibration.apply(read(start, stop), threads=False, **now)
        lower, upper = interval.lower, interval.upper
        length = _mean_of(upper) - _mean_of(lower)
        return {"lower": lower, "upper": upper, "length": length}

    return make


def _mean_of(images: Array) -> Array:
    return np.asarray(images.reshape(len(images), -1).mean(axis=1, dtype=np.float64))


def widen_to(
    path: Path,
    calibration: Calibration,
    bands: Bands,
    known: dict[str, Any],
    skip_bad: bool,
    about: dict[str, Any],
    request: dict[str, Any],
) -> tuple[Array, Array]:
    """Write the intervals of all images into a store; mean length and mark of each image."""
    pixels = prod(bands.shape[1:])
    arrays: dict[str, Any] = {name: (bands.shape, _dtype(bands)) for name in ("lower", "upper")}
    arrays["length"] = bands.shape[:1], np.float64
    about = {"pixelbounds": {"kind": "interval", **about}}
    rows = block_rows(bands.reads, pixels)
    with growing(path, arrays, rows=rows, about=about, request=request, settle=settle) as blocks:
        marks = fill(blocks, _maker(calibration, bands, known), bands.reads, pixels, skip_bad=skip_bad)
    return np.asarray(zarr.open_group(path, mode="r")["length"][:]), marks


def widen_ragged(
    path: Path, calibration: Calibration, bands: Bands, known: dict[str, Any], about: dict[str, Any]
) -> Array:
    """Write the intervals of images of different sizes into a store; mean length of each image."""
    if any(x is not None for x in known.values()):
        raise ValueError("features and groups are for images of one size, and these differ: leave them out")
    make, lengths = _maker(calibration, bands, known), []

    def one(image: int) -> dict[str, Array]:
        return {name: x[0] for name, x in make(image, image + 1).items()}

    def each() -> Iterator[dict[str, Array]]:
        for part in each_image(one, bands.reads, np.array([prod(shape) for shape in bands.shapes])):
            lengths.append(float(part["length"]))
            yield part

    about = {"pixelbounds": {"kind": "interval", **about}}
    ragged_to(path, bands.shapes, _dtype(bands), each(), about, settle)
    return np.array(lengths)


def widen(
    calibration: Calibration, bands: Bands, known: dict[str, Any], skip_bad: bool
) -> tuple[Interval, Array, Array]:
    """The intervals of all images in memory, with mean length and mark of each image."""
    make, pixels = _maker(calibration, bands, known), prod(bands.shape[1:])
    parts, marks = gather(make, bands.reads, len(bands), pixels, skip_bad=skip_bad)
    return Interval(parts["lower"], parts["upper"]), parts["length"], marks


def _dtype(bands: Bands) -> Any:
    """The precision of the band's ends."""
    return np.dtype(str(bands.reads[0].dtype).removeprefix("torch."))


def fit_in_memory(bands: Bands, execution: Execution) -> bool:
    """Whether both ends of all images may lie in memory, and are used in this process only."""
    pixels = sum(map(prod, bands.shapes)) if bands.ragged else prod(bands.shape)
    size = 2 * pixels * _dtype(bands).itemsize
    return execution.client is None and size <= min(_IN_MEMORY, execution.memory // 4)


@contextmanager
def intervals_of(
    calibration: Calibration, bands: Bands, known: dict[str, Any], execution: Execution, skip_bad: bool
) -> Iterator[tuple[Interval, Array]]:
    """Intervals in memory, or in a temporary store where they are many; and which images they have."""
    if bands.ragged:
        with execution.folder() as folder:
            widen_ragged(folder / "interval.zarr", calibration, bands, known, {})
            yield open_interval(folder / "interval.zarr"), np.ones(len(bands), bool)
        return
    if fit_in_memory(bands, execution):
        interval, _, marks = widen(calibration, bands, known, skip_bad)
        yield interval, marks == DONE
        return
    with execution.folder() as folder:
        path = folder / "interval.zarr"
        _, marks = widen_to(path, calibration, bands, known, skip_bad, {}, {})
        group = zarr.open_group(path, mode="r")
        yield Interval(watched(group["lower"]), watched(group["upper"])), marks == DONE
