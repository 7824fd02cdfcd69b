"""A first look: half of the images of two files calibrate, the other half judge, and one page shows what came of it.

For images of one size that fit in memory. Nothing but the page is kept. A calibration for use is made by `calibrate`,
on images that were not looked at before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.calibrate import calibrate
from ..calibration.target import Units, split_by_unit, units_of
from ..evaluation.guarantee_check import StoredGuarantee
from ..evaluation.held_out import evaluate
from ..execution.blocks import pick
from ..execution.progress import Progress, silent
from ..execution.runner import running
from ..formats.arrays import FilePath, Reading
from ..formats.identifiers import keeps, numbered_units
from ..formats.inputs import open_pair, open_units
from ..formats.opener import check_target
from ..images.library import Array
from ..report.example import examples_of
from ..report.figures import save_figures
from ..report.page import write_report
from .evaluate import Evaluated
from .report import shown
from .resources import Resources

NOTE = (
    "A first look: {here} of {all} {units}, chosen at random, calibrated, and the others are judged here. That "
    "calibration is not kept. Looking at several levels or methods in this way, and then keeping one, voids the "
    "promise: calibrate once more on images that had no part in it."
)
_SEED = 0


def first_look_files(
    truth: FilePath,
    bands: FilePath,
    out: FilePath,
    *,
    risk_level: float,
    title: str,
    figures: FilePath | None = None,
    examples: int | Sequence[int] = 12,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    notes: Sequence[str] = (),
    identifiers: str = "drop",
    replace: bool = False,
    resources: Resources = Resources(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> tuple[Evaluated, list[Path]]:
    """Calibrate on half of the images, or of their units, evaluate on the others, and write the page and figures."""
    who = keeps(identifiers)
    target = check_target(out, (".html",), replace=replace, inputs=(truth, bands, reading.units))
    with running(**vars(resources), progress=progress) as execution:
        images, made, limits = open_pair(truth, bands, reading, execution)
        band, good = made.whole(execution, None)
        units = open_units(images, reading)
        if not good.all():
            raise ValueError(f"{bands} lacks images, {np.flatnonzero(~good)[0]} for one; finish the run first")
        if made.ragged or not made.fit_in_memory(execution):
            raise ValueError(
                f"{bands} is too large for a first look, or of many sizes; `calibrate`, then --calibration"
            )
        here, first, count = _half(units, len(images))

        def rows(mask: Array, x: Any) -> Any:
            return None if x is None else np.asarray(pick(execution, x, mask))

        mine, others = partial(rows, here), partial(rows, ~here)
        measured = images.measure or made.measure
        calibration = calibrate(
            mine(images.pixels), band.map(mine), risk_level=risk_level, limits=limits,
            units=None if units is None else Units(mine(units), images.unit_name or "unit"), measure=measured,
        )  # fmt: skip
        left = band.map(others)
        interval = calibration.apply(left)
        named = units if who or units is None else numbered_units(units)
        true = others(images.pixels)
        evaluation = evaluate(true, interval, units=others(named), limits=limits, calibration=calibration)
        numbers = np.flatnonzero(~here)
        chosen = shown(evaluation, examples)
        names = [images.names[i] if who else f"image {i}" for i in numbers]
        parts = {name: others(x) for name, x in made.known.items() if name in ("estimate", "observation", "samples")}
        pictures = examples_of(interval, chosen, names=names, band=left, truth=true, **parts)
    said = NOTE.format(here=first, all=count, units="images" if units is None else "units")
    about: dict[str, Any] = {"calibration": calibration, "evaluation": evaluation, "examples": pictures}
    drawn = [] if figures is None else save_figures(figures, **about)
    result = Evaluated(evaluation, StoredGuarantee.of(calibration), calibration.guarantee)
    return result, [write_report(target, title=title, notes=[said, *notes], **about), *drawn]


def _half(units: Any, n: int) -> tuple[Array, int, int]:
    """Which images calibrate, bool (n,): those of half of the units, at random; how many units these are, and all."""
    unit_of = units_of(units, n)[1]
    count = int(unit_of.max()) + 1
    if count < 2:
        raise ValueError(f"{count} units cannot be split in two; give images of more patients or scans")
    here, others = split_by_unit(unit_of, (count + 1) // 2, np.random.default_rng(_SEED))
    return here, count - len(others), count
