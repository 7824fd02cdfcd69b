"""The bar of a training run: how far it is, images per second, both losses, and the time that is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .command import stderr, tell

_LINES = 10.0  # seconds between lines where no bar can be drawn


@contextmanager
def training_bar() -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show what `diffusion.session.Log` tells: a bar on a terminal, elsewhere a line every ten seconds."""
    console = stderr()
    if not console.is_terminal:
        yield _lines()
        return
    columns = TextColumn("training"), BarColumn(20), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("first step", total=1.0)
        yield lambda state: bar.update(task, completed=state["done"], description=in_words(state))


def _lines() -> Callable[[Mapping[str, Any]], None]:
    last: list[float] = []

    def show(state: Mapping[str, Any]) -> None:
        if not last or state["seconds"] >= last[0] + _LINES or state["done"] >= 1:
            last[:] = [state["seconds"]]
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
