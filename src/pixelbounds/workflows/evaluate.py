"""Evaluate on files: truth, and intervals or the bands that a calibration turns into intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.calibration import Calibration, load_calibration
from ..calibration.provenance import CalibrationImages
from ..calibration.target import Units
from ..evaluation.evaluation import Evaluation
from ..evaluation.guarantee_check import GuaranteeCheck, StoredGuarantee, judge
from ..evaluation.held_out import evaluate
from ..evaluation.structures import structures_of
from ..execution.blocks import pick, readable
from ..execution.progress import Progress, silent
from ..execution.runner import Execution, running
from ..formats.arrays import FilePath, Reading, told
from ..formats.identifiers import numbered_units
from ..formats.inputs import Bands, check_pair, open_interval, open_marks, open_truth, open_units
from ..formats.label_maps import open_label_map, open_labels
from ..formats.opener import check_target
from ..formats.scans import Images, check_patients
from ..formats.segmentations import is_segmentation, segment_names
from ..images.checks import check_limits
from ..images.ends import Interval
from ..images.library import Array
from ..images.measure import Measure
from .agreement import check_images, reading_by, reading_for
from .apply import Widening, bands_for, known_of
from .promise_regions import PromiseRegions, map_paths
from .promise_words import PromiseText, promise_texts
from .resources import Resources
from .structure_table import named_labels, write_structures

_NO_CLAIM = "These intervals do not say which mean was promised: apply the calibration again to compare them."


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
        return GuaranteeCheck((), False, () if self.guarantee is None else (_NO_CLAIM,))

    @property
    def risk_level(self) -> float | None:
        """The level that was claimed, of whatever loss."""
        return None if self.stored is None else self.stored.first.at_most


@dataclass(frozen=True)
class HeldOutFiles:
    """Files of images that judge, and what is asked of them.

    intervals      what `apply` wrote; or bands, with the calibration that turns them into intervals
    groups         labels by which the risk is broken down: a partition or a segmentation
    features, labels    those known at test time, where the calibration uses some
    promises       texts (`promise_words`), with the regions of these images; those that were certified, in order
    table          a .csv with a row for all pixels, each region of a promise, and each label of `structures`, a map
    """

    truth: FilePath
    intervals: FilePath
    calibration: FilePath | None = None
    groups: FilePath | None = None
    features: FilePath | None = None
    labels: FilePath | None = None
    promises: Sequence[str] | None = None
    structures: FilePath | None = None
    table: FilePath | None = None

    @cached_property
    def texts(self) -> tuple[PromiseText, ...]:
        """The promises."""
        return promise_texts(self.promises or ())

    @property
    def reads(self) -> tuple[FilePath | None, ...]:
        """The files that are read."""
        files = self.truth, self.intervals, self.calibration, self.groups, self.features, self.labels, self.structures
        return (*files, *map_paths(self.texts))

    def check_table(self, *, replace: bool) -> Path | None:
        """Where the table of structures goes, before any work is done; None where none is asked for."""
        if self.table is None:
            if self.structures is not None:
                raise ValueError("--structures are rows of a table; give its file, such as --table structures.csv")
            return None
        return check_target(self.table, (".csv",), replace=replace, inputs=self.reads)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Images that were evaluated, with bands where a calibration turned them into intervals."""

    images: Images
    interval: Interval
    bands: Bands | None
    calibration: Calibration | None
    result: Evaluated
    regions: PromiseRegions


def evaluate_files(
    files: HeldOutFiles,
    *,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    replace: bool = False,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> Evaluated:
    """Evaluate intervals, or the bands that a calibration turns into intervals, against the truth.

    Images that calibrated are refused, where the calibration is given.
    """
    target = files.check_table(replace=replace)
    with held_out(files, reading, resources, progress) as evaluated:
        if target is not None:
            table_of(evaluated, target, files.structures)
        return evaluated.result


def table_of(evaluated: HeldOut, target: Path, structures: FilePath | None) -> Path:
    """Write the table of structures of images that were evaluated."""
    images, interval, result = evaluated.images, evaluated.interval, evaluated.result
    good = np.ones(len(images), bool)
    good[list(result.skipped)] = False

    def take(x: Any) -> Any:
        return x if good.all() else x[good]

    labels = None if structures is None else take(open_label_map(structures, images))
    segmented = structures is not None and is_segmentation(Path(structures))
    names = named_labels(segment_names(Path(structures))) if segmented and structures else {}
    truth = take(images.pixels)
    promises = evaluated.regions.promises(truth, take)
    regions = {promise.name or f"region {i}": promise.within for i, promise in enumerate(promises, 1)}
    measure = result.measure
    rows = structures_of(
        truth, interval if good.all() else Interval(take(interval.lower), take(interval.upper)),
        regions={name: within for name, within in regions.items() if within is not None}, labels=labels, names=names,
        windowed=measure is not None and measure.window is not None,
    )  # fmt: skip
    return write_structures(target, rows, result.evaluation, evaluated.calibration, measure)


@contextmanager
def held_out(
    files: HeldOutFiles, reading: Reading, resources: Resources, progress: Progress, *, names: bool = True
) -> Iterator[HeldOut]:
    """The images and their evaluation; the intervals may lie in a temporary store, which is there until the end.
    Without `names` units are numbered.
    """
    calibration = None if files.calibration is None else load_calibration(files.calibration)
    about = told(files.intervals) if calibration is None else {}
    given = reading
    reading = reading_by(files.intervals, about, given) if calibration is None else reading_for(calibration, given)
    limits = check_limits(reading.limits or (0.0, 1.0))
    with running(**vars(resources), progress=progress) as execution, ExitStack() as stack:
        bands = None
        if calibration is not None:
            bands = bands_for(calibration, files.intervals, given, execution)
            reading = reading_for(calibration, reading, bands)
        images = open_truth(files.truth, reading, limits)
        by = None if files.groups is None else open_labels(files.groups, images)
        known = known_of(files.features, files.labels, images)
        regions = PromiseRegions.open(files.texts, images, reading)
        units = open_units(images, reading)
        units = units if names or units is None else numbered_units(units)
        if calibration is None or bands is None:
            if reading.units is None:
                check_patients("the truth", images, about.get("patients"), "the intervals")
            interval, fresh = open_interval(files.intervals, reading), None
            good = open_marks(files.intervals, len(images))
            stored, guarantee = StoredGuarantee.from_state(about.get("claim")), about.get("guarantee")
        else:
            check_images(calibration, files.truth, images, reading)
            check_pair(images, bands, reading)
            widening = Widening(calibration, bands, known, reading.skip_bad)
            interval, good = stack.enter_context(widening.intervals(execution))
            fresh = bands.known.get("held_out")
            stored, guarantee = StoredGuarantee.of(calibration), calibration.guarantee
        if reading.skip_bad:
            reads = [images.pixels, interval.lower, interval.upper, fresh, *regions.stores]
            good = good & readable(execution, *(x for x in reads if x is not None))
        try:
            evaluation = _evaluated(
                execution, images.pixels, interval, good, by, fresh, units, regions, stored, calibration=calibration,
                limits=about.get("limits") or given.limits,
            )  # fmt: skip
        except CalibrationImages as error:
            numbers = np.flatnonzero(good)[list(error.images)].tolist()
            raise CalibrationImages(numbers, error.total, images.names) from None
        measure = interval.measure or (None if calibration is None else calibration.measure) or images.measure
        result = Evaluated(evaluation, stored, guarantee, tuple(np.flatnonzero(~good).tolist()), measure)
        yield HeldOut(images, interval, bands, calibration, result, regions)


def _evaluated(
    execution: Execution, truth: Any, interval: Interval, good: Array, groups: Any, samples: Any, units: Any,
    regions: PromiseRegions, stored: StoredGuarantee | None, **more: Any,
) -> Evaluation:  # fmt: skip
    """The evaluation of the images that can be read, in units that count as those of a stored guarantee."""

    def take(x: Any) -> Any:
        return pick(execution, x, good)

    if groups is not None and tuple(groups.shape) == tuple(truth.shape):
        groups = take(groups)
    true, units = take(truth), take(units)
    if stored is not None and units is not None:
        most = stored.max_images or None
        units = Units(units, stored.unit_name or "unit", "images" if most else "units", most)
    return evaluate(
        true, interval if good.all() else Interval(take(interval.lower), take(interval.upper)), groups=groups,
        samples=take(samples), units=units, promises=regions.promises(true, take) or None, **more,
    )  # fmt: skip
