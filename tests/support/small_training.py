"""A training of a few steps, and the state that it leaves; in a process of its own, and of a loss that is no number."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import gaussian_world as world
import numpy as np
import torch

from pixelbounds.diffusion.checkpoint import load_state
from pixelbounds.diffusion.sde import VESDE
from pixelbounds.diffusion.trainer import Settings, score_matching, train

SDE = VESDE(sigma_min=0.05, sigma_max=2.0)
LITTLE = {"batch": 8, "warmup": 3, "learning_rate": 2e-3, "log_every": 4, "checkpoint_every": 4, "seed": 3}


def small_run(folder, *, steps=16, **changes):
    """A run of a few steps, dropout and rotations included, so that every source of randomness is at work."""
    return train(
        changes.pop("network", None) or world.network(base=8, dropout=0.1),
        np.clip(world.draw(20, 0), *world.LIMITS),
        sde=SDE,
        limits=world.LIMITS,
        folder=folder,
        settings=Settings(steps=steps, **{**LITTLE, **changes.pop("settings", {})}),
        **changes,
    )


def state(folder):
    tensors, meta = load_state(folder)
    return meta["step"], tensors


def assert_same_state(one, other):
    assert one[0] == other[0]
    assert one[1].keys() == other[1].keys()
    for name, tensor in one[1].items():
        assert torch.equal(tensor, other[1][name]), name


def child(tmp_path, body, *arguments):
    """A process of its own that runs a script, and finds what lies here and the tests of training."""
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(body))
    here = Path(__file__).parent
    places = [str(here), str(here.parent / "diffusion"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(places)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def explode(network, x, sigma, noise):
    """A loss that is no number."""
    return score_matching(network, x, sigma, noise) * float("nan")


explode.__name__ = "score_matching"
