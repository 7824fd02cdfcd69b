"""What every command keeps to.

A command is a function that returns an `Outcome`: what a person reads (a sentence, then a few numbers) and the same as
plain values. `command` spreads the options that it shares with others (`workflows/request.py`) and adds `--json` and
`--debug`. The result goes to standard output, as text or as one JSON object; notes, progress and errors go to standard
error. An error is a message, and its kind is the exit code (`EXITS`).
"""

from __future__ import annotations

import errno
import inspect
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial, wraps
from pathlib import Path
from threading import Timer
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer
from rich.console import Console, RenderableType
from rich.table import Column, Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from ..calibration.text import description_of
from ..calibration.words import number_of
from ..execution.runner import bar as bar
from ..images.checks import NoGuarantee
from ..storage.files import check_regular, size_in_words
from ..storage.version import VERSION

if TYPE_CHECKING:
    from ..calibration.calibration import Calibration

OK, NO_GUARANTEE, WRONG_INPUT, THIS_MACHINE, OUR_FAULT, ALARM, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 4, 5, 130, 141
LAST_PANEL = "Output"  # of options that every command has
GRACE = 45.0  # seconds from an interrupt to the end, whatever happens
EXITS = (
    "Exit codes: 0 done, 1 no guarantee can be given, 2 wrong usage or input, 3 this machine cannot do it, 4 a fault "
    "of pixelbounds, 5 an alarm of a monitor, 130 stopped by Ctrl-C, 141 the output was closed."
)
BEGIN = """Guaranteed error bars for every pixel of a restored image.

  pixelbounds demo        the whole idea on phantoms, and a page to look at
  pixelbounds calibrate   true images and bands in, a calibration with a guarantee out
  pixelbounds apply       a calibration and new bands in, intervals out
  pixelbounds evaluate    intervals and true images in: do they keep the promise?

All commands: pixelbounds --help. Options and examples of one: pixelbounds calibrate --help."""

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_EXTRAS = {"torch": "diffusion", "nibabel": "medical", "pydicom": "medical", "distributed": "cluster"}
_WRONG_PATH = FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError
_PATHS = {  # what to do about a path that is wrong; nothing was begun there, so nothing is said of what is kept
    errno.ENOENT: "check the path: what is read must exist, and what is written needs a folder where one can write",
    errno.EEXIST: "give another path, or move what is there away",
    errno.ENOTDIR: "a part of the path is a file, not a folder; correct the path",
    errno.EISDIR: "give the path of a file",
    **dict.fromkeys((errno.EACCES, errno.EPERM), "change its permissions, or use another path"),
    errno.EROFS: "write elsewhere",
    errno.ENAMETOOLONG: "use a shorter name",
}


@dataclass(frozen=True)
class Outcome:
    """What a command has to say: `facts` for machines, `text` for people, and the exit code."""

    facts: Mapping[str, Any]
    text: tuple[RenderableType, ...]
    code: int = OK


Command = Callable[..., None]
_ADDED = {
    "json_": Annotated[
        bool, typer.Option("--json", rich_help_panel=LAST_PANEL, help="One JSON object on standard output.")
    ],
    "debug": Annotated[
        bool, typer.Option("--debug", rich_help_panel=LAST_PANEL, help="Show the traceback of an error.")
    ],
}


def command(name: str, *, stopped: str = "nothing was written") -> Callable[[Callable[..., Outcome]], Command]:
    """Make a function a command of this name; `stopped` says what an interrupt leaves behind."""

    def made(function: Callable[..., Outcome]) -> Command:
        parameters, groups = _spread(function)

        @wraps(function)
        def run(*, json_: bool, debug: bool, **given: Any) -> None:
            with broken_pipe_exits(), _messages(debug, json_, stopped, dict(given)) as notes:
                for path in (x for x in given.values() if isinstance(x, Path)):
                    check_regular(path)
                for parameter, (kind, names) in groups.items():
                    given[parameter] = kind(**{option: given.pop(option) for option in names})
                outcome = function(**given)
            with broken_pipe_exits():
                _show(outcome, json_, notes)
            if outcome.code:
                raise typer.Exit(outcome.code)

        run.__name__ = name
        run.__doc__ = flowing(function.__doc__ or "")
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__dict__["__signature__"] = inspect.Signature(parameters)
        return run

    return made


def _spread(function: Callable[..., Any]) -> tuple[list[inspect.Parameter], dict[str, tuple[Any, list[str]]]]:
    """The options of a function, fields of dataclasses in place of these; and the fields of each such argument."""
    hints = get_type_hints(function, include_extras=True)
    one = partial(inspect.Parameter, kind=_KEYWORD)
    options: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for parameter in inspect.signature(function).parameters.values():
        hint = hints[parameter.name]
        kind, *chosen = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if not is_dataclass(kind):
            options.append(parameter.replace(kind=_KEYWORD, annotation=hint))
            continue
        field_hints = get_type_hints(kind, include_extras=True)
        known = [field for field in fields(kind) if get_origin(field_hints[field.name]) is Annotated]
        taken = [field for field in known if not chosen or field.name in chosen[0]]
        groups[parameter.name] = kind, [field.name for field in taken]
        empty = inspect.Parameter.empty
        defaults = {field.name: empty if field.default is MISSING else field.default for field in taken}
        options += [one(name, default=default, annotation=field_hints[name]) for name, default in defaults.items()]
    return [*options, *(one(name, default=False, annotation=hint) for name, hint in _ADDED.items())], groups


def flowing(text: str) -> str:
    r"""Paragraphs as one line each, for help as wide as the terminal.

    >>> flowing("One line\nand another.\n\n    A paragraph.")
    'One line and another.\n\nA paragraph.'
    """
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text).split("\n\n"))


# ---------------------------------------------------------------- what is printed


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, text: Sequence[str] = (), title: str | None = None,
    caption: str | None = None, style: Callable[[int], str] = lambda row: "",
) -> Table:  # fmt: skip
    """A table: the first column and those named in `text` to the left, numbers to the right."""
    left: Any = {"title_justify": "left", "caption_justify": "left"}
    made = Table(title=title, caption=caption, box=None, padding=(0, 2), header_style="dim", **left)
    for i, heading in enumerate(headings):
        made.add_column(heading, justify="left" if i == 0 or heading in text else "right")
    for i, cells in enumerate(rows):
        made.add_row(*map(Text, cells), style=style(i))  # names are no markup
    return made


def promise_table(calibration: Calibration) -> tuple[Table, Text]:
    """The promises of a calibration, one line each, and an empty line."""
    head, *rows = description_of(calibration).table
    return table(head, rows), Text()


def certified(facts: Mapping[str, Any], calibration: Calibration, rows: Mapping[str, str]) -> Outcome:
    """The guarantee of a calibration, its promises, of which one alone is a row, its note, and a few numbers."""
    words = description_of(calibration)
    note = {"note": words.note} if words.note else {}
    if len(words.promises) > 1:
        return in_short(facts, words.guarantee, note | dict(rows), *promise_table(calibration))
    (one,) = words.promises
    row = {"certified": f"at most {one.level}; {one.seen} seen on {one.certified_by} that certified"}
    return in_short(facts, words.guarantee, row | note | dict(rows))


def numbers(rows: Mapping[str, str]) -> Table:
    """A few numbers, each with the word for it."""
    grid = Table.grid(Column(style="dim"), Column(overflow="fold"), padding=(0, 2))
    for word, value in rows.items():
        grid.add_row(f"  {word}", Text(value))
    return grid


def sentence(text: str, style: str = "bold") -> Text:
    """A line of its own above the numbers."""
    return Text(f"{text}\n", style=style)


def in_short(
    facts: Mapping[str, Any], text: str, rows: Mapping[str, str], *between: RenderableType, code: int = OK
) -> Outcome:
    """A sentence, red where the code is not 0, what stands below it, and a few numbers."""
    return Outcome(facts, (sentence(text, "bold red" if code else "bold"), *between, numbers(rows)), code)


def first_of(images: Sequence[int]) -> str:
    """The numbers of the first eight images."""
    return ", ".join(map(str, images[:8])) + (", ..." if len(images) > 8 else "")


def skipped_in_words(images: Sequence[int]) -> dict[str, str]:
    """The row that tells of images left out, where there are some."""
    return {"skipped": f"{number_of(len(images), 'image')} in bad chunks: {first_of(images)}"} if images else {}


def written(*paths: Path) -> str:
    """Names of files and folders, a line each, and the bytes that each takes; of a folder how many files it has."""
    lines = []
    for path in paths:
        files = [path] if path.is_file() else [x for x in path.rglob("*") if x.is_file()]
        count = f"{len(files)} files, " if path.is_dir() and path.suffix != ".zarr" else ""
        lines.append(f"{path} ({count}{size_in_words(sum(x.stat().st_size for x in files))})")
    return "\n".join(lines)


tell = partial(typer.echo, err=True)  # a line on standard error


def _show(outcome: Outcome, machine: bool, notes: list[str]) -> None:
    if machine:
        facts = {**outcome.facts, **({"notes": notes} if notes else {})}
        typer.echo(json.dumps(facts, default=_plain, allow_nan=False))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 10_000)  # in a file lines are not cut
    with console.capture() as shown:
        for part in () if machine else outcome.text:
            console.print(part)
    for line in shown.get().splitlines():
        typer.echo(line.rstrip())
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


# ---------------------------------------------------------------- errors and signals


@contextmanager
def _messages(debug: bool, machine: bool, stopped: str, given: Mapping[str, Any]) -> Iterator[list[str]]:
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
        return
    except KeyboardInterrupt:
        message, code = f"stopped; {stopped}", INTERRUPTED
    except (typer.Exit, typer.Abort, typer.BadParameter, BrokenPipeError):
        raise
    except Exception as error:
        if debug:
            raise
        from ..workflows.roles import mistaken

        code = code_of(error)
        swapped = mistaken(given) if code in (WRONG_INPUT, OUR_FAULT) else None
        code = code if swapped is None else WRONG_INPUT
        message = swapped or error_message(error, code, stopped)
    tell(f"pixelbounds: {message}")
    if machine:
        typer.echo(json.dumps({"error": message, "exit_code": code}))
    raise typer.Exit(code)


def code_of(error: Exception) -> int:
    """The exit code that an error stands for."""
    if isinstance(error, NoGuarantee):
        return NO_GUARANTEE
    if isinstance(error, MemoryError | ImportError) or type(error).__name__ == "OutOfMemoryError":
        return THIS_MACHINE
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, _WRONG_PATH):
        return THIS_MACHINE
    return WRONG_INPUT if isinstance(error, ValueError | TypeError | OSError | ArithmeticError) else OUR_FAULT


def error_message(error: Exception, code: int, stopped: str) -> str:
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


@contextmanager
def broken_pipe_exits() -> Iterator[None]:
    """Exit with 141, as other programs do, where the reader of the output has gone."""
    try:
        yield
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code != 1:  # rich leaves with 1 where a pipe is broken
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the flush at exit fails, too
        raise typer.Exit(BROKEN_PIPE) from None


# ---------------------------------------------------------------- the program


class _Help:
    """Help without types of flags, and `--help` beside the other options of every command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters as they are shown."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in parameters:
            if getattr(one, "is_flag", False):
                one.metavar = ""
            if one.name == "help" and isinstance(self, TyperCommand):
                one.rich_help_panel = LAST_PANEL
        return parameters

    def make_context(self, *given: Any, **more: Any) -> Any:
        """Where help is printed."""
        with broken_pipe_exits():
            return super().make_context(*given, **more)  # type: ignore[misc]


class HelpCommand(_Help, TyperCommand):
    """A command."""


class HelpGroup(_Help, TyperGroup):
    """A group of commands."""


app = typer.Typer(cls=HelpGroup, pretty_exceptions_enable=False, epilog=EXITS)


@app.callback(invoke_without_command=True)
def top(ctx: typer.Context, version: bool = typer.Option(False, "--version", help="Print the version.")) -> None:
    """Guaranteed error bars for every pixel of a restored image."""
    if version:
        typer.echo(VERSION)
    elif ctx.invoked_subcommand is None:
        typer.echo(BEGIN)


def main() -> None:
    """Entry point of the command `pixelbounds`."""
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it is not where a shell runs us with &
        signal.signal(signal.SIGINT, _stop)
    try:
        app(prog_name="pixelbounds")
    except KeyboardInterrupt:  # before or after a command did its work
        sys.exit(INTERRUPTED)


def _stop(number: int, frame: FrameType | None) -> None:
    """Leave, so that half-written files are removed; for good after a while.

    An interrupt between taking a lock and noting it can hang its threads. Blocks under way have that long to end; what
    they leave unfinished is never taken for finished.
    """
    timer = Timer(GRACE, os._exit, (128 + number,))
    timer.daemon = True
    timer.start()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
