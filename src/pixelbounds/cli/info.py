"""`pixelbounds info`: look into a file before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from .command import Outcome, command, sentence


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
    table = Table.grid(padding=(0, 2))
    for name, value in about.facts.items():
        if value is not None and name != "promises":
            table.add_row(Text(name.replace("_", " "), style="dim"), Text(_said(value)))
    text: list[RenderableType] = [sentence(about.sentence), Text(), table]
    if about.facts.get("promises"):
        text[1:1] = [Text(), _promises(about.facts["promises"])]
    return Outcome({"kind": about.kind, "sentence": about.sentence, **about.facts}, tuple(text))


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_said(x)}" for name, x in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_said(x) for x in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _promises(rows: list[dict[str, Any]]) -> Table:
    table = Table("promise", "kind", "at most", "seen", "certified by", box=None, header_style="dim")
    for row in rows:
        table.add_row(row["name"], row["kind"], f"{row['at_most']:.2%}", f"{row['seen']:.2%}", f"{row['certifying']:,}")
    return table
