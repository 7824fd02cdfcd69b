"""Evaluate on files: truth, and intervals or the bands that a calibration turns into intervals."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.calibration import Calibration
from ..calibration.calibration_file import load_calibration
from ..calibration.promises import ALL_PIXELS, Promise, promise_key
from ..calibration.provenance import CalibrationImages
from ..calibration.target import Units
from ..evaluation.evaluation import Evaluation, SeenPromise
from ..evaluation.guarantee_check import GuaranteeCheck, StoredGuarantee, judge
from ..evaluation.held_out import evaluate
from ..evaluation.structures import Structure, structures_of
from ..execution.blocks import pick, readable
from ..execution.runner import running
from ..formats.arrays import FilePath, Reading, stated_by
from ..formats.inputs import Bands, open_interval, open_marks, open_truth, open_units
from ..formats.label_maps import label_names, open_label_map, open_labels, whole_labels
from ..formats.scans import Images, check_patients
from ..images.checks import distinct_in_order
from ..images.ends import Interval
from ..images.measure import Measure
from ..storage.files import replace_file
from .agreement import reading_by
from .apply import Widening, open_beside
from .calibrate import known_of
from .promise_words import PromiseRegions, Take
from .request import HeldOutFiles, Resources

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
        return None if self.stored is None else self.stored.promises[0].at_most


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Images that were evaluated, with bands where a calibration turned them into intervals.

    `judged` are truth and intervals of those that can be read, which `take` picks.
    """

    images: Images
    interval: Interval
    bands: Bands | None
    calibration: Calibration | None
    result: Evaluated
    regions: PromiseRegions
    judged: tuple[Any, Interval]
    promises: list[Promise]
    take: Take


def evaluate_files(
    files: HeldOutFiles, *, reading: Reading = Reading(), replace: bool = False, resources: Resources = Resources(),
) -> Evaluated:  # fmt: skip
    """Evaluate intervals, or the bands that a calibration turns into intervals, against the truth.

    Images that calibrated are refused, where the calibration is given.
    """
    target = files.check_table(replace=replace)
    with held_out(files, reading, resources) as evaluated:
        if target is not None:
            table_of(evaluated, target, files.structures)
        return evaluated.result


def table_of(held: HeldOut, target: Path, structures: FilePath | None) -> Path:
    """Write the table of structures of images that were evaluated."""
    labels, names = None, {}
    if structures is not None:
        labels = held.take(whole_labels(structures, open_label_map(structures, held.images)))
        names = label_names(structures)
    regions = {promise.name or f"region {i}": promise.within for i, promise in enumerate(held.promises, 1)}
    measure = held.result.measure
    rows = structures_of(
        *held.judged, regions={name: within for name, within in regions.items() if within is not None}, labels=labels,
        names=names, windowed=measure is not None and measure.window is not None,
    )  # fmt: skip
    return write_structures(target, rows, held.result.evaluation, held.calibration, measure)


@contextmanager
def held_out(files: HeldOutFiles, reading: Reading, resources: Resources, *, names: bool = True) -> Iterator[HeldOut]:
    """The images and their evaluation; the intervals may lie in a temporary store, which is there until the end.
    Without `names` units are numbered.
    """
    calibration = None if files.calibration is None else load_calibration(files.calibration)
    about = stated_by(files.intervals) if calibration is None else {}
    asked_limits = reading.limits
    with running(**vars(resources)) as execution, ExitStack() as stack:
        bands = None
        if calibration is None:
            reading = reading_by(files.intervals, about, reading)
            images = open_truth(files.truth, reading)
        else:
            images, bands, reading = open_beside(calibration, files.truth, files.intervals, reading, execution)
        by = None if files.groups is None else open_labels(files.groups, images)
        known = known_of(files.features, files.labels, images)
        regions = PromiseRegions.open(files.texts, images, reading)
        units = open_units(images, reading)
        units = units if names or units is None else distinct_in_order(units)[1]
        if calibration is None or bands is None:
            if reading.units is None:
                check_patients("the truth", images, about.get("patients"), "the intervals")
            interval, fresh = open_interval(files.intervals, reading), None
            good = open_marks(files.intervals, len(images))
            stored, guarantee = StoredGuarantee.from_state(about.get("claim")), about.get("guarantee")
        else:
            widening = Widening(calibration, bands, known, reading.skip_bad)
            interval, good = stack.enter_context(widening.intervals(execution))
            fresh = bands.known.get("held_out")
            stored, guarantee = StoredGuarantee.of(calibration), calibration.guarantee
        if reading.skip_bad:
            reads = [images.pixels, interval.lower, interval.upper, fresh, *regions.stores]
            good = good & readable(execution, *(x for x in reads if x is not None))

        def take(x: Any) -> Any:
            return pick(execution, x, good)

        true = take(images.pixels)
        judged = interval if good.all() else Interval(take(interval.lower), take(interval.upper))
        promises = regions.promises(true, take)
        ids: Any = take(units)
        if stored is not None and ids is not None:  # units count as those of the guarantee
            most = stored.max_images or None
            name = stored.unit_name or (images.unit_name if reading.units is None else None) or "unit"
            ids = Units(ids, name, "images" if most else "units", most)
        try:
            evaluation = evaluate(
                true, judged, groups=take(by) if by is not None and by.shape == images.pixels.shape else by,
                samples=take(fresh), units=ids, promises=promises or None, calibration=calibration,
                limits=about.get("limits") or asked_limits,
            )  # fmt: skip
        except CalibrationImages as error:
            numbers = np.flatnonzero(good)[list(error.images)].tolist()
            raise CalibrationImages(numbers, error.total, images.names) from None
        measure = interval.measure or (None if calibration is None else calibration.measure) or images.measure
        result = Evaluated(evaluation, stored, guarantee, tuple(np.flatnonzero(~good).tolist()), measure)
        yield HeldOut(images, interval, bands, calibration, result, regions, (true, judged), promises, take)


COLUMNS = (
    "structure", "images", "pixels", "mean_length", "mean_length_closed", "unit", "open_share", "missed",
    "missed_above", "missed_below", "missed_mean_of_images", "promise", "level", "certified", "seen", "seen_low",
    "seen_high", "verdict",
)  # fmt: skip


def write_structures(
    path: Path, rows: list[Structure], evaluation: Evaluation, calibration: Calibration | None, measure: Measure | None
) -> Path:
    """Write the rows as CSV, lengths in the unit of the measure, with the promises that were made about each."""
    certified = {} if calibration is None else {promise_key(promise): promise for promise in calibration.promises}
    seen = {promise_key(promise): promise for promise in evaluation.promises}
    promises: dict[str, list[dict[str, Any]]] = {}
    every: dict[tuple[Any, ...], Any] = {**certified, **seen}
    for key, promise in every.items():
        where = ALL_PIXELS if promise.place == "all" else promise.name
        cells = _of_promise(promise, certified=key in certified, seen=seen.get(key))
        promises.setdefault(where, []).append(cells)
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    for row in rows:
        for cells in promises.get(row.name, [{"promise": "none", "certified": "no"}]):
            table.writerow({**_of_structure(row, measure), **cells})
    replace_file(path, text.getvalue().encode())
    return path


def _of_structure(row: Structure, measure: Measure | None) -> dict[str, Any]:
    window = None if measure is None else measure.window
    scale = 1.0 if window is None else window[0]
    unit = "" if measure is None else measure.unit
    closed = "" if row.closed_length is None else _number(scale * row.closed_length)
    return {
        "structure": row.name, "images": row.images, "pixels": row.pixels, "mean_length": _number(scale * row.length),
        "mean_length_closed": closed, "unit": unit or ("" if window is None else "unit of the files"),
        "open_share": "" if row.open_share is None else _number(row.open_share),
        "missed": _number(row.above + row.below), "missed_above": _number(row.above),
        "missed_below": _number(row.below), "missed_mean_of_images": _number(row.missed),
    }  # fmt: skip


def _of_promise(promise: Any, *, certified: bool, seen: SeenPromise | None) -> dict[str, Any]:
    """What was promised or asked about a structure, whether a calibration certified it, and what was seen."""
    kind = promise.kind if promise.kind != "tail" else f"tail above {promise.above:g}"
    cells = {"promise": kind, "level": promise.at_most, "certified": "yes" if certified else "no"}
    if seen is None:
        return cells
    low, high = seen.interval
    numbers = {"seen": _number(seen.risk), "seen_low": _number(low), "seen_high": _number(high)}
    return {**cells, **(numbers if seen.units else {}), "verdict": seen.verdict}


def _number(x: float) -> str:
    return f"{x:.6g}"
