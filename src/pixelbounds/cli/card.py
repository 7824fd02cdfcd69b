"""`pixelbounds card`: the model card of a calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..workflows.request import Force
from .command import Outcome, command, in_short, written


@command("card", stopped="the card was not written")
def card_command(
    calibration: Annotated[Path, typer.Argument(metavar="CALIBRATION", help="What `pixelbounds calibrate` wrote.")],
    out: Annotated[Path, typer.Option(help="The card, .md.")],
    title: Annotated[str, typer.Option(help="The heading of the card.")] = "Model card of a calibration",
    intended_use: Annotated[str | None, typer.Option(help="What it is meant for, in a sentence or two.")] = None,
    note: Annotated[
        list[str] | None, typer.Option(help="A paragraph for the card, such as scanners, approval; several.")
    ] = None,
    force: Force = False,
) -> Outcome:
    """Write what a calibration promises, of what data, made how, meant for what, and what voids it.

    Example: pixelbounds card cal.safetensors --out card.md --intended-use "Denoised abdominal CT, for research."
    """
    from ..workflows.card import card_file

    path, described = card_file(
        calibration, out, title=title, intended_use=intended_use, notes=note or (), replace=force
    )
    facts = {"file": str(path), "files": [str(path)], "guarantee": described.guarantee}
    return in_short(facts, described.guarantee, {"written": written(path)})
