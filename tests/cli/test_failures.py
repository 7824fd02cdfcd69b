"""Wrong input, full disks, interrupts: a message and an exit code, nothing broken left behind, never a traceback."""

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from commands import SIZE, N, call, done, flat, heed_interrupts, leftovers, spawn, world
from waiting import wait_until, whole_files

import pixelbounds as pb
from pixelbounds.cli.command import code_of

RISK = ("--risk-level", 0.1, "--failure-prob", 0.2, "--groups", "band")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    truth, samples = world()
    band = pb.calibrated_quantiles(samples, 0.1)
    np.save(folder / "truth.npy", truth)
    np.save(folder / "samples.npy", samples)
    np.savez(folder / "band.npz", lower=band.lower, upper=band.upper)
    np.savez(folder / "crossed.npz", lower=band.upper, upper=band.lower)
    np.savez(folder / "other.npz", a=truth, b=truth)
    np.save(folder / "flat.npy", truth[:, 0])
    np.save(folder / "few.npy", truth[:50])
    np.save(folder / "others.npy", truth[:, ::-1])
    np.save(folder / "wide.npy", truth * 255)
    np.save(folder / "whole.npy", (truth * 255).astype(np.int32))
    holes = truth.copy()
    holes[7, 2, 3] = np.nan
    np.save(folder / "nan.npy", holes)
    (folder / "cut.npy").write_bytes((folder / "truth.npy").read_bytes()[:5000])
    (folder / "cut.npz").write_bytes((folder / "band.npz").read_bytes()[:5000])
    (folder / "empty.zarr").mkdir()
    half = zarr.create_group(folder / "half.zarr")
    for part in ("lower", "upper"):
        x = half.create_array(part, shape=truth.shape, chunks=(10, SIZE, SIZE), dtype="float32", fill_value=np.nan)
        x[:50] = getattr(band, part)[:50]
    (folder / "units.txt").write_text("a\nb\n")
    done("calibrate", folder / "truth.npy", folder / "band.npz", *RISK, "--out", folder / "cal.safetensors")
    (folder / "cut.safetensors").write_bytes((folder / "cal.safetensors").read_bytes()[:-50])
    return folder


# ---------------------------------------------------------------- wrong input


REFUSED = [  # a command, its exit code, and what it says
    ("calibrate none.npy band.npz RISK", 2, "none.npy does not exist"),
    ("calibrate few.npy band.npz RISK", 2, "the bands have shape (160, 12, 12), but the truth has shape (50, 12, 12)"),
    ("calibrate truth.npy flat.npy RISK", 2, "holds an array of shape (160, 12)"),
    ("calibrate other.npz band.npz RISK", 2, "name one of them"),
    ("calibrate truth.npy crossed.npz RISK", 2, "lower above upper"),
    ("calibrate nan.npy band.npz RISK", 2, "truth of image 7 has 1 values that are NaN"),
    ("calibrate wide.npy band.npz RISK", 2, "outside the limits"),
    ("calibrate whole.npy band.npz RISK", 2, "int32"),
    ("calibrate cut.npy band.npz RISK", 2, "cut.npy was cut short: it declares"),
    ("calibrate truth.npy cut.npz RISK", 2, "cut.npz cannot be read as .npz"),
    ("calibrate truth.npy empty.zarr RISK", 2, "empty.zarr is no whole zarr store"),
    ("calibrate truth.npy half.zarr RISK", 2, "lower was not finished: 11 of 16 chunks are not there"),
    ("calibrate truth.npy band.npz RISK --units units.txt", 2, "holds 2 units for 160 images"),
    ("calibrate truth.npy band.npz RISK --kind naive", 2, "leave --kind out"),
    ("calibrate truth.npy band.npz RISK --risk-level 1.5", 2, "strictly between 0 and 1"),
    ("calibrate truth.npy band.npz RISK --risk-level 0.001", 1, "cannot be certified"),
    ("calibrate truth.npy samples.npy RISK --miscoverage 0.01", 1, "draw at least 199"),
    ("apply cal.safetensors band.npz --out OUT/i.png", 2, "says no kind of file; end it in .zarr"),
    ("apply cal.safetensors band.npz --out OUT/none/i.zarr", 2, "there is no folder"),
    ("apply cal.safetensors band.npz --out OUT/i.nii.gz", 2, "--like"),
    ("apply cal.safetensors band.npz --out OUT/i.nii.gz --like truth.npy", 2, "geometry"),
    ("apply cal.safetensors crossed.npz --out OUT/i.zarr", 2, "lower above upper"),
    ("apply none.safetensors band.npz --out OUT/i.zarr", 2, "no calibration file"),
    ("apply cut.safetensors band.npz --out OUT/i.zarr", 2, "cut short"),
    ("evaluate truth.npy truth.npy", 2, "not lower and upper"),
    ("evaluate few.npy band.npz", 2, "interval has shape (160, 12, 12)"),
    ("evaluate few.npy band.npz --calibration cal.safetensors", 2, "the truth has shape (50, 12, 12)"),
]


@pytest.mark.parametrize("line, code, said", REFUSED)
def test_what_is_wrong_is_said_and_nothing_is_written(files, tmp_path, monkeypatch, line, code, said):
    monkeypatch.chdir(files)
    before = set(files.iterdir())
    name, *words = line.replace(" RISK", " " + " ".join(map(str, RISK))).replace("OUT", str(tmp_path)).split()
    more = {"calibrate": ("--out", tmp_path / "cal.safetensors"), "evaluate": ("--json",)}.get(name, ())
    result = call(name, *words, *more)
    assert result.exit_code == code, result.output
    assert said in flat(result.output), result.output
    assert "Traceback" not in result.output
    assert name != "evaluate" or said in json.loads(result.stdout)["error"]
    assert not list(tmp_path.iterdir())
    assert set(files.iterdir()) == before


def test_nothing_is_replaced_without_force(files, tmp_path):
    out, cal = tmp_path / "i.zarr", files / "cal.safetensors"
    done("apply", cal, files / "band.npz", "--out", out)
    before = (out / "lower" / "zarr.json").stat().st_ino
    result = call("apply", cal, files / "band.npz", "--out", out)
    assert result.exit_code == 2
    assert "--force" in flat(result.stderr)
    assert (out / "lower" / "zarr.json").stat().st_ino == before
    done("apply", cal, files / "band.npz", "--out", out, "--force")
    assert (out / "lower" / "zarr.json").stat().st_ino != before
    mine = tmp_path / "mine.zarr"
    mine.mkdir()
    (mine / "letters.txt").write_text("dear")
    result = call("apply", cal, files / "band.npz", "--out", mine, "--force")
    assert result.exit_code == 2
    assert "did not write" in flat(result.stderr)
    assert (mine / "letters.txt").read_text() == "dear"
    result = call("apply", cal, out, "--out", tmp_path / "twice.zarr")
    assert "calibrated already" in flat(result.stderr)


def test_missing_chunks_are_named(files, tmp_path):
    group = zarr.create_group(tmp_path / "band.zarr")
    for part, value in {"lower": 0.0, "upper": 1.0}.items():
        group.create_array(part, shape=(N, SIZE, SIZE), chunks=(40, SIZE, SIZE), dtype="float32", fill_value=value)
    words = files / "truth.npy", tmp_path / "band.zarr", *RISK, "--out", tmp_path / "cal.safetensors"
    result = call("calibrate", *words)
    assert result.exit_code == 2
    assert "band.zarr/lower/c/0/0/0; write it again" in flat(result.stderr)
    result = call("calibrate", *words, "--fill-missing", "--json")
    assert result.exit_code == 0
    assert "4 of 4 chunks are not there and read as 0" in result.stderr
    notes = json.loads(result.stdout)["notes"]
    assert sum("chunks are not there" in note for note in notes) == 2


def test_a_traceback_only_with_debug(files, tmp_path):
    words = "evaluate", files / "none.npy", files / "band.npz"
    assert isinstance(call(*words).exception, SystemExit)
    assert isinstance(call(*words, "--debug").exception, FileNotFoundError)


def test_a_fault_of_ours_is_told_apart(files, monkeypatch):
    def fail(*args, **options):
        raise RuntimeError("boom")

    monkeypatch.setattr("pixelbounds.workflows.evaluate.evaluate", fail)
    result = call("evaluate", files / "truth.npy", files / "band.npz")
    assert result.exit_code == 4
    assert "boom" in result.stderr
    assert "--debug" in result.stderr


@pytest.mark.parametrize(
    "error, code",
    [
        (MemoryError(), 3),
        (ModuleNotFoundError("no", name="nibabel"), 3),
        (PermissionError(13, "Permission denied"), 3),
        (OSError(28, "No space left on device"), 3),
        (FileNotFoundError(2, "No such file"), 2),
        (ValueError("x"), 2),
        (pb.NoGuarantee("a risk level of 0.1 cannot be certified"), 1),
        (KeyError("x"), 4),
    ],
)
def test_exit_codes(error, code):
    assert code_of(error) == code


# ---------------------------------------------------------------- interrupts


@pytest.fixture(scope="module")
def endless(tmp_path_factory):
    """Bands of very many images that take no room on disk: all chunks hold the fill value."""
    path = tmp_path_factory.mktemp("endless") / "band.zarr"
    group = zarr.create_group(path)
    for part, value in {"lower": 0.4, "upper": 0.6}.items():
        shape, chunks = (4_000_000, SIZE, SIZE), (1000, SIZE, SIZE)
        group.create_array(part, shape=shape, chunks=chunks, dtype="float32", fill_value=value)
    return path


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_whole_blocks_only(files, endless, tmp_path, number, code):
    words = "apply", files / "cal.safetensors", endless, "--fill-missing", "--out", tmp_path / "i.zarr", "--json"
    process = spawn(*words, "--memory", "64M")
    wait_until(lambda: whole_files(tmp_path / "i.zarr.part" / "done" / "c"), process)  # the first block is finished
    os.kill(process.pid, number)
    text, errors = process.communicate(timeout=300)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert [x.name for x in tmp_path.iterdir()] == leftovers(tmp_path) == ["i.zarr.part"]
    store = zarr.open_group(tmp_path / "i.zarr.part", mode="r")
    assert store["done"].nchunks_initialized <= store["upper"].nchunks_initialized
    if number == signal.SIGINT:
        assert "run the same command to resume" in errors
        assert json.loads(text)["exit_code"] == 130


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_hangs_after_an_interrupt_is_ended(number, code):
    stuck = """
import time
from pixelbounds.cli import command

def hang(**words):
    while True:
        try:
            print("ready", flush=True)
            time.sleep(600)
        except BaseException:
            pass

command.GRACE, command.app = 0.5, hang
command.main()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", stuck], stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts
    )
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, number)
    assert process.wait(timeout=300) == code


# ---------------------------------------------------------------- every message of the package


def fixed_words(node):
    """The text of a message, with X for what is put into it."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(x.value if isinstance(x, ast.Constant) else "X" for x in node.values)
    return fixed_words(node.left) + fixed_words(node.right) if isinstance(node, ast.BinOp) else ""


def test_messages_take_at_most_three_lines_of_a_terminal():
    found, long = 0, []
    for file in Path(pb.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                text = fixed_words(node.exc.args[0])
                found += bool(text)
                long += [f"{file.name}:{node.lineno}: {text}"] if len(text) > 3 * 80 else []
    assert found > 500
    assert not long, "\n".join(long)
