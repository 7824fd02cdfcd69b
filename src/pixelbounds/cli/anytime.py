"""`pixelbounds anytime start | add | status`: a calibration of images that keep arriving, certified at any time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..calibration.text import promise_in_words
from ..calibration.words import level_in_words, plural
from .command import Outcome, command, images_in_words, in_short, progress, reading_of, resources_of, written
from .options import (
    WHERE,
    BandPath,
    FailureProb,
    FamilyName,
    Features,
    Force,
    LargeOptions,
    Promises,
    ReadOptions,
    TestLabels,
    Truth,
    method_option,
    units_option,
)

if TYPE_CHECKING:
    from ..monitoring.anytime import AnytimeCalibration

_State = Annotated[Path, typer.Argument(metavar="STATE", help="The anytime calibration, .safetensors.")]
_Out = Annotated[Path | None, typer.Option(help="The calibration file, written where one can be certified.")]
_Regions = Annotated[
    list[str] | None,
    typer.Option(
        "--region", help="Of a promise, on these images: heart.npy,name=heart; labels.nii.gz:2,name=liver; body."
    ),
]
_Batch = Annotated[str | None, typer.Option(help="A name of these images, such as a date; they count once under it.")]
_KEPT = "the state holds all of these images or none; run the command again"


@command("start")
def start_command(
    state: _State,
    truth: Truth,
    bands: BandPath,
    read: ReadOptions,
    large: Annotated[LargeOptions, WHERE],
    risk_level: Annotated[
        float | None, typer.Option(help="Share of the pixels of an image that may lie outside: --promise 'share ...'.")
    ] = None,
    promise: Promises = None,
    failure_prob: FailureProb = 0.1,
    force: Force = False,
    method: Annotated[str, method_option(help="frontier (shortest), krcps (the paper's), rcps.")] = "frontier",
    groups: Annotated[
        str | None, method_option(help="learned, band, loss, squared, otsu, or a file of one map for all.")
    ] = None,
    features: Features = None,
    labels: TestLabels = None,
    family: FamilyName = None,
    k: Annotated[int | None, method_option("--k", help="Number of groups.")] = None,
    seed: Annotated[int, method_option(help="Of all fitting.")] = 0,
    unit_name: Annotated[str | None, units_option(help="What a unit is, in the singular, such as patient.")] = None,
    weighting: Annotated[str, units_option(help="What counts the same on average: units, or images.")] = "units",
    max_images: Annotated[
        int | None, units_option(help="Images that a unit counts for at most, with --weighting images.")
    ] = None,
) -> Outcome:
    """Begin an anytime calibration: these images fit groups and path; those that are added later certify.

    Example: pixelbounds anytime start state.safetensors first.npy first_bands.zarr --risk-level 0.1
    """
    from ..workflows.anytime import start_files

    with progress("fitting") as advance:
        anytime = start_files(
            state, truth, bands, risk_level=risk_level, promises=promise or (), failure_prob=failure_prob,
            method=method, groups=groups, features=features, labels=labels, family=family, k=k, seed=seed,
            unit_name=unit_name, weighting=weighting, max_images=max_images, replace=force, progress=advance,
            reading=reading_of(read), resources=resources_of(large),
        )  # fmt: skip
    return _outcome(state, anytime, None)


@command("add", stopped=_KEPT)
def add_command(
    state: _State,
    truth: Truth,
    bands: BandPath,
    read: ReadOptions,
    large: Annotated[LargeOptions, WHERE],
    out: _Out = None,
    region: _Regions = None,
    features: Features = None,
    labels: TestLabels = None,
    batch: _Batch = None,
) -> Outcome:
    """Let images arrive, in the order of their arrival; the same files do not count twice.

    Example: pixelbounds anytime add state.safetensors today.npy today_bands.zarr --out cal.safetensors
    """
    from ..workflows.anytime import add_files

    with progress("counting") as advance:
        made = add_files(
            state, truth, bands, out=out, regions=region or (), features=features, labels=labels, progress=advance,
            reading=reading_of(read), resources=resources_of(large), batch=batch,
        )  # fmt: skip
    counts = {"counted": made.counted, "repeated": made.repeated}
    rows = {"counted": images_in_words(made.counted)}
    if made.repeated:
        rows["not counted"] = f"{images_in_words(made.repeated)} that were counted before (new ones: --batch NAME)"
    return _outcome(state, made.anytime, out, counts, rows)


@command("status")
def anytime_status_command(state: _State, out: _Out = None) -> Outcome:
    """Say what can be certified now; asking costs nothing.

    Example: pixelbounds anytime status state.safetensors
    """
    from ..workflows.anytime import anytime_status

    return _outcome(state, anytime_status(state, out=out), out)


def anytime_commands() -> typer.Typer:
    """The commands of an anytime calibration."""
    group = typer.Typer(no_args_is_help=True, help="A calibration of images that keep arriving, certified at any time.")
    for function in (start_command, add_command, anytime_status_command):
        group.command()(function)
    return group


def _outcome(
    state: Path,
    anytime: AnytimeCalibration,
    out: Path | None,
    counts: dict[str, Any] | None = None,
    rows: dict[str, str] | None = None,
) -> Outcome:
    """The state of an anytime calibration."""
    calibration = anytime.certified
    checks = len(anytime.checks)
    facts = {
        "certified": calibration is not None, "guarantee": None if calibration is None else calibration.guarantee,
        "risk": None if calibration is None else calibration.risk, "images": anytime.images,
        "units": anytime.checks[-1].units if checks else 0, "min_images": anytime.min_images, "checks": checks,
        "state": str(state), "file": None if out is None or calibration is None else str(out), **(counts or {}),
    }  # fmt: skip
    lines = dict(rows or {})
    lines["so far"] = f"{images_in_words(anytime.images)} that certify, in {checks} call{'s' * (checks != 1)}"
    if calibration is None:
        text = f"Nothing can be certified yet; at least {anytime.min_images} images (units) must certify."
    else:
        text = calibration.guarantee
        who = plural(calibration.record.unit_name) if calibration.record.units else "images"
        for promise in calibration.promises:
            what = promise_in_words(promise) if len(calibration.promises) > 1 else "certified"
            seen = f"{promise.risk:.2%} seen on {promise.certifying} {who}"
            lines[what] = f"at most {level_in_words(promise.at_most)}; {seen}"
        if calibration.note:
            lines["note"] = calibration.note
        if out is not None:
            lines["written"] = written(out)
    lines["state"] = written(state)
    return in_short(facts, text, lines)
