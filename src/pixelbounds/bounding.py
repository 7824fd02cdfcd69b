"""What the commands do, callable from Python: calibrate, apply, evaluate and report on files, and plan ahead.

Every function reads its files block by block where their kind allows, and writes aside before it renames: whatever
happens, an output is whole or not there.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import Interval, Limits, check_count, check_limits
from .calibrate import calibrate
from .calibration import Calibration, load_calibration
from .data import Images, Progress, open_images, write_interval
from .data.contract import silent
from .evaluate import evaluate
from .evaluation import Evaluation
from .inputs import (
    Bands,
    FilePath,
    Reading,
    check_pair,
    open_bands,
    open_interval,
    open_labels,
    open_truth,
    open_units,
    told,
)
from .outputs import INTERVALS, aside, check_target, new_store, put
from .report import Example, examples_of, save_figures, write_report
from .version import VERSION

_IN_MEMORY = 2**30  # bytes of intervals; more are kept in a temporary store
_NAMED_GROUPS = ("learned", "band", "loss", "squared", "otsu")


# ---------------------------------------------------------------- calibrate


def calibrate_files(
    truth: FilePath,
    bands: FilePath,
    out: FilePath,
    *,
    risk_level: float,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    groups: str | None = None,
    features: FilePath | None = None,
    replace: bool = False,
    progress: Progress = silent,
    **choices: Any,
) -> Calibration:
    """Calibrate on files and write the calibration file; `choices` are those of `pixelbounds.calibrate`."""
    target = check_target(out, (".safetensors",), replace=replace)
    made = open_bands(bands, reading)
    limits = limits_of(reading, made)
    images = open_truth(truth, reading, limits)
    check_pair(images.pixels, made)
    labels = open_labels(groups) if groups is not None and groups not in _NAMED_GROUPS else groups
    calibration = calibrate(
        images.pixels,
        made.whole(progress),
        risk_level=risk_level,
        groups=labels,
        features=None if features is None else open_images(features, window=None).pixels,
        units=open_units(images, reading),
        limits=limits,
        **choices,
    )
    calibration.save(target)
    return calibration


def limits_of(reading: Reading, bands: Bands) -> Limits:
    """The limits that were asked for, else those of a run, else 0 and 1."""
    return check_limits(reading.limits or bands.limits or (0.0, 1.0))


# ---------------------------------------------------------------- apply


@dataclass(frozen=True)
class Applied:
    """Where intervals were written, their shape, and their mean length."""

    path: Path
    shape: tuple[int, ...]
    mean_length: float
    calibration: Calibration


def apply_files(
    calibration: FilePath,
    bands: FilePath,
    out: FilePath,
    *,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    like: FilePath | None = None,
    groups: FilePath | None = None,
    features: FilePath | None = None,
    replace: bool = False,
    progress: Progress = silent,
) -> Applied:
    """Write the intervals of new bands: a zarr store block by block; .npz, NIfTI and DICOM through memory.

    like           a NIfTI file or DICOM folder whose geometry the intervals get; by default that of the bands
    """
    target = check_target(out, INTERVALS, replace=replace, folder=True)
    found = load_calibration(calibration)
    made = _bands_for(found, bands, reading)
    space = made.images if like is None else open_images(like, window=reading.window)
    if like is not None and space is not None and tuple(space.pixels.shape) != made.shape:
        raise ValueError(
            f"{like} has shape {tuple(space.pixels.shape)}, but the bands have {made.shape}; they must agree"
        )
    if target.suffix not in (".zarr", ".npz") and (space is None or space.geometry is None):
        raise ValueError(f"{target} needs the geometry of a scan; give the NIfTI file or DICOM folder with --like")
    known = _known(features, groups)
    if target.suffix == ".zarr":
        digest = hashlib.sha256(Path(calibration).read_bytes()).hexdigest()
        promise = {"guarantee": found.guarantee, "risk_level": found.risk_level}
        with aside(target) as part:
            about = {**promise, "calibration": digest, "version": VERSION}
            ends = new_store(part, made.shape, _dtype(made), about, made.step)
            mean_length = _widen(found, made, *ends, known, progress)
    else:
        ends = _new_arrays(made)
        mean_length = _widen(found, made, *ends, known, progress)
        target = write_interval(target, Interval(*ends), like=space)
    return Applied(target, made.shape, mean_length, found)


def _bands_for(calibration: Calibration, path: FilePath, reading: Reading) -> Bands:
    """Bands of the kind that was calibrated: samples get the miscoverage that they had then."""
    quantiles, _, level = calibration.record.source.rpartition(" miscoverage ")
    if quantiles == "calibrated quantiles,":
        return open_bands(path, reading, miscoverage=Fraction(level))
    return open_bands(path, reading)


def _known(features: FilePath | None, groups: FilePath | None) -> dict[str, Any]:
    """What else is known of the images at test time."""
    images = None if features is None else open_images(features, window=None).pixels
    return {"features": images, "groups": None if groups is None else open_labels(groups)}


def _widen(
    calibration: Calibration, bands: Bands, lower: Any, upper: Any, known: dict[str, Any], progress: Progress
) -> float:
    """Put the intervals of all images into two arrays, a few images at a time; their mean length."""
    n, total = len(bands), 0.0
    chunk = lower.chunks[0] if hasattr(lower, "chunks") else 1
    step, written = max(1, bands.step // chunk) * chunk, None
    with ThreadPoolExecutor(1) as writer:  # an interrupt waits for what is being written, so that it can be removed
        for start in range(0, n, step):
            at = slice(start, min(n, start + step))
            now = {name: None if x is None else x[at] for name, x in known.items()}
            interval = calibration.apply(bands[at], **now)
            total += float(np.sum(interval.upper, dtype=np.float64) - np.sum(interval.lower, dtype=np.float64))
            if written is not None:
                written.result()
            written = writer.submit(_put, lower, upper, start, interval)
            progress(at.stop, n)
        if written is not None:
            written.result()
    return total / prod(bands.shape)


def _put(lower: Any, upper: Any, start: int, interval: Interval) -> None:
    put(lower, start, interval.lower)
    put(upper, start, interval.upper)


def _dtype(bands: Bands) -> Any:
    return bands[0:1].lower.dtype


def _new_arrays(bands: Bands) -> tuple[Any, Any]:
    return np.empty(bands.shape, _dtype(bands)), np.empty(bands.shape, _dtype(bands))


# ---------------------------------------------------------------- evaluate and report


@dataclass(frozen=True, eq=False)
class Evaluated:
    """What held-out images say of intervals, and whether that contradicts what was promised, where that is known."""

    evaluation: Evaluation
    risk_level: float | None
    guarantee: str | None

    @property
    def contradicted(self) -> bool:
        """Even the low end of the risk's interval lies above the level that was promised."""
        return self.risk_level is not None and self.evaluation.risk_interval[0] > self.risk_level


@contextmanager
def _intervals(calibration: Calibration, bands: Bands, known: dict[str, Any], progress: Progress) -> Iterator[Interval]:
    """Intervals in memory, or in a temporary store where they are many."""
    if 2 * prod(bands.shape) * _dtype(bands).itemsize <= _IN_MEMORY:
        ends = _new_arrays(bands)
        _widen(calibration, bands, *ends, known, progress)
        yield Interval(*ends)
        return
    with tempfile.TemporaryDirectory(prefix="pixelbounds.") as folder:
        ends = new_store(Path(folder) / "interval.zarr", bands.shape, _dtype(bands), {}, bands.step)
        _widen(calibration, bands, *ends, known, progress)
        yield Interval(*ends)


@dataclass(frozen=True, eq=False)
class _HeldOut:
    """Held-out images, with bands and intervals where a calibration made them."""

    images: Images
    interval: Interval
    bands: Bands | None
    calibration: Calibration | None
    result: Evaluated


@contextmanager
def _held_out(
    truth: FilePath,
    intervals: FilePath,
    calibration: FilePath | None,
    reading: Reading,
    groups: FilePath | None,
    features: FilePath | None,
    progress: Progress,
) -> Iterator[_HeldOut]:
    """Evaluate intervals, or the bands that a calibration turns into intervals; they may lie in a temporary store."""
    found = None if calibration is None else load_calibration(calibration)
    bands = None if found is None else _bands_for(found, intervals, reading)
    images = open_truth(truth, reading, found.limits if found else check_limits(reading.limits or (0.0, 1.0)))
    by: dict[str, Any] = {
        "groups": None if groups is None else open_labels(groups),
        "units": open_units(images, reading),
    }
    if found is None or bands is None:
        interval, about = open_interval(intervals, reading), told(intervals)
        result = Evaluated(evaluate(images.pixels, interval, **by), about.get("risk_level"), about.get("guarantee"))
        yield _HeldOut(images, interval, None, None, result)
        return
    check_pair(images.pixels, bands)
    known = _known(features, groups if found.grouping.kind == "segmentation" else None)
    with _intervals(found, bands, known, progress) as interval:
        fresh = bands.known.get("held_out")
        evaluation = evaluate(images.pixels, interval, samples=fresh, **by)
        yield _HeldOut(images, interval, bands, found, Evaluated(evaluation, found.risk_level, found.guarantee))


def evaluate_files(
    truth: FilePath,
    intervals: FilePath,
    *,
    calibration: FilePath | None = None,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    groups: FilePath | None = None,
    features: FilePath | None = None,
    progress: Progress = silent,
) -> Evaluated:
    """Evaluate intervals, or the bands that a calibration turns into intervals, against held-out truth.

    groups         labels by which the risk is broken down: a partition or a segmentation
    """
    with _held_out(truth, intervals, calibration, reading, groups, features, progress) as held_out:
        return held_out.result


def report_files(
    truth: FilePath,
    bands: FilePath,
    calibration: FilePath,
    out: FilePath,
    *,
    title: str,
    figures: FilePath | None = None,
    examples: int | Sequence[int] = 12,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    groups: FilePath | None = None,
    features: FilePath | None = None,
    notes: Sequence[str] = (),
    replace: bool = False,
    progress: Progress = silent,
) -> tuple[Evaluated, list[Path]]:
    """Evaluate on held-out images and write the page, and figures where a folder for them is given; all their paths.

    examples       how many images to show, from the best covered to the worst, or which
    """
    target = check_target(out, (".html",), replace=replace)
    with _held_out(truth, bands, calibration, reading, groups, features, progress) as held_out:
        pictures = _examples(held_out, shown(held_out.result.evaluation, examples))
    about: dict[str, Any] = {"calibration": held_out.calibration, "evaluation": held_out.result.evaluation}
    about["examples"] = pictures
    drawn = [] if figures is None else save_figures(figures, **about)
    return held_out.result, [write_report(target, title=title, notes=notes, **about), *drawn]


def shown(evaluation: Evaluation, examples: int | Sequence[int]) -> list[int]:
    """Images to look at: those named, or so many from the best covered to the worst."""
    n = len(evaluation.by_image)
    if not isinstance(examples, int):
        return [check_count(i, "image", least=0, most=n - 1) for i in examples]
    ranked = evaluation.worst(n)[::-1]
    return [int(i) for i in ranked[np.unique(np.linspace(0, n - 1, min(n, examples)).round().astype(int))]]


def _examples(held_out: _HeldOut, chosen: list[int]) -> list[Example]:
    """Examples of some images, with all that the files know of them."""
    out, images, bands = [], held_out.images, held_out.bands
    for i in chosen:
        at = slice(i, i + 1)
        part = Interval(held_out.interval.lower[at], held_out.interval.upper[at])
        known: dict[str, Any] = {}
        if bands is not None:
            more = {**bands.known, **({} if bands.samples is None else {"samples": bands.samples})}
            known = {name: x[at] for name, x in more.items() if name != "held_out"} | {"band": bands[at]}
        out += examples_of(part, [0], names=[images.names[i]], truth=images.pixels[at], **known)
    return out
