"""The program `pixelbounds`: its help, and how it ends by signals."""

from __future__ import annotations

import os
import signal
import sys
from threading import Timer
from types import FrameType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..storage.version import VERSION
from .command import INTERRUPTED, LAST_PANEL, broken_pipe_exits

EXITS = (
    "Exit codes: 0 done, 1 no guarantee can be given, 2 wrong usage or input, 3 this machine cannot do it, 4 a fault "
    "of pixelbounds, 5 an alarm of a monitor, 130 stopped by Ctrl-C, 141 the reader of the output has gone."
)
BEGIN = """Guaranteed error bars for every pixel of a restored image.

  pixelbounds demo        the whole idea on phantoms, and a page to look at
  pixelbounds calibrate   true images and bands in, a calibration with a guarantee out
  pixelbounds apply       a calibration and new bands in, intervals out
  pixelbounds evaluate    intervals and true images in: do they keep the promise?

All commands: pixelbounds --help. Options and examples of one: pixelbounds calibrate --help."""


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


GRACE = 45.0  # seconds from an interrupt to the end, whatever happens

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
