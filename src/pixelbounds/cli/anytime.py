"""`pixelbounds anytime start | add | status`: a calibration of images that keep arriving, certified at any look."""

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
        growing = start_files(
            state, truth, bands, risk_level=risk_level, promises=promise or (), failure_prob=failure_prob,
            method=method, groups=groups, features=features, labels=labels, family=family, k=k, seed=seed,
            unit_name=unit_name, weighting=weighting, max_images=max_images, replace=force, progress=advance,
            reading=reading_of(read), resources=resources_of(large),
        )  # fmt: skip
    return _outcome(state, growing, None)


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
) -> Outcome:
    """Let images arrive, in the order of their arrival, and look; images that were counted before are left out.

    Example: pixelbounds anytime add state.safetensors today.npy today_bands.zarr --out cal.safetensors
    """
    from ..workflows.anytime import add_files

    with progress("weighting") as advance:
        made = add_files(
            state, truth, bands, out=out, regions=region or (), features=features, labels=labels, progress=advance,
            reading=reading_of(read), resources=resources_of(large),
        )  # fmt: skip
    known = {"known": f"{images_in_words(made.known)} counted before, left out"} if made.known else {}
    return _outcome(
        state, made.growing, out, {"counted": made.counted, "known": made.known},
        {"counted": images_in_words(made.counted), **known},
    )  # fmt: skip


@command("status")
def grow_status_command(state: _State, out: _Out = None) -> Outcome:
    """Say what can be certified now; looking costs nothing.

    Example: pixelbounds anytime status state.safetensors
    """
    from ..workflows.anytime import look_files

    return _outcome(state, look_files(state, out=out), out)


def anytime_commands() -> typer.Typer:
    """The commands of an anytime calibration."""
    group = typer.Typer(no_args_is_help=True, help="A calibration of images that keep arriving, certified at any look.")
    for function in (start_command, add_command, grow_status_command):
        group.command()(function)
    return group


def _outcome(
    state: Path,
    growing: AnytimeCalibration,
    out: Path | None,
    facts: dict[str, Any] | None = None,
    rows: dict[str, str] | None = None,
) -> Outcome:
    """What an anytime calibration has to say."""
    found = growing.certified
    look = growing.looks[-1] if growing.looks else None
    units = look.units if look else 0
    said = {
        "certified": found is not None, "guarantee": None if found is None else found.guarantee,
        "risk": None if found is None else found.risk, "images": growing.images, "units": units,
        "least": growing.least, "looks": len(growing.looks), "state": str(state),
        "file": None if out is None or found is None else str(out), **(facts or {}),
    }  # fmt: skip
    lines = dict(rows or {})
    looks = f"{len(growing.looks)} look{'s' * (len(growing.looks) != 1)}"
    lines["so far"] = f"{images_in_words(growing.images)} that certify, in {looks}"
    if found is None:
        text = f"Nothing can be certified yet; at least {growing.least} images (units) must certify."
    else:
        text = found.guarantee
        who = plural(found.record.unit_name) if found.record.units else "images"
        several = len(found.promises) > 1
        for promise in found.promises:
            what = promise_in_words(promise) if several else "certified"
            seen = f"{promise.risk:.2%} seen on {promise.certifying} {who}"
            lines[what] = f"at most {level_in_words(promise.at_most)}; {seen}"
        if found.note:
            lines["note"] = found.note
        if out is not None:
            lines["written"] = written(out)
    lines["state"] = written(state)
    return in_short(said, text, lines)
