"""What is reported while work goes on: how much is done, and lines for the user."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]  # called with what is done and the total
Tell = Callable[[str], None]  # called with a line for the user


def silent(done: int, total: int) -> None:
    """Report nothing."""


@contextmanager
def bar(text: str) -> Iterator[Progress]:
    """A progress bar on a terminal's standard error; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(text)
        yield lambda done, total: bars.update(task, completed=done, total=total)
