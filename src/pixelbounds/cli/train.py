"""`pixelbounds train`: a network as a TOML file says; an interrupted run resumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from .command import Outcome, command, tell

_PACE = 10.0  # seconds between lines


@command("train", stopped="the state is saved; run the same command to resume")
def train_command(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A TOML file; see docs/diffusion.md and examples/.")],
    quiet: bool = typer.Option(False, "--quiet", help="Print no progress."),
) -> Outcome:
    """Train a score network, a regressor or N-Conffusion, or resume an interrupted run.

    Example: pixelbounds train examples/score.toml
    """
    from ..execution import let_threads_sleep

    let_threads_sleep()  # before torch is loaded
    from ..workflows import train_from

    path = train_from(config, tell=tell, progress=None if quiet else training_lines())
    return Outcome({"network": str(path)}, (str(path),))


def training_lines() -> Callable[[Mapping[str, Any]], None]:
    """What prints a line about a run (`diffusion.session.Log`) every ten seconds."""
    last = -_PACE

    def show(state: Mapping[str, Any]) -> None:
        nonlocal last
        if state["seconds"] >= last + _PACE or state["done"] >= 1:
            last = state["seconds"]
            tell(in_words(state))

    return show


def in_words(state: Mapping[str, Any]) -> str:
    """One line about a run.

    >>> losses = {"loss": 0.31, "validation": 0.4, "least": 0.35}
    >>> in_words({"step": 40, "images_per_second": 8.0, **losses, "remaining": 95})
    'step 40, 8 images/s, loss 0.31, validation 0.4 (least 0.35), 0:01:35 left'
    """
    parts = [f"step {state['step']:,}", f"{state['images_per_second']:.3g} images/s"]
    if "loss" in state:
        parts.append(f"loss {state['loss']:.4g}")
    if "validation" in state:
        parts.append(f"validation {state['validation']:.4g} (least {state['least']:.4g})")
    if "remaining" in state:
        parts.append(f"{timedelta(seconds=round(state['remaining']))} left")
    return ", ".join(parts)
