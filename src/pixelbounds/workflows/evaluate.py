"""Evaluate on files: truth, and intervals or the bands that a calibration turns into intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.calibration import Calibration, load_calibration
from ..evaluation.evaluation import Evaluation
from ..evaluation.guarantee_check import GuaranteeCheck, StoredGuarantee, judge, stored_guarantee_of
from ..evaluation.held_out import evaluate
from ..evaluation.known_images import CalibrationImages
from ..evaluation.structures import structures_of
from ..execution.blocks import pick, readable
from ..execution.progress import Progress, silent
from ..execution.runner import Execution, running
from ..formats.arrays import FilePath, Reading, told
from ..formats.identifiers import numbered_units
from ..formats.inputs import Bands, check_pair, open_labels, open_truth, open_units
from ..formats.label_maps import open_label_map
from ..formats.opener import check_target
from ..formats.scans import Images, check_patients
from ..formats.segmentations import is_segmentation, segment_names
from ..formats.stored_intervals import open_interval, open_marks
from ..images.checks import check_limits
from ..images.ends import Interval
from ..images.library import Array
from ..images.measure import Measure
from .agreement import check_images, reading_by, reading_for
from .apply import Widening, bands_for, known_of
from .promise_regions import PromiseRegions
from .promise_words import PromiseText, promise_texts
from .resources import Resources
from .structure_table import named_labels, write_structures

_OLD = "These intervals do not say which mean was promised: apply the calibration again to compare them."


@dataclass(frozen=True, eq=False)
class Evaluated:
    """What images say of intervals, and what was claimed of these, where that is known."""

    evaluation: Evaluation
    stored: StoredGuarantee | None
    guarantee: str | None
    skipped: tuple[int, ...] = ()
    measure: Measure | None = None  # what lengths are measured in, where the files say it

    @property
    def check(self) -> GuaranteeCheck:
        """Whether the images agree with what was claimed."""
        if self.stored is not None:
            return judge(self.evaluation, self.stored)
        return GuaranteeCheck(None, None, None, False, () if self.guarantee is None else (_OLD,))

    @property
    def risk_level(self) -> float | None:
        """The level that was claimed, of whatever loss."""
        return None if self.stored is None else self.stored.first.at_most

    @property
    def contradicted(self) -> bool:
        """Even the low end of the risk's interval lies above the level that was promised."""
        return self.check.broken


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Images, with bands and intervals where a calibration made them."""

    images: Images
    interval: Interval
    bands: Bands | None
    calibration: Calibration | None
    result: Evaluated
    regions: PromiseRegions


def evaluate_files(
    truth: FilePath,
    intervals: FilePath,
    *,
    calibration: FilePath | None = None,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    groups: FilePath | None = None,
    features: FilePath | None = None,
    labels: FilePath | None = None,
    promises: Sequence[str] = (),
    structures: FilePath | None = None,
    table: FilePath | None = None,
    replace: bool = False,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> Evaluated:
    """Evaluate intervals, or the bands that a calibration turns into intervals, against the truth.

    Images that calibrated are refused, where the calibration is given.

    groups         labels by which the risk is broken down: a partition or a segmentation
    labels         those known at test time, where the calibration uses some
    promises       in words (`promise_words`), with the regions of these images; those that were certified, in order
    table          a .csv with a row for all pixels, each region of a promise, and each label of `structures`, a map
    """
    said = promise_texts(promises)
    reads = (truth, intervals, calibration, groups, features, labels, structures)
    target = check_table(table, structures, reads, replace=replace)
    with held_out(
        truth, intervals, calibration, reading, groups, features, labels, resources, progress, said=said
    ) as found:
        if target is not None:
            table_of(found, target, structures)
        return found.result


def check_table(
    table: FilePath | None, structures: FilePath | None, reads: Sequence[FilePath | None], *, replace: bool
) -> Path | None:
    """Where the table of structures goes, before any work is done; None where none is asked for."""
    if table is None:
        if structures is not None:
            raise ValueError("--structures are rows of a table; say where it goes, such as --table structures.csv")
        return None
    return check_target(table, (".csv",), replace=replace, inputs=reads)


def table_of(found: HeldOut, target: Path, structures: FilePath | None) -> Path:
    """Write the table of structures of images that were evaluated."""
    good = np.ones(len(found.images), bool)
    good[list(found.result.skipped)] = False

    def take(x: Any) -> Any:
        return x if good.all() else x[good]

    labels = None if structures is None else take(open_label_map(structures, found.images))
    called: dict[int, str] = {}
    if structures is not None and is_segmentation(Path(structures)):
        called = named_labels(segment_names(Path(structures)))
    truth = take(found.images.pixels)
    asked = found.regions.promises(truth, take)
    regions = {promise.name or f"region {i}": promise.within for i, promise in enumerate(asked, 1)}
    measure = found.result.measure
    rows = structures_of(
        truth, found.interval if good.all() else Interval(take(found.interval.lower), take(found.interval.upper)),
        regions={name: within for name, within in regions.items() if within is not None}, labels=labels, names=called,
        windowed=measure is not None and measure.window is not None,
    )  # fmt: skip
    return write_structures(target, rows, found.result.evaluation, found.calibration, measure)


@contextmanager
def held_out(
    truth: FilePath,
    intervals: FilePath,
    calibration: FilePath | None,
    reading: Reading,
    groups: FilePath | None,
    features: FilePath | None,
    labels: FilePath | None,
    resources: Resources,
    progress: Progress,
    *,
    names: bool = True,
    said: Sequence[PromiseText] = (),
) -> Iterator[HeldOut]:
    """Images and what they say, also of promises that were `said`; the intervals may lie in a temporary store, which
    is there until the end. Without `names` units are numbered.
    """
    cal = None if calibration is None else load_calibration(calibration)
    about = told(intervals)
    asked = reading
    reading = reading_by(intervals, about, reading) if cal is None else reading_for(cal, reading)
    limits = check_limits(reading.limits or (0.0, 1.0))
    with running(**vars(resources), progress=progress) as execution, ExitStack() as stack:
        bands = None if cal is None else bands_for(cal, intervals, asked, execution)
        reading = reading if cal is None else reading_for(cal, reading, bands)
        images = open_truth(truth, reading, limits)
        if cal is not None:
            check_images(cal, truth, images, reading)
        by = None if groups is None else open_labels(groups, images)
        known = known_of(features, labels, images)
        regions = PromiseRegions.open(said, images, reading)
        units = open_units(images, reading)
        units = units if names or units is None else numbered_units(units)
        fresh = None
        if cal is None or bands is None:
            if reading.units is None:
                check_patients("the truth", images, about.get("patients"), "the intervals")
            interval = open_interval(intervals, reading)
            good = open_marks(intervals, len(images))
        else:
            check_pair(images, bands, reading)
            widening = Widening(cal, bands, known, reading.skip_bad)
            interval, good = stack.enter_context(widening.intervals(execution))
            fresh = bands.known.get("held_out")
            about = {"guarantee": cal.guarantee}
        if reading.skip_bad:
            reads = [images.pixels, interval.lower, interval.upper, fresh, *regions.stores]
            good = good & readable(execution, *(x for x in reads if x is not None))
        stored = StoredGuarantee.from_state(about.get("claim")) if cal is None else stored_guarantee_of(cal)
        named = None if units is None or stored is None else stored.unit_name
        more: dict[str, Any] = {"calibration": cal, "unit_name": named}
        more["limits"] = about.get("limits") or asked.limits
        try:
            evaluation = _evaluate(
                execution, images.pixels, interval, good, groups=by, samples=fresh, units=units, regions=regions,
                **more,
            )  # fmt: skip
        except CalibrationImages as error:
            numbers = np.flatnonzero(good)[list(error.images)].tolist()
            raise CalibrationImages(numbers, error.total, images.names) from None
        skipped = tuple(np.flatnonzero(~good).tolist())
        measure = interval.measure or (None if cal is None else cal.measure) or images.measure
        result = Evaluated(evaluation, stored, about.get("guarantee"), skipped, measure)
        yield HeldOut(images, interval, bands, cal, result, regions)


def _evaluate(
    execution: Execution,
    truth: Any,
    interval: Interval,
    good: Array,
    *,
    groups: Any,
    samples: Any,
    units: Any,
    regions: PromiseRegions,
    **known: Any,
) -> Evaluation:
    """The evaluation of the images that can be read."""

    def take(x: Any) -> Any:
        return pick(execution, x, good)

    if groups is not None and tuple(groups.shape) == tuple(truth.shape):
        groups = take(groups)
    true = take(truth)
    return evaluate(
        true,
        interval if good.all() else Interval(take(interval.lower), take(interval.upper)),
        groups=groups,
        samples=take(samples),
        units=take(units),
        promises=regions.promises(true, take) or None,
        **known,
    )
