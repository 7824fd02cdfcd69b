"""A run of training in its folder: killed, stopped or damaged it goes on bit for bit, and it has the folder alone."""

import os
import signal
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from small_training import assert_same_state, child, explode, small_run, state  # noqa: E402
from waiting import wait_until  # noqa: E402

from pixelbounds.diffusion.checkpoint import load_state, state_files  # noqa: E402
from pixelbounds.diffusion.session import read_log  # noqa: E402
from pixelbounds.storage.files import exclusive  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    small_run(folder)
    return folder


# ---------------------------------------------------------------- resuming

CHILD = """
import sys, time
import numpy as np
import small_training as t
from pathlib import Path
from types import SimpleNamespace

def slowly(line):
    Path(sys.argv[1], "alive").write_text(str(line["step"]))
    time.sleep(0.3)

t.small_run(sys.argv[1], progress=slowly)
"""


def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(tmp_path, uninterrupted):
    folder = tmp_path / "run"
    folder.mkdir()
    process = child(tmp_path, CHILD, folder)
    wait_until(state_files(folder)[1].exists, process)  # two states are there
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 0 < load_state(folder)[1]["step"] < 16
    small_run(folder)
    assert_same_state(state(folder), state(uninterrupted))
    log, whole = read_log(folder), read_log(uninterrupted)
    assert np.array_equal(log["step"], whole["step"])
    assert np.array_equal(log["loss"], whole["loss"])


@pytest.mark.parametrize("number, error", [(signal.SIGTERM, SystemExit), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_saves_the_state_before_leaving(tmp_path, uninterrupted, number, error):
    before = signal.getsignal(number)

    def strike(line):
        if line["step"] == 6:
            os.kill(os.getpid(), number)

    with pytest.raises(error):
        small_run(tmp_path, progress=strike, settings={"log_every": 2, "checkpoint_every": 100})
    assert load_state(tmp_path)[1]["step"] == 7  # the step at work is finished
    assert signal.getsignal(number) is before
    small_run(tmp_path)
    assert_same_state(state(tmp_path), state(uninterrupted))


def test_a_truncated_state_falls_back_on_the_one_before(tmp_path, uninterrupted):
    small_run(tmp_path, steps=12, settings={"cosine": False})
    whole = state(tmp_path)
    newest, previous = state_files(tmp_path)
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="cut short"):
        small_run(tmp_path, steps=12, settings={"cosine": False})
    assert_same_state(state(tmp_path), whole)
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(UserWarning, match="cut short"):  # the save did not put the damaged one over the good one
        assert load_state(tmp_path)[1]["step"] == 8
    for path in (newest, previous):
        path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="no state can be read"):
        small_run(tmp_path, steps=12, settings={"cosine": False})


def test_a_diverged_run_keeps_the_last_good_state_and_goes_on_from_it_at_a_lower_rate(tmp_path):
    small_run(tmp_path, steps=4)
    good = state(tmp_path)
    remedy = r"lower the learning rate \(0.002\) or the clip \(1\) to resume from the last good state in .*"
    with pytest.raises(FloatingPointError, match=remedy):
        small_run(tmp_path, steps=12, loss=explode)
    assert_same_state(state(tmp_path), good)
    slower = {"learning_rate": 1e-3, "clip": 0.5, "cosine": True}
    with pytest.warns(
        UserWarning, match="from step 4 in .*: learning_rate was 0.002 and is 0.001, clip was 1 and is 0.5"
    ):
        small_run(tmp_path, steps=12, settings=slower)
    log = read_log(tmp_path)
    assert log["step"].tolist() == [4, 8, 12]
    assert log["learning_rate"][1] == pytest.approx(1e-3 * (1 + np.cos(np.pi * 8 / 12)) / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # these are now what the run has
        small_run(tmp_path, steps=13, settings=slower)


# ---------------------------------------------------------------- one run in a folder


def test_a_folder_belongs_to_one_run_from_its_first_step_to_its_last(tmp_path):
    pytest.importorskip("fcntl")
    refused = []

    def intrude(line):
        with pytest.raises(BlockingIOError, match="another process"), exclusive(tmp_path):
            raise AssertionError("the folder is free")
        refused.append(line["step"])

    small_run(tmp_path, progress=intrude)
    assert {4, 8, 12, 16} <= set(refused)
    with exclusive(tmp_path), pytest.raises(BlockingIOError, match="another process"):
        small_run(tmp_path)
