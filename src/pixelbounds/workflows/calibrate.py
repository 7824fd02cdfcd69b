"""What the commands do, callable from Python: calibrate, apply, evaluate and report on files, and plan ahead.

Every function reads its files block by block where their kind allows, in threads or on a cluster (`execution`), and
writes aside before it renames: whatever happens, an output is whole or not there. Intervals that grow in a store go on
where they stopped.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.front_door import calibrate
from ..calibration.result import Calibration, load_calibration
from ..evaluation import Evaluation
from ..evaluation.held_out import evaluate
from ..execution import (
    BAD,
    DONE,
    Execution,
    pick,
    readable,
    running,
    watched,
    where,
)
from ..formats import Images, Progress, open_images, write_interval
from ..formats.inputs import (
    Bands,
    check_pair,
    open_bands,
    open_interval,
    open_labels,
    open_marks,
    open_truth,
    open_units,
)
from ..formats.outputs import INTERVALS, check_target
from ..formats.scans import silent
from ..formats.stores import FilePath, Reading, told
from ..images import Array, Interval, Limits, check_count, check_limits
from ..report import Example, examples_of, save_figures, write_report
from ..storage.version import VERSION
from .apply import bands_for, fit_in_memory, intervals_of, known_of, widen, widen_ragged, widen_to

_NAMED_GROUPS = ("learned", "band", "loss", "squared", "otsu")


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Where passes over images run and what they may use; see `pixelbounds.execution.running`."""

    scheduler: Any = None
    memory: int | str | None = None
    threads: int | None = None
    scratch: FilePath | None = None


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
    bands_out: FilePath | None = None,
    replace: bool = False,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
    **choices: Any,
) -> Calibration:
    """Calibrate on files and write the calibration file; `choices` are those of `pixelbounds.calibrate`.

    bands_out      a .zarr store for the bands of samples, kept for later; an unfinished one is gone on with
    """
    target = check_target(out, (".safetensors",), replace=replace)
    with running(**vars(resources), progress=progress) as execution, ExitStack() as stack:
        made = open_bands(bands, reading)
        limits = limits_of(reading, made)
        images = open_truth(truth, reading, limits)
        check_pair(images.pixels, made)
        labels = open_labels(groups) if groups is not None and groups not in _NAMED_GROUPS else groups
        known = None if features is None else watched(open_images(features, window=None).pixels)
        band, good = made.whole(_bands_store(bands_out, made, execution, stack))
        if reading.skip_bad:
            good = good & readable(images.pixels, band.lower, band.upper)
        units = open_units(images, reading)
        calibration = calibrate(
            pick(images.pixels, good),
            band.map(lambda x: pick(x, good)),
            risk_level=risk_level,
            groups=pick(labels, good) if isinstance(labels, np.ndarray) and labels.shape == band.shape else labels,
            features=pick(known, good),
            units=pick(units, good),
            limits=limits,
            **choices,
        )
    skipped = np.flatnonzero(~good).tolist()
    if skipped:
        record = calibration.record
        record = dataclasses.replace(record, settings={**record.settings, "skipped": skipped})
        calibration = dataclasses.replace(calibration, record=record)
    calibration.save(target)
    return calibration


def _bands_store(wanted: FilePath | None, bands: Bands, execution: Execution, stack: ExitStack) -> Path | None:
    """Where the bands of samples are kept: where that is asked, else in memory (None), many in a temporary store."""
    if bands.samples is None:
        if wanted is not None:
            raise ValueError("--bands-out keeps the bands of samples, but these are bands already; leave it out")
        return None
    if wanted is not None:
        path = Path(wanted)
        return path if path.exists() else check_target(path, (".zarr",), replace=False)
    if fit_in_memory(bands, execution):
        return None
    return stack.enter_context(execution.folder()) / "bands.zarr"


def limits_of(reading: Reading, bands: Bands) -> Limits:
    """The limits that were asked for, else those of a run, else 0 and 1."""
    return check_limits(reading.limits or bands.limits or (0.0, 1.0))


# ---------------------------------------------------------------- apply


@dataclass(frozen=True)
class Applied:
    """Where intervals were written, their shape, their mean length, and the images that were skipped."""

    path: Path
    shape: tuple[int, ...]
    mean_length: float
    calibration: Calibration
    skipped: tuple[int, ...] = ()


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
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> Applied:
    """Write the intervals of new bands: a zarr store block by block, going on where an earlier call stopped; .npz,
    NIfTI and DICOM through memory.

    like           a NIfTI file or DICOM folder whose geometry the intervals get; by default that of the bands
    """
    target = check_target(out, INTERVALS, replace=replace, folder=True)
    found = load_calibration(calibration)
    with running(**vars(resources), progress=progress):
        made = bands_for(found, bands, reading)
        space = made.images if like is None else open_images(like, window=reading.window)
        if like is not None and space is not None and tuple(space.pixels.shape) != made.shape:
            raise ValueError(
                f"{like} has shape {tuple(space.pixels.shape)}, but the bands have {made.shape}; they must agree"
            )
        if target.suffix not in (".zarr", ".npz") and (space is None or space.geometry is None):
            raise ValueError(f"{target} needs the geometry of a scan; give the NIfTI file or DICOM folder with --like")
        known = known_of(features, groups)
        digest = hashlib.sha256(Path(calibration).read_bytes()).hexdigest()
        about = {"guarantee": found.guarantee, "risk_level": found.risk_level}
        about |= {"calibration": digest, "version": VERSION}
        if made.ragged:
            if target.suffix != ".zarr":
                raise ValueError(f"{bands} holds images of different sizes, which only a .zarr can hold: end --out so")
            length = widen_ragged(target, found, made, known, about)
            marks = np.full(len(made), DONE, np.uint8)
        elif target.suffix == ".zarr":
            request: dict[str, Any] = {
                "calibration": digest,
                "bands": [where(x) for x in made.reads],
                "shape": made.shape,
            }
            request |= {name: where(x) for name, x in known.items()}
            length, marks = widen_to(target, found, made, known, reading.skip_bad, about, request)
        else:
            interval, length, marks = widen(found, made, known, reading.skip_bad)
            if (marks == BAD).any():
                bad = int((marks == BAD).sum())
                raise ValueError(
                    f"{bad} images cannot be read, and only a .zarr store can leave some out: end --out so"
                )
            target = write_interval(target, interval, like=space)
    skipped = tuple(np.flatnonzero(marks == BAD).tolist())
    return Applied(target, made.shape, float(length[marks == DONE].mean()), found, skipped)


# ---------------------------------------------------------------- evaluate and report


@dataclass(frozen=True, eq=False)
class Evaluated:
    """What held-out images say of intervals, and whether that contradicts what was promised, where that is known."""

    evaluation: Evaluation
    risk_level: float | None
    guarantee: str | None
    skipped: tuple[int, ...] = ()

    @property
    def contradicted(self) -> bool:
        """Even the low end of the risk's interval lies above the level that was promised."""
        return self.risk_level is not None and self.evaluation.risk_interval[0] > self.risk_level


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
    resources: Resources,
    progress: Progress,
) -> Iterator[_HeldOut]:
    """Evaluate intervals, or the bands that a calibration turns into intervals; they may lie in a temporary store."""
    found = None if calibration is None else load_calibration(calibration)
    limits = found.limits if found else check_limits(reading.limits or (0.0, 1.0))
    with running(**vars(resources), progress=progress) as execution, ExitStack() as stack:
        bands = None if found is None else bands_for(found, intervals, reading)
        images = open_truth(truth, reading, limits)
        by = {"groups": None if groups is None else open_labels(groups), "units": open_units(images, reading)}
        about, fresh = told(intervals), None
        if found is None or bands is None:
            interval, good = open_interval(intervals, reading), open_marks(intervals, len(images))
        else:
            check_pair(images.pixels, bands)
            known = known_of(features, groups if found.grouping.kind == "segmentation" else None)
            made = intervals_of(found, bands, known, execution, reading.skip_bad)
            interval, good = stack.enter_context(made)
            fresh = bands.known.get("held_out")
            about = {"risk_level": found.risk_level, "guarantee": found.guarantee}
        if reading.skip_bad:
            reads = [images.pixels, interval.lower, interval.upper] + ([] if fresh is None else [fresh])
            good = good & readable(*reads)
        evaluation = _evaluate(images.pixels, interval, good, samples=fresh, **by)
        skipped = tuple(np.flatnonzero(~good).tolist())
        result = Evaluated(evaluation, about.get("risk_level"), about.get("guarantee"), skipped)
        yield _HeldOut(images, interval, bands, found, result)


def _evaluate(truth: Any, interval: Interval, good: Array, groups: Any, samples: Any, units: Any) -> Evaluation:
    """The evaluation of the images that can be read."""
    if good.all():
        return evaluate(truth, interval, groups=groups, samples=samples, units=units)
    if groups is not None and tuple(groups.shape) == tuple(truth.shape):
        groups = pick(groups, good)
    few = Interval(pick(interval.lower, good), pick(interval.upper, good))
    return evaluate(pick(truth, good), few, groups=groups, samples=pick(samples, good), units=pick(units, good))


def evaluate_files(
    truth: FilePath,
    intervals: FilePath,
    *,
    calibration: FilePath | None = None,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    groups: FilePath | None = None,
    features: FilePath | None = None,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> Evaluated:
    """Evaluate intervals, or the bands that a calibration turns into intervals, against held-out truth.

    groups         labels by which the risk is broken down: a partition or a segmentation
    """
    with _held_out(truth, intervals, calibration, reading, groups, features, resources, progress) as held_out:
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
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> tuple[Evaluated, list[Path]]:
    """Evaluate on held-out images and write the page, and figures where a folder for them is given; all their paths.

    examples       how many images to show, from the best covered to the worst, or which
    """
    target = check_target(out, (".html",), replace=replace)
    with _held_out(truth, bands, calibration, reading, groups, features, resources, progress) as held_out:
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
