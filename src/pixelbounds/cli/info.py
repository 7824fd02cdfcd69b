"""`pixelbounds info`: look into a file before it is used."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..calibration.text import fact_in_words
from .command import Outcome, command, numbers, sentence


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
    """What a file is, what it promises, how it was made, and its checksum.

    Example: pixelbounds info calibration.safetensors
    """
    from ..workflows.info import about_file

    about = about_file(file)
    rows = {name: x for name, x in about.facts.items() if x is not None and name != "promises"}
    table = numbers({name.replace("_", " "): escape(fact_in_words(x)) for name, x in rows.items()})
    text = (sentence(about.sentence), *(promise_table(about.promises) if about.promises else ()), table)
    return Outcome({"kind": about.kind, "sentence": about.sentence, **about.facts}, text)


def promise_table(rows: Sequence[Sequence[str]]) -> tuple[Table, Text]:
    """Promises, one line each below a head (`calibration.text.Description.table`), and an empty line."""
    (first, *others), *lines = rows
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    for line in lines:
        table.add_row(*map(Text, line))
    return table, Text()
