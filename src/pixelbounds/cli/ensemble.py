"""`pixelbounds ensemble`: several score networks become one that `sample` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..workflows.request import Force
from .command import Outcome, command


@command("ensemble")
def ensemble_command(
    networks: Annotated[
        list[Path], typer.Argument(metavar="NETWORKS", help="Score networks that `pixelbounds train` saved.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The network to write, .safetensors.")],
    force: Force = False,
) -> Outcome:
    """Combine score networks of several seeds into one that averages their scores and costs as much as all.

    Example: pixelbounds ensemble a/score.safetensors b/score.safetensors --out both.safetensors
    """
    from ..workflows.ensemble import combine_networks

    path = combine_networks(networks, out, replace=force)
    return Outcome({"network": str(path), "members": len(networks)}, (str(path),))
