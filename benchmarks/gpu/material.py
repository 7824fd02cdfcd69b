"""One process's share of `benchmarks.gpu.posterior`: what it trains, and the arrays and figures that it keeps."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from copy import deepcopy
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pixelbounds.diffusion import VESDE, NetworkConfig, configuration
from pixelbounds.diffusion.batches import some_rotations
from pixelbounds.diffusion.checkpoint import save_network
from pixelbounds.diffusion.session import Progress
from pixelbounds.diffusion.trainer import Settings, train

from .measures import covered
from .pictures import DATA, observe, pictures


def shown(every: float = 10.0) -> Progress:
    """Progress as plain lines, a few seconds apart."""
    last = [-every]

    def show(line: dict[str, Any]) -> None:
        if line["seconds"] >= last[0] + every:
            last[0] = line["seconds"]
            numbers = {name: round(x, 4) for name, x in line.items() if name not in ("gradient_norm", "done")}
            print(json.dumps(numbers), flush=True)

    return show


class Run:
    """One process's share of the work: networks that it trains, arrays and figures that it keeps."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.options, self.data = name, options, DATA[name]
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.pictures = pictures(name, options)
        self.rows = options.rows
        part = slice(None) if self.rows is None else self.rows
        self.truth, self.y = self.pictures.truth[part], observe(self.pictures.truth, self.data)[part]
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.sde = VESDE(0.01, self.data.sigma_max)
        self.figures: dict[str, Any] = {
            "data": name, "commit": options.commit, "torch": torch.__version__, "sigma_0": self.data.sigma_0,
            "limits": self.data.limits,
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu",
            "images": {part: len(getattr(self.pictures, part)) for part in ("train", "tune", "held_out")},
        }  # fmt: skip
        torch.manual_seed(0)

    def network(self) -> NetworkConfig:
        """The configuration; with dropout, as in the paper, since training images are few."""
        changes = dict(self.data.network)
        return configuration(changes.pop("name"), size=self.truth.shape[-1], dropout=0.1, **changes)

    def fit(
        self,
        what: str,
        network: torch.nn.Module,
        on: np.ndarray,
        seconds: float,
        rate: float,
        loss: Any,
        compile: bool = False,
        warmup: int = 200,
    ) -> Any:
        """Train a network for some seconds; compiling takes a minute or two first, and pays for long runs."""
        settings = Settings(
            seconds=seconds, batch=self.options.batch, learning_rate=rate, warmup=warmup, sigma_top=self.top,
            augment=some_rotations, compile=compile, checkpoint_every=1000, log_every=200,
        )  # fmt: skip
        if compile:
            check_compiled(network, self.truth.shape[-1])
        begin = time.monotonic()
        done = train(
            network, on, loss, sde=self.sde, settings=settings, limits=self.data.limits, device=self.device,
            validation=None if on is self.pictures.tune else self.pictures.tune, progress=shown(),
        )  # fmt: skip
        self.say(what, {**done.last, "wall_seconds": round(time.monotonic() - begin, 1),
                        "parameters": sum(p.numel() for p in network.parameters())})  # fmt: skip
        return done.network

    @property
    def top(self) -> float:
        """The largest noise level of training: sampling never goes above sigma_0."""
        return min(1.1 * self.data.sigma_0, self.data.sigma_max)

    @property
    def ranks(self) -> tuple[int, int]:
        """Order statistics of the samples that make the calibrated quantiles."""
        rank = int((self.options.samples + 1) * Fraction(self.data.miscoverage) / 2)
        return rank, self.options.samples + 1 - rank

    def unit(self, x: torch.Tensor | np.ndarray) -> np.ndarray:
        """Images in [0, 1] units, (n, h, w)."""
        low, high = self.data.limits
        array = x.float().cpu().numpy() if isinstance(x, torch.Tensor) else x
        return (array.reshape(self.truth.shape) - low) / (high - low)

    def keep(self, **arrays: np.ndarray) -> None:
        """Write arrays as float16, a file each, with the figures so far; some of them come home from this call."""
        text = np.array(json.dumps(self.figures))
        folder = Path(self.options.keep) / "arrays"
        folder.mkdir(parents=True, exist_ok=True)
        for name, x in arrays.items():
            told = name if self.rows is None else f"{name}@{self.rows.start}"
            np.savez(folder / f"{self.name}-{told}.npz", figures=text, **{told: x.astype(np.float16)})
            if not self.options.bring or name in self.options.bring:
                shutil.copy(folder / f"{self.name}-{told}.npz", self.out)

    def kept(self, kind: str) -> Path:
        """Where a network waits on this machine for the next part."""
        return Path(self.options.keep) / f"{self.name}-{kind}.safetensors"

    def save(self, kind: str, network: torch.nn.Module, kept: Path) -> None:
        """Keep a network on this machine, and where it was trained on phantoms, which may be shown, bring it home."""
        kept.parent.mkdir(parents=True, exist_ok=True)
        for path in [kept, *([self.out / f"{kind}.safetensors"] if self.name == "phantom" else [])]:
            known = {"sigma_0": self.data.sigma_0, "sigma_top": self.top, "limits": self.data.limits}
            save_network(path, network, self.sde, kind, known, dtype=torch.float16)

    def say(self, what: str, figures: dict[str, Any]) -> None:
        """Remember some figures and print them."""
        self.figures[what] = figures
        print(self.name, what, json.dumps(figures), flush=True)

    def coverage(self, stack: dict[str, np.ndarray]) -> dict[str, float]:
        """How often a further draw falls into the band, and how often it does on average."""
        return {
            "coverage_of_fresh_draw": float(covered(stack["held_out"], stack["lower"], stack["upper"]).mean()),
            "exact_coverage": float(Fraction(self.ranks[1] - self.ranks[0], self.options.samples + 1)),
        }


def check_compiled(network: torch.nn.Module, size: int) -> None:
    """Refuse a network that compiles to several graphs, or to other gradients: either was silent, and costly."""
    torch.manual_seed(0)
    network, x, sigma = deepcopy(network).eval(), torch.randn(2, 1, size, size), torch.ones(2)
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.1)  # layers that start at 0 would hide what lies behind them
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    weights = dict(network.named_parameters())
    plain, other = (
        torch.autograd.grad(f(x, sigma).square().sum(), list(weights.values())) for f in (network, compiled)
    )
    for name, a, b in zip(weights, plain, other, strict=True):
        if not torch.allclose(a, b, rtol=0.01, atol=1e-3 * float(a.abs().max())):
            raise RuntimeError(f"compiled with torch {torch.__version__}, the gradient of {name} is wrong")
    torch.compiler.reset()
