"""Runs from files that stop where they should: which images choose, what is drawn, what is refused, what is shown."""

import os
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from sampling_world import SETTINGS, call, write  # noqa: E402

from pixelbounds.diffusion.checkpoint import load_network, load_state  # noqa: E402
from pixelbounds.diffusion.session import read_log  # noqa: E402

torch.set_num_threads(1)


def settings(world, **changes):
    """The settings of the tiny world, images named from elsewhere."""
    text = SETTINGS.replace("x.npy", str(world / "x.npy"))
    lines = {"data": "held_out = 0.25", "rate": "learning_rate = 1e-2", "steps": "steps = 20"}
    for name, new in changes.items():
        text = text.replace(lines[name], new)
    return text


def test_validation_images_neither_train_nor_are_held_out(world):
    parts = [set(np.load(world / "run" / f"{part}.npy").tolist()) for part in ("validation", "held_out")]
    assert list(map(len, parts)) == [2, 8]
    assert not parts[0] & parts[1]
    about = load_state(world / "run")[1]["about"]
    assert (about["images"][0], about["validation"][0]) == (22, 2)
    meta = load_network(world / "run" / "score.safetensors")[2]["extra"]
    assert meta["loss"] < meta["trivial_loss"]
    assert np.nanmin(read_log(world / "run")["validation"]) == meta["loss"]


@pytest.mark.parametrize(
    "data, words",
    [
        ("validation = 1.5", "line 4: [data] validation is 1.5: a share lies in [0, 1)"),
        ('validation = "no.npy"', "no.npy does not exist"),
        ('units = "{}/one.npy"', "none is left to train on; set validation = 0.0"),
    ],
)
def test_wrong_validation_is_said(world, tmp_path, data, words):
    np.save(tmp_path / "one.npy", np.zeros(32, int))
    result = call("train", write(tmp_path, settings(world, data=data.format(tmp_path))), "--quiet")
    assert result.exit_code == 2
    assert words in " ".join(result.output.split()), result.output
    assert not (tmp_path / "run").exists()


def test_a_run_that_learned_nothing_is_an_error_and_a_longer_one_goes_on(world, tmp_path):
    lazy = settings(world, data="validation = 0.5", steps="steps = 1", rate="learning_rate = 1e-12")
    result = call("train", write(tmp_path, lazy), "--quiet")
    said = " ".join(result.output.split())
    assert result.exit_code == 2, said
    assert "score.toml, line 19: after 1 steps the loss is" in said
    assert "nothing was learned; give the run more steps" in said
    assert not (tmp_path / "run" / "score.safetensors").exists()
    more = lazy.replace("steps = 1", "steps = 40").replace("1e-12", "1e-2")
    result = call("train", write(tmp_path, more), "--quiet")
    assert result.exit_code == 0, result.output
    assert "resuming from step 1" in result.output


def test_commands_tell_threads_to_sleep_before_torch_is_there(tmp_path):
    """FormatError later, OpenMP has read its settings already, and `train` stood still on a busy machine."""
    script = (
        "import os, sys\n"
        "from importlib.abc import MetaPathFinder\n"
        "class Watch(MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            print(os.environ.get('OMP_WAIT_POLICY'), flush=True)\n"
        "            os._exit(0)\n"
        "sys.meta_path.insert(0, Watch())\n"
        "from pixelbounds.cli import app\n"
        "app(sys.argv[1:], standalone_mode=False)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    np.save(tmp_path / "y.npy", np.zeros((2, 8, 8), np.float32))
    for words in (["train", "none.toml"], ["sample", "none.safetensors", tmp_path / "y.npy", "--out", "none.zarr"]):
        ran = subprocess.run([sys.executable, "-c", script, *words], env=environment, capture_output=True, text=True)
        assert ran.stdout == "PASSIVE\n", ran.stderr
