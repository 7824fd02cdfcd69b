"""Strings and files become calls: `pixelbounds COMMAND`, or `python -m pixelbounds.cli COMMAND` under torchrun.

Commands import what they need when they run, so that help comes at once and a machine without some package can use
the rest.
"""

from __future__ import annotations

import os
import signal
import sys
from threading import Timer
from types import FrameType

import typer

from ..storage.version import VERSION
from .apply import apply_command
from .calibrate import calibrate_command
from .command import INTERRUPTED
from .demo import demo_command
from .evaluate import evaluate_command
from .federated import federated_commands
from .plan import plan_command
from .report import report_command
from .reproduce import reproduce_commands
from .sample import sample_command
from .train import train_command

_EXITS = (
    "Exit codes: 0 done, 1 no guarantee can be given, 2 wrong usage or input, 3 this machine cannot do it, 4 a fault "
    "of pixelbounds, 130 stopped by Ctrl-C."
)

GRACE = 45.0  # seconds from an interrupt to the end, whatever happens

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, epilog=_EXITS)


@app.callback(invoke_without_command=True)
def top(version: bool = typer.Option(False, "--version", help="Print the version and leave.")) -> None:
    """Guaranteed error bars for every pixel of a restored image."""
    if version:
        typer.echo(VERSION)
        raise typer.Exit


app.command()(demo_command)
app.command()(plan_command)
app.command()(calibrate_command)
app.command()(apply_command)
app.command()(evaluate_command)
app.command()(report_command)
app.add_typer(federated_commands(), name="federated")
app.command()(train_command)
app.command()(sample_command)
app.add_typer(reproduce_commands(), name="reproduce")


def main() -> None:
    """Entry point of the command `pixelbounds`."""
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it is not where a shell runs us with &
        signal.signal(signal.SIGINT, _interrupt)
    try:
        app(prog_name="pixelbounds")
    except KeyboardInterrupt:  # before or after a command did its work
        sys.exit(INTERRUPTED)


def _terminate(number: int, frame: FrameType | None) -> None:
    """Leave as by Ctrl-C, so that half-written files are removed."""
    _leave_within(GRACE, 128 + number)
    sys.exit(128 + number)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _leave_within(GRACE, INTERRUPTED)
    raise KeyboardInterrupt


def _leave_within(seconds: float, code: int) -> None:
    """End the process for good after a while: an interrupt between taking a lock and noting it can hang its threads.

    Blocks under way have that long to end; what they leave unfinished is never taken for finished.
    """
    timer = Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()
