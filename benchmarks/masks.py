"""Masks with a guarantee beside others: organs of the chest, and pixels that can be trusted.

    python -m benchmarks.masks DATA [--steps 1200] [--organ-steps 1600] [--draws 5] [--width 24] [--every 1]
        [--folder build/masks]

DATA holds chest_128.zip and ct_64.zip. Small networks are trained on patients that are not used afterwards; each draw
takes patients (or slices) at random to calibrate and counts on the others. On a slow machine, train for fewer steps,
with fewer channels (`--width`), and take each second slice (`--every 2`). What the networks returned and each draw
are kept in the folder, so an interrupted run resumes; of the images nothing else is written.

MAPIE is installed by hand (`pip install mapie`).

Organs: lung, heart and trachea jointly, at most so much of each missed (outside the outer mask) and so much of the
background false (inside the inner mask), with probability 90%. `undecided` is the share of the image between the masks.
  thresholds  `pb.calibrate_masks` of probabilities
  one path    `pb.calibrate` of the same band and promises: one path for all of them, shaped by images that fit
  margins     `pb.calibrate_masks` of `pb.margin_band`: dilation and erosion by margins, of each organ its own
  MAPIE       SemanticSegmentationController (RCPS), six thresholds at delta / 6 each: what a joint promise takes
  MAPIE, valid bound  the same with the bound of `one_run`, for MAPIE's own is too low too often
  MAPIE, valid bound, at 0.5  and its inner masks within p >= 0.5, its outer ones around it, as ours are
Trust: at most 10% of the pixels of a mask farther than a tolerance from the estimate.
  ours        `pb.trust`, with probability 90% over calibration sets
  Adame       a threshold on the band's width by conformal risk control: in expectation over calibration sets
  Kutiel      a threshold by conformal quantiles: at most so much wrong in 90% of images, in expectation
"""

from __future__ import annotations

import argparse
import io
import json
import time
import zipfile
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from torch import nn

import pixelbounds as pb
from benchmarks.__main__ import RESULTS, machine, show
from pixelbounds.images.library import Array

ORGANS = {"trachea": 1, "heart": 2, "lung": 3}
LEVELS = ((False, 0.10, 0.05), (False, 0.10, 0.01), (True, 0.20, 0.15))  # by patient, missed, false
WEIGHTS = (1.0, 8.0, 4.0, 1.0)  # of the classes in training: few pixels are trachea or heart
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


def mapie_bound(*settings: Any) -> tuple[Array, Array]:
    """MAPIE's own mean and upper bound of losses."""
    found: tuple[Array, Array] = import_module("mapie.risk_control.methods").get_r_hat_plus(*settings)
    return found


def one_run(losses: Array, grid: Array, method: str, bound: str, delta: float, spread: float) -> tuple[Array, Array]:
    """`mapie_bound` with the same bets, whose wealth is that of one run over all images: Ville's inequality holds."""
    seen = np.arange(2, len(losses) + 2)[:, None]
    means = (0.5 + losses.cumsum(axis=0)) / seen
    spreads = (0.25 + ((losses - means) ** 2).cumsum(axis=0)) / seen
    before = np.concatenate([np.full_like(spreads[:1], spread), spreads[:-1]])
    bets = np.minimum(1, np.sqrt(2 * np.log(1 / delta) / (len(losses) * before)))
    gains = np.stack([np.log1p(-bets * (losses - value)).cumsum(axis=0).max(axis=0) for value in grid])
    excluded = gains > np.log(1 / delta)
    return losses.mean(axis=0), np.where(excluded.any(axis=0), grid[excluded.argmax(axis=0)], 1.0)


def mapie_masks(truth: Array, p: Array, new: Array, level: float, delta: float, bound: Any) -> Array:
    """Masks (n, h, w) that miss at most a share of the true ones, by MAPIE's controller with one of the bounds."""
    grid = np.unique([*THRESHOLDS, 0.9999 * level])  # of its bound, too, which must lie below the level
    controller = import_module("mapie.risk_control").SemanticSegmentationController(
        predict_function=lambda x: x[:, None], risk="recall", method="rcps", rcps_bound="wsr",
        target_level=1 - level, confidence_level=1 - delta, predict_params=grid,
    )  # fmt: skip
    some = np.flatnonzero(truth.reshape(len(truth), -1).any(axis=1))
    for i in range(0, len(some), 16):  # it repeats each image for each threshold
        rows = some[i : i + 16]
        controller.compute_risks(p[rows], truth[rows].astype(int)[:, None], _refit=i == 0)
    with patch("mapie.risk_control.multi_label_classification.get_r_hat_plus", bound):
        controller.compute_best_predict_param()
    return np.asarray(controller.predict(new)).reshape(new.shape) > 0


def too_low(bound: Any, level: float = 0.05, delta: float = 0.1 / 6, samples: int = 20_000) -> float:
    """How often a betting bound of 640 losses, 0 or 1, is at most their mean, which is the level."""
    rng, grid = np.random.default_rng(0), np.arange(1, 101) / 100  # each column, one of its thresholds, is a sample
    losses = ((rng.random((640, len(grid))) < level).astype(float) for _ in range(samples // len(grid)))
    return float(np.mean([bound(x, grid, "rcps", "wsr", delta, 0.25)[1] <= level for x in losses]))


def organ_draw(
    masks: Array, p: Array, margins: pb.Band, unit_of: Array, seed: int, level: tuple[bool, float, float]
) -> dict[str, Array]:
    """Of each way: what `counted` counts, and CPU seconds."""
    by_unit, missed, false = level
    some, new = halves(unit_of, np.random.default_rng(seed), by_unit)
    truth, units, names = masks[some], unit_of[some] if by_unit else None, tuple(ORGANS)
    band = pb.segmentation_band(p)

    def thresholds(band: pb.Band) -> tuple[Array, Array]:
        cal = pb.calibrate_masks(truth, band[some], missed=missed, false=false, names=names, units=units, seed=seed)
        interval = cal.apply(band[new])
        return interval.outer, interval.inner

    def one_path() -> tuple[Array, Array]:
        promises = pb.segmentation_promises(truth, missed=missed, false=false, names=names)
        interval = pb.calibrate(truth, band[some], promises=promises, units=units, seed=seed).apply(band[new])
        return interval.outer, interval.inner

    def mapie(bound: Any) -> tuple[Array, Array]:
        outer, inner = np.zeros(masks[new].shape, bool), np.zeros(masks[new].shape, bool)
        shuffled = np.random.default_rng(seed).permutation(some)  # its bets hold in random order
        for c in range(len(ORGANS)):
            t, q = masks[shuffled, c] > 0, p[shuffled, c]
            outer[:, c] = mapie_masks(t, q, p[new, c], missed, 0.1 / 6, bound)
            inner[:, c] = ~mapie_masks(~t, 1 - q, 1 - p[new, c], false, 0.1 / 6, bound)
        return outer, inner

    ways: dict[str, Callable[[], tuple[Array, Array]]] = {
        "thresholds": lambda: thresholds(band), "one path": one_path, "margins": lambda: thresholds(margins),
    }  # fmt: skip
    if not by_unit:  # MAPIE knows no patients
        ways |= {"MAPIE": lambda: mapie(mapie_bound), "MAPIE, valid bound": lambda: mapie(one_run)}
    rows = {}
    for name, way in ways.items():
        start = time.process_time()
        outer, inner = way()
        seconds = time.process_time() - start
        found = {name: (outer, inner)}
        if name == "MAPIE, valid bound":
            found[f"{name}, at 0.5"] = outer | (p[new] >= 0.5), inner & (p[new] >= 0.5)
        for label, (outer, inner) in found.items():
            rows[label] = np.array([*counted(masks[new] > 0, outer, inner, unit_of[new], by_unit), seconds])
    return rows


def organ_rows(draws: list[dict[str, Array]], level: tuple[bool, float, float]) -> list[dict[str, Any]]:
    """Means over draws, and in how many of them all that was promised is kept on the other images."""
    by_unit, missed, false = level
    promised = f"by {'patient' if by_unit else 'slice'}: {missed:.0%} missed, {false:.0%} false"
    rows = {name: np.stack([draw[name] for draw in draws]) for name in draws[0]}
    return [
        {"promised": promised, "way": name, "undecided": float(x[:, 0].mean()),
         "each draw": ", ".join(f"{y:.1%}" for y in x[:, 0]),
         "missed": float(x[:, 1].mean()), "false": float(x[:, 2].mean()),
         "kept": f"{int(((x[:, 1] <= missed) & (x[:, 2] <= false)).sum())} of {len(x)}",
         "crossed": float(x[:, 3].mean()), "CPU seconds": round(float(x[:, 4].mean()), 1)}
        for name, x in rows.items()
    ]  # fmt: skip


def counted(true: Array, outer: Array, inner: Array, unit_of: Array, by_unit: bool) -> list[float]:
    """Share of pixels between the masks of any organ; the worst organ's missed and false share; of crossed masks.

    They are crossed at pixels that an organ's inner mask has and its outer one does not.
    """
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
    return [float((outer & ~inner).any(axis=1).mean()), *worst, float((inner & ~outer).any(axis=1).mean())]


def dice(true: Array, predicted: Array) -> dict[str, float]:
    """Mean Dice coefficient of each organ over the slices that show it."""
    both, sizes = (true & predicted).sum(axis=(2, 3)), true.sum(axis=(2, 3))
    each = 2 * both / np.maximum(sizes + predicted.sum(axis=(2, 3)), 1)
    return {name: float(each[sizes[:, c] > 0, c].mean()) for c, name in enumerate(ORGANS)}


# ---------------------------------------------------------------- trust


def trust_draw(truth: Array, triple: Array, unit_of: Array, seed: int, tolerance: float) -> dict[str, Array]:
    """Of each way: share of the images that it trusts, and the mean share of wrong pixels in its masks."""
    low, estimate, high = (np.clip(x, 0, 1) for x in np.sort(triple, axis=1).swapaxes(0, 1))
    band, width = pb.Band(low, high), high - low
    some, new = halves(unit_of, np.random.default_rng(seed), False)
    masks = {}
    try:
        trusted = pb.trust(estimate[some], band[some], truth[some], tolerance=tolerance, at_most=0.1, seed=seed)
        masks["ours"] = trusted.apply(band[new])
    except pb.NoGuarantee:
        masks["ours"] = np.zeros(truth[new].shape, bool)
    cuts = np.quantile(width[some], np.linspace(0.05, 1, 201))  # from masks of a twentieth of the pixels on
    wrong = np.abs(truth[some] - estimate[some]) > tolerance
    held = np.stack([(width[some] <= t).mean(axis=(1, 2)) for t in cuts], axis=1)
    share = np.stack([(wrong & (width[some] <= t)).mean(axis=(1, 2)) for t in cuts], axis=1)
    loss = np.maximum.accumulate(share / np.maximum(held, 1e-12), axis=1)
    controlled = (loss.sum(axis=0) + 1) / (len(some) + 1) <= 0.1
    masks["Adame"] = width[new] <= (cuts[controlled][-1] if controlled.any() else -1)
    good = np.sort((loss <= 0.1).sum(axis=1))  # thresholds that each image allows
    allowed = good[int(np.floor(0.1 * (len(some) + 1))) - 1]
    masks["Kutiel"] = width[new] <= (cuts[allowed - 1] if allowed else -1)
    far = np.abs(truth[new] - estimate[new]) > tolerance
    return {
        name: np.array([mask.mean(), ((far & mask).sum(axis=(1, 2)) / np.maximum(mask.sum(axis=(1, 2)), 1)).mean()])
        for name, mask in masks.items()
    }


def trust_rows(data: str, tolerance: float, draws: list[dict[str, Array]]) -> list[dict[str, Any]]:
    """Means over draws, and in how many of them the promise is kept on the other images."""
    rows = {name: np.stack([draw[name] for draw in draws]) for name in draws[0]}
    return [
        {"data": data, "tolerance": tolerance, "way": name, "trusted": float(x[:, 0].mean()),
         "wrong": float(x[:, 1].mean()), "kept": f"{int((x[:, 1] <= 0.1).sum())} of {len(x)}"}
        for name, x in rows.items()
    ]  # fmt: skip


def pinball(out: Any, y: Any) -> Any:
    """Loss of quantiles at 5%, 50% and 95%."""
    q = torch.tensor([0.05, 0.5, 0.95])[:, None, None]
    d = y[:, None] - out
    return torch.maximum(q * d, (q - 1) * d).mean()


def segmented(options: argparse.Namespace) -> dict[str, Array]:
    """Probabilities of the organs, true masks and patients, of patients that trained nothing."""
    pictures, patient = read_zip(options.data / "chest_128.zip", "/images/")
    labels, _ = read_zip(options.data / "chest_128.zip", "/labels/")
    x = pictures.astype(np.float32) / 255
    trains = patient < patient.max() // 3
    loss = nn.CrossEntropyLoss(torch.tensor(WEIGHTS))
    net = trained(x[trains], labels[trains].astype(np.int64), loss, 4, options.organ_steps, options.width)
    logits = outputs_of(net, x[~trains])
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = (p / p.sum(axis=1, keepdims=True))[:, 1:]
    return {"p": p, "masks": pb.class_masks(labels[~trains], ORGANS), "patient": patient[~trains]}


def restored(options: argparse.Namespace, name: str) -> dict[str, Array]:
    """Images, quantiles of them given their noisy versions, and patients (scans) that trained nothing."""
    images, unit_of = read_zip(options.data / name, "" if name.startswith("ct") else "/images/")
    images = images.astype(np.float32) / 255
    noisy = images + NOISE * np.random.default_rng(0).standard_normal(images.shape, dtype=np.float32)
    fits = unit_of < unit_of.max() // 3
    net = trained(noisy[fits], images[fits], pinball, 3, options.steps, options.width)
    return {"truth": images[~fits], "triple": outputs_of(net, noisy[~fits]), "unit": unit_of[~fits]}


def main() -> None:
    """Train, calibrate, count; print the tables and write benchmarks/results/masks.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--organ-steps", type=int, default=1600)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("build/masks"))
    options = parser.parse_args()
    settings = {name: getattr(options, name) for name in ("steps", "organ_steps", "draws", "width", "every")}
    options.folder.mkdir(parents=True, exist_ok=True)

    def kept(name: str, make: Callable[[], dict[str, Array]]) -> dict[str, Array]:
        path = options.folder / f"{name}.npz"
        if not path.exists():
            np.savez(path.with_suffix(".part.npz"), **make())
            path.with_suffix(".part.npz").rename(path)
        return dict(np.load(path))

    trained_as = f"{options.steps}-{options.width}"
    organs, trusts = [], []
    organs_as = f"organs-{options.organ_steps}-{options.width}"
    found = kept(organs_as, lambda: segmented(options))
    p, masks, of = (found[name][:: options.every] for name in ("p", "masks", "patient"))
    margins = pb.margin_band(p >= 0.5, spacing=(1, 1))
    for level in LEVELS:
        made = [
            kept(f"{organs_as}-{options.every}-{'-'.join(map(str, level))}-{seed}",
                 lambda seed=seed, level=level: organ_draw(masks, p, margins, of, seed, level))
            for seed in range(options.draws)
        ]  # fmt: skip
        organs += organ_rows(made, level)
    show("organs of the chest", organs)
    for name in ("chest_128", "ct_64"):
        found = kept(f"{name}-{trained_as}", lambda name=name: restored(options, f"{name}.zip"))
        of_trust = [found[part][:: options.every] for part in ("truth", "triple", "unit")]
        for tolerance in TOLERANCES:
            made = [
                kept(f"{name}-{trained_as}-{options.every}-{tolerance}-{seed}",
                     lambda seed=seed, tolerance=tolerance, of_trust=of_trust: trust_draw(*of_trust, seed, tolerance))
                for seed in range(options.draws)
            ]  # fmt: skip
            trusts += trust_rows(name, tolerance, made)
    show("trusted pixels", trusts)
    text = {"benchmark": "masks", "machine": machine(), "settings": settings, "mapie": version("mapie")}
    text |= {"images": {"organs": len(masks), "patients": len(np.unique(of))}, "dice": dice(masks > 0, p >= 0.5)}
    text |= {"organs": organs, "mapie too low": too_low(mapie_bound), "one run too low": too_low(one_run)}
    text |= {"trust": trusts}
    (RESULTS / "masks.json").write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
