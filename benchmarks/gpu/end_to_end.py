"""The paper's way and ours on the same images, each with its seconds of a GPU counted: training, sampling, bands.

    python -m benchmarks.gpu.end_to_end ct64 ours --data local/gpu/ct64.npz --out $OUT --seconds 70 --members 3
    python -m benchmarks.gpu.end_to_end ct64 paper --data local/gpu/ct64.npz --out $OUT --seconds 150
    python -m benchmarks.gpu.end_to_end ct64 collect --data local/gpu/ct64.npz --out DIR --file local/gpu/ct64_ours.npz

Sets are `ct64`, `faces64` (`benchmarks.gpu.generalise images`) and `chest128` (`benchmarks.gpu.chest images`); images
that train, that choose the average of ours, and that are measured are disjoint by scan or patient.

ours     networks of other seeds, EDM's weights of noise levels, each stopped where validation images are best; samples
         by `heun` in 12 steps with the score of the first network, and with the mean of all; calibrated quantiles at
         miscoverage 0.1
paper    one network with the paper's weights, trained to the end, its last average; 128 samples of Algorithm 3 as
         printed; calibrated quantiles at the paper's miscoverage

Bands of the first samples alone come along: they cost their share of the seconds. Ends are multiples of 1 / 2048 in
[0, 1], rounded outward; files of some images are written as the call goes, at most 16 MiB each. Coverage of a further
draw, misses and PSNR are measured on the device. Compiling is not of a way's seconds; with `--compiled` its products
come back, and a later machine need not compile again. torch, numpy and safetensors are all that it needs.
"""

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
from pixelbounds.diffusion import VESDE, NCSNpp, Reduction, configuration, sample
from pixelbounds.diffusion.batches import AUGMENTATIONS
from pixelbounds.diffusion.checkpoint import save_network
from pixelbounds.diffusion.ensemble import Ensemble, compiled
from pixelbounds.diffusion.posterior import in_bfloat16
from pixelbounds.diffusion.trainer import Settings, Trained, score_matching, train, weighted_matching

from . import chest
from .coded_bands import CodedBands, decoded
from .generalise import SETS, Set, codes, parts
from .speed import peak, timed

Array = np.ndarray
KNOWN = SETS | {"chest128": Set("images", (0.0, 1.0), 1.0, chest.SIGMA, 0, 128)}
OURS = 0.1  # miscoverage
PAPER = {"ct64": 0.2, "faces64": 0.1, "chest128": 0.1}
MOST = 16 * 2**20  # bytes of a file that comes back
FIRST = {"ours": (19, 39, 79), "paper": (32, 64, 128)}  # samples whose bands come along


# ---------------------------------------------------------------- images


@dataclass(frozen=True)
class Pictures:
    """Images in 8 bits: those that train, that validate, and that are measured, with numbers and units of the last."""

    train: Array
    validation: Array
    measured: Array
    numbers: Array
    unit: Array

    @property
    def truth(self) -> Array:
        """The measured images in [0, 1], float32."""
        return self.measured.astype(np.float32) / 255


def pictures(name: str, data: str | Path, count: int) -> Pictures:
    """The images of a set; `count` of those that are set aside are measured."""
    with np.load(data) as file:
        images = file[KNOWN[name].key]
        unit = file["patients"] if name == "chest128" else file["scan"]
    if name == "chest128":
        numbers = chest.split(unit)
        own = numbers["train"], numbers["validation"], numbers["measured"][:count]
    else:
        cut = parts(name, "confirm", unit, count)
        own = cut.train, cut.validation, cut.measured
    learnt, unseen, measured = own
    return Pictures(images[learnt], images[unseen], images[measured], measured, unit[measured])


def observe(shown: Pictures, data: Set) -> Array:
    """Noisy views of the measured images within the limits of the set, float32; an image has a noise of its own."""
    low, high = data.limits
    noise = [np.random.default_rng([13, int(i)]).standard_normal((data.size,) * 2, np.float32) for i in shown.numbers]
    return shown.truth * np.float32(high - low) + np.float32(low) + np.float32(data.sigma_0) * np.stack(noise)


# ---------------------------------------------------------------- networks


class Bench:
    """Images, process and figures of one call."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.data = options, KNOWN[options.set]
        self.shown = pictures(options.set, options.data, options.images)
        self.begin = time.monotonic()
        if options.compiled and Path(options.compiled).exists():
            torch.compiler.load_cache_artifacts(Path(options.compiled).read_bytes())
        self.sde = VESDE(0.01, self.data.sigma_max)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        low, high = self.data.limits
        self.deviation = float((self.shown.train.astype(np.float32) / 255 * (high - low)).std())
        self.config = configuration(options.network, size=self.data.size, blocks=options.blocks, dropout=0.1)
        torch.manual_seed(0)
        torch.set_float32_matmul_precision("high")
        self.network = NCSNpp(self.config)
        self.figures: dict[str, Any] = {
            "set": options.set, "way": options.does, "commit": options.commit, "torch": torch.__version__,
            "device": torch.cuda.get_device_name() if self.device.type == "cuda" else "cpu",
            "network": options.network, "blocks": options.blocks, "sigma_0": self.data.sigma_0,
            "parameters": sum(x.numel() for x in self.network.parameters()),
            "images": {part: len(getattr(self.shown, part)) for part in ("train", "validation", "measured")},
            "units": len(np.unique(self.shown.unit)), "training": [], "bands": [],
        }  # fmt: skip

    def keep(self) -> None:
        """Write the figures so far."""
        self.figures["call_seconds"] = round(time.monotonic() - self.begin, 1)
        (self.out / "figures.json").write_text(json.dumps(self.figures) + "\n")

    def fit(self, seed: int, *, paper: bool) -> nn.Module:
        """Train a fresh network of this seed in the place of the last one; its average."""
        torch.manual_seed(seed)
        self.network.load_state_dict(NCSNpp(self.config).state_dict())
        self.network.requires_grad_()
        options = self.options
        settings = Settings(
            seconds=options.seconds, steps=options.steps, batch=options.batch, learning_rate=1e-3, warmup=200,
            sigma_top=min(1.1 * self.data.sigma_0, self.data.sigma_max), augment=AUGMENTATIONS["some_rotations"],
            compile=options.compile, patience=None, seed=seed, checkpoint_every=10**9, log_every=100,
        )  # fmt: skip
        curve: list[dict[str, Any]] = []
        done = train(
            self.network, self.shown.train, score_matching if paper else weighted_matching(self.deviation),
            sde=self.sde, settings=settings, limits=self.data.limits, device=self.device,
            validation=None if paper else self.shown.validation, progress=curve.append,
        )  # fmt: skip
        self._told(done, seed, curve)
        return done.network  # type: ignore[no-any-return]

    def _told(self, done: Trained, seed: int, curve: list[dict[str, Any]]) -> None:
        looks = [[x["step"], round(x["loss"], 5), round(x["validation"], 5)] for x in curve if "validation" in x]
        told = {
            "seed": seed, "seconds": round(done.seconds, 1), "steps": done.step, "best_step": done.best,
            "loss": done.loss, "trivial_loss": done.trivial, "curve": looks,
            "images_per_second": round(done.step * self.options.batch / done.seconds),
        }  # fmt: skip
        self.figures["training"].append(told)
        self.keep()
        print(json.dumps({key: value for key, value in told.items() if key != "curve"}), flush=True)

    def ready(self, networks: Sequence[nn.Module]) -> nn.Module:
        """The mean score of networks, in copies that trained nothing: those that did were compiled for training."""
        fresh = [NCSNpp(self.config).to(self.device, memory_format=torch.channels_last) for _ in networks]
        for copy, network in zip(fresh, networks, strict=True):
            copy.load_state_dict(network.state_dict())
        score = Ensemble(fresh).eval().requires_grad_(False)
        return compiled(score) if self.options.compile else score

    def warm(self, score: nn.Module, batch: int) -> None:
        """Compile for the shape that will be drawn with."""
        begin = time.monotonic()
        x = torch.zeros(batch, 1, self.data.size, self.data.size, device=self.device)
        level = torch.full((batch,), self.data.sigma_0, device=self.device)
        with torch.no_grad(), in_bfloat16(x, True):
            for _ in range(2):
                score(x, level)
            self._wait()
            print(f"sampling was compiled in {time.monotonic() - begin:.1f} s", flush=True)
            if self.device.type == "cuda":
                self.figures["speed"] = self._speed(lambda: score(x, level), batch)
                print(json.dumps(self.figures["speed"]), flush=True)
        if self.options.compiled:
            artifacts = torch.compiler.save_cache_artifacts()
            if artifacts is not None and len(artifacts[0]) < MOST:
                (self.out / "compiled.bin").write_bytes(artifacts[0])

    def _speed(self, evaluate: Callable[[], object], batch: int) -> dict[str, float]:
        """Evaluations a second, and their share of the matrix peak that is measured beside them."""
        plain = NCSNpp(self.config).to(self.device).eval()
        with FlopCounterMode(display=False) as counter:
            plain(torch.zeros(1, 1, self.data.size, self.data.size, device=self.device), torch.ones(1).to(self.device))
        flops = counter.get_total_flops()
        rate = batch / timed(evaluate, 10)
        top = peak()
        return {"batch": batch, "evaluations": rate, "flops": flops, "peak": top, "share": rate * flops / top}

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def draw(self, label: str, score: nn.Module, *, seed: int = 0, images: int | None = None, **how: Any) -> None:
        """Draw samples of the measured images, keep bands of the first of them, and say what it took."""
        paper = how.get("sampler") is not None
        a = PAPER[self.options.set] if paper else OURS
        most = max(self.options.first)
        fresh = 0 if paper else 1
        count = len(self.shown.truth) if images is None else images
        y = torch.from_numpy(observe(self.shown, self.data)[:count])[:, None].to(self.device)
        truth = torch.from_numpy(self.shown.truth[:count])[:, None].to(self.device)
        low, high = self.data.limits
        reductions = {m: Reduction(calibrated_ranks(m, a)) for m in self.options.first}
        seen: dict[str, list[Any]] = {"psnr": []} | {
            f"{key} {m}": [] for m in reductions for key in ("missed", "fresh")
        }

        def reduce(draws: Tensor) -> dict[int, tuple[Array, Array]]:
            ends = {}
            at = len(seen["psnr"])
            unit = (draws - low) / (high - low)
            for m, reduction in reductions.items():
                band = reduction(unit[:m])
                assert band.lower is not None
                assert band.upper is not None
                lower, upper = band.lower.clamp(0, 1), band.upper.clamp(0, 1)
                seen[f"missed {m}"].append(((truth[at] < lower) | (truth[at] > upper)).float().mean())
                if fresh:
                    inside = (unit[most] >= band.lower) & (unit[most] <= band.upper)
                    seen[f"fresh {m}"].append(inside.float().mean())
                ends[m] = codes(lower[0].float().cpu().numpy(), upper[0].float().cpu().numpy())
            mean = unit[:most].mean(0).clamp(0, 1)
            seen["psnr"].append(-10 * (mean - truth[at]).square().mean().log10())
            return ends

        kept = CodedBands(self.out, label, self.shown.numbers, self.options.per_file)
        begin = time.monotonic()
        for ends in sample(
            score, y, self.data.sigma_0, self.sde, samples=most + fresh, seed=seed, reduce=reduce,
            image_ids=self.shown.numbers[:count], batch=self.options.draw_batch, **how,
        ):  # fmt: skip
            if images is None:
                kept.add(ends)
            if time.monotonic() - self.begin > self.options.until:
                print("the time of the call is up", flush=True)
                break
        kept.write()
        self._wait()
        drawn = len(seen["psnr"])
        told: dict[str, Any] = {
            "label": label, "seed": seed, "images": drawn, "samples": most, "miscoverage": a, **how,
            "seconds": round((time.monotonic() - begin) * most / (most + fresh), 2),
            "psnr": float(torch.stack(seen["psnr"]).mean()),
        }  # fmt: skip
        for m in reductions:
            told[f"miss_rate_{m}"] = float(torch.stack(seen[f"missed {m}"]).mean())
            if fresh:
                each = torch.stack(seen[f"fresh {m}"]).double()
                ranks = calibrated_ranks(m, a)
                told[f"coverage_{m}"] = float(each.mean())
                told[f"coverage_error_{m}"] = float(each.std() / len(each) ** 0.5)
                told[f"coverage_expected_{m}"] = (ranks[1] - ranks[0]) / (m + 1)
        self.figures["bands"].append(told)
        self.keep()
        print(json.dumps(told), flush=True)


# ---------------------------------------------------------------- the two ways


def ours(options: argparse.Namespace) -> None:
    """Some networks, samples with the first and with the mean of all, and a second seed for the coverage."""
    bench = Bench(options)
    members = []
    for seed in range(options.members):
        members.append(bench.fit(seed, paper=False))
        members[-1].requires_grad_(False)
        if options.bring_network:
            known = {"sigma_0": bench.data.sigma_0, "sigma_top": 1.1 * bench.data.sigma_0, "limits": bench.data.limits}
            save_network(bench.out / "network.safetensors", members[-1], bench.sde, "score", known, dtype=torch.float16)
    one = bench.ready(members[:1])
    bench.warm(one, options.draw_batch)
    bench.draw("ours-1", one)
    bench.draw("again", one, seed=1, images=min(256, len(bench.shown.truth)))
    if len(members) > 1:
        bench.draw(f"ours-{len(members)}", bench.ready(members))


def paper(options: argparse.Namespace) -> None:
    """One network and Algorithm 3."""
    bench = Bench(options)
    one = bench.ready([bench.fit(0, paper=True)])
    bench.warm(one, options.draw_batch)
    bench.draw("paper", one, sampler="euler_maruyama", steps=options.printed_steps)


# ---------------------------------------------------------------- back home


def collect(options: argparse.Namespace) -> None:
    """What a call brought back as one npz: truth, unit, and LABEL/M/lower and /upper of every band; its figures."""
    folder = Path(options.out)
    figures = json.loads((folder / "figures.json").read_text())
    shown = pictures(options.set, options.data, figures["images"]["measured"])
    kept: dict[str, Array] = {}
    count = len(shown.numbers)
    for told in figures["bands"]:
        for m, numbers, lower, upper in decoded(folder, told["label"]):
            if not np.array_equal(numbers, shown.numbers[: len(numbers)]):
                raise SystemExit(f"{folder}: {told['label']} is of other images; was it another split?")
            count = min(count, len(numbers))
            kept |= {f"{told['label']}/{m}/lower": lower, f"{told['label']}/{m}/upper": upper}
    kept = {name: x[:count] for name, x in kept.items()}
    np.savez(
        options.file, truth=shown.truth[:count], unit=shown.unit[:count], numbers=shown.numbers[:count],
        figures=np.array(json.dumps(figures)), **kept,  # type: ignore[arg-type]
    )  # fmt: skip
    print(options.file, count, "images:", ", ".join(sorted({name.rsplit("/", 1)[0] for name in kept})))


def main() -> None:
    """Run a way on the device, or collect what it brought."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=KNOWN)
    parser.add_argument("does", choices=("ours", "paper", "collect"))
    parser.add_argument("--data", required=True, help="the npz of images")
    parser.add_argument("--out", default=".", help="folder for what comes back; collect: where it lies")
    parser.add_argument("--file", help="collect: the npz to write")
    parser.add_argument("--images", type=int, default=640, help="that are measured")
    parser.add_argument("--network", default="small")
    parser.add_argument("--blocks", type=int, default=1)
    parser.add_argument("--members", type=int, default=1, help="ours: networks")
    parser.add_argument("--seconds", type=float, help="to train a network, without compiling")
    parser.add_argument("--steps", type=int, help="or steps to train")
    parser.add_argument("--batch", type=int, default=256, help="of training")
    parser.add_argument("--draw-batch", type=int, default=1024, help="samples in the network at a time")
    parser.add_argument("--first", type=int, nargs="*", help="numbers of samples whose bands come along")
    parser.add_argument("--printed-steps", type=int, default=100, help="paper: of Algorithm 3, over [0, 1]")
    parser.add_argument("--per-file", type=int, default=220, help="images")
    parser.add_argument("--until", type=float, default=560, help="seconds of the call after which nothing is drawn")
    parser.add_argument(
        "--compiled", help="what an earlier call compiled for this set, compiled.bin of its files, or a new name"
    )
    parser.add_argument("--bring-network", action="store_true")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    options.first = options.first or FIRST.get(options.does)
    {"ours": ours, "paper": paper, "collect": collect}[options.does](options)


if __name__ == "__main__":
    main()
