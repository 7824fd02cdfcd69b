"""What makes a score network generalise: networks of one size of budget, each with one thing changed, on a GPU.

    python -m reproduce.gpu.generalise images --data local/ct64.npz               # at home: what travels
    python -m reproduce.gpu.generalise train ct64 --list FILE --out DIR           # on the GPU
    python -m reproduce.gpu.certified ct64 --data local/ct64.npz DIR/*.npz        # back home: certified lengths

Every variant is trained for the same seconds of GPU on the same images; validation scans choose its best average.
Posterior samples of images of other scans are reduced to bands on the device, and these come back, ends outward. A line
of FILE names a variant, and may say more: `edm-loss@1 seconds=60 split=confirm budget=1`, where @1 is a seed and
`budget` draws with few and many samples and steps (`budgets`). The list is read again after every variant until it says
`end`: what is found may decide what is tried next. Processes of several architectures share a GPU by `--turn`, one file
for all: compiling takes one to three minutes for each, and the others compute meanwhile. Variants of one architecture
share one network, so that nothing is compiled twice. torch, numpy and safetensors are all it needs.

Two splits. `sweep` trains on all scans but those for development (`pixelbounds.diffusion.splits`) and is measured on
these: what is chosen here becomes a default, and no table may be made of images that a default was chosen on. `confirm`
is the split of `python -m reproduce`, measured on its held-out scans, which tuned nothing.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pixelbounds.bands import calibrated_ranks, least_samples
from pixelbounds.diffusion import VESDE, Reduction, sample
from pixelbounds.diffusion.batches import AUGMENTATIONS
from pixelbounds.diffusion.checkpoint import load_state
from pixelbounds.diffusion.splits import split_images
from pixelbounds.diffusion.trainer import Settings, train

from .variants import VARIANTS, Variant, loss_of, network_of, seed_of, start_anew, variant

Array = np.ndarray


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
    """The split; `count` images are measured, spread over the scans as evenly as they go; 768 or all are held out."""
    alone = len(np.unique(scan)) == len(scan)
    units = None if alone else scan
    usual = split_images(len(scan), held_out=max(768, count), tune=1000 if alone else 564, units=units)
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


@dataclass(frozen=True)
class Task:
    """A line of the list: a variant and how it is tried."""

    name: str
    seconds: float
    split: str = "sweep"
    budget: bool = False

    @property
    def label(self) -> str:
        """What its file is called, in characters that a file that comes back may have."""
        return re.sub(r"[^\w.-]", "_", f"{self.name}-{self.split}-{self.seconds:g}")


def tasks(path: Path, seconds: float) -> tuple[list[Task], bool]:
    """The tasks of a list, and whether it ends."""
    lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    found = []
    for name, *more in lines:
        if name == "end":
            break
        told = dict(word.split("=") for word in more)
        found.append(
            Task(name, float(told.get("seconds", seconds)), told.get("split", "sweep"), bool(told.get("budget")))
        )
    return found, ["end"] in lines


class Bench:
    """Images, noisy views and compiled networks, shared by the variants."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.data = options, SETS[options.set]
        with np.load(options.data) as file:
            self.pixels, scan = file[self.data.key], file["scan"]
        self.parts = {split: parts(options.set, split, scan, options.images) for split in ("sweep", "confirm")}
        low, high = self.data.limits
        known = self.pixels[self.parts["sweep"].train].astype(np.float32) / 255 * (high - low) + low
        self.spread = round(float(known.mean()), 4), round(float(known.std()), 4)
        self.sde = VESDE(0.01, self.data.sigma_max)
        self.top = min(1.1 * self.data.sigma_0, self.data.sigma_max)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self._learners: dict[str, nn.Module] = {}
        self._samplers: dict[str, Any] = {}

    def truth(self, split: str) -> Array:
        """The images that are measured, in [0, 1]."""
        return self.pixels[self.parts[split].measured].astype(np.float32) / 255

    def settings(self, change: Variant, **more: Any) -> Settings:
        """How a variant is trained."""
        usual = {
            "batch": self.options.batch, "learning_rate": 1e-3, "warmup": 200, "sigma_top": self.top,
            "augment": AUGMENTATIONS["some_rotations"], "compile": self.options.compile, "patience": None,
            "checkpoint_every": 10**9, "log_every": 200,
        }  # fmt: skip
        return Settings(**(usual | change.settings | more))

    def fit(self, name: str, split: str, **more: Any) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
        """Train a variant: the weights of its last and of its best average, and figures."""
        change, seed = variant(name), seed_of(name)
        folder = Path(self.options.keep) / f"{self.options.set}-{name}-{split}"
        shutil.rmtree(folder, ignore_errors=True)
        key = change.architecture
        if key not in self._learners:
            self._learners[key] = network_of(change, self.data.size, self.spread)
        network, own = self._learners[key], self.parts[split]
        start_anew(network, change, self.data.size, self.spread, seed)
        curve: list[dict[str, Any]] = []
        done = train(
            network, self.pixels[own.train], loss_of(change, self.spread), sde=self.sde,
            settings=self.settings(change, seed=seed, **more), limits=self.data.limits, device=self.device,
            folder=folder, validation=self.pixels[own.validation], progress=curve.append,
        )  # fmt: skip
        tensors = (load_state(folder) or ({}, {}))[0]
        shutil.rmtree(folder, ignore_errors=True)
        weights = {
            part: {key.removeprefix(part): x for key, x in tensors.items() if key.startswith(part)}
            for part in ("ema/", "best/")
        }
        looks = [line for line in curve if "validation" in line]
        figures = {
            "steps": done.step, "seconds": round(done.seconds, 1), "best_step": done.best, "best_loss": done.loss,
            "last_loss": looks[-1]["validation"], "trivial_loss": done.trivial,
            "parameters": sum(x.numel() for x in network.parameters()),
            "images_per_second": round(done.step * self.settings(change, steps=1).batch / done.seconds),
            "curve": [[line["step"], round(line["loss"], 5), round(line["validation"], 5)] for line in looks],
        }  # fmt: skip
        return weights, figures

    def sampler(self, name: str, weights: dict[str, Tensor]) -> Any:
        """The network of a variant, compiled once for all of its architecture, with these weights."""
        key = variant(name).architecture
        if key not in self._samplers:
            network = network_of(variant(name), self.data.size, self.spread)
            network = network.to(self.device, memory_format=torch.channels_last).eval()
            self._samplers[key] = network, torch.compile(network) if self.options.compile else network
        plain, fast = self._samplers[key]
        plain.load_state_dict(weights)
        return fast

    def draw(self, name: str, split: str, weights: dict[str, Tensor], steps: int, samples: int, reduce: Any) -> Any:
        """What becomes of the samples of each of the measured images."""
        y = torch.from_numpy(observe(self.truth(split), self.data))[:, None].to(self.device)
        batch = min(3 * len(y), len(y) * samples)  # one shape for numbers of samples that 3 divides
        return sample(
            self.sampler(name, weights), y, self.data.sigma_0, self.sde, samples=samples, steps=steps, reduce=reduce,
            batch=batch,
        )  # fmt: skip

    def bands(self, name: str, split: str, weights: dict[str, Tensor]) -> dict[str, Array]:
        """Lower and upper ends and the mean of samples of the measured images, in [0, 1]."""
        m = self.options.samples
        reduction = Reduction(calibrated_ranks(m, self.options.miscoverage))
        found = list(self.draw(name, split, weights, self.options.steps, m, reduction))
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


def codes(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Ends in [0, 1] as multiples of 1 / 2048, rounded outward: what lies beyond is cut off by any interval."""
    low, high = np.clip(lower, 0, 1) * 2048, np.clip(upper, 0, 1) * 2048
    return np.floor(low).astype(np.uint16), np.ceil(high).astype(np.uint16)


SPENT = {"steps": (4, 6, 8, 12, 24), "samples": (19, 39, 79, 128), "miscoverage": (0.05, 0.1, 0.2)}


def affordable() -> list[tuple[int, float]]:
    """Numbers of samples and miscoverages that go together."""
    return [(m, a) for m in SPENT["samples"] for a in SPENT["miscoverage"] if m >= least_samples(a)]


def spend(bench: Bench, task: Task, weights: dict[str, Tensor]) -> None:
    """Bands of every affordable number of steps and samples and miscoverage, of one set of 128 samples each."""
    most = max(SPENT["samples"])
    reductions = {(m, a): Reduction(calibrated_ranks(m, a)) for m, a in affordable()}

    def reduce(draws: Tensor) -> dict[str, Any]:
        parts = {key: reduction(draws[: key[0]]) for key, reduction in reductions.items()}
        ends = {key: codes(part.lower.cpu().numpy(), part.upper.cpu().numpy()) for key, part in parts.items()}
        return ends | {"fresh": draws[most].half().cpu().numpy()}

    for steps in SPENT["steps"]:
        begin = time.monotonic()
        found = list(bench.draw(task.name, task.split, weights, steps, most + 1, reduce))
        seconds = time.monotonic() - begin
        kept = {}
        for m, a in reductions:
            kept[f"{m}/{a}/lower"] = np.stack([each[m, a][0][0] for each in found])
            kept[f"{m}/{a}/upper"] = np.stack([each[m, a][1][0] for each in found])
        fresh = np.stack([each["fresh"][0] for each in found])
        told = about(bench, task) | {
            "variant": task.name,
            "sampler_steps": steps,
            "seconds": seconds,
            "drawn": most + 1,
        }
        np.savez(bench.out / f"budget-{steps}.npz.partial.npz", about=np.array(json.dumps(told)), fresh=fresh, **kept)
        (bench.out / f"budget-{steps}.npz.partial.npz").rename(bench.out / f"budget-{steps}.npz")
        print(f"{steps} steps, {(most + 1) * len(found)} samples in {seconds:.1f} s", flush=True)


def about(bench: Bench, task: Task) -> dict[str, Any]:
    """What was common to all variants."""
    options = bench.options
    return {
        "set": options.set, "split": task.split, "commit": options.commit, "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if bench.device.type == "cuda" else "cpu", "samples": options.samples,
        "sampler_steps": options.steps, "miscoverage": options.miscoverage, "train_seconds": task.seconds,
        "images": {part: len(numbers) for part, numbers in vars(bench.parts[task.split]).items()},
        "batch": options.batch, "sigma_0": bench.data.sigma_0, "spread": bench.spread,
    }  # fmt: skip


def attempt(bench: Bench, task: Task) -> None:
    """Train a variant, draw with it, and keep its bands."""
    start = time.monotonic()
    weights, figures = bench.fit(task.name, task.split, seconds=task.seconds)
    trained = time.monotonic() - start
    rows: list[dict[str, Any]] = []
    kept: dict[str, Any] = {}
    for part, kind in {"best/": "best", "ema/": "last"}.items():
        if kind == "last" and variant(task.name) != variant("plain"):
            continue
        begin = time.monotonic()
        band = bench.bands(task.name, task.split, weights[part])
        row = {"variant": task.name, "average": kind, **figures, **figures_of(bench.truth(task.split), band)}
        rows.append(row | {"sample_seconds": time.monotonic() - begin})
        kept[f"{kind}/lower"], kept[f"{kind}/upper"] = codes(band["lower"], band["upper"])
        said = {key: value for key, value in rows[-1].items() if key != "curve"}
        print(
            json.dumps(said),
            task.split,
            f"{trained:.0f} s to train, {time.monotonic() - start:.0f} in all",
            flush=True,
        )
    kept["rows"] = np.array(json.dumps(about(bench, task) | {"rows": rows}))
    np.savez_compressed(bench.out / f"{task.label}.npz", **kept)
    if task.budget:
        spend(bench, task, weights["best/"])


def run(bench: Bench, architecture: str) -> None:
    """Try what the list says, each in its turn, until the list says `end`."""
    path, turn = Path(bench.options.list), Path(bench.options.turn)
    if bench.options.compile:
        begin = time.monotonic()
        weights, _ = bench.fit(architecture, "sweep", steps=2)
        bench.bands(architecture, "sweep", weights["ema/"])
        print(f"{architecture} is compiled, {time.monotonic() - begin:.0f} s", flush=True)
    done: list[Task] = []
    while True:
        wanted, ends = tasks(path, bench.options.seconds)
        left = [task for task in wanted if task not in done]
        if not left and ends:
            return
        if not left:
            time.sleep(0.5)
            continue
        done.append(left[0])
        with turn.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            attempt(bench, left[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("does", choices=("images", "train"))
    parser.add_argument("set", nargs="?", choices=SETS, default="ct64")
    parser.add_argument("--data", required=True, help="an npz of `images`; for `images` the folder to write to")
    parser.add_argument("--sources", type=Path, default=Path("/work/shared/data"), help="images: the zips of pictures")
    parser.add_argument("--list", help=f"a file of variants, a line each; of {', '.join(VARIANTS)}, joined by commas")
    parser.add_argument("--compile", help="a variant of the architecture to compile first; none unless told")
    parser.add_argument("--turn", default="/tmp/pixelbounds-turn", help="a file that processes share to take turns")
    parser.add_argument("--keep", default="/tmp/pixelbounds-generalise", help="folder for the states of runs")
    parser.add_argument("--out", default=".", help="folder for what comes back")
    parser.add_argument("--seconds", type=float, default=60, help="to train each variant")
    parser.add_argument("--images", type=int, default=384, help="images that are measured")
    parser.add_argument("--samples", type=int, default=39)
    parser.add_argument("--steps", type=int, default=8, help="of the sampler")
    parser.add_argument("--miscoverage", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    if options.does == "images":
        pack(options.data, options.sources)
        return
    architecture, options.compile = options.compile or "plain", options.compile is not None
    run(Bench(options), architecture)


if __name__ == "__main__":
    main()
