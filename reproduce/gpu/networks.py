"""Networks side by side on a GPU: rates, compiling, training for equal seconds, certified lengths, a run as a whole.

    python -m reproduce.gpu.networks all --data local/gpu/ct_64.zip --out $OUT [--seconds 45 --until 400] [NAMES]

Each network has a process of its own. Two compile at once; then each is timed alone, those that train do so in turn,
and `whole` runs some from start to finish with nothing compiled before: 400 observations, 39 samples, bands in a file.
`azula` and `diffusers` are U-nets of these packages with the widths of `small`, where PYTHONPATH finds them.
networks.json is written after every part. Nothing here touches held-out scans: a default may follow from it. Without a
GPU everything is a toy, to try it.
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

import pixelbounds as pb
from pixelbounds.bands import calibrated_ranks
from pixelbounds.diffusion import VESDE, Reduction, compiled, configuration, network_of, sample
from pixelbounds.diffusion.batches import AUGMENTATIONS
from pixelbounds.diffusion.network import Fourier
from pixelbounds.diffusion.posterior import in_bfloat16
from pixelbounds.diffusion.trainer import Settings, train, weighted_matching
from reproduce.splits import split_images

from .sets import unpacked
from .speed import peak, timed

Array = np.ndarray
CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"
SDE, SIGMA = VESDE(0.01, 1.0), 0.4
SAMPLES, MISCOVERAGE, BATCH = 39, 0.1, 256 if CUDA else 8
SHAPES = {64: 1024, 128: 256} if CUDA else {32: 8}
NAMES = ("lean", "small", "azula", "diffusers")  # the last two: their own U-nets with the widths of `small`
TRAINED = ("lean", "small", "azula")
WHOLE = (("lean", "cold"), ("lean", "warm"), ("azula", "cold"), ("small", "cold"))
AT_ONCE = 2  # that compile
DRAWS = 20


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
    return network_of(configuration(name, size=64) if CUDA else configuration(name, size=32, base=8))


def pictures(file: str, count: int, whole: bool = CUDA) -> dict[str, Array]:
    """Images that train, that validate, and that are measured: those for development, with their numbers."""
    images, scan = unpacked(Path(file), 1)
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
    """Compile, be timed when it is this network's turn, train, sample; what is found is written after every part."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    network = fresh(name).to(DEVICE)
    probe = fresh(name).to(DEVICE, memory_format=torch.channels_last).eval().requires_grad_(False)
    for weight in probe.parameters():
        nn.init.normal_(weight, std=0.05)
    fast = compiled(probe) if options.compile else probe
    shown = pictures(options.data, options.images)
    figures: dict[str, Any] = {"parameters": sum(x.numel() for x in probe.parameters())}

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

    wait(options.work / f"compile-{name}")
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
    keep("timed")
    if name not in TRAINED:
        return
    wait(options.work / f"train-{name}")
    network.load_state_dict(first)
    done = fit(**({"seconds": options.seconds} if CUDA else {"steps": 4}))
    probe.load_state_dict(done.network.state_dict())
    torch.save(probe.state_dict(), options.work / f"{name}.pt")
    keep("trained", seconds=done.seconds, steps=done.step, best=done.best, loss=done.loss)
    draw(fast, shown, keep)


def draw(fast: nn.Module, shown: dict[str, Array], keep: Any) -> None:
    """Sample the measured images: how often bands hold a fresh draw, and their certified length."""
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
    taken = round(time.monotonic() - begin, 2)
    inside = ((new >= lower) & (new <= upper)).mean((1, 2))
    keep(
        "done", sampling_seconds=taken, fresh=float(inside.mean()), lengths=lengths(truth, pb.Band(lower, upper)),
        compiled_in_sampling=torch._dynamo.utils.counters["stats"]["unique_graphs"] - before,
        fresh_error=float(inside.std() / len(inside) ** 0.5), missed=float(((truth < lower) | (truth > upper)).mean()),
        psnr=float(-10 * np.log10(((mean.clip(0, 1) - truth) ** 2).mean((1, 2))).mean()),
    )  # fmt: skip


def lengths(truth: Array, band: pb.Band) -> list[float]:
    """Mean certified length at 0.05, two thirds of the images calibrating, draw by draw."""
    found, count = [], 2 * len(truth) // 3
    for seed in range(DRAWS if CUDA else 2):
        fit, rest = np.split(np.random.default_rng(seed).permutation(len(truth)), [count])
        cal = pb.calibrate(
            truth[fit], band[fit], risk_level=0.05 if CUDA else 0.5, failure_prob=0.1, method=pb.Frontier("band")
        )
        found.append(float(pb.evaluate(truth[rest], cal.apply(band[rest])).mean_length))
    return found


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


def wait(mark: Path) -> None:
    """Until a file is there."""
    while not mark.exists():
        time.sleep(0.1)


class Session:
    """The processes of all networks, and what they found so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.begin, self.whole = options, time.monotonic(), {}
        self.words = ["--data", options.data, "--work", str(options.work), "--seconds", str(options.seconds)]
        self.words += ["--images", str(options.images)] + ([] if options.compile else ["--no-compile"])
        self.running = {name: self.start(name) for name in options.names}

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """A process that waits for its turns; its programs are its own, so that none finds another's."""
        own = {"TORCHINDUCTOR_COMPILE_THREADS": "4", "TORCHINDUCTOR_CACHE_DIR": str(self.options.work / name)}
        command = [sys.executable, "-m", __spec__.name, "one", name, *self.words]
        with (self.options.work / f"{name}.log").open("w") as log:
            return subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)

    def left(self) -> float:
        """Seconds."""
        return float(self.options.until - (time.monotonic() - self.begin))

    def ended(self, mark: str, name: str) -> bool:
        """Whether a part of a network is done, or its process has ended without it."""
        return (self.options.work / f"{mark}-{name}").exists() or self.running[name].poll() is not None

    def turn(self, name: str, turn: str, mark: str) -> None:
        """Let a network do a part, and wait for it."""
        (self.options.work / f"{turn}-{name}").touch()
        while not self.ended(mark, name) and self.left() > 0:
            time.sleep(0.1)
        self.keep(f"{name} {mark}")

    def keep(self, said: str) -> None:
        """Write what there is."""
        print(f"{self.options.until - self.left():6.1f} s: {said}", flush=True)
        about = {"torch": torch.__version__, "commit": self.options.commit, "seconds": self.options.seconds}
        about["device"] = torch.cuda.get_device_name() if CUDA else "cpu"
        files = {name: self.options.work / f"{name}.json" for name in self.running}
        found = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
        text = json.dumps({**about, "whole": self.whole, "networks": found}, indent=1)
        (self.options.out / "networks.json").write_text(text + "\n")


def everything(options: argparse.Namespace) -> None:
    """Compile a few at a time, time each alone, train in turn, and run some from start to finish."""
    session = Session(options)
    waiting, compiling = list(options.names), []
    while (waiting or compiling) and session.left() > 0:
        compiling = [name for name in compiling if not session.ended("ready", name)]
        while waiting and len(compiling) < AT_ONCE:
            compiling.append(waiting.pop(0))
            (options.work / f"compile-{compiling[-1]}").touch()
        time.sleep(0.1)
    session.keep("compiled")
    alone = options.wait is None
    while not alone and session.left() > options.until / 2:
        alone = Path(options.wait).exists()
        time.sleep(0.1)
    session.keep("alone" if alone else "NOT alone: the queues before still hold the GPU")
    for name in options.names:
        session.turn(name, "time", "timed")
    for name in options.names:
        if name in TRAINED and session.left() > options.seconds + 15:
            session.turn(name, "train", "done")
    for name, process in session.running.items():
        process.kill()
        if process.wait() > 0:
            print(name, "FAILED:", (options.work / f"{name}.log").read_text()[-1500:])
    for name, kind in WHOLE:
        if (options.work / f"{name}.pt").exists() and session.left() > 15:
            begin, cache = time.monotonic(), {"TORCHINDUCTOR_CACHE_DIR": str(options.work / f"whole-{name}")}
            command = [sys.executable, "-m", __spec__.name, "whole", name, *session.words]
            ended = subprocess.run(command, env=os.environ | cache, check=False).returncode
            session.whole |= {f"{name}, {kind}": None if ended else round(time.monotonic() - begin, 1)}
            session.keep(f"whole {name}, {kind}")
    print(json.dumps(json.loads((options.out / "networks.json").read_text()))[:8000])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("does", choices=("all", "one", "whole"))
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--data", required=True, help="the zip of ct64")
    parser.add_argument("--out", type=Path, default=Path(), help="for networks.json")
    parser.add_argument("--work", type=Path, default=Path("/tmp/networks"))
    parser.add_argument("--seconds", type=float, default=45, help="to train each")
    parser.add_argument("--images", type=int, default=384)
    parser.add_argument("--until", type=float, default=400, help="seconds after which nothing is begun")
    parser.add_argument("--wait", help="time nothing before this file is there, or half of the time is over")
    parser.add_argument("--commit", default="")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.does == "all":
        everything(options)
    else:
        {"one": one, "whole": whole}[options.does](options.names[0], options)


if __name__ == "__main__":
    main()
