"""Evaluate on images whose truth is known and write one page that shows the promise and every pixel."""

from __future__ import annotations

import dataclasses
from operator import itemgetter
from typing import Any

import numpy as np

from ..calibration.trust import TrustMask, load_trust
from ..evaluation.evaluation import Evaluation
from ..formats.arrays import FilePath, Reading
from ..formats.maps import keeps
from ..formats.opener import check_target
from ..images.ends import Interval
from ..report.example import Example, examples_of
from ..report.page import write_report
from .evaluate import Evaluated, HeldOut, HeldOutFiles, held_out, table_of
from .request import ReportOptions, Resources


def report_files(
    files: HeldOutFiles, out: FilePath, options: ReportOptions = ReportOptions(), *, reading: Reading = Reading(),
    replace: bool = False, resources: Resources = Resources(),
) -> Evaluated:  # fmt: skip
    """Evaluate, and write the page.

    Images that calibrated are refused. Where identifiers are dropped, images and units are numbered.
    """
    if files.calibration is None:
        raise ValueError("give --calibration, what `pixelbounds calibrate` wrote")
    who = keeps(options.identifiers)
    target = check_target(out, (".html",), replace=replace, inputs=(*files.reads, options.trust))
    mask = None if options.trust is None else load_trust(options.trust)
    rows = files.check_table(replace=replace)
    with held_out(files, reading, resources, names=who) as judged:
        if rows is not None:
            table_of(judged, rows, files.structures)
        pictures = _examples(judged, shown(judged.result.evaluation, options.examples), mask, names=who)
    notes = [*(options.note or ()), *(() if mask is None else (f"Trusted pixels: {mask.guarantee}",))]
    write_report(
        target, title=options.title, calibration=judged.calibration,  # type: ignore[arg-type]
        evaluation=judged.result.evaluation, examples=pictures, notes=notes,
    )  # fmt: skip
    return judged.result


def shown(evaluation: Evaluation, examples: int) -> list[int]:
    """So many images to look at, from the best covered to the worst.

    Of six or more a third are the worst, so that what opens from the table of the worst images is on the page.
    """
    n = len(evaluation.by_image)
    ranked = evaluation.worst(n)[::-1]
    count = min(n, examples)
    worst = count // 3 if count >= 6 else 0
    evenly = np.linspace(0, n - 1 - worst, count - worst).round().astype(int)
    return [int(i) for i in ranked[np.unique([*evenly, *range(n - worst, n)])]]


def _examples(held: HeldOut, chosen: list[int], trust: TrustMask | None, *, names: bool) -> list[Example]:
    examples = []
    for i in chosen:
        at = slice(i, i + 1)
        truth = held.images.pixels[at]
        parts: dict[str, Any] = {}
        if held.bands is not None:
            parts = {name: x[at] for name, x in held.bands.known.items() if name != "held_out"}
            if held.bands.samples is not None:
                parts["samples"] = held.bands.samples[at]
            parts["band"] = held.bands[at]
        name = held.images.names[i] if names else f"image {i}"
        promises = held.regions.promises(truth, itemgetter(at)) or None
        interval = Interval(held.interval.lower[at], held.interval.upper[at])
        (example,) = examples_of(interval, [0], names=[name], truth=truth, promises=promises, **parts)
        if trust is not None and held.bands is not None:
            example = dataclasses.replace(
                example, regions={**(example.regions or {}), "trusted": trust.apply(held.bands[at])[0]}
            )
        examples.append(dataclasses.replace(example, image=i))
    return examples
