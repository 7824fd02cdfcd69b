"""The page: an HTML file with its style, script and pictures inside, and its data too where they are few."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from math import isclose, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from ..calibration.calibration import Calibration
from ..calibration.sentence import guarantee_parts, in_channels, plural, share_in_words
from ..evaluation.evaluation import Evaluation, Strata
from ..evaluation.guarantee_check import judge
from ..storage.files import replace_file
from .charts import draw_groups, draw_path, draw_units
from .example import Example, Row
from .pack import OPEN, colours
from .page_examples import forget_earlier, show_examples
from .promise_table import certified_above, promise_rows, promises_to_look_at
from .style import ABOVE, BELOW
from .svg import inline_chart, whisker
from .words import MOST_ROWS, LengthWords, level_text, number, percent, span, strata_heading, strata_rows

_SCRIPT = ("tables", "source", "views", "window", "region", "readout", "controls")  # files of `script/`, in this order
_WORST = 8  # images in the table of the worst


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    calibration: Calibration,
    evaluation: Evaluation | None,
    examples: Sequence[Example],
    comparison: Sequence[Row] = (),
    notes: Sequence[str] = (),
    group_names: Mapping[int, str] | None = None,
) -> Path:
    """Write the page and return its path; the same arguments give the same page.

    Where the examples have more than 16 MB their data lie in a folder beside the page, `report_files` beside
    `report.html`: move both. Such a page stays small, and reads an image when it is looked at.

    evaluation     of the calibration on images whose truth is known, `evaluate(..., calibration=calibration)`; None
                   where there are none, which the page then says
    examples       images to look at; a dozen of 128 x 128 with samples make a page of less than 8 MB
    comparison     methods to compare, as rows of one table; the one that this page is about should be among them
    notes          paragraphs of plain text, such as what the images are
    group_names    names of the labels of `evaluation.by_group`, such as organs
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise ValueError(f"there is no folder {str(target.parent)!r} to write the report in; make it first")
    if target.is_dir():
        raise ValueError(f"{str(target)!r} is a folder; give the name of a file, such as 'report.html'")
    check_parts(calibration, evaluation, examples, comparison)
    if isinstance(notes, str):
        raise TypeError("notes is a string; give a list of paragraphs, such as [text]")
    page = Environment(
        loader=FunctionLoader(_asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style = _asset("page.css")
    script = _script()
    limits = calibration.limits
    measure = calibration.measure
    windowed = measure is not None and measure.window is not None
    lengths = LengthWords.of(measure)
    shown = show_examples(target, examples, limits, windowed=windowed)
    level = _level_of(calibration)
    judged = None if evaluation is None else judge(evaluation, calibration)
    tables = [] if evaluation is None else _tables(evaluation, level, group_names, lengths)
    promises = promise_rows(calibration, evaluation, judged, examples)
    entries = _entries(calibration.record.pixels)
    one = calibration.record.unit_name if calibration.record.units else "image"
    text = page.get_template("page.html").render(
        title=title, cal=calibration, guarantee_parts=guarantee_parts, ev=evaluation, notes=notes,
        percent=percent, level=level_text,
        number=number, span=span, lengths=lengths, plural=plural, share=share_in_words,
        style=Markup(style), script=Markup(script), style_hash=_hash(style), script_hash=_hash(script),
        limited=any(isfinite(x) for x in limits),
        one=one, entries=entries, judged=judged, promises=promises, level_of_all=level,
        above_level=certified_above(calibration),
        path_chart=_path_chart(calibration, evaluation),
        tables=tables, rows_shown=sum(len(table["rows"]) for table in tables),
        charts=[] if evaluation is None else _charts(evaluation, level),
        worst=[] if evaluation is None else _worst(evaluation, examples),
        comparison=_comparison(comparison, calibration, lengths),
        pictures=shown.pictures, scales=shown.scales, sampled=shown.sampled, layers=shown.layers, folder=shown.folder,
        data={
            "colours": colours().tobytes().hex(), "scales": shown.scales, "examples": shown.index,
            "measure": None if measure is None else measure.state(), "regions": shown.regions,
            "folder": shown.folder, "colours_of_misses": [ABOVE, BELOW], "colour_of_open": OPEN,
            "promises": promises_to_look_at(calibration, promises, entries, one),
        },
        measure=measure if windowed else None,
    )  # fmt: skip
    replace_file(target, text.encode("utf-8", "replace"))  # names of files may hold bytes that are no text
    forget_earlier(target, shown)
    return target


def check_parts(
    calibration: Calibration, evaluation: Evaluation | None, examples: Sequence[Example], comparison: Sequence[Row]
) -> None:
    """Refuse anything of another kind than a report shows."""
    if not isinstance(calibration, Calibration):
        raise TypeError(f"calibration is a {type(calibration).__name__}; give what pixelbounds.calibrate returns")
    if evaluation is not None and not isinstance(evaluation, Evaluation):
        raise TypeError(f"evaluation is a {type(evaluation).__name__}; give what pixelbounds.evaluate returns, or None")
    for example in examples:
        if not isinstance(example, Example):
            raise TypeError(f"an example is a {type(example).__name__}; make it with Example or examples_of")
    for row in comparison:
        if not isinstance(row.calibration, Calibration) or not isinstance(row.evaluation, Evaluation):
            raise TypeError(f"row {row.name!r} of the comparison needs a Calibration and an Evaluation")


def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _script() -> str:
    """All files of the viewer as one script, in a scope of its own."""
    parts = [_asset(f"script/{name}.js") for name in _SCRIPT]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _level_of(calibration: Calibration) -> float | None:
    """The level that a share of all pixels outside can be held against; none where something else was certified."""
    of_all = [p.at_most for p in calibration.promises if (p.kind, p.place, p.cap) == ("share", "all", 1)]
    return of_all[0] if of_all else None


def _tables(
    ev: Evaluation, level: float | None, names: Mapping[int, str] | None, lengths: LengthWords
) -> list[dict[str, Any]]:
    """Strata as tables with whiskers on one scale."""
    rows = {kind: strata_rows(strata, names, lengths) for kind, strata in ev.strata.items()}
    most = max(1.25 * (level or 0.0), 1e-6)
    for kind, strata in ev.strata.items():
        most = max(most, *(float(strata.high[i]) for i, _ in rows[kind]))
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
    risk = float(strata.risk[i])
    low = float(strata.low[i])
    high = float(strata.high[i])
    return {
        "name": name,
        "share": strata.share[i],
        "risk": risk,
        "span": span(low, high),
        "units": strata.units[i],
        "length": strata.mean_length[i],
        "cell": whisker(risk, low, high, most, level),
    }


def _path_chart(calibration: Calibration, evaluation: Evaluation | None) -> Markup | None:
    """None without a curve."""
    if not len(calibration.curve):
        return None
    label = "Observed risk and a confidence bound of each point along the path, with the chosen point"
    return inline_chart("path-chart", label, draw_path, calibration, evaluation)


def _charts(ev: Evaluation, level: float | None) -> list[Markup]:
    """Of units, and of groups where a table does not show them all."""
    label = f"Histogram of the share of pixels outside, per {ev.each}"
    charts = [inline_chart("unit-chart", label, draw_units, ev, level)]
    if ev.by_group is not None and len(ev.by_group) > MOST_ROWS:
        label = "Share of pixels outside by group, with confidence intervals"
        charts.append(inline_chart("group-chart", label, draw_groups, ev.by_group, level))
    return charts


def _worst(ev: Evaluation, examples: Sequence[Example]) -> list[dict[str, Any]]:
    """Images that miss most, with the number of the example that shows them, None where none does."""
    places = {x.image: k for k, x in enumerate(examples) if x.image is not None and _is_evaluated(x, ev)}
    rows = []
    for i in ev.worst(min(_WORST, len(ev.by_image))).tolist():
        at = places.get(i)
        name = f"image {i}" if at is None else examples[at].name
        unit = None if ev.unit_name is None else str(ev.units[ev.unit_of[i]])
        about = {"risk": float(ev.by_image[i]), "length": float(ev.length_by_image[i])}
        rows.append({"name": name, "unit": unit, "open": at, **about})
    return rows


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
    """Lines of the comparison, the method of this page marked."""
    if not rows:
        return []
    lengths = [row.evaluation.mean_length for row in rows]
    most = 1.05 * max(x for row in rows for x in (row.evaluation.mean_length, *_known_ends(row.evaluation)))
    risky = 1.05 * max(max(row.evaluation.risk_interval[1], _level_of(row.calibration) or 0.0) for row in rows)
    out = []
    for row in rows:
        cal = row.calibration
        ev = row.evaluation
        out.append(
            {
                "name": row.name, "seconds": row.seconds, "shown": cal is shown, "length": ev.mean_length,
                "shortest": ev.mean_length == min(lengths), "against": ev.mean_length / lengths[0] - 1,
                "length_span": words.span(*ev.mean_length_interval), "risk": ev.risk,
                "risk_span": span(*ev.risk_interval), "verdict": judge(ev, cal).verdict,
                "length_cell": whisker(ev.mean_length, *ev.mean_length_interval, most),
                "risk_cell": whisker(ev.risk, *ev.risk_interval, risky, _level_of(cal)),
            }
        )  # fmt: skip
    return out


def _entries(pixels: tuple[int, ...]) -> str:
    """What is inside or outside, as in `Evaluation.entries`."""
    return "values" if in_channels(pixels) or len(pixels) == 1 else "pixels"


def _known_ends(ev: Evaluation) -> list[float]:
    """Ends of the mean length, where it has some."""
    return [x for x in ev.mean_length_interval if isfinite(x)]
