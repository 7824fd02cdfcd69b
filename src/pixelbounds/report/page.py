"""The page: one HTML file with its style, script, pictures and data inside."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ..calibration.result import Calibration
from ..calibration.sentence import in_channels, plural, share_in_words
from ..evaluation.evaluation import Evaluation, Strata
from ..evaluation.judgement import judge
from ..images.checks import Limits
from ..storage.files import replace_file
from .charts import draw_groups, draw_path, draw_units
from .example import Example, Row
from .pack import (
    closed_length,
    colours,
    gray_png,
    map_png,
    missed,
    pictures_of,
    viewer_examples,
    widening_of,
    window_of,
)
from .promise_table import promise_rows
from .svg import inline_chart, whisker
from .words import MOST_ROWS, STRATA, length_span, level_text, number, percent, span, strata_rows

MOST_BYTES = 7_700_000  # of pictures and data, above which fewer samples are kept
_FULL = 0.995  # share of the pixels within the scale of a map


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
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style = _asset("page.css")
    script = _asset("viewer.js")
    limits = calibration.limits
    measure = calibration.measure
    windowed = measure is not None and measure.window is not None
    scales = {"length": _scale([closed_length(x, windowed=windowed) for x in examples])}
    widenings = [x for x in (widening_of(example, limits) for example in examples) if x is not None]
    if widenings:
        scales["widening"] = _scale(widenings)
    pictures = [_pictures(example, limits, scales, windowed) for example in examples]
    drawn = sum(len(uri) for picture in pictures for _, uri in picture["shown"])
    shown = viewer_examples(examples, limits, MOST_BYTES - drawn, windowed=windowed)
    level = _level_of(calibration)
    judged = None if evaluation is None else judge(evaluation, calibration)
    tables = [] if evaluation is None else _tables(evaluation, level, group_names)
    text = page.from_string(_asset("page.html")).render(
        title=title, cal=calibration, ev=evaluation, notes=notes, percent=percent, level=level_text,
        number=number, span=span, length_span=length_span, plural=plural, share=share_in_words,
        style=Markup(style), script=Markup(script), style_hash=_hash(style), script_hash=_hash(script),
        limited=any(isfinite(x) for x in limits),
        one=calibration.record.unit_name if calibration.record.units else "image",
        entries=_entries(calibration.record.pixels),
        judged=judged, promises=promise_rows(calibration, evaluation, judged, examples), level_of_all=level,
        path_chart=_path_chart(calibration, evaluation),
        tables=tables, rows_shown=sum(len(table["rows"]) for table in tables),
        charts=[] if evaluation is None else _charts(evaluation, level),
        comparison=_comparison(comparison, calibration),
        pictures=pictures, scales=scales,
        sampled=sorted({(x["samples"], x["drawn"]) for x in shown if x["drawn"]}),
        data={
            "colours": colours().tobytes().hex(), "scales": scales, "examples": shown,
            "measure": measure.state() if measure is not None and windowed else None,
            "regions": list(dict.fromkeys(name for x in shown for name in x["regions"])),
        },
        measure=measure if windowed else None,
    )  # fmt: skip
    replace_file(target, text.encode("utf-8", "replace"))  # names of files may hold bytes that are no text
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


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()


def _scale(maps: Sequence[Any]) -> float:
    """Where the colours of a map end: most pixels of all examples are within."""
    if not maps:
        return 1.0
    values = np.concatenate([x.reshape(-1) for x in maps])
    values = values[np.isfinite(values)]
    if not len(values):
        return 1.0
    most = float(np.quantile(values, _FULL)) or float(values.max())
    return most if most > 0 else 1.0


def _pictures(example: Example, limits: Limits, scales: Mapping[str, float], windowed: bool) -> dict[str, Any]:
    """Name and small pictures of an example, in the order in which they are read."""
    window = window_of(example, limits)
    length = closed_length(example, windowed=windowed)
    closed = length[np.isfinite(length)]
    shown = [
        (name, map_png(x, scales[name]) if name in scales else gray_png(x, window))
        for name, x in {**pictures_of(example, limits), "length": length}.items()
    ]
    wrong = missed(example)
    outside = None if wrong is None else float(np.mean(wrong > 0))
    h, w = example.pixels[-2:]
    return {
        "name": example.name, "shown": shown, "height": round(128 * h / w), "outside": outside,
        "length": float(closed.mean()) if len(closed) else None, "open": 1 - len(closed) / length.size,
    }  # fmt: skip


def _level_of(calibration: Calibration) -> float | None:
    """The level that a share of all pixels outside can be held against; none where something else was certified."""
    of_all = [p.at_most for p in calibration.promises if (p.kind, p.place, p.cap) == ("share", "all", 1)]
    return of_all[0] if of_all else None


def _tables(ev: Evaluation, level: float | None, names: Mapping[int, str] | None) -> list[dict[str, Any]]:
    """Strata as tables with whiskers on one scale."""
    rows = {kind: strata_rows(strata, names) for kind, strata in ev.strata.items()}
    most = max(1.25 * (level or 0.0), 1e-6)
    for kind, strata in ev.strata.items():
        most = max(most, *(float(strata.high[i]) for i, _ in rows[kind]))
    return [
        {
            "heading": f"By {STRATA[kind]} of the truth" if kind == "edge" else f"By {STRATA[kind]}",
            "of": STRATA[kind],
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


def _comparison(rows: Sequence[Row], shown: Calibration) -> list[dict[str, Any]]:
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
                "length_span": length_span(*ev.mean_length_interval), "risk": ev.risk,
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
