"""Networks side by side on a GPU: rates, compiling, training for equal seconds, bands of images for development.

    python -m reproduce.gpu.networks all --data local/gpu/ct64.npz --out $OUT [--seconds 45 --until 535] [NAMES]
    python -m reproduce.gpu.networks lengths --data local/gpu/ct64.npz --out DIR     # at home, of what came back

Each network has a process of its own; they compile at once and take turns on the GPU: all are timed before one trains.
Then `whole` runs each from start to finish with nothing compiled before: 400 observations, 39 samples, bands in a file.
`azula` and `diffusers` are U-nets of these packages with the widths of `small`, timed where PYTHONPATH finds them.
Nothing here touches held-out scans: a default may follow from it. Without a GPU everything is a toy, to try it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from pixelbounds.bands import calibrated_ranks
from pixelbounds.diffusion import VESDE, Reduction, compiled, configuration, network_of, sample
from pixelbounds.diffusion.batches import AUGMENTATIONS
from pixelbounds.diffusion.network import Fourier
from pixelbounds.diffusion.posterior import in_bfloat16
from pixelbounds.diffusion.trainer import Settings, train, weighted_matching
from reproduce.splits import split_images

from .speed import kernels, peak, timed

Array = np.ndarray
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
SDE, SIGMA = VESDE(0.01, 1.0), 0.4
SAMPLES, MISCOVERAGE, BATCH = 39, 0.1, 256 if CUDA else 8
SHAPES = {64: 1024, 128: 256} if CUDA else {32: 8}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {  # in the order in which they train
    "lean": ("lean", {}),
    "patches": ("lean", {"base": 128, "multipliers": (1, 2, 2), "patch": 2, "blocks": 2}),
    "small": ("small", {}),
    "azula": ("small", {}),  # the peers: their own U-nets with these widths
    "diffusers": ("small", {}),
}
TRAINED = ("lean", "patches", "small", "azula")


class Peer(nn.Module):
    """A U-net of another package under our contract: the score, from an embedding of the noise level or a time."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__()
        self.takes_time = name == "diffusers"
        if self.takes_time:
            from diffusers import UNet2DModel

            self.net = UNet2DModel(
                sample_size=size, in_channels=1, out_channels=1, block_out_channels=(64, 64, 128, 128),
                layers_per_block=1, down_block_types=("DownBlock2D",) * 4, up_block_types=("UpBlock2D",) * 4,
            )  # fmt: skip
            return
        from azula.nn.unet import UNet

        self.embedding = Fourier(64, 128, 1.0)
        self.net = UNet(1, 1, hid_channels=(64, 64, 128, 128), hid_blocks=(2, 2, 2, 2), mod_features=128, dropout=0.1)

    def forward(self, x: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
        """Score: (b, 1, h, w), (b,) -> (b, 1, h, w)."""
        level = sigma[:, None, None, None]
        if self.takes_time:
            return self.net(x, 250 * sigma.log(), return_dict=False)[0] / level
        return self.net(x * torch.rsqrt(1 + level.square()), self.embedding(sigma)) / level


def fresh(name: str) -> nn.Module:
    """The network of a name, untrained."""
    if name in ("azula", "diffusers"):
        return Peer(name, 64)
    base, changes = NETWORKS[name]
    return network_of(configuration(base, **({"size": 64} | changes | ({} if CUDA else {"base": 8, "size": 32}))))


def pictures(file: str, count: int, whole: bool = CUDA) -> dict[str, Array]:
    """Images that train, that validate, and that are measured: those for development, with their numbers."""
    with np.load(file) as stored:
        images, scan = stored["ct"], stored["scan"]
    aside = split_images(len(scan), held_out=max(768, count), tune=564, units=scan)["development"]
    others = np.setdiff1d(np.arange(len(scan)), aside)
    order = np.random.default_rng(3).permutation(np.unique(scan[others]))
    sizes = np.cumsum([np.sum(scan[others] == unit) for unit in order])
    unseen = np.isin(scan[others], order[: int(np.searchsorted(sizes, 300)) + 1])
    measured = np.sort(np.random.default_rng(4).permutation(aside)[:count])
    parts = {"train": others[~unseen], "validation": others[unseen], "measured": measured}
    cut = slice(None) if whole else slice(32)
    return {name: images[at][:, cut, cut] for name, at in parts.items()} | {"numbers": measured}


def one(name: str, options: argparse.Namespace) -> None:
    """Compile, be timed when it is this network's turn, train, sample, keep figures and bands."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    network = fresh(name).to(DEVICE)
    probe = fresh(name).to(DEVICE, memory_format=torch.channels_last).eval().requires_grad_(False)
    for weight in probe.parameters():
        nn.init.normal_(weight, std=0.05)
    fast = compiled(probe) if options.compile else probe
    shown = pictures(options.data, options.images)
    figures: dict[str, Any] = {"name": name, "parameters": sum(x.numel() for x in probe.parameters())}

    def keep(mark: str, **numbers: Any) -> None:
        figures.update(numbers)
        (options.work / f"{name}.json").write_text(json.dumps(figures))
        (options.work / f"{mark}-{name}").touch()

    def evaluate(net: Any, size: int) -> None:
        x = torch.randn(SHAPES[size], 1, size, size, device=DEVICE)
        with torch.no_grad(), in_bfloat16(x, True):
            net(x, torch.full((len(x),), 0.3, device=DEVICE))
        if CUDA:
            torch.cuda.synchronize()

    def fit(**length: Any) -> Any:
        settings = Settings(
            batch=BATCH, learning_rate=1e-3, warmup=200, augment=AUGMENTATIONS["some_rotations"], sigma_top=0.44,
            patience=None, checkpoint_every=10**9, log_every=100, compile=options.compile, **length,
        )  # fmt: skip
        loss = weighted_matching(float((shown["train"] / np.float32(255)).std()))
        return train(network, shown["train"], loss, sde=SDE, settings=settings, validation=shown["validation"])

    for size in SHAPES:
        begin = time.monotonic()
        evaluate(fast, size)
        keep(f"compiled{size}", **{f"compile_{size}": round(time.monotonic() - begin, 1)})
    begin, first = time.monotonic(), {key: x.clone() for key, x in network.state_dict().items()}
    if name in TRAINED:
        fit(steps=2)
    keep("ready", compile_training=round(time.monotonic() - begin, 1))
    wait(options.work / f"time-{name}")
    if CUDA:
        figures["peak"] = top = peak()
        for size, batch in SHAPES.items():
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                probe(torch.zeros(1, 1, size, size, device=DEVICE), torch.ones(1, device=DEVICE))
            rate = batch / timed(partial(evaluate, fast, size), 30)
            figures |= {f"rate_{size}": rate, f"share_{size}": rate * counter.get_total_flops() / top}
        figures |= {"eager_64": SHAPES[64] / timed(lambda: evaluate(probe, 64), 5)}
        figures |= {"kernels": kernels(lambda: evaluate(fast, 64))}
    keep("timed")
    if name not in TRAINED:
        return
    wait(options.work / f"train-{name}")
    network.load_state_dict(first)
    done = fit(**({"seconds": options.seconds} if CUDA else {"steps": 4}))
    probe.load_state_dict(done.network.state_dict())
    torch.save(probe.state_dict(), options.work / f"{name}.pt")
    keep("trained", seconds=done.seconds, steps=done.step, best=done.best, loss=done.loss)
    draw(fast, shown, options.out / f"bands-{name}.npz", keep)


def draw(fast: nn.Module, shown: dict[str, Array], target: Path, keep: Any) -> None:
    """Sample the measured images; bands in multiples of 1/2048, and how often they hold a fresh draw."""
    truth = shown["measured"].astype(np.float32) / 255
    noise = [np.random.default_rng([13, int(i)]).standard_normal(truth.shape[1:], np.float32) for i in shown["numbers"]]
    y = torch.from_numpy(truth + np.float32(SIGMA) * np.stack(noise))[:, None].to(DEVICE)
    reduction = Reduction(calibrated_ranks(SAMPLES, MISCOVERAGE), held_out=1)
    before, begin = torch._dynamo.utils.counters["stats"]["unique_graphs"], time.monotonic()
    draws = list(
        sample(fast, y, SIGMA, SDE, samples=SAMPLES, reduce=reduction, image_ids=shown["numbers"].tolist(),
               batch=max(SHAPES.values()), steps=None if CUDA else 2)
    )  # fmt: skip
    lower, upper, mean, new = (
        np.stack([getattr(d, part).float().cpu().numpy().reshape(truth.shape[1:]) for d in draws])
        for part in ("lower", "upper", "mean", "held_out")
    )
    inside = ((new >= lower) & (new <= upper)).mean((1, 2))
    ends = np.floor(lower.clip(0, 1) * 2048).astype(np.uint16), np.ceil(upper.clip(0, 1) * 2048).astype(np.uint16)
    np.savez_compressed(target, numbers=shown["numbers"], lower=ends[0], upper=ends[1])
    keep(
        "done", sampling_seconds=round(time.monotonic() - begin, 2), fresh=float(inside.mean()),
        compiled_in_sampling=torch._dynamo.utils.counters["stats"]["unique_graphs"] - before,
        fresh_error=float(inside.std() / len(inside) ** 0.5), missed=float(((truth < lower) | (truth > upper)).mean()),
        psnr=float(-10 * np.log10(((mean.clip(0, 1) - truth) ** 2).mean((1, 2))).mean()),
    )  # fmt: skip


def whole(name: str, options: argparse.Namespace) -> None:
    """From a fresh process to bands in a file: 400 observations in noise, 39 samples each; nothing compiled before."""
    torch.set_float32_matmul_precision("high")
    network = fresh(name).to(DEVICE, memory_format=torch.channels_last).eval().requires_grad_(False)
    network.load_state_dict(torch.load(options.work / f"{name}.pt", weights_only=True, map_location=DEVICE))
    score = compiled(network) if options.compile else network
    truth = np.tile(pictures(options.data, 200)["measured"], (2, 1, 1))[: 400 if CUDA else 4].astype(np.float32) / 255
    y = torch.from_numpy(truth + SIGMA * np.random.default_rng(0).standard_normal(truth.shape, np.float32))[:, None]
    reduction = Reduction(calibrated_ranks(SAMPLES, MISCOVERAGE))
    draws = list(sample(score, y.to(DEVICE), SIGMA, SDE, samples=SAMPLES, reduce=reduction, batch=max(SHAPES.values()),
                        steps=None if CUDA else 2))  # fmt: skip
    ends = {part: torch.stack([getattr(d, part) for d in draws]).cpu().numpy() for part in ("lower", "upper")}
    np.savez(options.work / "whole.npz", **ends)


def wait(mark: Path, until: float = float("inf"), process: subprocess.Popen[bytes] | None = None) -> bool:
    """Whether a mark is there, in time and before its process ends."""
    while not mark.exists() and time.monotonic() < until and (process is None or process.poll() is None):
        time.sleep(0.1)
    return mark.exists()


def everything(options: argparse.Namespace) -> None:
    """Start all, and give turns: the first is alone until it has compiled, so that it is timed soon."""
    until, running = time.monotonic() + options.until, {}
    here = ["--data", options.data, "--out", str(options.out), "--work", str(options.work)]
    here += ["--seconds", str(options.seconds), "--images", str(options.images)]
    here += [] if options.compile else ["--no-compile"]
    for name in options.names:
        log = (options.work / f"{name}.log").open("w")
        own = {"TORCHINDUCTOR_COMPILE_THREADS": "3", "TORCHINDUCTOR_CACHE_DIR": str(options.work / name)}
        running[name] = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, "one", name, *here], env=os.environ | own, stdout=log, stderr=log
        )
    turns = [("ready", None), ("timed", "time"), ("done", "train")]
    for mark, turn in turns:
        for name, process in running.items():
            if turn == "train" and name not in TRAINED:
                continue
            if turn == "train" and time.monotonic() > until - options.seconds - 15:
                print("no time left to train", name, flush=True)
                continue
            if turn is not None:
                (options.work / f"{turn}-{name}").touch()
            there = wait(options.work / f"{mark}-{name}", until, process)
            print(f"{options.until - until + time.monotonic():6.1f} s: {name}", mark if there else "FAILED", flush=True)
    rows: dict[str, Any] = {}
    for name, kind in (("lean", "cold"), ("lean", "warm"), ("small", "cold"), ("azula", "cold"), ("patches", "cold")):
        if (options.work / f"{name}.pt").exists() and time.monotonic() < until - 15:
            begin, cache = time.monotonic(), {"TORCHINDUCTOR_CACHE_DIR": str(options.work / f"whole-{name}")}
            command = [sys.executable, "-m", __spec__.name, "whole", name, *here]
            ended = subprocess.run(command, env=os.environ | cache, check=False).returncode
            seconds = round(time.monotonic() - begin, 1) if not ended else None
            rows |= {f"from start to finish, {kind}: {name}": seconds}
            print(rows, flush=True)
    for name, process in running.items():
        process.kill()
        file = options.work / f"{name}.json"
        rows[name] = row = json.loads(file.read_text()) if file.exists() else {}
        for key, value in row.items():
            print(f"{name} {key}", value[:12] if key == "kernels" else value)
        if "psnr" not in row and name in TRAINED:
            print((options.work / f"{name}.log").read_text()[-800:])
    (options.out / "networks.json").write_text(json.dumps(rows) + "\n")


def lengths(options: argparse.Namespace) -> None:
    """Mean certified length of each network's bands at 0.05, 256 images calibrating, over 6 draws."""
    import pixelbounds as pb

    shown = pictures(options.data, options.images, whole=True)
    truth = shown["measured"].astype(np.float32) / 255
    for file in sorted(options.out.glob("bands-*.npz")):
        with np.load(file) as stored:
            lower, upper = (stored[part].astype(np.float32) / 2048 for part in ("lower", "upper"))
        found = []
        for seed in range(6):
            order = np.random.default_rng(seed).permutation(len(truth))
            fit, rest = order[: 2 * len(truth) // 3], order[2 * len(truth) // 3 :]
            cal = pb.calibrate(truth[fit], pb.Band(lower[fit], upper[fit]), risk_level=0.05, failure_prob=0.1)
            found.append(pb.evaluate(truth[rest], cal.apply(pb.Band(lower[rest], upper[rest]))).mean_length)
        print(file.stem, f"{np.mean(found):.4f} +- {np.std(found) / 6**0.5:.4f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("does", choices=("all", "one", "whole", "lengths"))
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/networks"))
    parser.add_argument("--seconds", type=float, default=45)
    parser.add_argument("--images", type=int, default=384)
    parser.add_argument("--until", type=float, default=535)
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    if options.does in ("one", "whole"):
        {"one": one, "whole": whole}[options.does](options.names[0], options)
    else:
        {"all": everything, "lengths": lengths}[options.does](options)


if __name__ == "__main__":
    main()
