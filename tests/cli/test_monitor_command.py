"""`pixelbounds monitor`: one command a day on a state, killed at any moment."""

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import call as run
from commands import flat
from trials import WORLDS

import pixelbounds as pb
from pixelbounds.monitoring.state_file import monitor_bytes
from pixelbounds.workflows.monitor import update_state

DAYS, OF_A_DAY = 6, 6
KILLS = 50 if WORLDS >= 1000 else 3
WORK = """
import os, random, signal, sys, time
from pixelbounds.workflows.monitor import update_state
state, folder, days, kills = sys.argv[1:]
chance = random.Random(0)
died = 0
for kill in range(int(kills) + 1):
    child = os.fork()  # before any thread was started here
    if not child:
        for day in range(int(days)):
            update_state(state, f"{folder}/truth{day}.npy", f"{folder}/bands{day}.npz", when=float(day))
            update_state(state, None, f"{folder}/bands{day}.npz", when=float(day))
        os._exit(0)
    if kill < int(kills):
        time.sleep(chance.uniform(0.02, 0.3))
        os.kill(child, signal.SIGKILL)
    died += os.waitpid(child, 0)[1] != 0
print(died)
"""


@pytest.fixture(scope="module")
def hospital(tmp_path_factory):
    """A calibration, and the files of some days."""
    folder = tmp_path_factory.mktemp("hospital")
    rng = np.random.default_rng(0)
    truth = rng.uniform(size=(100 + DAYS * OF_A_DAY, 5, 5)).astype(np.float32)
    centre = truth + 0.1 * rng.standard_normal(truth.shape).astype(np.float32)
    band = pb.Band(centre - 0.1, centre + 0.1)
    pb.calibrate(truth[:100], band[:100], risk_level=0.2, method="rcps").save(folder / "cal.safetensors")
    for day in range(DAYS):
        some = slice(100 + day * OF_A_DAY, 100 + (day + 1) * OF_A_DAY)
        np.save(folder / f"truth{day}.npy", truth[some])
        np.savez(folder / f"bands{day}.npz", lower=band.lower[some], upper=band.upper[some])
    np.save(folder / "wrong.npy", 1 - truth[100:])
    np.savez(folder / "wide.npz", lower=band.lower[100:] - 0.05, upper=band.upper[100:] + 0.05)
    np.savez(folder / "all.npz", lower=band.lower[100:], upper=band.upper[100:])
    return folder


def test_killed_at_random_moments_nothing_is_lost_and_nothing_counts_twice(hospital, tmp_path):
    whole = tmp_path / "whole.safetensors"
    for day in range(DAYS):
        first = {"calibration": hospital / "cal.safetensors"} if not day else {}
        update_state(whole, hospital / f"truth{day}.npy", hospital / f"bands{day}.npz", when=float(day), **first)
        update_state(whole, None, hospital / f"bands{day}.npz", when=float(day))
    state = tmp_path / "killed.safetensors"
    pb.save_monitor(pb.Monitor(pb.load_calibration(hospital / "cal.safetensors")), state)
    command = [sys.executable, "-c", WORK, str(state), str(hospital), str(DAYS), str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 0  # some were really killed
    assert state.read_bytes() == whole.read_bytes()
    status = pb.load_monitor(state).status()
    assert status.images == status.drift_images == DAYS * OF_A_DAY


def test_an_alarm_is_exit_code_5_and_one_json_object(hospital, tmp_path):
    state, cal = tmp_path / "s.safetensors", hospital / "cal.safetensors"
    quiet = run("monitor", "drift", state, hospital / "all.npz", "--calibration", cal, "--json")
    assert quiet.exit_code == 0
    assert json.loads(quiet.stdout)["drift_images"] == DAYS * OF_A_DAY
    assert run("monitor", "drift", state, hospital / "wide.npz").exit_code == 5
    alarm = run("monitor", "update", state, hospital / "wrong.npy", hospital / "all.npz", "--json")
    assert alarm.exit_code == 5
    facts = json.loads(alarm.stdout)
    assert facts["broken"] is facts["changed"] is facts["promises"][0]["broken"] is True
    assert run("monitor", "status", state).exit_code == 5
    assert run("monitor", "page", state, "--out", tmp_path / "page.html").exit_code == 0
    page = (tmp_path / "page.html").read_text()
    assert 0 < page.index("ALARM, promises broken") < page.index("<svg")
    plan = page[page.index("<h2>Monitoring plan</h2>") :]
    assert "EU AI Act, article 72" in plan
    terms = "What is monitored", "Data", "Method", "When", "Who", "False alarms", "At an alarm"
    assert re.findall("<dt>(.*?)</dt>", plan) == [*terms]
    assert pb.load_calibration(cal).guarantee in html.unescape(plan)
    assert page.count("<svg") == 6  # of two calls without truth
    assert "Charts begin with the second call" in page  # with truth there was one
    assert "<script" not in page
    for site in ("north", "south"):
        Path(tmp_path / f"{site}.json").write_text(alarm.stdout)
    pool = run("monitor", "pool", tmp_path / "north.json", tmp_path / "south.json", "--json")
    assert pool.exit_code == 5
    assert [site["name"] for site in json.loads(pool.stdout)["sites"]] == ["north", "south"]


def test_a_state_is_held_and_belongs_to_its_calibration(hospital, tmp_path):
    from pixelbounds.storage.files import exclusive

    state = tmp_path / "s.safetensors"
    assert run("monitor", "drift", state, hospital / "all.npz").exit_code == 2  # no calibration to begin with
    monitor = pb.Monitor(pb.load_calibration(hospital / "cal.safetensors"))
    pb.save_monitor(monitor, state)
    before = monitor_bytes(monitor)
    with exclusive(state):
        held = run("monitor", "drift", state, hospital / "all.npz")
        assert held.exit_code == 2
        assert "another process" in flat(held.output)
    assert run("monitor", "drift", state, hospital / "all.npz", "--false-alarm", "0.5").exit_code == 2
    assert state.read_bytes() == before
