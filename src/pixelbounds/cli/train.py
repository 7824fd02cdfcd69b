"""`pixelbounds train`: a network as a TOML file says; an interrupted run resumes."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from .bars import training_bar
from .command import Outcome, command, tell


@command("train", stopped="the state is saved; run the same command to resume")
def train_command(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file; see docs/diffusion.md and examples/.")],
    quiet: bool = typer.Option(False, "--quiet", help="No progress bar."),
) -> Outcome:
    """Train a score network, a regressor or N-Conffusion, or resume an interrupted run.

    Example: pixelbounds train examples/score.toml

    Several GPUs: torchrun --nproc-per-node 4 -m pixelbounds.cli train examples/score.toml
    """
    from ..execution.threads import let_threads_sleep

    let_threads_sleep()  # before torch is loaded
    from ..workflows import train_from

    with nullcontext(None) if quiet else training_bar() as show:
        path = train_from(config, tell=tell, progress=show)
    first = os.environ.get("RANK", "0") == "0"
    return Outcome({"network": str(path)}, (str(path),)) if first else Outcome({}, ())
