"""What a new user meets: completion, files in the wrong place, what was written, and numbers that agree."""

import shutil
import subprocess

import numpy as np
import pytest
from commands import call, done, flat, world
from typer.testing import CliRunner

import pixelbounds as pb
from pixelbounds.cli import app


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hour")
    truth, samples = world()
    np.save(folder / "truth.npy", truth)
    np.save(folder / "samples.npy", samples)
    band = pb.calibrated_quantiles(samples, 0.1)
    np.savez(folder / "bands.npz", lower=band.lower, upper=band.upper)
    words = "calibrate", folder / "truth.npy", folder / "bands.npz", "--units", "each"
    done(*words, "--risk-level", 0.2, "--groups", "band", "--out", folder / "cal.safetensors")
    new, draws = world(60, seed=1)
    np.save(folder / "new.npy", new)
    other = pb.calibrated_quantiles(draws, 0.1)
    np.savez(folder / "new.npz", lower=other.lower, upper=other.upper)
    return folder


# ---------------------------------------------------------------- completion


def asked(what, **more):
    """What the program answers where a shell asks it."""
    told = {"_PIXELBOUNDS_COMPLETE": what, **more}
    return CliRunner().invoke(app, [], env=told, prog_name="pixelbounds").stdout


def complete(shell, line):
    """What a shell is offered for the last word of a line, as its own script asks for it."""
    told = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_TYPER_COMPLETE_ARGS": line}
    return asked(f"complete_{shell}", **told, _TYPER_COMPLETE_FISH_ACTION="get-args")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell):
    assert "calibrate" in complete(shell, "pixelbounds cal")
    assert "--risk-level" in complete(shell, "pixelbounds calibrate --ri")
    script = asked(f"source_{shell}")
    assert "_PIXELBOUNDS_COMPLETE" in script
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True).returncode == 0


# ---------------------------------------------------------------- files in the wrong place


def said_no(*words):
    result = call(*words)
    assert result.exit_code == 2, result.output
    return flat(result.stderr)


RISK = ("--risk-level", "0.2", "--units", "each")


OUT = ("--risk-level", "0.2", "--units", "each", "--out", "x.safetensors")
A_BAND = "which holds a band, lower and upper"
A_CALIBRATION = "cal.safetensors, which holds a calibration"
WRONG = {
    "calibrate bands.npz truth.npy": f"TRUTH is bands.npz, {A_BAND}, and BANDS is truth.npy, which holds images: they",
    "calibrate samples.npy truth.npy": "they seem to be swapped; give the truth (n, *pixels) first",
    "calibrate truth.npy cal.safetensors": f"BANDS is {A_CALIBRATION}; give bands or samples",
    "calibrate cal.safetensors bands.npz": f"TRUTH is {A_CALIBRATION}; give the true images",
    "apply new.npz cal.safetensors --out x.zarr": f"BANDS is {A_CALIBRATION}, and CALIBRATION is new.npz, {A_BAND}",
    "apply monitor.safetensors new.npz --out x.zarr": "which holds the state of a monitor; give a calibration file",
    "evaluate new.npz new.npy --calibration cal.safetensors": f"TRUTH is new.npz, {A_BAND}, and INTERVALS is new.npy",
    "evaluate new.npy cal.safetensors": f"INTERVALS is {A_CALIBRATION}; give intervals, or bands with --calibration",
    "report new.npy new.npz --calibration new.npz --out x.html": f"CALIBRATION is new.npz, {A_BAND}; give",
}


@pytest.mark.parametrize("line", WRONG)
def test_what_is_swapped_is_told(files, monkeypatch, line):
    monkeypatch.chdir(files)
    if not (files / "monitor.safetensors").exists():
        pb.save_monitor(pb.Monitor(pb.load_calibration("cal.safetensors")), "monitor.safetensors")
    assert WRONG[line] in said_no(*line.split(), *(OUT if "calibrate " in line[:10] else ()))
    assert not list(files.glob("x.*"))


# ---------------------------------------------------------------- what was written, and what it comes to


def test_calibrate_ends_with_lengths_cost_and_the_next_command(files, tmp_path):
    out = tmp_path / "cal.safetensors"
    words = "calibrate", files / "truth.npy", files / "bands.npz", *RISK, "--groups", "band", "--out", out
    shown = flat(call(*words).stdout)
    assert "of the bands," in shown
    assert "of the intervals, as seen on" in shown
    assert " s; of 160 images 20 images fitted, 140 images certified" in shown
    assert f"next pixelbounds apply {out} NEW_BANDS --out intervals.zarr" in shown
    assert done(*words, "--force")["seconds"] > 0


# ---------------------------------------------------------------- what surprises, and is explained


def test_bands_that_keep_the_promise_alone_are_told():
    truth, samples = world()
    band = pb.calibrated_quantiles(samples, 0.1)
    wide = pb.Band(band.lower - 1, band.upper + 1)
    cal = pb.calibrate(truth, wide, risk_level=0.2, method="rcps")
    assert not cal.widening.any()
    assert "No interval is longer than its band" in cal.note
    assert pb.calibrate(truth, pb.Band(truth + 0.1, truth + 0.2), risk_level=0.2, method="rcps").note == ""
    around = pb.Band(truth - 0.1, truth + 0.1, truth)
    scaled = pb.calibrate(truth, around.with_family("scaled"), risk_level=0.2, method="rcps")
    assert scaled.apply(around).length.max() < 0.1  # shorter than bands, so that nothing is said of their length
    assert scaled.note == ""
    positive = pb.Band(np.maximum(truth - 0.1, 0), truth + 0.1)
    times = pb.calibrate(truth, positive.with_family("multiplicative"), risk_level=0.2, method="rcps")
    assert "No interval is longer than its band" in times.note
