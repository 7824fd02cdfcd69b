"""What makes a score network generalise: networks of one size of budget, each with one thing changed, on a GPU.

    python -m benchmarks.gpu.generalise images --data local/ct64.npz               # at home: what travels
    python -m benchmarks.gpu.generalise train ct64 plain dropout-0.2 ... --seconds 80 --out DIR     # on the GPU
    python -m benchmarks.gpu.certified --out DIR ...                               # back home: certified lengths

Every variant is trained for the same seconds of GPU on the same images, from the same seed; validation scans choose its
best average. Posterior samples of images of other scans are reduced to bands on the device, and these come back in
float16, ends outward. torch, numpy and safetensors are all it needs. Compiling an architecture takes two to three
minutes on a fresh machine, for training and sampling together: variants of one architecture belong into one call.

Two splits. `sweep` trains on all scans but those for development (`pixelbounds.diffusion.splits`) and is measured on
these: what is chosen here becomes a default, and no table may be made of images that a default was chosen on. `confirm`
is the split of `pixelbounds reproduce`, measured on its held-out scans, which tuned nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pixelbounds.diffusion import VESDE, Reduction, sample
from pixelbounds.diffusion.batches import AUGMENTATIONS
from pixelbounds.diffusion.checkpoint import load_state
from pixelbounds.diffusion.splits import split_images
from pixelbounds.diffusion.trainer import Settings, train

from .posterior import check_compiled, outward
from .variants import VARIANTS, Variant, loss_of, network_of, variant

Array = np.ndarray
LAST = "as before: the last average"  # of the variant `plain`, beside its best one


@dataclass(frozen=True)
class Set:
    """What is known of a set of images; sigma_0 is a deviation."""

    key: str
    limits: tuple[float, float]
    sigma_max: float
    sigma_0: float
    validation: int  # images, in whole scans
    size: int = 64


SETS = {
    "ct64": Set("ct", (0.0, 1.0), 1.0, 0.4, 300),
    "faces64": Set("faces", (-1.0, 1.0), 90.0, 1.0, 512),
}


# ---------------------------------------------------------------- images


def pack(path: str, sources: Path) -> None:
    """Pictures and the scan of each into an npz of 8 bits: a folder is a scan, faces stand alone."""
    from pixelbounds.formats.opener import open_images

    for name, file in (("ct64", "ct_64.zip"), ("faces64", "faces_64.zip")):
        images = open_images(str(sources / file))
        units = np.arange(len(images)) if images.units is None else np.unique(images.units, return_inverse=True)[1]
        target = Path(path) / f"{name}.npz"
        arrays: dict[str, Any] = {SETS[name].key: np.asarray(images.pixels[:]), "scan": units.astype(np.int32)}
        np.savez_compressed(target, **arrays)
        print(target, len(images), "images of", len(np.unique(units)), "units")


@dataclass(frozen=True)
class Parts:
    """Numbers of the images that train, that choose the average, and whose bands are measured."""

    train: Array
    validation: Array
    measured: Array


def parts(name: str, split: str, scan: Array, count: int) -> Parts:
    """The split; `count` images are measured, spread over the scans as evenly as they go."""
    alone = len(np.unique(scan)) == len(scan)
    units = None if alone else scan
    usual = split_images(len(scan), held_out=768, tune=1000 if alone else 564, units=units)
    if split == "confirm":
        chosen = np.random.default_rng(4).permutation(usual["held_out"])[:count]
        return Parts(usual["train"], usual["tune"], np.sort(chosen))
    rng, aside = np.random.default_rng(3), usual["development"]
    others = np.setdiff1d(np.arange(len(scan)), aside)
    order = rng.permutation(np.unique(scan[others]))
    sizes = np.array([np.sum(scan[others] == unit) for unit in order])
    kept = order[: int(np.searchsorted(np.cumsum(sizes), SETS[name].validation)) + 1]
    learnt = others[~np.isin(scan[others], kept)]
    turns = []
    for unit in np.unique(scan[aside]):
        turns += list(enumerate(rng.permutation(aside[scan[aside] == unit]).tolist()))
    shuffled = [turns[i] for i in rng.permutation(len(turns))]
    measured = [image for _, image in sorted(shuffled, key=lambda pair: pair[0])[:count]]
    return Parts(learnt, others[np.isin(scan[others], kept)], np.sort(measured))


def observe(truth: Array, data: Set) -> Array:
    """Noisy views of images in [0, 1], within the limits of the set, float32."""
    low, high = data.limits
    noise = np.random.default_rng(5).standard_normal(truth.shape, dtype=np.float32)
    return truth * np.float32(high - low) + np.float32(low) + np.float32(data.sigma_0) * noise


# ---------------------------------------------------------------- on the device


class Bench:
    """Images, noisy views and compiled networks, shared by the variants."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.data = options, SETS[options.set]
        with np.load(options.data) as file:
            images, scan = file[self.data.key], file["scan"]
        self.parts = parts(options.set, options.split, scan, options.images)
        self.pixels = images
        self.truth = images[self.parts.measured].astype(np.float32) / 255
        self.observed = observe(self.truth, self.data)
        low, high = self.data.limits
        known = images[self.parts.train].astype(np.float32) / 255 * (high - low) + low
        self.spread = round(float(known.mean()), 4), round(float(known.std()), 4)
        self.sde = VESDE(0.01, self.data.sigma_max)
        self.top = min(1.1 * self.data.sigma_0, self.data.sigma_max)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self._samplers: dict[str, Any] = {}

    def settings(self, change: Variant, **more: Any) -> Settings:
        """How a variant is trained."""
        usual = {
            "batch": self.options.batch, "learning_rate": 1e-3, "warmup": 200, "sigma_top": self.top,
            "augment": AUGMENTATIONS["some_rotations"], "compile": self.options.compile, "patience": None,
            "checkpoint_every": 10**9, "log_every": 200,
        }  # fmt: skip
        return Settings(**(usual | change.settings | more))

    def fit(self, name: str, **more: Any) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """Train a variant: the weights of its last and of its best average, and figures."""
        change, folder = variant(name), Path("/tmp/pixelbounds-generalise") / self.options.set / name
        shutil.rmtree(folder, ignore_errors=True)
        network = network_of(change, self.data.size, self.spread)
        curve: list[dict[str, Any]] = []
        done = train(
            network, self.pixels[self.parts.train], loss_of(change, self.spread), sde=self.sde,
            settings=self.settings(change, **more), limits=self.data.limits, device=self.device, folder=folder,
            validation=self.pixels[self.parts.validation], progress=curve.append,
        )  # fmt: skip
        tensors = (load_state(folder) or ({}, {}))[0]
        weights = {
            part: {key.removeprefix(part): x for key, x in tensors.items() if key.startswith(part)}
            for part in ("ema/", "best/")
        }
        looks = [line for line in curve if "validation" in line]
        figures = {
            "steps": done.step, "seconds": round(done.seconds, 1), "best_step": done.best, "best_loss": done.loss,
            "last_loss": looks[-1]["validation"], "trivial_loss": done.trivial,
            "parameters": sum(x.numel() for x in network.parameters()),
            "images_per_second": round(done.step * self.options.batch / done.seconds),
            "curve": [[line["step"], round(line["loss"], 5), round(line["validation"], 5)] for line in looks],
        }  # fmt: skip
        return weights, figures

    def bands(self, name: str, weights: dict[str, Tensor]) -> dict[str, Array]:
        """Lower and upper ends and the mean of samples of the measured images, in [0, 1]."""
        change = variant(name) | Variant({"dropout": 0.1})  # there is none in evaluation
        key = change.architecture
        if key not in self._samplers:
            network = network_of(change, self.data.size, self.spread)
            network = network.to(self.device, memory_format=torch.channels_last).eval()
            self._samplers[key] = network, torch.compile(network) if self.options.compile else network
        plain, fast = self._samplers[key]
        plain.load_state_dict(weights)
        m = self.options.samples
        rank = max(1, int((m + 1) * self.options.miscoverage / 2 + 1e-9))
        y = torch.from_numpy(self.observed)[:, None].to(self.device)
        found = list(sample(
            fast, y, self.data.sigma_0, self.sde, samples=m, steps=self.options.steps,
            reduce=Reduction((rank, m + 1 - rank)), batch=min(1024, len(y) * m),
        ))  # fmt: skip
        low, high = self.data.limits
        return {
            part: ((torch.stack([getattr(d, part) for d in found])[:, 0] - low) / (high - low)).float().cpu().numpy()
            for part in ("lower", "upper", "mean")
        }


def figures_of(truth: Array, band: dict[str, Array]) -> dict[str, float]:
    """PSNR of the mean, and of the band clipped to [0, 1] its misses and length, and its length widened to miss 5%."""
    error = ((np.clip(band["mean"], 0, 1) - truth) ** 2).reshape(len(truth), -1).mean(1)
    low, high = np.clip(band["lower"], 0, 1), np.clip(band["upper"], 0, 1)
    short = np.maximum(band["lower"] - truth, truth - band["upper"]).ravel()
    wide = float(np.partition(short, int(0.95 * len(short)))[int(0.95 * len(short))])
    widened = np.clip(band["upper"] + wide, 0, 1) - np.clip(band["lower"] - wide, 0, 1)
    return {
        "psnr": float((-10 * np.log10(error)).mean()),
        "miss_rate": float(((truth < low) | (truth > high)).mean()),
        "band_length": float((high - low).mean()),
        "widened_length": float(np.maximum(widened, 0).mean()),
    }


def prepare(bench: Bench, names: list[str]) -> None:
    """Compile each architecture in a process of its own, all at once: the cache on disk then serves this one."""
    wanted: dict[str, str] = {}
    for name in names:
        wanted.setdefault(variant(name).architecture, name)
    words = [sys.executable, "-m", "benchmarks.gpu.generalise", "warm", bench.options.set]
    more = ["--data", bench.options.data, "--out", bench.options.out, "--split", bench.options.split, "--steps", "1"]
    running = [subprocess.Popen([*words, name, *more]) for name in wanted.values()]
    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit(f"compiling {list(wanted.values())} ended with {codes}")


def warm(bench: Bench, name: str) -> None:
    """Check the gradients of a compiled variant, and leave its compiled forms in the cache."""
    check_compiled(network_of(variant(name), bench.data.size, bench.spread), bench.data.size)
    weights, _ = bench.fit(name, steps=2, compile=True)
    bench.bands(name, weights["ema/"])


def run(bench: Bench, names: list[str]) -> None:
    """Train, sample and keep each variant in turn, until the time is over."""
    options, began = bench.options, time.monotonic()
    if options.compile and bench.device.type == "cuda" and not options.prepared:
        prepare(bench, names)
    ready = time.monotonic() - began
    print(
        f"prepared in {ready:.0f} s; spread {bench.spread}; {[len(x) for x in vars(bench.parts).values()]}", flush=True
    )
    common = {
        "set": options.set, "split": options.split, "commit": options.commit, "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if bench.device.type == "cuda" else "cpu", "samples": options.samples,
        "sampler_steps": options.steps, "miscoverage": options.miscoverage, "train_seconds": options.seconds,
        "images": {part: len(numbers) for part, numbers in vars(bench.parts).items()}, "batch": options.batch,
        "sigma_0": bench.data.sigma_0, "spread": bench.spread,
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    kept: dict[str, Any] = {}
    file = 0
    for name in names:
        if time.monotonic() - began + options.seconds + 25 > options.until:
            print("no time left for", name, flush=True)
            continue
        start = time.monotonic()
        weights, figures = bench.fit(name, seconds=options.seconds)
        shown = {LAST: "ema/", name: "best/"} if name == "plain" else {name: "best/"}
        for label, part in shown.items():
            begin = time.monotonic()
            band = bench.bands(name, weights[part])
            sampled = time.monotonic() - begin
            rows.append({"variant": label, **figures, **figures_of(bench.truth, band), "sample_seconds": sampled})
            lower, upper = outward(band["lower"], band["upper"])
            kept |= {f"{label}/lower": lower, f"{label}/upper": upper}
            text = np.array(json.dumps(common | {"rows": rows}))
            np.savez_compressed(bench.out / f"{options.split}-{options.first + file}.npz", rows=text, **kept)
            said = {key: value for key, value in rows[-1].items() if key != "curve"}
            print(json.dumps(said), f"{time.monotonic() - start:.0f} s in all", flush=True)
            if len(kept) >= 4:  # two bands of 384 images stay below 16 MiB
                kept, rows, file = {}, [], file + 1
    print(f"{time.monotonic() - began:.0f} s", flush=True)


DOES: dict[str, Callable[[Bench, list[str]], None]] = {"train": run, "warm": lambda bench, names: warm(bench, names[0])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("does", choices=("images", *DOES))
    parser.add_argument("set", nargs="?", choices=SETS, default="ct64")
    parser.add_argument("variants", nargs="*", help=f"of {', '.join(VARIANTS)}; several at once joined by commas")
    parser.add_argument("--data", required=True, help="an npz of `images`; for `images` the folder to write to")
    parser.add_argument("--sources", type=Path, default=Path("/work/shared/data"), help="images: the zips of pictures")
    parser.add_argument("--out", default=".", help="folder for what comes back")
    parser.add_argument("--split", choices=("sweep", "confirm"), default="sweep")
    parser.add_argument("--seconds", type=float, default=80, help="to train each variant")
    parser.add_argument("--until", type=float, default=560, help="seconds after which no variant is begun")
    parser.add_argument("--first", type=int, default=0, help="number of the first file that comes back")
    parser.add_argument("--images", type=int, default=384, help="images that are measured")
    parser.add_argument("--samples", type=int, default=39)
    parser.add_argument("--steps", type=int, default=12, help="of the sampler")
    parser.add_argument("--miscoverage", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--commit", default="")
    parser.add_argument("--prepared", action="store_true", help="these architectures were compiled here before")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    options = parser.parse_args()
    torch._dynamo.config.recompile_limit = 64
    torch.set_float32_matmul_precision("high")
    if options.does == "images":
        pack(options.data, options.sources)
    else:
        DOES[options.does](Bench(options), options.variants)


if __name__ == "__main__":
    main()
