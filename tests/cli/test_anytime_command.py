"""`pixelbounds anytime`: held, written aside, run again without counting twice."""

import os
from pathlib import Path

import numpy as np
import pytest
from commands import call, done, flat
from refusals import refuses
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds.storage.files import exclusive
from pixelbounds.workflows.anytime import add_files


@pytest.fixture
def days(tmp_path, monkeypatch):
    """Truth and bands of four days in files, and an anytime calibration of the first."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for day in range(4):
        truth, band = heteroscedastic(20, rng, size=8)
        np.save(f"truth{day}.npy", truth)
        np.savez(f"band{day}.npz", lower=band.lower, upper=band.upper)
    said = done("anytime", "start", "s.safetensors", "truth0.npy", "band0.npz", "--risk-level", 0.2, "--groups", "band",
                "--units", "each")  # fmt: skip
    assert not said["certified"]
    assert said["min_images"] == 11
    return lambda day: ("anytime", "add", "s.safetensors", f"truth{day}.npy", f"band{day}.npz")


def test_images_arrive_day_by_day_and_the_calibration_is_written_once_it_is_certified(days):
    certified = [done(*days(day), "--out", "cal.safetensors")["certified"] for day in (1, 2, 3)]
    assert certified[1:] == [True, True]
    cal = pb.load_calibration("cal.safetensors")
    assert cal.bound == "anytime"
    assert cal.record.certifying == 60
    again = done("anytime", "status", "s.safetensors")
    assert again["guarantee"] == cal.guarantee
    assert done(*days(3)) | {"counted": 0, "repeated": 20} == done(*days(3))
    assert call("apply", "cal.safetensors", "band1.npz", "--out", "x.npz").exit_code == 0
    assert "counted before" in call(*days(2)).output


def test_a_killed_command_counted_all_or_nothing_and_may_be_run_again(days, monkeypatch):
    done(*days(1))
    before = Path("s.safetensors").read_bytes()

    def killed(*names):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        assert call(*days(2)).exit_code == 3
    assert Path("s.safetensors").read_bytes() == before
    assert done(*days(2))["counted"] == 20
    after = Path("s.safetensors").read_bytes()
    assert done(*days(2))["counted"] == 0
    assert Path("s.safetensors").read_bytes() == after


def test_two_commands_do_not_write_one_state_and_a_second_start_is_told(days):
    with exclusive(Path("s.safetensors")):
        refuses(lambda: add_files(*days(1)[2:]), "being written by another process", error=BlockingIOError)
    start = ("anytime", "start", "s.safetensors", "truth0.npy", "band0.npz", "--risk-level", 0.1, "--units", "each")
    again = call(*start)
    assert again.exit_code == 2
    assert "exists" in again.output
    refuses(lambda: add_files("none.safetensors", "truth1.npy", "band1.npz"), "pixelbounds anytime start")
    forced = call(*start, "--groups", "band", "--force")
    assert "its own chance" in forced.output


def test_a_start_that_spends_all_images_on_fitting_says_so(days, tmp_path):
    truth, band = heteroscedastic(400, np.random.default_rng(1), size=8)
    np.save("many.npy", truth)
    np.savez("many.npz", lower=band.lower, upper=band.upper)
    words = "anytime", "start", "many.safetensors", "many.npy", "many.npz", "--risk-level", 0.2, "--groups", "band"
    said = call(*words, "--units", "each")
    assert said.exit_code == 0, said.output
    assert "all 400 images, of which none certifies; 50 are enough" in flat(said.stdout)
    assert "give the other 350 to `anytime add`" in flat(said.stdout)
    few = done("anytime", "start", "few.safetensors", "truth0.npy", "band0.npz", *words[5:], "--units", "each")
    assert few["fitted"] == few["enough"] == 20
