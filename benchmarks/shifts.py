"""Shifts of a real network: how many images a monitor needs to notice, with truth and without, and what it does not.

python -m benchmarks shifts [CHEST.zip]    (some ten minutes on two cores)

The packaged network draws samples of new phantoms; the calibration is that of the demo, at 5%. A shift is one that
nobody tells: bands claim to be made as those of the calibration. (Those that say how they were made are refused.)
"""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pixelbounds as pb
from benchmarks.pages import result
from pixelbounds.demo.packaged import NEW, SIGMA_0, SIZE, figures, material, network_file, some_phantoms
from pixelbounds.demo.showcase import CALIBRATION, FAILURE_PROB, RISK_LEVEL, packaged_band, samples_band
from pixelbounds.diffusion import sample
from pixelbounds.diffusion.checkpoint import load_network
from pixelbounds.images.ends import Band
from pixelbounds.images.library import Array

PAGE = "docs/research/after_deployment.md"
IMAGES = 24
MANY = 120  # where a shift is small
FIRST = NEW + 5000  # phantoms that nobody else uses


def drawn(truth: Array, *, noise: float = SIGMA_0, told: float = SIGMA_0, steps: int | None = None) -> Band:
    """The band of samples of noisy images, where the sampler assumes some noise level."""
    rng = np.random.default_rng(len(truth))
    noisy = truth + np.float32(noise) * rng.standard_normal(truth.shape, dtype=np.float32)
    network, sde, _ = load_network(network_file(), kind="score")
    about = figures()
    found = sample(
        network, torch.from_numpy(noisy)[:, None], told, sde, samples=about["samples"],
        steps=steps or about["steps"], seed=7,
    )  # fmt: skip
    return samples_band(np.stack([x[:, 0].numpy() for x in found]))


def chest(path: Path) -> Array:
    """Slices of as many patients, area-averaged to the network's size, in [0, 1]."""
    from PIL import Image

    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if "/images/" in name and name.endswith(".png"))
        patients: dict[str, list[str]] = {}
        for name in names:
            patients.setdefault(name.split("/")[-2], []).append(name)
        chosen = [slices[len(slices) // 2] for slices in patients.values()][:IMAGES]
        pictures = [
            Image.open(BytesIO(archive.read(name))).resize((SIZE, SIZE), Image.Resampling.BOX) for name in chosen
        ]
    return np.stack([np.asarray(x, np.float32) / 255 for x in pictures])


def delay(calibration: pb.Calibration, truth: Array, band: Band, *, known: bool) -> int | None:
    """Images until the alarm, one after the other; None where there is none."""
    monitor = pb.Monitor(calibration)
    for i in range(len(truth)):
        one = slice(i, i + 1)
        status = monitor.update(truth[one], band[one]) if known else monitor.check_drift(band[one])
        if status.alarm:
            return i + 1
    return None


def run(chest_zip: str | None = None) -> dict[str, Any]:
    """Every shift, in few images."""
    arrays = material()
    first = slice(0, CALIBRATION)
    calibration = pb.calibrate(
        arrays["truth"][first], packaged_band(arrays)[first], risk_level=RISK_LEVEL, failure_prob=FAILURE_PROB
    )
    truth = some_phantoms(IMAGES, FIRST).images
    turned = np.ascontiguousarray(truth[:, ::-1])
    shifts: dict[str, tuple[Array, dict[str, Any]]] = {
        "none": (truth, {}),
        "noise 0.25 instead of 0.2": (some_phantoms(MANY, FIRST).images, {"noise": 0.25}),
        "4 steps of the sampler instead of 16": (truth, {"steps": 4}),
        "images upside down": (turned, {}),
    }
    if chest_zip is not None:
        shifts["chest CT of patients instead of abdominal phantoms"] = (chest(Path(chest_zip)), {})
    rows = []
    for name, (images, how) in shifts.items():
        band = drawn(images, **how)
        risk = pb.evaluate(images, calibration.apply(band)).risk
        found = {
            kind: delay(calibration, images, band, known=known) for kind, known in (("truth", True), ("look", False))
        }
        rows.append({"shift": name, "images": len(images), "risk": risk, "width": float(band.width.mean()), **found})
        print(rows[-1], flush=True)
    return {"risk_level": RISK_LEVEL, "rows": rows}


def text() -> str:
    """The table of the page."""
    found = result("shifts")
    lines = [
        "| shift, untold | risk seen | mean width of bands | alarm with truth after | without truth after |",
        "|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        after = [f"none in {row['images']}" if row[kind] is None else str(row[kind]) for kind in ("truth", "look")]
        lines.append(f"| {row['shift']} | {row['risk']:.1%} | {row['width']:.3f} | {after[0]} | {after[1]} |")
    made = found["machine"]
    where = f"Measured at commit {made['commit']} (`python -m benchmarks shifts`), {made['cpu']}; one stream each."
    return "\n".join([*lines, "", where])
