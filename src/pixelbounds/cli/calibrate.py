"""`pixelbounds calibrate` and `pixelbounds apply`: bands in, a calibration file or intervals out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .command import Outcome, command, images_in_words, numbers, sentence, skipped_in_words, streaming
from .options import (
    ABDOMEN,
    METHOD,
    BandPath,
    Features,
    FillMissing,
    Force,
    Key,
    Kind,
    Limits,
    Memory,
    Miscoverage,
    Raw,
    Scheduler,
    Scratch,
    SkipBad,
    Truth,
    TruthKey,
    Units,
    Window,
    reading_of,
    resources_of,
    size_of,
)

if TYPE_CHECKING:
    from ..calibration.result import Calibration


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app)(calibrate)
    command(app, stopped="blocks of a .zarr that were written are kept as .part: run the same command to go on")(apply)


def calibrate(
    truth: Truth,
    bands: BandPath,
    out: Annotated[Path, typer.Option(help="The calibration file, .safetensors.")],
    risk_level: Annotated[float, typer.Option(help="Share of the pixels of an image that may lie outside.")],
    failure_prob: Annotated[float, typer.Option(help="Share of calibrations that may be unlucky.")] = 0.1,
    force: Force = False,
    method: Annotated[
        str, typer.Option(help="frontier (shortest), krcps (the paper's), rcps.", rich_help_panel=METHOD)
    ] = "frontier",
    confidence: Annotated[
        str,
        typer.Option(
            help="betting, hoeffding_bentkus, bentkus, empirical_bernstein, hoeffding, conformal.",
            rich_help_panel=METHOD,
        ),
    ] = "betting",
    groups: Annotated[
        str | None,
        typer.Option(help="learned, band, loss, squared, otsu, or a file of labels.", rich_help_panel=METHOD),
    ] = None,
    features: Features = None,
    family: Annotated[
        str | None, typer.Option(help="additive, scaled or multiplicative.", rich_help_panel=METHOD)
    ] = None,
    k: Annotated[int | None, typer.Option("--k", help="Number of groups.", rich_help_panel=METHOD)] = None,
    n_opt: Annotated[
        int | None, typer.Option(help="Images (units) that fit; the rest certify.", rich_help_panel=METHOD)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the split and of all fitting.", rich_help_panel=METHOD)] = 0,
    miscoverage: Miscoverage = None,
    units: Units = None,
    kind: Kind = None,
    key: Key = None,
    truth_key: TruthKey = None,
    window: Window = ABDOMEN,
    raw: Raw = False,
    limits: Limits = None,
    bands_out: Annotated[
        Path | None,
        typer.Option(help="Keep the bands of samples in this .zarr; an unfinished one is gone on with."),
    ] = None,
    scheduler: Scheduler = None,
    memory: Memory = None,
    scratch: Scratch = None,
    skip_bad: SkipBad = False,
    fill_missing: FillMissing = False,
) -> Outcome:
    """Choose intervals that keep a promise on future images, and write them as a calibration file.

    Example: pixelbounds calibrate truth.npy samples.zarr --risk-level 0.1 --failure-prob 0.1 --out cal.safetensors
    """
    from ..workflows.calibrate import calibrate_files

    reading = reading_of(
        key=key,
        truth_key=truth_key,
        kind=kind,
        miscoverage=miscoverage,
        window=window,
        raw=raw,
        limits=limits,
        units=units,
        skip_bad=skip_bad,
        fill_missing=fill_missing,
    )
    with streaming("calibrating") as advance:
        found = calibrate_files(
            truth, bands, out, risk_level=risk_level, failure_prob=failure_prob, method=method, confidence=confidence,
            groups=groups, features=features, family=family, k=k, n_opt=n_opt, seed=seed, replace=force,
            progress=advance, reading=reading, bands_out=bands_out,
            resources=resources_of(scheduler, memory, scratch),
        )  # fmt: skip
    record = found.record
    certified = f"{found.risk:.2%} outside, at most {found.bound:.2%} by {found.confidence}"
    groups_ = f"{found.grouping.count} {found.grouping.kind} group{'s' * (found.grouping.count > 1)}"
    fitted = f" fitted on {images_in_words(record.fitting)}" if record.fitting else ""
    skipped = record.settings.get("skipped", ())
    text = numbers(
        {
            "certified": f"{certified}, on {record.certifying} {'units' if record.units else 'images'}",
            "method": f"{found.method}, {groups_}{fitted}",
            "written": f"{out} ({size_of(out)})",
            **skipped_in_words(skipped),
            "next": f"pixelbounds apply {out} NEW_BANDS --out intervals.zarr",
        }
    )
    return Outcome({**_facts(found), "file": str(out), "skipped": skipped}, (sentence(found.guarantee), text))


def apply(
    calibration: Annotated[Path, typer.Argument(metavar="CALIBRATION", help="What `pixelbounds calibrate` wrote.")],
    bands: BandPath,
    out: Annotated[Path, typer.Option(help="intervals.zarr, .npz, .nii.gz, or a new folder for DICOM.")],
    like: Annotated[
        Path | None, typer.Option(help="A NIfTI file or DICOM folder whose geometry the intervals get.")
    ] = None,
    force: Force = False,
    groups: Annotated[
        Path | None,
        typer.Option(help="Labels of these images, where the calibration used some.", rich_help_panel=METHOD),
    ] = None,
    features: Features = None,
    miscoverage: Miscoverage = None,
    kind: Kind = None,
    key: Key = None,
    window: Window = ABDOMEN,
    raw: Raw = False,
    scheduler: Scheduler = None,
    memory: Memory = None,
    scratch: Scratch = None,
    skip_bad: SkipBad = False,
    fill_missing: FillMissing = False,
) -> Outcome:
    """Write the intervals of new images.

    Example: pixelbounds apply cal.safetensors new.zarr --out intervals.zarr
    """
    from ..workflows.calibrate import apply_files

    reading = reading_of(
        key=key,
        kind=kind,
        miscoverage=miscoverage,
        window=window,
        raw=raw,
        skip_bad=skip_bad,
        fill_missing=fill_missing,
    )
    with streaming("widening") as advance:
        done = apply_files(
            calibration, bands, out, like=like, groups=groups, features=features, replace=force, progress=advance,
            reading=reading, resources=resources_of(scheduler, memory, scratch),
        )  # fmt: skip
    n, *pixels = done.shape
    text = numbers(
        {
            "images": f"{n} of {' x '.join(map(str, pixels)) + ' pixels' if pixels else 'different sizes'}",
            "mean length": f"{done.mean_length:.4f}",
            "written": f"{done.path} ({size_of(done.path)})",
            **skipped_in_words(done.skipped),
        }
    )
    facts = {"file": str(done.path), "shape": done.shape, "mean_length": done.mean_length, "skipped": done.skipped}
    facts["guarantee"] = done.calibration.guarantee
    return Outcome(facts, (sentence(done.calibration.guarantee), text))


def _facts(calibration: Calibration) -> dict[str, Any]:
    names = "guarantee", "method", "confidence", "risk_level", "failure_prob", "risk", "bound"
    groups = {"kind": calibration.grouping.kind, "count": calibration.grouping.count}
    return {name: getattr(calibration, name) for name in names} | {"groups": groups, "record": vars(calibration.record)}
