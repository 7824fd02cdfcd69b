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
        yield lambda known: bar.update(task, completed=known["done"], description=in_words(known))


def _lines() -> Callable[[Mapping[str, Any]], None]:
    last: list[float] = []

    def show(known: Mapping[str, Any]) -> None:
        if not last or known["seconds"] >= last[0] + _LINES or known["done"] >= 1:
            last[:] = [known["seconds"]]
            tell(in_words(known))

    return show


def in_words(known: Mapping[str, Any]) -> str:
    """One line about a run.

    >>> losses = {"loss": 0.31, "validation": 0.4, "least": 0.35}
    >>> in_words({"step": 40, "images_per_second": 8.0, **losses, "remaining": 95})
    'step 40, 8 images/s, loss 0.31, validation 0.4 (least 0.35), 0:01:35 left'
    """
    parts = [f"step {known['step']:,}", f"{known['images_per_second']:.3g} images/s"]
    if "loss" in known:
        parts.append(f"loss {known['loss']:.4g}")
    if "validation" in known:
        parts.append(f"validation {known['validation']:.4g} (least {known['least']:.4g})")
    if "remaining" in known:
        parts.append(f"{timedelta(seconds=round(known['remaining']))} left")
    return ", ".join(parts)
