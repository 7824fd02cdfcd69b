"""A tiny world for whole runs: its settings, its images, and the commands in this process or in one of their own."""

import os
import signal
import subprocess
import sys

import numpy as np
from typer.testing import CliRunner
from waiting import wait_until

from pixelbounds.cli import app
from pixelbounds.workflows import SampleOptions

SIGMA = 0.3
N, M = 6, 19
OPTIONS = SampleOptions(samples=M, steps=4, held_out=1, keep_samples=True, batch=2 * (M + 1))  # two images a block
SETTINGS = """# a tiny run
[data]
path = "x.npy"
held_out = 0.25

[network]
name = "tiny"
base = 4
multipliers = [1, 1]
attention = []
dropout = 0.1

[process]
sigma_max = 1.0
sigma_0 = 0.3

[training]
kind = "score"
steps = 20
batch = 8
augment = "flips"
learning_rate = 1e-2
weighting = "paper"

[output]
folder = "run"
"""
TUNING = """# fine-tunes the network of SETTINGS
[data]
path = "x.npy"

[training]
kind = "conffusion"
from = "run/score.safetensors"
steps = 4
batch = 8
augment = "flips"

[output]
folder = "conffusion"
"""


def images(n, seed=0):
    rng = np.random.default_rng(seed)
    steps = rng.uniform(0.1, 0.3, (n, 1, 1)) * np.linspace(0, 2, 8)[:, None] + rng.uniform(0, 0.3, (n, 1, 1))
    return np.clip(steps + 0.05 * rng.normal(size=(n, 8, 8)), 0, 1).astype(np.float32)


def write(folder, text=SETTINGS, name="score.toml"):
    (folder / name).write_text(text)
    return folder / name


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def start(*words):
    """The command in a process of its own."""
    command = [sys.executable, "-m", "pixelbounds.cli", *map(str, words)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **quiet)


def kill_when(process, ready):
    """SIGKILL as soon as `ready()`; the process must not have ended before."""
    wait_until(ready, process)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL


def same(one, other):
    names = set(one.group.array_keys())
    assert names == set(other.group.array_keys())
    for name in names:
        assert one[name].dtype == other[name].dtype
        assert one[name][:].tobytes() == other[name][:].tobytes(), name


def harm(chunk, how):
    """Cut the file of a chunk short, change a bit of it, or remove it."""
    content = chunk.read_bytes()
    changed = content[:-9] if how == "truncate" else content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]
    chunk.write_bytes(changed) if how != "remove" else chunk.unlink()
