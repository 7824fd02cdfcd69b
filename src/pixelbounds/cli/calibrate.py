"""`pixelbounds calibrate`: truth and bands in, a calibration file out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..calibration.words import number_of, plural
from ..workflows.request import BandPath, Force, ReadOptions, Request, Resources, Truth
from .command import Outcome, certified, command, skipped_in_words, written

if TYPE_CHECKING:
    from ..calibration.calibration import Calibration
    from ..workflows.calibrate import Calibrated


@command("calibrate")
def calibrate_command(
    truth: Truth,
    bands: BandPath,
    out: Annotated[Path, typer.Option(help="The calibration file, .safetensors.")],
    request: Request,
    read: ReadOptions,
    large: Resources,
    force: Force = False,
    bands_out: Annotated[
        Path | None, typer.Option(help="Keep the bands of samples in this .zarr; an interrupted one resumes.")
    ] = None,
) -> Outcome:
    """Choose intervals that keep a promise on future images, and write them as a calibration file.

    Example: pixelbounds calibrate truth.npy samples.zarr --risk-level 0.1 --failure-prob 0.1 --out cal.safetensors

    Example: pixelbounds calibrate truth.npy bands.zarr --promise share:0.05
    --promise share:0.1,within=heart.npy,name=heart --out cal.safetensors
    """
    from ..workflows.calibrate import calibrate_files

    with large.reporting("calibrating") as resources:
        made = calibrate_files(
            truth, bands, out, request, reading=read.reading(), bands_out=bands_out,
            replace=force, resources=resources,
        )  # fmt: skip
    calibration = made.calibration
    skipped = calibration.record.settings.get("skipped", ())
    facts = {**_facts(calibration), "lengths": made.lengths._asdict(), "file": str(out), "skipped": skipped}
    facts["seconds"] = made.seconds
    also = " --labels NEW_LABELS" if request.labels is not None else ""
    also += " --features NEW_FEATURES" if request.features is not None else ""
    kept = () if bands_out is None else (bands_out,)
    where = "--out intervals.zarr" if calibration.measure is None else "--like NEW_SCAN --out maps"
    rows = {
        **_rows(calibration),
        "mean length": _lengths(made),
        "cost": _cost(made),
        "written": written(out, *kept),
        **skipped_in_words(skipped),
        "next": f"pixelbounds apply {out} NEW_BANDS{also} {where}",
    }
    return certified(facts, calibration, rows)


def _cost(made: Calibrated) -> str:
    """Images and time that the promise took: what certifies could not fit, and the other way round."""
    record = made.calibration.record
    who = f"{record.certifying} {plural(record.unit_name)}" if record.units else number_of(record.certifying, "image")
    fitted = number_of(record.fitting, "image") if record.fitting else "no image"
    return f"{made.seconds:.3g} s; of {number_of(record.images, 'image')} {fitted} fitted, {who} certified"


def _rows(calibration: Calibration) -> dict[str, str]:
    record, groups = calibration.record, calibration.grouping
    rows: dict[str, str] = {}
    if "bands" in record.settings:
        lengths = ", ".join(f"{length:.4f} at {name}" for name, length in record.settings["bands"].items())
        rows["miscoverage"] = f"{record.settings['band']}, chosen on the fitting images by length: {lengths}"
    fitted = f" fitted on {number_of(record.fitting, 'image')}" if record.fitting else ""
    return rows | {
        "method": f"{calibration.method}, {groups.count} {groups.kind} group{'s' * (groups.count > 1)}{fitted}"
    }


def _lengths(made: Calibrated) -> str:
    """Before and after, on some of the images: what was seen, not what is promised."""
    lengths, images = made.lengths, made.calibration.record.images
    on = "the calibration images" if lengths.images == images else f"{lengths.images} of the calibration images"
    return f"{lengths.band:.4f} of the bands, {lengths.interval:.4f} of the intervals, as seen on {on}: no promise"


def _facts(calibration: Calibration) -> dict[str, Any]:
    names = "guarantee", "note", "method", "bound", "risk_level", "failure_prob", "risk"
    groups = {"kind": calibration.grouping.kind, "count": calibration.grouping.count}
    measure = calibration.measure
    return {name: getattr(calibration, name) for name in names} | {
        "groups": groups,
        "promises": [promise.state() for promise in calibration.promises],
        "measure": None if measure is None else measure.state(),
        "record": calibration.record.state(),
    }
