"""The hands-on path of docs/diffusion.md on a CPU, by its commands: pictures, training, samples, intervals.

python -m benchmarks hands_on FOLDER [STEPS]    (a folder that is not there yet; a quiet machine)

A folder of 500 pictures of phantoms trains a lean network for five minutes; 40 other phantoms, with noise, are sampled
at the default settings. 30 of them calibrate, 10 get intervals. `intervals.png` in the folder shows three of these.
Where others keep the machine busy, give the steps of the training: CPU seconds tell what two idle cores would take.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from PIL import Image

from benchmarks.pages import result, where
from pixelbounds.demo.phantom import phantoms
from pixelbounds.images.library import Array
from pixelbounds.samplers.runs import open_run

PAGE = "docs/research/gpu.md"
SIGMA, LEVEL, PICTURES, CALIBRATION, NEW = 0.2, 0.1, 500, 30, 10
SETTINGS = """
[data]
path = "pictures"

[network]
name = "lean"
base = 16

[process]
sigma_0 = 0.2

[training]
{long}
batch = 16
learning_rate = 1e-3
weighting = "edm"
sigma_top = 0.22

[output]
folder = "network"
"""


COMMANDS = (  # of the page, in their order
    ("training", "train train.toml"),
    ("sampling", "sample network/score.safetensors known/noisy.npy --out known.zarr"),
    ("sampling", "sample network/score.safetensors new/noisy.npy --out new.zarr"),
    ("calibrating", "calibrate known/truth.npy known.zarr --risk-level 0.1 --failure-prob 0.1 --out cal.safetensors"),
    ("applying", "apply cal.safetensors new.zarr --out intervals.zarr"),
)


def run(place: str, steps: str = "") -> dict[str, Any]:
    """Walk the path in a folder; what each command took, and how good estimate and intervals are."""
    folder = Path(place)
    truth = write_images(folder, f"steps = {steps}" if steps else "seconds = 300")
    load = os.getloadavg()[0]
    taken = {name: 0.0 for name, _ in COMMANDS}
    busy = dict(taken)
    for name, words in COMMANDS:
        begin = time.monotonic()
        before = cpu_seconds()
        subprocess.run([sys.executable, "-m", "pixelbounds.cli", *words.split()], cwd=folder, check=True)
        taken[name] += time.monotonic() - begin
        busy[name] += cpu_seconds() - before
    sampled = open_run(folder / "new.zarr")
    mean = np.asarray(sampled["mean"][:]).reshape(truth.shape)
    noisy = np.load(folder / "new" / "noisy.npy")
    ends = zarr.open_group(folder / "intervals.zarr", mode="r")
    lower = np.asarray(ends["lower"][:]).reshape(truth.shape)
    upper = np.asarray(ends["upper"][:]).reshape(truth.shape)
    draw(folder / "intervals.png", truth, noisy, mean, lower, upper)
    log = [json.loads(line) for line in (folder / "network" / "log.jsonl").read_text().splitlines()]
    return {
        "load": [load, os.getloadavg()[0]],
        "seconds": taken,
        "cpu_seconds": busy,
        "train_steps": log[-1]["step"],
        "samples": int(sampled.about["samples"]),
        "sampler_steps": int(sampled.about["steps"]),
        "psnr_noisy": psnr(noisy, truth),
        "psnr_mean": psnr(mean, truth),
        "risk": float(((truth < lower) | (truth > upper)).mean()),
        "length": float((upper - lower).mean()),
    }


def cpu_seconds() -> float:
    """That the commands so far took, on all cores together."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write_images(folder: Path, long: str) -> Array:
    """500 pictures, the settings, and truth and noisy views of 30 and of 10 others; the truth of the last."""
    made = phantoms(PICTURES + CALIBRATION + NEW, seed=7).images
    (folder / "pictures").mkdir(parents=True)
    for i, image in enumerate(made[:PICTURES]):
        Image.fromarray(np.rint(255 * image).astype(np.uint8)).save(folder / "pictures" / f"{i:04d}.png")
    (folder / "train.toml").write_text(SETTINGS.format(long=long))
    rng = np.random.default_rng(8)
    parts = np.split(made[PICTURES:], [CALIBRATION])
    for name, truth in zip(("known", "new"), parts, strict=True):
        (folder / name).mkdir()
        np.save(folder / name / "truth.npy", truth)
        np.save(folder / name / "noisy.npy", truth + np.float32(SIGMA) * rng.standard_normal(truth.shape, np.float32))
    return parts[1]


def psnr(estimate: Array, truth: Array) -> float:
    """Of images in [0, 1], clipped, in dB."""
    return float(-10 * np.log10(np.mean((np.clip(estimate, 0, 1) - truth) ** 2)))


def draw(path: Path, *images: Array) -> None:
    """Three images in rows: truth, noisy view, mean, both ends, four times as large."""
    shown = np.concatenate([np.concatenate(list(x[:3]), axis=0) for x in images], axis=1)
    pixels = np.rint(255 * np.clip(shown, 0, 1)).astype(np.uint8)
    Image.fromarray(pixels.repeat(4, 0).repeat(4, 1)).save(path)


def text() -> str:
    found = result("hands_on")
    seconds = found["seconds"]
    busy = found["cpu_seconds"]
    before, after = found["load"]
    rest = seconds["calibrating"] + seconds["applying"]
    trained = f" ({busy['training']:.0f})" if "training" in busy else ", the machine busy"
    rate = (CALIBRATION + NEW) * found["samples"] * (found["sampler_steps"] + 1) / busy["sampling"]
    return (
        f"Walked on a CPU ({where(found)}; load {before:.1f} before, {after:.1f} after; seconds of the cores together "
        f"in brackets): {found['train_steps']:,} steps in {seconds['training']:.0f} s{trained}; "
        f"{CALIBRATION + NEW} images, {found['samples']} samples of each in {found['sampler_steps']} steps, in "
        f"{seconds['sampling']:.0f} s ({busy['sampling']:.0f}: {rate:.0f} evaluations a second of a core); "
        f"calibration and intervals in {rest:.0f} s. The noisy views have {found['psnr_noisy']:.1f} dB, the mean of "
        f"the samples {found['psnr_mean']:.1f} dB. The intervals of the {NEW} new images miss {found['risk']:.1%} of "
        f"the pixels at a promised {LEVEL:.0%}, with a mean length of {found['length']:.3f}."
    )
