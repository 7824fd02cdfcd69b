"""Masks with a guarantee beside others: organs of the chest, and pixels that can be trusted.

    python -m benchmarks.masks DATA [--steps 1200] [--draws 5] [--width 24] [--every 1]

DATA holds chest_128.zip and ct_64.zip. Small networks are trained on patients that are not used afterwards; each draw
takes patients (or slices) at random to calibrate and counts on the others. Nothing of the images is written. On a slow
machine, train for fewer steps, with fewer channels (`--width`), and take each second slice (`--every 2`).

MAPIE is installed by hand (`pip install mapie`).

Organs: lung, heart and trachea jointly, at most so much of each missed (outside the outer mask) and so much of the
background false (inside the inner mask), with probability 90%. `undecided` is the share of the image between the masks.
  ours       `pb.segmentation_band`, one calibration for all six promises
  margin     `pb.margin_band` with one widening: dilation and erosion by one margin
  MAPIE      SemanticSegmentationController (RCPS), six thresholds at delta / 6 each: what a joint promise takes
Trust: at most 10% of the pixels of a mask farther than a tolerance from the estimate.
  ours       `pb.trust`, with probability 90% over calibration sets
  Adame      a threshold on the band's width by conformal risk control: in expectation over calibration sets
  Kutiel     a threshold by conformal quantiles: at most so much wrong in 90% of images, in expectation
"""

from __future__ import annotations

import argparse
import io
import json
import time
import zipfile
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

import pixelbounds as pb
from benchmarks.__main__ import RESULTS, machine, show
from pixelbounds.images.library import Array

ORGANS = {"trachea": 1, "heart": 2, "lung": 3}
LEVELS = {False: (0.10, 0.05), True: (0.20, 0.10)}  # missed and false, by slice and by patient
TOLERANCES = (0.05, 0.1, 0.2)
NOISE = 0.2
THRESHOLDS = 1 / (1 + np.exp(-np.linspace(-16, 8, 100)))  # of MAPIE: its own grid, 0 to 1 by 0.01, is coarse near 0


class Net(nn.Module):
    """A small U-Net on half the resolution."""

    def __init__(self, outputs: int, width: int = 24) -> None:
        super().__init__()

        def block(a: int, b: int) -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU()
            )

        self.stem = nn.Conv2d(1, width, 4, 2, 1)
        self.down = nn.ModuleList([block(width, width), block(width, 2 * width), block(2 * width, 2 * width)])
        self.up = nn.ModuleList([block(4 * width, width), block(2 * width, width)])
        self.head = nn.ConvTranspose2d(width, outputs, 4, 2, 1)

    def forward(self, x: Any) -> Any:
        """Images (n, 1, h, w) -> (n, outputs, h, w)."""
        first = self.down[0](self.stem(x))
        second = self.down[1](nn.functional.max_pool2d(first, 2))
        third = self.down[2](nn.functional.max_pool2d(second, 2))
        x = self.up[0](torch.cat([nn.functional.interpolate(third, scale_factor=2.0), second], 1))
        x = self.up[1](torch.cat([nn.functional.interpolate(x, scale_factor=2.0), first], 1))
        return self.head(x)


def read_zip(path: Path, folder: str = "") -> tuple[Array, Array]:
    """Pictures of a folder in a zip, uint8, and the folder (patient, scan) of each."""
    with zipfile.ZipFile(path) as file:
        names = sorted(x for x in file.namelist() if folder in x and x.endswith(".png"))
        pictures = np.stack([np.array(Image.open(io.BytesIO(file.read(x))).convert("L")) for x in names])
    return pictures, np.unique([x.split("/")[-2] for x in names], return_inverse=True)[1]


def trained(x: Array, y: Array, loss: Any, outputs: int, steps: int, width: int) -> Net:
    """A network that is trained on images (n, h, w) and their targets."""
    torch.manual_seed(0)
    net, rng = Net(outputs, width), np.random.default_rng(0)
    adam = torch.optim.Adam(net.parameters())
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = 2e-3 * (1 - step / steps) + 1e-5
        some = rng.integers(0, len(x), 8)
        value = loss(net(torch.from_numpy(x[some])[:, None]), torch.from_numpy(y[some]))
        adam.zero_grad()
        value.backward()
        adam.step()
    return net.eval()


@torch.no_grad()
def outputs_of(net: Net, x: Array) -> Array:
    """Output of a network, (n, outputs, h, w)."""
    return np.concatenate([net(torch.from_numpy(x[i : i + 64])[:, None]).numpy() for i in range(0, len(x), 64)])


def halves(unit_of: Array, rng: np.random.Generator, by_unit: bool) -> tuple[Array, Array]:
    """Images of random units to calibrate, half of them, and the others; or random images."""
    if by_unit:
        chosen = rng.permutation(np.unique(unit_of))[: len(np.unique(unit_of)) // 2]
        first = np.isin(unit_of, chosen)
    else:
        first = rng.permutation(len(unit_of)) < len(unit_of) // 2
    return np.flatnonzero(first), np.flatnonzero(~first)


# ---------------------------------------------------------------- organs


def mapie_masks(truth: Array, p: Array, new: Array, level: float, delta: float) -> Array:
    """Masks (n, h, w) that miss at most a share of the true ones, by MAPIE's controller."""
    controller = import_module("mapie.risk_control").SemanticSegmentationController(
        predict_function=lambda x: x[:, None], risk="recall", method="rcps", rcps_bound="wsr",
        target_level=1 - level, confidence_level=1 - delta, predict_params=THRESHOLDS,
    )  # fmt: skip
    some = np.flatnonzero(truth.reshape(len(truth), -1).any(axis=1))
    for i in range(0, len(some), 16):  # it repeats each image for each threshold
        rows = some[i : i + 16]
        controller.compute_risks(p[rows], truth[rows].astype(int)[:, None], _refit=i == 0)
    controller.compute_best_predict_param()
    return np.asarray(controller.predict(new)).reshape(new.shape) > 0


def organ_rows(masks: Array, p: Array, unit_of: Array, draws: int, by_unit: bool) -> list[dict[str, Any]]:
    """Of each way: share between the masks, and missed and false at the most over organs, in the mean over draws."""
    most_missed, most_false = LEVELS[by_unit]
    sums: dict[str, list[list[float]]] = {}
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        some, new = halves(unit_of, rng, by_unit)
        promises = pb.segmentation_promises(masks[some], missed=most_missed, false=most_false, names=tuple(ORGANS))
        units = unit_of[some] if by_unit else None
        predicted = p >= 0.5
        ways = {
            "ours": (pb.segmentation_band(p), "frontier"),
            "margin": (pb.margin_band(predicted.reshape(-1, *p.shape[2:])), "rcps"),
        }
        for name, (band, method) in ways.items():
            band = band.map(lambda x: x.reshape(p.shape), checked=True)
            start = time.process_time()
            cal = pb.calibrate(masks[some], band[some], promises=promises, method=method, units=units, seed=seed)
            seconds = time.process_time() - start
            interval = cal.apply(band[new])
            row = counted(masks[new] > 0, interval.outer, interval.inner, unit_of[new], by_unit)
            sums.setdefault(name, []).append([*row, seconds])
        if not by_unit:  # MAPIE knows no patients
            outer, inner = np.zeros(masks[new].shape, bool), np.zeros(masks[new].shape, bool)
            start = time.process_time()
            for c in range(len(ORGANS)):
                t = masks[some, c] > 0
                outer[:, c] = mapie_masks(t, p[some, c], p[new, c], most_missed, 0.1 / 6)
                inner[:, c] = ~mapie_masks(~t, 1 - p[some, c], 1 - p[new, c], most_false, 0.1 / 6)
            seconds = time.process_time() - start
            row = counted(masks[new] > 0, outer, inner, unit_of[new], by_unit)
            sums.setdefault("MAPIE", []).append([*row, seconds])
    return [
        {"by": "patient" if by_unit else "slice", "way": name, "undecided": float(np.mean([r[0] for r in rows])),
         "missed": float(np.mean([r[1] for r in rows])), "false": float(np.mean([r[2] for r in rows])),
         "kept": f"{sum(r[1] <= most_missed and r[2] <= most_false for r in rows)} of {len(rows)}",
         "CPU seconds": round(float(np.mean([r[3] for r in rows])), 1)}
        for name, rows in sums.items()
    ]  # fmt: skip


def counted(true: Array, outer: Array, inner: Array, unit_of: Array, by_unit: bool) -> list[float]:
    """Share of pixels between the masks of any organ, and the worst organ's missed and false share."""
    worst = []
    for region, wrong in ((true, ~outer), (~true, inner)):
        sizes = region.sum(axis=(2, 3))
        shares = (region & wrong).sum(axis=(2, 3)) / np.maximum(sizes, 1)
        means = []
        for c in range(true.shape[1]):
            has = sizes[:, c] > 0
            units = unit_of[has] if by_unit else np.arange(has.sum())
            by = np.bincount(units, shares[has, c]) / np.maximum(np.bincount(units), 1)
            means.append(by[np.unique(units)].mean())
        worst.append(max(means))
    return [float((outer & ~inner).any(axis=1).mean()), *worst]


# ---------------------------------------------------------------- trust


def trust_rows(data: str, truth: Array, triple: Array, unit_of: Array, draws: int) -> list[dict[str, Any]]:
    """Share of the image that each way trusts, and the share of wrong pixels in its masks."""
    low, estimate, high = (np.clip(x, 0, 1) for x in np.sort(triple, axis=1).swapaxes(0, 1))
    band, width = pb.Band(low, high), high - low
    rows = []
    for tolerance in TOLERANCES:
        sums: dict[str, list[tuple[float, float]]] = {}
        for seed in range(draws):
            some, new = halves(unit_of, np.random.default_rng(seed), False)
            masks: dict[str, Array | None] = {}
            try:
                mask = pb.trust(
                    estimate[some], band[some], truth[some], tolerance=tolerance, at_most=0.1, seed=seed
                ).apply(band[new])  # fmt: skip
            except pb.NoGuarantee:
                mask = np.zeros(truth[new].shape, bool)
            masks["ours"] = mask
            cuts = np.quantile(width[some], np.linspace(0.05, 1, 201))  # from masks of a twentieth of the pixels on
            wrong = np.abs(truth[some] - estimate[some]) > tolerance
            held = np.stack([(width[some] <= t).mean(axis=(1, 2)) for t in cuts], axis=1)
            share = np.stack([(wrong & (width[some] <= t)).mean(axis=(1, 2)) for t in cuts], axis=1)
            loss = np.maximum.accumulate(share / np.maximum(held, 1e-12), axis=1)
            n = len(some)
            controlled = (loss.sum(axis=0) + 1) / (n + 1) <= 0.1
            masks["Adame"] = width[new] <= (cuts[controlled][-1] if controlled.any() else -1)
            good = (loss <= 0.1).sum(axis=1)  # thresholds that each image allows
            rank = int(np.floor(0.1 * (n + 1))) - 1
            allowed = np.sort(good)[rank]
            masks["Kutiel"] = width[new] <= (cuts[allowed - 1] if allowed else -1)
            far = np.abs(truth[new] - estimate[new]) > tolerance
            for name, mask in masks.items():
                inside = mask.sum(axis=(1, 2))
                error = ((far & mask).sum(axis=(1, 2)) / np.maximum(inside, 1)).mean()
                sums.setdefault(name, []).append((float(mask.mean()), float(error)))
        rows += [
            {"data": data, "tolerance": tolerance, "way": name, "trusted": float(np.mean([r[0] for r in each])),
             "wrong": float(np.mean([r[1] for r in each])), "kept": f"{sum(r[1] <= 0.1 for r in each)} of {len(each)}"}
            for name, each in sums.items()
        ]  # fmt: skip
    return rows


def pinball(out: Any, y: Any) -> Any:
    """Loss of quantiles at 5%, 50% and 95%."""
    q = torch.tensor([0.05, 0.5, 0.95])[:, None, None]
    d = y[:, None] - out
    return torch.maximum(q * d, (q - 1) * d).mean()


def main() -> None:
    """Train, calibrate, count; print the tables and write benchmarks/results/masks.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    settings = {name: getattr(options, name) for name in ("steps", "draws", "width", "every")}
    start = time.monotonic()
    pictures, patient = read_zip(options.data / "chest_128.zip", "/images/")
    labels, _ = read_zip(options.data / "chest_128.zip", "/labels/")
    x = pictures.astype(np.float32) / 255
    trains = patient < patient.max() // 3
    after = np.flatnonzero(~trains)[:: options.every]
    targets = labels[trains].astype(np.int64)
    seg = trained(x[trains], targets, nn.functional.cross_entropy, 4, options.steps, options.width)
    logits = outputs_of(seg, x[after])
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = (p / p.sum(axis=1, keepdims=True))[:, 1:]
    masks, of = pb.class_masks(labels[after], ORGANS), patient[after]
    organs = [*organ_rows(masks, p, of, options.draws, False), *organ_rows(masks, p, of, options.draws, True)]
    show("organs of the chest", organs)
    trusts = []
    for name, images, unit_of in (("chest128", pictures, patient), ("ct64", *read_zip(options.data / "ct_64.zip"))):
        images = images.astype(np.float32) / 255
        noisy = images + NOISE * np.random.default_rng(0).standard_normal(images.shape, dtype=np.float32)
        fits = unit_of < unit_of.max() // 3
        after = np.flatnonzero(~fits)[:: options.every]
        net = trained(noisy[fits], images[fits], pinball, 3, options.steps, options.width)
        trusts += trust_rows(name, images[after], outputs_of(net, noisy[after]), unit_of[after], options.draws)
    show("trusted pixels", trusts)
    minutes = round((time.monotonic() - start) / 60, 1)
    text = {"benchmark": "masks", "machine": machine(), "minutes": minutes, "settings": settings}
    text |= {"mapie": version("mapie")}
    text |= {"images": {"organs": len(masks), "patients": len(np.unique(of))}, "organs": organs, "trust": trusts}
    (RESULTS / "masks.json").write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
