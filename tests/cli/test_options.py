"""Options that commands share are declared once: a dataclass becomes options, and the options become one again."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import fields

import pytest
import typer
from typer.testing import CliRunner

from pixelbounds.cli import app
from pixelbounds.cli.command import Outcome, command
from pixelbounds.formats.arrays import Reading
from pixelbounds.workflows.request import ReadOptions, Resources


def called(function, *words):
    app = typer.Typer()
    app.command()(command("try")(function))
    return CliRunner().invoke(app, words)


def test_a_dataclass_is_spread_into_options_and_made_again():
    seen = []

    def function(read: ReadOptions, large: Resources, own: int = 3) -> Outcome:
        seen.append((read, large, own))
        return Outcome({}, ())

    ours = "--own", "4", "--skip-bad", "--memory", "1G"
    words = "--kind", "naive", "--window", "80", "40", "--limits", "-1", "1"
    assert called(function, *ours, *words).exit_code == 0
    read = ReadOptions(kind="naive", window=(80.0, 40.0), limits=(-1.0, 1.0), skip_bad=True)
    assert seen == [(read, Resources(memory="1G"), 4)]


def test_every_option_of_reading_reaches_the_reader():
    given = {"miscoverage": 0.2, "units": "each", "kind": "mean", "key": "a", "truth_key": "b", "window": (1.0, 2.0)}
    given |= {"limits": (0.0, 2.0), "skip_bad": True, "fill_missing": True}
    assert ReadOptions(**given).reading() == Reading(**given)
    assert {field.name for field in fields(ReadOptions)} == {*given, "raw"}  # or the line above lacks one
    assert ReadOptions(raw=True).reading().mapping is None
    assert ReadOptions().reading().mapping == Reading().mapping == "usual"
    assert ReadOptions().reading().measure is None  # nothing was told: a calibration's own window is taken
    with pytest.raises(ValueError, match=r"--window 350 33\.3 maps values and --raw leaves them"):
        ReadOptions(window=(350.0, 33.3), raw=True).reading()


# ---------------------------------------------------------------- help, and the end of a pipe


def all_commands():
    """Every command, as words: calibrate, monitor update, ..."""
    group = typer.main.get_command(app)
    for name, one in group.commands.items():
        yield from ([name, inner] for inner in getattr(one, "commands", ())) if hasattr(one, "commands") else [[name]]


def shown(*words):
    result = CliRunner().invoke(app, words, env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("words", list(all_commands()), ids=" ".join)
def test_help_shows_no_types_of_flags_and_an_example(words):
    text = shown(*words, "--help")
    assert "<bool>" not in text
    assert "Example" in text


@pytest.mark.parametrize("words", list(all_commands()), ids=" ".join)
def test_options_stand_in_groups(words):
    """Nobody reads a list of thirty."""
    one = typer.main.get_command(app)
    for word in words:
        one = one.commands[word]
    panels = Counter(x.rich_help_panel for x in one.params if x.param_type_name == "option")
    assert max(panels.values()) <= 12, panels


def test_common_options_come_first():
    text = shown("calibrate", "--help").partition("─ Options")[2]
    order = ("--out", "--risk-level", "--promise", "--failure-prob", "--method", "--units", "--scheduler", "--json")
    assert sorted(order, key=text.index) == list(order)


def test_lines_of_a_result_end_where_their_words_do():
    lines = shown("plan", "--images", "300").splitlines()
    assert any("slack of each bound" in line for line in lines)
    assert not [line for line in lines if line != line.rstrip()]


def test_the_program_alone_names_the_first_commands():
    text = shown()
    named = [line.split()[1] for line in text.splitlines() if line.startswith("  pixelbounds")]
    assert named == ["demo", "calibrate", "apply", "evaluate"]


@pytest.mark.parametrize("line", ["--help", "plan --images 300"])
def test_a_closed_pipe_is_exit_code_141(line):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "pixelbounds.cli", *line.split()]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_calibrating_needs_neither_what_draws_nor_what_learns():
    code = (
        "import sys, pixelbounds.workflows, pixelbounds.workflows.calibrate, pixelbounds.cli\n"
        "print({'matplotlib', 'torch', 'pixelbounds.report'} & sys.modules.keys())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "set()", found.stderr
