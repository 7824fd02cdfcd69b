"""`pixelbounds info`: look into a file before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..calibration.text import fact_in_words
from .command import Outcome, command, in_short, promise_table


@command("info")
def info_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A calibration, a monitor, a network, a run, a message between sites; intervals, bands, images.",
        ),
    ],
) -> Outcome:
    """Show what a file is, what it promises, how it was made, and its checksum.

    Example: pixelbounds info calibration.safetensors
    """
    from ..workflows.info import about_file

    about = about_file(file)
    rows = {
        name.replace("_", " "): fact_in_words(x)
        for name, x in about.facts.items()
        if x is not None and name != "promises"
    }
    facts = {"kind": about.kind, "sentence": about.sentence, **about.facts}
    return in_short(facts, about.sentence, rows, *(promise_table(about.certified) if about.certified else ()))
