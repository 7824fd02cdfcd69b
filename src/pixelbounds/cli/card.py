"""`pixelbounds card`: the model card of a calibration, as Markdown."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
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
        list[str] | None, typer.Option(help="A paragraph for the card, such as scanners; repeatable.")
    ] = None,
    force: Force = False,
) -> Outcome:
    """Write the model card of a calibration: promises, data, method, intended use, limits.

    Example: pixelbounds card cal.safetensors --out card.md --intended-use "Denoised abdominal CT, for research."
    """
    from ..calibration.calibration_file import load_calibration
    from ..formats.opener import check_target
    from ..images.checks import check_line
    from ..report.model_card import card_markdown
    from ..storage.files import replace_file

    target = check_target(out, (".md",), replace=force, inputs=(calibration,))
    check_line(title, "title")
    described = load_calibration(calibration)
    dates = {
        "file last changed": datetime.fromtimestamp(calibration.stat().st_mtime, UTC).date().isoformat(),
        "card written": datetime.now(UTC).date().isoformat(),
        "SHA-256 of the file": hashlib.sha256(calibration.read_bytes()).hexdigest(),
    }
    text = card_markdown(described, title, dates=dates, intended_use=intended_use, notes=note or ())
    replace_file(target, text.encode())
    facts = {"file": str(target), "files": [str(target)], "guarantee": described.guarantee}
    return in_short(facts, described.guarantee, {"written": written(target)})
