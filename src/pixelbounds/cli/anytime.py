"""`pixelbounds anytime start | add | status`: a calibration of images that keep arriving, certified at any time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..calibration.words import number_of
from ..workflows.request import (
    ANYTIME_OPTIONS,
    NO_HOLES,
    ArrivalOptions,
    BandPath,
    Force,
    ReadOptions,
    Request,
    Resources,
    Truth,
)
from .command import Outcome, certified, command, in_short, written

if TYPE_CHECKING:
    from ..monitoring.anytime import AnytimeCalibration

_State = Annotated[Path, typer.Argument(metavar="STATE", help="The anytime calibration, .safetensors.")]
_Out = Annotated[Path | None, typer.Option(help="The calibration file, written where one can be certified.")]
_FEW, _MOST = 24, 96  # images that are enough to fit: an eighth, within these
_KEPT = "the state holds all of these images or none; run the command again"


@command("start")
def start_command(
    state: _State,
    truth: Truth,
    bands: BandPath,
    read: Annotated[ReadOptions, NO_HOLES],
    large: Resources,
    request: Annotated[Request, ANYTIME_OPTIONS],
    force: Force = False,
) -> Outcome:
    """Begin an anytime calibration: these images fit groups and path; those that are added later certify.

    Example: pixelbounds anytime start state.safetensors first.npy first_bands.zarr --risk-level 0.1
    """
    from ..workflows.anytime import start_files

    with large.reporting("fitting") as resources:
        anytime = start_files(state, truth, bands, request, replace=force, reading=read.reading(), resources=resources)
    fitted = anytime.start.record.images
    enough = min(fitted, max(_FEW, min(_MOST, -(-fitted // 8))))
    words = f"all {number_of(fitted, 'image')}, of which none certifies"
    if enough < fitted:
        words += f"; {enough} are enough: start again with these, and give the other {fitted - enough} to `anytime add`"
    return _outcome(state, anytime, None, {"fitted": words}, fitted=fitted, enough=enough)


@command("add", stopped=_KEPT)
def add_command(
    state: _State,
    truth: Truth,
    bands: BandPath,
    read: Annotated[ReadOptions, NO_HOLES],
    large: Resources,
    new: ArrivalOptions,
    out: _Out = None,
) -> Outcome:
    """Let images arrive, in the order of their arrival; the same files do not count twice.

    Example: pixelbounds anytime add state.safetensors today.npy today_bands.zarr --out cal.safetensors
    """
    from ..workflows.anytime import add_files

    with large.reporting("counting") as resources:
        made = add_files(state, truth, bands, out=out, new=new, reading=read.reading(), resources=resources)
    rows = {"counted": number_of(made.counted, "image")}
    if made.repeated:
        rows["not counted"] = f"{number_of(made.repeated, 'image')} that were counted before (new ones: --batch NAME)"
    return _outcome(state, made.anytime, out, rows, counted=made.counted, repeated=made.repeated)


@command("status")
def anytime_status_command(state: _State, out: _Out = None) -> Outcome:
    """Say what can be certified now; asking costs nothing.

    Example: pixelbounds anytime status state.safetensors
    """
    from ..workflows.anytime import anytime_status

    return _outcome(state, anytime_status(state, out=out), out)


def _outcome(
    state: Path, anytime: AnytimeCalibration, out: Path | None, rows: dict[str, str] | None = None, **counts: int,
) -> Outcome:  # fmt: skip
    calibration, checks = anytime.certified, len(anytime.checks)
    facts = {
        "certified": calibration is not None, "guarantee": None if calibration is None else calibration.guarantee,
        "risk": None if calibration is None else calibration.risk, "images": anytime.images,
        "units": anytime.checks[-1].units if checks else 0, "min_images": anytime.min_images, "checks": checks,
        "state": str(state), "file": None if out is None or calibration is None else str(out), **counts,
    }  # fmt: skip
    so_far = f"{number_of(anytime.images, 'image')} that certify, in {checks} call{'s' * (checks != 1)}"
    lines = {**(rows or {}), "so far": so_far}
    if calibration is None:
        text = f"Nothing can be certified yet; at least {anytime.min_images} images (units) must certify."
        return in_short(facts, text, {**lines, "state": written(state)})
    lines |= {} if out is None else {"written": written(out)}
    return certified(facts, calibration, {**lines, "state": written(state)})
