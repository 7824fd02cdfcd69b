"""One way of `reproduce.gpu.end_to_end`: its images, networks that it trains, bands and arrays that it keeps."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from pixelbounds.bands import calibrated_ranks
from pixelbounds.diffusion import VESDE, Reduction, configuration, network_of, sample
from pixelbounds.diffusion.batches import AUGMENTATIONS
from pixelbounds.diffusion.checkpoint import save_network
from pixelbounds.diffusion.members import Ensemble, compiled
from pixelbounds.diffusion.posterior import in_bfloat16
from pixelbounds.diffusion.trainer import Settings, Trained, score_matching, train, weighted_matching

from .measures import before_control, outward, psnr
from .sets import SETS, Set, parts, patient_parts, unpacked
from .speed import kernels, peak, timed
from .told import OURS, PAPER

Array = np.ndarray


# ---------------------------------------------------------------- images


@dataclass(frozen=True)
class Pictures:
    """Images in 8 bits: those that train, that validate, and that are measured, with numbers and units of the last.

    `learned` has the numbers of those that train.
    """

    train: Array
    validation: Array
    measured: Array
    numbers: Array
    unit: Array
    learned: Array

    @property
    def truth(self) -> Array:
        """The measured images in [0, 1], float32."""
        return self.measured.astype(np.float32) / 255


def pictures(name: str, data: str | Path, count: int) -> Pictures:
    """The images of a set, a zip; `count` of those that are set aside are measured."""
    images, unit = unpacked(Path(data), SETS[name].channels)
    cut = patient_parts(unit) if name.startswith("chest") else parts(unit, count)
    measured = cut.measured[:count]
    return Pictures(images[cut.train], images[cut.validation], images[measured], measured, unit[measured], cut.train)


def observe(shown: Pictures, data: Set) -> Array:
    """Noisy views of the measured images within the limits of the set, float32; an image has a noise of its own."""
    low, high = data.limits
    noise = [np.random.default_rng([13, int(i)]).standard_normal(data.image, np.float32) for i in shown.numbers]
    return shown.truth * np.float32(high - low) + np.float32(low) + np.float32(data.sigma_0) * np.stack(noise)


# ---------------------------------------------------------------- networks


class Bench:
    """Images, process and figures of one call."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.data = options, SETS[options.set]
        self.shown = pictures(options.set, options.data, options.images)
        self.begin = time.monotonic()
        self.sde = VESDE(0.01, self.data.sigma_max)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.out = Path(options.out[0])
        self.out.mkdir(parents=True, exist_ok=True)
        low, high = self.data.limits
        self.deviation = float((self.shown.train.astype(np.float32) / 255 * (high - low)).std())
        self.config = configuration(
            options.network, channels=self.data.channels, size=self.data.size, blocks=options.blocks,
            dropout=options.dropout, **(self.data.shape if options.network == "lean" else {}),
        )  # fmt: skip
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        self.network = network_of(self.config)
        self.figures: dict[str, Any] = {
            "set": options.set, "way": options.does, "commit": options.commit, "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu",
            "network": options.network, "blocks": options.blocks, "dropout": options.dropout,
            "sigma_0": self.data.sigma_0, "parameters": sum(x.numel() for x in self.network.parameters()),
            "images": {part: len(getattr(self.shown, part)) for part in ("train", "validation", "measured")},
            "units": len(np.unique(self.shown.unit)), "training": [], "bands": [],
        }  # fmt: skip

    def band(self, label: str, lower: Array, upper: Array, estimate: Array | None = None) -> None:
        """Misses and length of a band without samples, clipped, and the decibels of an estimate."""
        truth = self.shown.truth
        told = {"label": label, "images": len(truth), **before_control(truth, lower, upper)}
        if estimate is not None:
            told["psnr"] = psnr(estimate, truth)
        self.figures["bands"].append(told)
        self.keep()
        print(json.dumps(told), flush=True)

    def keep(self) -> None:
        """Write the figures so far."""
        self.figures["call_seconds"] = round(time.monotonic() - self.begin, 1)
        (self.out / "figures.json").write_text(json.dumps(self.figures) + "\n")

    def fit(self, seed: int, *, paper: bool, **changes: Any) -> nn.Module:
        """Train a fresh score network of this seed in the place of the last one; its average."""
        torch.manual_seed(seed)
        self.network.load_state_dict(network_of(self.config).state_dict())
        loss = score_matching if paper else weighted_matching(self.deviation)
        unseen = None if paper else self.shown.validation
        return self.trained("score", self.network, self.shown.train, loss, seed=seed, validation=unseen, **changes)

    def trained(
        self,
        kind: str,
        network: nn.Module,
        images: Array,
        loss: Any,
        *,
        seed: int = 0,
        validation: Array | None = None,
        **changes: Any,
    ) -> Any:
        """The average of a network after the call's seconds, the best one where there are validation images."""
        options = self.options
        known = {"seconds": options.seconds, "steps": options.steps, "learning_rate": 1e-3, "warmup": 200}
        settings = Settings(
            batch=options.batch, augment=AUGMENTATIONS["some_rotations"], sigma_top=self.top, seed=seed,
            patience=None, checkpoint_every=10**9, log_every=100, **({"compile": options.compile} | known | changes),
        )  # fmt: skip
        curve: list[dict[str, Any]] = []
        done = train(
            network.requires_grad_(), images, loss, sde=self.sde, settings=settings, limits=self.data.limits,
            device=self.device, validation=validation, progress=curve.append,
        )  # fmt: skip
        self._told(kind, done, seed, curve)
        return done.network

    @property
    def top(self) -> float:
        """The greatest level of noise that is trained: sampling never goes above sigma_0."""
        return min(1.1 * self.data.sigma_0, self.data.sigma_max)

    def bring(self, network: nn.Module) -> None:
        """Write a score network where it comes home from, and where a later call finds it."""
        known = {"sigma_0": self.data.sigma_0, "sigma_top": self.top, "limits": self.data.limits}
        save_network(self.out / "network.safetensors", network, self.sde, "score", known, dtype=torch.float16)

    def _told(self, kind: str, done: Trained, seed: int, curve: list[dict[str, Any]]) -> None:
        looks = [[x["step"], round(x["loss"], 5), round(x["validation"], 5)] for x in curve if "validation" in x]
        told = {
            "kind": kind, "seed": seed, "seconds": round(done.seconds, 1), "steps": done.step, "best_step": done.best,
            "loss": done.loss, "trivial_loss": done.trivial, "curve": looks,
            "images_per_second": round(done.step * self.options.batch / done.seconds),
        }  # fmt: skip
        self.figures["training"].append(told)
        self.keep()
        print(json.dumps({key: value for key, value in told.items() if key != "curve"}), flush=True)

    def ready(self, count: int = 1) -> nn.Module:
        """The mean score of so many networks, to be filled: those that train were compiled for training."""
        fresh = [network_of(self.config).to(self.device, memory_format=torch.channels_last) for _ in range(count)]
        score = Ensemble(fresh).eval().requires_grad_(False)
        return compiled(score) if self.options.compile else score

    @staticmethod
    def fill(score: Any, networks: Sequence[nn.Module]) -> nn.Module:
        """Give a score of `ready` the weights of networks."""
        for copy, network in zip(getattr(score, "_orig_mod", score).members, networks, strict=True):
            copy.load_state_dict(network.state_dict())
        return score

    def turn(self) -> None:
        """Say that all is compiled, and wait for the turn on the GPU: each way is timed alone there."""
        (self.out / "compiled").touch()
        while self.options.wait is not None and not Path(self.options.wait).exists():
            time.sleep(0.2)
        self.begin = time.monotonic()

    def warm(self, score: nn.Module, paper: bool) -> None:
        """Compile training, and sampling for the shape that will be drawn with, then wait for the turn.

        cuDNN may search its convolutions where that is faster.
        """
        begin, batch = time.monotonic(), self.options.draw_batch
        x = torch.zeros(batch, self.data.channels, self.data.size, self.data.size, device=self.device)
        level = torch.full((batch,), self.data.sigma_0, device=self.device)
        if self.options.compile:
            kept, self.figures["training"] = self.figures["training"], []
            self.fit(0, paper=paper, steps=2, seconds=None)
            self.figures["training"] = kept
            print(f"training was compiled in {time.monotonic() - begin:.1f} s", flush=True)
            begin = time.monotonic()
        with torch.no_grad(), in_bfloat16(x, True):
            for _ in range(2):
                score(x, level)
            self._wait()
            self.figures["sampling_compiled"] = round(time.monotonic() - begin, 1)
            print(f"sampling was compiled in {self.figures['sampling_compiled']} s", flush=True)
            self.turn()
            if self.device.type == "cuda":
                self.figures["speed"] = self._speed(lambda: score(x, level), batch)
                print(json.dumps(self.figures["speed"]), flush=True)
                for milliseconds, count, name in kernels(lambda: score(x, level)):
                    print(f"{milliseconds:9.2f} ms x{count:4d} {name}", flush=True)

    def _speed(self, evaluate: Callable[[], object], batch: int) -> dict[str, float]:
        """Evaluations a second, and their share of the matrix peak that is measured beside them."""
        plain = network_of(self.config).to(self.device).eval()
        with FlopCounterMode(display=False) as counter:
            one = torch.zeros(1, self.data.channels, self.data.size, self.data.size, device=self.device)
            plain(one, torch.ones(1, device=self.device))
        flops = counter.get_total_flops()
        rates = {}
        for searched in (False, True):
            torch.backends.cudnn.benchmark = searched
            rates[searched] = batch / timed(evaluate, 10)
        torch.backends.cudnn.benchmark = rates[True] > rates[False]
        rate, top = max(rates.values()), peak()
        found = {"batch": batch, "evaluations": rate, "flops": flops, "peak": top, "share": rate * flops / top}
        return found | {"evaluations_as_given": rates[False], "evaluations_searched": rates[True]}

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def draw(self, label: str, score: nn.Module, **how: Any) -> None:
        """Draw samples of the measured images, keep the arrays of an experiment, and say what it took."""
        m, a = self.options.samples, PAPER[self.options.set] if label == "paper" else OURS
        shape = (-1, self.data.channels, *self.data.image[-2:])
        y = torch.from_numpy(observe(self.shown, self.data).reshape(shape)).to(self.device)
        truth = torch.from_numpy(self.shown.truth.reshape(shape)).to(self.device)
        low, high = self.data.limits
        reduction = Reduction(calibrated_ranks(m, a))
        seen: dict[str, list[Tensor]] = {"psnr": [], "missed": [], "fresh": []}
        whole = Whole(m, PAPER[self.options.set], label, self.data.image)

        def reduce(draws: Tensor) -> None:
            unit, x = (draws - low) / (high - low), truth[len(seen["psnr"])]
            band = reduction(unit[:m])
            assert band.lower is not None
            assert band.upper is not None
            seen["missed"].append(((x < band.lower.clamp(0, 1)) | (x > band.upper.clamp(0, 1))).float().mean())
            seen["fresh"].append(((unit[m] >= band.lower) & (unit[m] <= band.upper)).float().mean())
            seen["psnr"].append(-10 * (unit[:m].mean(0).clamp(0, 1) - x).square().mean().log10())
            whole.add(unit)

        begin = time.monotonic()
        for _ in sample(
            score, y, self.data.sigma_0, self.sde, samples=m + 1, reduce=reduce, image_ids=self.shown.numbers,
            batch=self.options.draw_batch, **how,
        ):  # fmt: skip
            if time.monotonic() - self.begin > self.options.until:
                raise SystemExit(f"{len(seen['psnr'])} images are drawn, and the time is up: draw fewer")
        self._wait()
        each, ranks = torch.stack(seen["fresh"]).double(), calibrated_ranks(m, a)
        told = {
            "label": label, "images": len(each), "samples": m, "miscoverage": a, **how,
            "seconds": round((time.monotonic() - begin) * m / (m + 1), 2),
            "psnr": float(torch.stack(seen["psnr"]).mean()),
            f"miss_rate_{m}": float(torch.stack(seen["missed"]).mean()),
            f"coverage_{m}": float(each.mean()), f"coverage_error_{m}": float(each.std() / len(each) ** 0.5),
            f"coverage_expected_{m}": (ranks[1] - ranks[0]) / (m + 1),
        }  # fmt: skip
        whole.write(self.out)
        self.figures["bands"].append(told)
        self.keep()
        print(json.dumps(told), flush=True)


class Whole:
    """Arrays of an experiment (`reproduce.material`) from all samples of each image, in float16.

    `ours` has the ends at our miscoverage too, where the paper's is another.
    """

    def __init__(self, samples: int, miscoverage: float, label: str, image: tuple[int, ...]) -> None:
        self.prefix, self.image = "printed_" if label == "paper" else "", image
        self.names = ("lower", "upper", "fresh")
        self.names += () if label == "paper" else ("naive_lower", "naive_upper", "mean", "deviation")
        probabilities = (miscoverage / 2, 1 - miscoverage / 2)
        self.reduction = Reduction(calibrated_ranks(samples, miscoverage), probabilities, held_out=1)
        both = label != "paper" and miscoverage != OURS
        self.second = Reduction(calibrated_ranks(samples, OURS), held_out=1) if both else None
        self.found: dict[str, list[Array]] = {}

    def add(self, unit: Tensor) -> None:
        """Reduce the samples of the next image, and the one that is held out."""
        self._keep(self.reduction(unit), self.names, "")
        if self.second is not None:
            self._keep(self.second(unit), ("lower", "upper"), "ours_")

    def _keep(self, draws: Any, names: Sequence[str], prefix: str) -> None:
        for name in names:
            x = draws.held_out if name == "fresh" else getattr(draws, name)
            self.found.setdefault(prefix + name, []).append(x.reshape(self.image).float().cpu().numpy())

    def write(self, out: Path) -> None:
        """A file for each array; ends are rounded outward."""
        arrays = {name: np.stack(x) for name, x in self.found.items()}
        for kind in ("", "naive_", "ours_"):
            if f"{kind}lower" in arrays:
                ends = outward(arrays[f"{kind}lower"], arrays[f"{kind}upper"])
                arrays |= {f"{kind}lower": ends[0], f"{kind}upper": ends[1]}
        write_arrays(out, {f"{self.prefix}{name}": x for name, x in arrays.items()})


def write_arrays(out: Path, arrays: dict[str, Array]) -> None:
    """A file for each array of the material: in float16, and labels as they are."""
    for name, x in arrays.items():
        np.save(out / f"array-{name}.npy", x if x.dtype == np.uint8 else x.astype(np.float16))
