"""What is reported while work goes on: how much is done, and lines for the user."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[int, int], None]  # called with what is done and the total
Tell = Callable[[str], None]  # called with a line for the user


def silent(done: int, total: int) -> None:
    """Report nothing."""


@contextmanager
def bar(what: str, *, of: str = "bytes") -> Iterator[Progress]:
    """A bar on a terminal, or in a notebook: what is done and the total, in bytes or counts `of` something else.

    Until it is called it only shows that work goes on; 0 begins another pass.
    """
    from rich import progress as parts
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    amount: list[parts.ProgressColumn] = [parts.DownloadColumn(), parts.TransferSpeedColumn()]
    amount = amount if of == "bytes" else [parts.MofNCompleteColumn(), parts.TextColumn(of)]
    times = parts.TimeElapsedColumn(), parts.TimeRemainingColumn()
    columns = parts.TextColumn("{task.description}"), parts.BarColumn(), *amount, *times
    with parts.Progress(
        *columns, console=console, transient=True, disable=not (console.is_terminal or console.is_jupyter)
    ) as bars:
        task = bars.add_task(what, total=None)

        def advance(done: int, total: int) -> None:
            if not done:
                bars.reset(task)
            bars.update(task, completed=done, total=total)
            if done >= total:  # what follows takes its time too
                bars.tasks[0].total = None

        yield advance
