"""A small world in files, and ways to run commands on it."""

import json
import signal
import subprocess
import sys

import stores
from typer.testing import CliRunner

from pixelbounds.cli import app

N, M, SIZE = 160, stores.M, 12


def call(*words):
    """Run a command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words], terminal_width=200)


def done(*words):
    """Run a command that must succeed, and return what it says to machines."""
    result = call(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def spawn(*words, **options):
    """Start a command in a process of its own."""
    command = [sys.executable, "-m", "pixelbounds.cli", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts, **options
    )


def heed_interrupts():
    """What a script starts in its background ignores them, and so would all that the tests start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def flat(text):
    """Text without the frame and line breaks of a terminal."""
    return " ".join(text.replace("│", " ").split())


def world(n=N, seed=0):
    """A small `stores.world`."""
    return stores.world(n, SIZE, seed)


def leftovers(folder):
    """Anything that was written aside and not cleared away."""
    return [x.name for x in folder.rglob("*") if x.name.endswith((".part", ".partial")) or x.name.startswith(".pix")]
