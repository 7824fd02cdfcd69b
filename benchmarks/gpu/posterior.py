"""Train the networks of the paper and reduce their output to the material of its experiments, on a GPU.

    python -m benchmarks.gpu.posterior phantom phantoms --data local/phantom64.npz --out .       # at home
    python -m benchmarks.gpu.posterior faces score --out DIR        # score network
    python -m benchmarks.gpu.posterior faces draw --out DIR         # its posterior samples, N-Conffusion
    python -m benchmarks.gpu.posterior faces printed --steps 100 --out DIR      # samples of Algorithm 3 as printed
    python -m benchmarks.gpu.posterior faces regressor --out DIR    # quantile regression, MC-Dropout
    python -m benchmarks.gpu.posterior faces collect --out DIR --folder local/faces64     # back home: one folder

Several may share a GPU: while one compiles, the other computes. They write npz files as they go, float16 in units of
[0, 1], ends outward, an array each, and need torch, numpy and safetensors only; networks and arrays stay on that
machine for the next call, which may `bring` what was too much for one. `--rows` draws some of the images; `--bring
network` takes the network home, for another machine. `collect` adds truth and observation, and keeps the figures, which
may be shown, in benchmarks/results; `python -m benchmarks.gpu.page` writes them into docs/diffusion.md. README.md has
the calls.

Images are read from an npz: `faces`, or `ct` with `scan`, the scan of each slice, or the parts of phantoms. Held-out
images, and whole scans, are disjoint from those that train, and those on which this project's own defaults were
settled are never held out: `pixelbounds.diffusion.splits`, as for `pixelbounds reproduce faces64 --data FILE`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pixelbounds.diffusion import VESDE, NCSNpp, NetworkConfig, Reduction, configuration, posterior_mean, sample
from pixelbounds.diffusion.batches import some_rotations
from pixelbounds.diffusion.checkpoint import load_network, save_network
from pixelbounds.diffusion.posterior import Draws
from pixelbounds.diffusion.regression import dropout_passes, n_conffusion, predict, quantile_loss, regressor
from pixelbounds.diffusion.session import Progress
from pixelbounds.diffusion.splits import split_images
from pixelbounds.diffusion.trainer import Settings, score_matching, train


@dataclass(frozen=True)
class Data:
    """What is known of a data set; sigma_0 is a deviation (the paper's text has 0.4 as a variance)."""

    limits: tuple[float, float]
    sigma_max: float
    sigma_0: float
    miscoverage: str
    deviation: float
    network: dict[str, Any]
    tune: int  # images to fine-tune on; of CT 24 scans


# faces live in [-1, 1], CT in [0, 1], as in the paper
DATA = {
    "faces": Data((-1.0, 1.0), 90.0, 1.0, "0.1", 0.5, {"name": "small", "blocks": 2}, 1000),
    "ct": Data((0.0, 1.0), 1.0, 0.4, "0.2", 0.25, {"name": "small", "blocks": 2}, 564),
    "phantom": Data((0.0, 1.0), 1.0, 0.2, "0.2", 0.25, {"name": "tiny"}, 1024),
}
RESULTS = Path(__file__).parent.parent / "results"
HEUN_STEPS = 24  # as the plans of the experiments say
PHANTOM_SEED = 2023  # numbers from 0 are held out, those from 100,000 train, those from 200,000 fine-tune
PHANTOM_FIRST = {"held_out": 0, "train": 100_000, "tune": 200_000}


# ---------------------------------------------------------------- images


def _some_phantoms(first: int, count: int, size: int) -> np.ndarray:
    from pixelbounds.demo.phantom import phantoms

    return phantoms(count, size, PHANTOM_SEED, first=first).images


def make_phantoms(options: argparse.Namespace) -> None:
    """Phantoms of every part into an npz, at home: the training images in 8 bits, the held-out ones as they are."""
    counts, out = {"held_out": options.images, "train": options.phantoms, "tune": DATA["phantom"].tune}, {}
    for part, count in counts.items():
        starts = range(PHANTOM_FIRST[part], PHANTOM_FIRST[part] + count, 128)
        sizes = [min(128, PHANTOM_FIRST[part] + count - start) for start in starts]
        with get_context("fork").Pool() as pool:
            made = pool.starmap(partial(_some_phantoms, size=options.size), zip(starts, sizes, strict=True))
        images = np.concatenate(made)
        out[part] = images if part == "held_out" else (images * 255).round().astype(np.uint8)
    np.savez_compressed(options.data, **out)


@dataclass(frozen=True)
class Pictures:
    """Images of each part, uint8 or float32 in [0, 1], the numbers of the held-out ones, and their units."""

    train: np.ndarray
    tune: np.ndarray
    held_out: np.ndarray
    numbers: dict[str, np.ndarray]
    unit: np.ndarray

    @property
    def truth(self) -> np.ndarray:
        """The held-out images as float32 in [0, 1]."""
        return self.held_out.astype(np.float32) / (255 if self.held_out.dtype == np.uint8 else 1)


def pictures(name: str, options: argparse.Namespace) -> Pictures:
    """The images of a data set."""
    data = np.load(options.data)
    if name == "phantom":
        made = {part: data[part] for part in PHANTOM_FIRST}
        return Pictures(**made, numbers={}, unit=np.arange(len(made["held_out"])))
    images, scan = data[name], data["scan"] if name == "ct" else None
    numbers = split_images(len(images), held_out=options.images, tune=DATA[name].tune, units=scan)
    unit = np.arange(options.images) if scan is None else scan[numbers["held_out"]]
    return Pictures(**{part: images[numbers[part]] for part in PHANTOM_FIRST}, numbers=numbers, unit=unit)


def observe(truth: np.ndarray, data: Data) -> np.ndarray:
    """Noisy views of images in [0, 1], in the limits of the data set, float32."""
    low, high = data.limits
    noise = np.random.default_rng(2).standard_normal(truth.shape, dtype=np.float32)
    return truth * np.float32(high - low) + np.float32(low) + np.float32(data.sigma_0) * noise


# ---------------------------------------------------------------- what is kept


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

    def psnr(self, estimate: np.ndarray) -> float:
        """Peak signal-to-noise ratio of estimates clipped to [0, 1], in dB, mean over images."""
        error = ((np.clip(estimate, 0, 1) - self.truth) ** 2).reshape(len(self.truth), -1).mean(axis=1)
        return float((-10 * np.log10(error)).mean())

    def before_control(self, lower: np.ndarray, upper: np.ndarray) -> dict[str, float]:
        """Miss rate and mean length of a band clipped to [0, 1], before any risk control."""
        low, high = np.clip(lower, 0, 1), np.clip(upper, 0, 1)
        missed = (self.truth < low) | (self.truth > high)
        return {"miss_rate": float(missed.mean()), "mean_length": float(np.maximum(high - low, 0).mean())}

    def coverage(self, stack: dict[str, np.ndarray]) -> dict[str, float]:
        """How often a further draw falls into the band, and how often it does on average."""
        return {
            "coverage_of_fresh_draw": float(covered(stack["held_out"], stack["lower"], stack["upper"]).mean()),
            "exact_coverage": float(Fraction(self.ranks[1] - self.ranks[0], self.options.samples + 1)),
        }


def covered(drawn: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The fraction of every image's pixels that a draw has within the band."""
    return ((drawn >= lower) & (drawn <= upper)).reshape(len(drawn), -1).mean(axis=1)


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


def outward(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends in float16, lower rounded down and upper rounded up."""
    low, high = lower.astype(np.float16), upper.astype(np.float16)
    low = np.where(low.astype(np.float32) > lower, np.nextafter(low, np.float16(-np.inf)), low)
    return low, np.where(high.astype(np.float32) < upper, np.nextafter(high, np.float16(np.inf)), high)


# ---------------------------------------------------------------- the three processes


def score_part(run: Run) -> None:
    """Train the score network and leave it on this machine, with its figures."""
    options, kept = run.options, run.kept("score")
    network = NCSNpp(run.network())
    score = run.fit("score", network, run.pictures.train, options.seconds, 1e-3, score_matching, options.compile)
    run.save("score", score, kept)
    kept.with_suffix(".json").write_text(json.dumps(run.figures["score"]))
    if "network" in (options.bring or ()):
        for file in (kept, kept.with_suffix(".json")):
            shutil.copy(file, run.out)


def scored(run: Run) -> torch.nn.Module:
    """The score network that was trained here before."""
    kept = run.kept("score")
    run.say("score", json.loads(kept.with_suffix(".json").read_text()))
    return load_network(kept, kind="score", device=run.device)[0]


def drawn(
    run: Run, score: torch.nn.Module, names: tuple[str, ...], **how: Any
) -> tuple[list[Draws], dict[str, np.ndarray]]:
    """Draw m + 1 posterior samples of each held-out image, reduced on the GPU; the named parts as arrays in [0, 1]."""
    options, a = run.options, Fraction(run.data.miscoverage)
    reduction = Reduction(run.ranks, (float(a / 2), float(1 - a / 2)), held_out=1)
    network = torch.compile(score) if options.compile else score
    observed = torch.from_numpy(run.y)[:, None].to(run.device)
    m, sigma_0 = options.samples, run.data.sigma_0
    steps = options.steps or (None if "sampler" in how else HEUN_STEPS)
    found = list(sample(network, observed, sigma_0, run.sde, samples=m, steps=steps, reduce=reduction, **how))
    return found, {name: run.unit(torch.stack([getattr(d, name) for d in found]).squeeze()) for name in names}


def draw_part(run: Run) -> None:
    """Draw from the posterior with the score network that was trained, and fine-tune it to N-Conffusion."""
    options, data, score = run.options, run.data, scored(run)
    run.figures |= {"samples": options.samples, "steps": options.steps, "miscoverage": float(data.miscoverage)}
    begin, clock = time.monotonic(), [0.0]

    def progress(done: int, total: int) -> None:
        clock[0] = clock[0] or time.monotonic()  # the first batch compiles

    names = ("mean", "lower", "upper", "naive_lower", "naive_upper", "held_out")
    found, stack = drawn(run, score, names, progress=progress)
    now = time.monotonic()
    spread = torch.stack([d.deviation for d in found]).reshape(run.truth.shape).float().cpu().numpy()
    deviation = spread / (data.limits[1] - data.limits[0])
    observed = torch.from_numpy(run.y)[:, None].to(run.device)
    estimates = [posterior_mean(score, part, data.sigma_0) for part in observed.split(256)]
    run.say("sampling", {
        "seconds": round(now - begin, 1), "seconds_after_the_first_batch": round(now - clock[0], 1),
        "samples": len(run.truth) * (options.samples + 1), "psnr_noisy": run.psnr(run.unit(run.y)),
        "psnr_denoiser": run.psnr(run.unit(torch.cat(estimates))), "psnr_mean": run.psnr(stack["mean"]),
        **run.before_control(stack["lower"], stack["upper"]), **run.coverage(stack),
        "naive": run.before_control(stack["naive_lower"], stack["naive_upper"]),
    })  # fmt: skip
    ends = outward(stack["lower"], stack["upper"])
    naive = outward(stack["naive_lower"], stack["naive_upper"])
    run.keep(lower=ends[0], upper=ends[1])
    run.keep(naive_lower=naive[0], naive_upper=naive[1])
    run.keep(mean=stack["mean"], deviation=deviation)
    run.keep(fresh=stack["held_out"])
    loss, heads = quantile_loss(float(data.miscoverage)), n_conffusion(score.cpu())
    two = run.fit("conffusion", heads, run.pictures.tune, options.tune_seconds, 3e-4, loss, warmup=20)
    lower, upper = (run.unit(head) for head in predict(two, run.y, data.sigma_0, batch=256))
    run.say("conffusion_band", run.before_control(lower, upper))
    run.save("conffusion", two, run.kept("conffusion"))
    ends = outward(lower, upper)
    run.keep(conffusion_lower=ends[0], conffusion_upper=ends[1])


def printed_part(run: Run) -> None:
    """Bands of Algorithm 3 as printed, beside those of the sampler that is exact in the limit."""
    names = ("lower", "upper", "held_out")
    score = scored(run)
    begin = time.monotonic()
    stack = drawn(run, score, names, sampler="euler_maruyama")[1]
    told = {"images": len(run.truth), "steps": run.options.steps, "seconds": round(time.monotonic() - begin, 1)}
    run.say("printed", {**told, **run.before_control(stack["lower"], stack["upper"]), **run.coverage(stack)})
    ends = outward(stack["lower"], stack["upper"])
    run.keep(printed_lower=ends[0], printed_upper=ends[1])
    run.keep(printed_fresh=stack["held_out"])


def regressor_part(run: Run) -> None:
    """Quantile regression, and MC-Dropout on the same network."""
    data, loss = run.data, quantile_loss(float(run.data.miscoverage))
    network = regressor(run.network(), data_deviation=data.deviation)
    three = run.fit("regressor", network, run.pictures.train, run.options.seconds, 1e-3, loss, run.options.compile)
    run.save("regressor", three, run.kept("regressor"))
    lower, estimate, upper = (run.unit(head) for head in predict(three, run.y, data.sigma_0, batch=256))
    run.say("regressor_band", {"psnr_estimate": run.psnr(estimate), **run.before_control(lower, upper)})
    ends = outward(lower, upper)
    run.keep(qr_lower=ends[0], qr_upper=ends[1])
    mean, spread = dropout_passes(three, run.y, data.sigma_0, passes=run.options.samples)
    deviation = spread / (data.limits[1] - data.limits[0])
    run.say("dropout", {"mean_deviation": float(deviation.mean()), "psnr_mean": run.psnr(run.unit(mean))})
    run.keep(qr_estimate=estimate, dropout_mean=run.unit(mean))
    run.keep(dropout_deviation=deviation)


def bring(name: str, options: argparse.Namespace) -> None:
    """Copy arrays that an earlier call left on this machine to where they come home from."""
    Path(options.out).mkdir(parents=True, exist_ok=True)
    for file in sorted((Path(options.keep) / "arrays").glob(f"{name}-*.npz")):
        if file.stem.removeprefix(f"{name}-").split("@")[0] in options.bring:
            print(shutil.copy(file, options.out), flush=True)


PARTS = {"score": score_part, "draw": draw_part, "printed": printed_part, "regressor": regressor_part}


def collect(name: str, options: argparse.Namespace) -> None:
    """Put what came back, truth, observation and units into one folder of npy files."""
    shown, data, folder = pictures(name, options), DATA[name], Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    low, high = data.limits
    arrays = {
        "truth": shown.truth,
        "observation": (observe(shown.truth, data) - low) / (high - low),
        "unit": shown.unit,
    }
    figures: dict[str, Any] = {}
    pieces: dict[str, dict[int, np.ndarray]] = {}
    for key, array in _returned(name, Path(options.out), figures):
        whole, _, first = key.partition("@")
        pieces.setdefault(whole, {})[int(first or 0)] = array
    arrays |= {key: np.concatenate([rows[at] for at in sorted(rows)]) for key, rows in pieces.items()}
    each = covered(arrays["fresh"], arrays["lower"], arrays["upper"])
    figures["miscoverage"] = float(data.miscoverage)
    figures["sampling"] |= {  # of float16 with ends rounded outward, a little more than of the draws themselves
        "coverage_before_rounding": figures["sampling"]["coverage_of_fresh_draw"],
        "coverage_of_fresh_draw": float(each.mean()),
        "coverage_error": float(each.std(ddof=1) / np.sqrt(len(each))),  # images are drawn independently
    }
    for key, array in arrays.items():
        np.save(folder / f"{key}.npy", array)
    np.savez(folder / "images.npz", **shown.numbers)
    for file in (folder / "figures.json", RESULTS / f"posterior_{name}.json"):
        file.write_text(json.dumps(figures, indent=1) + "\n")
    print(folder, ", ".join(f"{key} {array.shape}" for key, array in arrays.items()))


def _returned(name: str, out: Path, figures: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    for file in sorted(out.glob(f"{name}-*.npz"), key=lambda path: path.stat().st_mtime):
        with np.load(file, allow_pickle=False) as arrays:
            figures |= json.loads(str(arrays["figures"]))
            yield from ((key, arrays[key]) for key in arrays.files if key != "figures")


def rows_of(text: str) -> slice:
    """START:STOP as a slice."""
    start, stop = text.split(":")
    return slice(int(start), int(stop))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=DATA)
    parser.add_argument("part", choices=("phantoms", *PARTS, "bring", "collect"))
    parser.add_argument("--out", required=True, help="folder for what comes back")
    parser.add_argument("--folder", help="collect: the folder of the material")
    parser.add_argument("--data", default="local/data64.npz")
    parser.add_argument("--images", type=int, default=768)
    parser.add_argument("--phantoms", type=int, default=16384, help="phantoms to train on")
    parser.add_argument("--size", type=int, default=64, help="of phantoms")
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--steps", type=int, default=None, help="of the sampler")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=180, help="to train the score network or the regressor")
    parser.add_argument("--keep", default="/tmp/pixelbounds", help="folder on this machine where networks wait")
    parser.add_argument("--tune-seconds", type=float, default=20)
    parser.add_argument("--rows", type=rows_of, help="of the held-out images, START:STOP; all unless told")
    parser.add_argument("--bring", nargs="*", help="arrays that come home from this call; all unless told")
    parser.add_argument("--commit", default="", help="of this project, for the figures")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    options = parser.parse_args()
    if options.part == "phantoms":
        make_phantoms(options)
    elif options.part == "bring":
        bring(options.name, options)
    elif options.part == "collect":
        collect(options.name, options)
    else:
        PARTS[options.part](Run(options.name, options))


if __name__ == "__main__":
    main()
