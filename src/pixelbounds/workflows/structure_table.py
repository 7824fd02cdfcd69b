"""The table of structures as a file: a row for all pixels, each region of a promise, and each label of a map."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..calibration.calibration import Calibration
from ..calibration.promises import ALL_PIXELS, promise_key
from ..evaluation.evaluation import Evaluation, SeenPromise
from ..evaluation.structures import Structure
from ..images.measure import Measure
from ..storage.files import replace_file

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


def named_labels(words: Mapping[int, str]) -> dict[int, str]:
    """Names of labels, of which two may be alike: these get their numbers."""
    names = list(words.values())
    return {label: name if names.count(name) == 1 else f"{name} {label}" for label, name in words.items()}
