"""`pixelbounds protocol write | check`: what a calibration must be, before any image is seen, and whether it is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ..workflows.request import Force, Request
from .command import NO_GUARANTEE, OK, Outcome, command, in_short, written


@command("write")
def write_command(
    out: Annotated[Path, typer.Option(help="The protocol, .toml; its page, .md, lies beside it.")],
    images: Annotated[int, typer.Option(min=1, help="Images (units, with --unit-name) that will calibrate.")],
    request: Request,
    held_out: Annotated[int, typer.Option(min=1, help="Further images (units) for the acceptance test.")] = 100,
    false_alarm: Annotated[float, typer.Option(help="Probability that the monitor ever raises a false alarm.")] = 0.01,
    force: Force = False,
) -> Outcome:
    """Fix promises, sample size, split, seeds, acceptance and recalibration, before any image is seen.

    Example: pixelbounds protocol write --out ct.toml --images 300 --unit-name patient --promise share:0.05
    """
    from ..workflows.pccp import Protocol, write_protocol

    protocol = Protocol(request, images, held_out, false_alarm, datetime.now(UTC).date().isoformat())
    files = write_protocol(out, protocol, replace=force)
    facts = {"files": [str(x) for x in files]}
    return in_short(facts, "Keep both files where they cannot be edited.", {"written": written(*files)})


@command("check")
def check_command(
    protocol: Annotated[Path, typer.Argument(metavar="PROTOCOL", help="What `protocol write` wrote, .toml.")],
    calibration: Annotated[Path, typer.Argument(metavar="CALIBRATION", help="What `pixelbounds calibrate` wrote.")],
) -> Outcome:
    """Compare a calibration with its protocol. Exit code 1: they differ.

    Example: pixelbounds protocol check ct.toml cal.safetensors
    """
    from ..workflows.pccp import check_protocol

    differences = check_protocol(protocol, calibration)
    text = f"The calibration {'differs from' if differences else 'follows'} its protocol."
    return in_short({"differences": differences}, text, differences, code=NO_GUARANTEE if differences else OK)
