"""What every command keeps to.

A command is a function that returns an `Outcome`: what a person reads (a sentence, then a few numbers) and the same as
plain values. `command` registers it and adds `--json` and `--debug`. The result goes to standard output, as text or as
one JSON object; notes, progress and errors go to standard error. An error is a message, and its kind is the exit code:

  0  done
  1  no guarantee can be given, or held-out images contradict one
  2  wrong usage or input: a path, a shape, a value
  3  this machine cannot do it: disk full, no permission, out of memory, a package that is not installed
  4  a fault of pixelbounds
  130, 143  stopped by Ctrl-C, by SIGTERM
"""

from __future__ import annotations

import errno
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, get_type_hints

import typer
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from ..arrays import NoGuarantee

OK, NO_GUARANTEE, WRONG_INPUT, THIS_MACHINE, OUR_FAULT, INTERRUPTED = 0, 1, 2, 3, 4, 130

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_EXTRAS = {"torch": "diffusion", "nibabel": "medical", "pydicom": "medical"}
_EXTRAS |= {"distributed": "cluster"}
_WRONG_PATH = FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError
_PATHS = {  # what to do about a path that is wrong; nothing was begun there, so nothing is said of what is kept
    errno.ENOENT: "check the path: what is read must exist, and what is written needs a folder where one can write",
    errno.EEXIST: "give another path, or move what is there away",
    errno.ENOTDIR: "a part of the path is a file, not a folder; correct the path",
    errno.EISDIR: "give the path of a file",
    errno.EACCES: "change its permissions, or use another path",
    errno.EPERM: "change its permissions, or use another path",
    errno.EROFS: "write elsewhere",
    errno.ENAMETOOLONG: "use a shorter name",
}


@dataclass(frozen=True)
class Outcome:
    """What a command has to say: `facts` for machines, `text` for people, and the exit code."""

    facts: Mapping[str, Any]
    text: tuple[RenderableType, ...]
    code: int = OK


def command(app: typer.Typer, *, stopped: str = "nothing was written") -> Callable[[Callable[..., Outcome]], None]:
    """Register a function as a command; `stopped` says what an interrupt leaves behind."""

    def register(function: Callable[..., Outcome]) -> None:
        @wraps(function)
        def run(**options: Any) -> None:
            debug, machine = options.pop("debug"), options.pop("json_")
            with _messages(debug, machine, stopped) as notes:
                outcome = function(**options)
            _show(outcome, machine, notes)
            if outcome.code:
                raise typer.Exit(outcome.code)

        own = inspect.signature(function, eval_str=True)
        more = [
            inspect.Parameter(name, _KEYWORD, default=typer.Option(False, flag, help=text), annotation=bool)
            for name, flag, text in (
                ("json_", "--json", "One JSON object on standard output, for machines."),
                ("debug", "--debug", "Show the traceback of an error."),
            )
        ]
        run.__dict__["__signature__"] = own.replace(parameters=[*own.parameters.values(), *more])
        run.__annotations__ = get_type_hints(function, include_extras=True) | {"json_": bool, "debug": bool}
        app.command()(run)

    return register


# ---------------------------------------------------------------- what is printed


def stdout() -> Console:
    """The console of results; into a file or pipe, lines are as long as they are."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 1000)


def stderr() -> Console:
    """The console of notes, progress and errors."""
    return Console(stderr=True, highlight=False)


def numbers(rows: Mapping[str, str | Text]) -> Table:
    """A few numbers, each with the word for it."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    grid.add_column(overflow="fold")
    for word, value in rows.items():
        grid.add_row(f"  {word}", value)
    return grid


def images_in_words(n: int) -> str:
    """One image, two images."""
    return f"{n} image{'s' * (n != 1)}"


def skipped_in_words(images: Sequence[int]) -> dict[str, str]:
    """The row that tells of images left out, where there are some."""
    if not images:
        return {}
    more = ", ..." if len(images) > 8 else ""
    return {"skipped": f"{images_in_words(len(images))} in bad chunks: {', '.join(map(str, images[:8]))}{more}"}


def sentence(text: str, style: str = "bold") -> Text:
    """A line of its own above the numbers."""
    return Text(f"{text}\n", style=style)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, told what is done and the total; until then it only shows that work goes on."""
    console = stderr()
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None, count="")

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, count=f"{done}/{total}")
            if done >= total:  # what follows takes its time too
                bar.tasks[0].total, bar.tasks[0].fields["count"] = None, ""

        yield advance


@contextmanager
def streaming(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for passes over files, told the bytes done and their total: bytes, throughput and the time that is left."""
    console = stderr()
    columns = DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(elapsed_when_finished=True)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), *columns, console=console, transient=True,
        disable=not console.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task(what, total=None)

        def advance(done: int, total: int) -> None:
            if not done:  # another pass
                bar.reset(task)
            bar.update(task, completed=done, total=total)

        yield advance


def tell(line: str) -> None:
    """A line on standard error."""
    typer.echo(line, err=True)


def _show(outcome: Outcome, machine: bool, notes: list[str]) -> None:
    if machine and outcome.facts:  # none: another process of the same run has them
        facts = {**outcome.facts, **({"notes": notes} if notes else {})}
        typer.echo(json.dumps(facts, default=_plain, allow_nan=False))
    console = stdout()
    for part in () if machine else outcome.text:
        console.print(part)


def _plain(value: Any) -> Any:
    """What JSON does not know: arrays and NumPy's numbers, and paths."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


# ---------------------------------------------------------------- errors and signals


@contextmanager
def _messages(debug: bool, machine: bool, stopped: str) -> Iterator[list[str]]:
    """Warnings become notes, errors become messages and exit codes."""
    notes: list[str] = []

    def note(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if category is UserWarning:
            notes.append(str(message))
            tell(f"note: {message}")

    try:
        with warnings.catch_warnings():
            if not debug:
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", UserWarning)
                warnings.showwarning = note  # type: ignore[assignment]
            yield notes
    except KeyboardInterrupt:
        _fail(f"stopped; {stopped}", INTERRUPTED, machine)
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except Exception as error:
        if debug:
            raise
        code = code_of(error)
        _fail(message_of(error, code, stopped), code, machine)


def _fail(message: str, code: int, machine: bool) -> None:
    tell(f"pixelbounds: {message}")
    if machine:
        typer.echo(json.dumps({"error": message, "exit_code": code}))
    raise typer.Exit(code) from None


def code_of(error: Exception) -> int:
    """The exit code that an error stands for."""
    if isinstance(error, NoGuarantee):
        return NO_GUARANTEE
    if isinstance(error, MemoryError | ImportError) or type(error).__name__ == "OutOfMemoryError":
        return THIS_MACHINE
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, _WRONG_PATH):
        return THIS_MACHINE
    return WRONG_INPUT if isinstance(error, ValueError | TypeError | OSError | ArithmeticError) else OUR_FAULT


def message_of(error: Exception, code: int, stopped: str) -> str:
    """What went wrong and what to do."""
    said = str(error) or type(error).__name__
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
        return f"{error.name} is not installed; pip install 'pixelbounds[{_EXTRAS[error.name]}]'"
    if type(error).__name__ == "OutOfMemoryError":
        return f"out of GPU memory; use a smaller batch ({said.splitlines()[0]})"
    if isinstance(error, MemoryError):
        return f"out of memory ({said}); {stopped}. Arrays in .npy and .zarr files are read block by block"
    if isinstance(error, OSError) and error.strerror:
        where = "".join(f" ({name})" for name in (error.filename, error.filename2) if name is not None)
        if error.errno in _PATHS:
            return f"{error.strerror}{where}; {_PATHS[error.errno]}"
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        remedy = ". Free some space, or write elsewhere" if full else ""
        return f"{error.strerror}{where}; {stopped}{remedy}"
    if code == OUR_FAULT:
        return f"{type(error).__name__}: {said}; this should not happen: run it again with --debug, and report it"
    return said
