"""The page: an HTML file with its style, script and pictures inside, and its data too where they are few."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import isclose, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from ..calibration.bounds import BOUNDS
from ..calibration.calibration import Calibration
from ..calibration.masks import is_of_masks
from ..calibration.text import ANYTIME, description_of
from ..evaluation.evaluation import Evaluation, Strata, entries_of
from ..evaluation.guarantee_check import judge
from ..storage.files import check_new_file
from .cells import LengthWords, span, strata_heading, strata_rows
from .charts import draw_path, draw_units, level_of_all
from .example import Example, Row, outline_of, with_masks
from .pack import OPEN, colours
from .page_examples import folder_beside, show_examples, sweep_data
from .promise_table import promise_rows
from .render import asset, render_page
from .style import ABOVE, BELOW
from .svg import inline_chart, whisker

_SCRIPT = ("tables", "source", "views", "window", "region", "readout", "controls")  # files of `script/`, in this order
_WORST = 8  # images in the table of the worst


def write_report(
    path: str | os.PathLike[str], *, title: str, calibration: Calibration, evaluation: Evaluation | None,
    examples: Sequence[Example], comparison: Sequence[Row] = (), notes: Sequence[str] = (),
) -> Path:  # fmt: skip
    """Write the page and return its path; the same arguments give the same page.

    Where the examples have more than 16 MB their data lie in a folder beside the page, `report_files` beside
    `report.html`: move both. Such a page stays small, and reads an image when it is looked at.

    evaluation     of the calibration on images whose truth is known, `evaluate(..., calibration=calibration)`; None
                   where there are none, which the page then says
    examples       images to look at; a dozen of 128 x 128 with samples make a page of less than 8 MB
    comparison     methods to compare, as rows of one table; the one that this page is about should be among them
    notes          paragraphs of plain text, such as what the images are
    """
    target = check_new_file(path, "page")
    if isinstance(notes, str):
        raise TypeError("notes is a string; give a list of paragraphs, such as [text]")
    measure, record = calibration.measure, calibration.record
    windowed = measure is not None and measure.window is not None
    lengths = LengthWords.of(measure)
    of_masks = is_of_masks(calibration)
    examples = [with_masks(x) for x in examples] if of_masks else examples
    shown = show_examples(target, examples, calibration.limits, windowed=windowed)
    level = level_of_all(calibration)
    check = None if evaluation is None else judge(evaluation, calibration)
    promises = promise_rows(calibration, evaluation, check, examples)
    path_chart = None
    if len(calibration.curve):
        label = "Observed risk and a confidence bound of each point along the path, with the chosen point"
        path_chart = inline_chart("path-chart", label, draw_path, calibration, evaluation)
    render_page(
        target, "page.html", script=_script(),
        title=title, cal=calibration, words=description_of(calibration), ev=evaluation, notes=notes, lengths=lengths,
        one=record.unit_name if record.units else "image", entries=entries_of(record.pixels), judged=check,
        promises=promises, level_of_all=level, path_chart=path_chart,
        your_bound=calibration.bound not in (*BOUNDS, ANYTIME),
        tables=[] if evaluation is None else _tables(evaluation, level, lengths),
        unit_chart=None if evaluation is None else _unit_chart(evaluation, level),
        worst=[] if evaluation is None else _worst(evaluation, examples),
        comparison=_comparison(comparison, calibration, lengths),
        pictures=shown.pictures, scales=shown.scales, sampled=shown.sampled, layers=shown.layers, folder=shown.folder,
        data={
            "colours": colours().tobytes().hex(), "scales": shown.scales, "examples": shown.index,
            "measure": None if measure is None else measure.state(), "regions": shown.regions,
            "folder": shown.folder, "outline": outline_of(examples) if of_masks else "", "colour_of_open": OPEN,
            "colours_of_misses": [ABOVE, BELOW],
            "promises": [
                {name: row[name] for name in ("name", "level", "what")}
                | {"outline": "" if row["place"] == "all" else row["name"]}
                for row in promises if row["certified"] is not None
            ],
        },
        measure=measure if windowed else None,
    )  # fmt: skip
    sweep_data(folder_beside(target), shown.files)  # of an earlier page of this path
    return target


def _script() -> str:
    return '"use strict";\n(() => {\n' + "\n".join(asset(f"script/{name}.js") for name in _SCRIPT) + "})();\n"


def _tables(ev: Evaluation, level: float | None, lengths: LengthWords) -> list[dict[str, Any]]:
    rows = {kind: strata_rows(strata, lengths) for kind, strata in ev.strata.items()}
    ends = [float(strata.high[i]) for kind, strata in ev.strata.items() for i, _ in rows[kind]]
    most = max(1.25 * (level or 0.0), 1e-6, *ends)
    return [
        {
            "heading": f"By {strata_heading(kind)}{' of the truth' if kind == 'edge' else ''}",
            "of": strata_heading(kind, lengths),
            "rows": [_table_row(strata, i, name, most, level) for i, name in rows[kind]],
            "left": len(strata) - len(rows[kind]),
        }
        for kind, strata in ev.strata.items()
    ]


def _table_row(strata: Strata, i: int, name: str, most: float, level: float | None) -> dict[str, Any]:
    risk, low, high = float(strata.risk[i]), float(strata.low[i]), float(strata.high[i])
    return {
        "name": name, "share": strata.share[i], "risk": risk, "span": span(low, high), "units": strata.units[i],
        "length": strata.mean_length[i], "cell": whisker(risk, low, high, most, level),
    }  # fmt: skip


def _unit_chart(ev: Evaluation, level: float | None) -> Markup:
    return inline_chart("unit-chart", f"Histogram of the share of pixels outside, per {ev.each}", draw_units, ev, level)


def _worst(ev: Evaluation, examples: Sequence[Example]) -> list[dict[str, Any]]:
    """Images that miss most, with the number of the example that shows them, None where none does."""
    places = {x.image: k for k, x in enumerate(examples) if x.image is not None and _is_evaluated(x, ev)}
    return [
        {
            "name": examples[places[i]].name if i in places else f"image {i}",
            "unit": None if ev.unit_name is None else str(ev.units[ev.unit_of[i]]),
            "open": places.get(i), "risk": float(ev.by_image[i]), "length": float(ev.length_by_image[i]),
        }
        for i in ev.worst(min(_WORST, len(ev.by_image))).tolist()
    ]  # fmt: skip


def _is_evaluated(example: Example, ev: Evaluation) -> bool:
    """Whether an example is the image of that number: it misses exactly as much, and its intervals are as long."""
    if example.image is None or example.image >= len(ev.by_image) or example.truth is None:
        return False
    outside = float(np.mean((example.truth < example.lower) | (example.truth > example.upper)))
    length = float(np.mean(example.length, dtype=np.float64))
    return isclose(outside, ev.by_image[example.image], abs_tol=1e-9) and isclose(
        length, ev.length_by_image[example.image], rel_tol=1e-4, abs_tol=1e-12
    )


def _comparison(rows: Sequence[Row], shown: Calibration, words: LengthWords) -> list[dict[str, Any]]:
    if not rows:
        return []
    lengths = [row.evaluation.mean_length for row in rows]
    ends = [x for row in rows for x in row.evaluation.mean_length_interval if isfinite(x)]
    most = 1.05 * max(*lengths, *ends)
    risky = 1.05 * max(max(row.evaluation.risk_interval[1], level_of_all(row.calibration) or 0.0) for row in rows)
    return [
        {
            "name": row.name, "seconds": row.seconds, "shown": row.calibration is shown, "length": ev.mean_length,
            "shortest": ev.mean_length == min(lengths), "against": ev.mean_length / lengths[0] - 1,
            "length_span": words.span(*ev.mean_length_interval), "risk": ev.risk, "risk_span": span(*ev.risk_interval),
            "verdict": judge(ev, row.calibration).verdict,
            "length_cell": whisker(ev.mean_length, *ev.mean_length_interval, most),
            "risk_cell": whisker(ev.risk, *ev.risk_interval, risky, level_of_all(row.calibration)),
        }
        for row in rows for ev in [row.evaluation]
    ]  # fmt: skip
