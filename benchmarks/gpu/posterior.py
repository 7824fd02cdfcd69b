"""Train the networks of the paper on real images and reduce their output to bands: python -m benchmarks.gpu.posterior.

Reads an npz with uint8 images (`faces`, or `ct` with `scan`, the scan of each slice), splits by scan, trains the score
network, the quantile regressor and N-Conffusion, draws m + 1 posterior samples per held-out image, and writes float16
arrays in units of [0, 1], rounded outward, and figures as JSON. Needs torch, numpy and safetensors only.
"""

from __future__ import annotations

import argparse
import json
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from pixelbounds.diffusion import VESDE, NCSNpp, Reduction, configuration, denoise, sample
from pixelbounds.diffusion.batches import some_rotations
from pixelbounds.diffusion.checkpoint import save_network
from pixelbounds.diffusion.regression import conffusion, dropout_passes, predict, quantile_loss, regressor
from pixelbounds.diffusion.runs import progress_bar
from pixelbounds.diffusion.training import Settings, train

# faces live in [-1, 1], CT in [0, 1], as in the paper; sigma_0 is a deviation (the paper's text has 0.4 as a variance)
DATA = {
    "faces": {"limits": (-1.0, 1.0), "sigma_max": 90.0, "sigma_0": 1.0, "miscoverage": 0.1, "deviation": 0.5},
    "ct": {"limits": (0.0, 1.0), "sigma_max": 1.0, "sigma_0": 0.4, "miscoverage": 0.2, "deviation": 0.25},
}
SAMPLES = 128


def splits(name: str, data: dict[str, np.ndarray], rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    """Images to train on, to fine-tune on, and to hold out; CT by scan, the held-out slices spread over the scans."""
    if name == "faces":
        order = rng.permutation(len(data["faces"]))
        return {"train": np.sort(order[2500:]), "tune": np.sort(order[1500:2500]), "held_out": np.sort(order[:count])}
    scan = data["scan"]
    scans = rng.permutation(scan.max() + 1)
    out, tune = scans[: round(0.4 * len(scans))], scans[round(0.4 * len(scans)) : round(0.53 * len(scans))]
    turns = []  # slices in random order within a scan; take one of each scan in turn
    for s in out:
        mine = rng.permutation(np.flatnonzero(scan == s))
        turns += [(turn, int(image)) for turn, image in enumerate(mine)]
    chosen = [image for _, image in sorted(turns)][:count]
    train_on = ~np.isin(scan, np.concatenate([out, tune]))
    return {"train": np.flatnonzero(train_on), "tune": np.flatnonzero(np.isin(scan, tune)), "held_out": np.sort(chosen)}


def outward(lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends in float16, lower rounded down and upper rounded up."""
    low, high = lower.astype(np.float16), upper.astype(np.float16)
    low = np.where(low.astype(np.float32) > lower, np.nextafter(low, np.float16(-np.inf)), low)
    return low, np.where(high.astype(np.float32) < upper, np.nextafter(high, np.float16(np.inf)), high)


def psnr(x: np.ndarray, estimate: np.ndarray) -> float:
    """Peak signal-to-noise ratio of estimates clipped to [0, 1], in dB, mean over images."""
    error = ((np.clip(estimate, 0, 1) - x) ** 2).reshape(len(x), -1).mean(axis=1)
    return float((-10 * np.log10(error)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=DATA)
    parser.add_argument("--data", default="local/data64.npz")
    parser.add_argument("--out", required=True, help="folder for what is small enough to keep")
    parser.add_argument("--rest", required=True, help="folder for the baselines' arrays and the networks")
    parser.add_argument("--network", default="small")
    parser.add_argument("--images", type=int, default=768)
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--score-seconds", type=float, default=200)
    parser.add_argument("--regressor-seconds", type=float, default=100)
    parser.add_argument("--tune-seconds", type=float, default=30)
    parser.add_argument("--steps", type=int, default=None, help="of the sampler")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument(
        "--only-score", action="store_true", help="leave the regressor, MC-Dropout and N-Conffusion out"
    )
    options = parser.parse_args()
    chosen = DATA[options.name]
    low, high = limits = chosen["limits"]
    out, rest = Path(options.out), Path(options.rest)
    out.mkdir(parents=True, exist_ok=True)
    rest.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = np.load(options.data)
    rng = np.random.default_rng(0)
    split = splits(options.name, data, rng, options.images)
    images = data[options.name]
    size = images.shape[-1]
    sde, sigma = VESDE(0.01, chosen["sigma_max"]), chosen["sigma_0"]
    top = min(1.1 * sigma, chosen["sigma_max"])
    torch.manual_seed(0)
    figures: dict[str, object] = {
        "data": options.name,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "sigma_0": sigma,
        "limits": limits,
        "counts": {part: len(numbers) for part, numbers in split.items()},
    }

    def settings(seconds: float, rate: float, warmup: int) -> Settings:
        return Settings(
            seconds=seconds, batch=options.batch, learning_rate=rate, warmup=warmup, sigma_top=top,
            augment=some_rotations, compile=not options.no_compile, checkpoint_every=10**9, log_every=100,
        )  # fmt: skip

    def fit(
        what: str, network: torch.nn.Module, on: np.ndarray, seconds: float, rate: float, **loss: object
    ) -> torch.nn.Module:
        begin = time.monotonic()
        done = train(
            network, images[on], sde=sde, settings=settings(seconds, rate, 200), limits=limits,
            held_out=images[split["held_out"]], progress=progress_bar(seconds=seconds), device=device, **loss,
        )  # fmt: skip
        figures[what] = {"steps": done.step, "seconds": round(time.monotonic() - begin, 1), **done.last}
        print(what, json.dumps(figures[what]), flush=True)
        return done.network

    def keep(folder: Path, name: str, array: np.ndarray) -> None:
        np.save(folder / f"{name}.npy", array)

    config = configuration(options.network, size=size)
    score = fit("score", NCSNpp(config), split["train"], options.score_seconds, 1e-3)
    save_network(rest / "score.safetensors", score, sde, "score", dtype=torch.float16)
    truth = images[split["held_out"]].astype(np.float32) / 255
    y = truth * (high - low) + low + sigma * rng.standard_normal(truth.shape, dtype=np.float32)
    observed = torch.from_numpy(y)[:, None].to(device)

    def unit(x: torch.Tensor | np.ndarray) -> np.ndarray:
        return (np.asarray(x.float().cpu() if isinstance(x, torch.Tensor) else x).reshape(truth.shape) - low) / (
            high - low
        )

    np.savez(out / "images.npz", held_out=split["held_out"], train=split["train"], tune=split["tune"],
             unit=data["scan"][split["held_out"]] if options.name == "ct" else np.arange(len(truth)))  # fmt: skip
    keep(out, "observation", unit(y).astype(np.float16))
    a = Fraction(str(chosen["miscoverage"]))
    rank = int((options.samples + 1) * a / 2)
    reduction = Reduction(
        ranks=(rank, options.samples + 1 - rank), probabilities=(float(a / 2), float(1 - a / 2)), held_out=1
    )
    network = score.eval() if options.no_compile else torch.compile(score.eval())
    begin = time.monotonic()
    drawn = list(sample(network, observed, sigma, sde, samples=options.samples, steps=options.steps, reduce=reduction))
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.monotonic() - begin
    stack = {name: unit(torch.stack([getattr(d, name) for d in drawn]).squeeze()) for name in
             ("mean", "lower", "upper", "naive_lower", "naive_upper", "held_out")}  # fmt: skip
    deviation = torch.stack([d.deviation for d in drawn]).reshape(truth.shape).float().cpu().numpy() / (high - low)
    keep(out, "lower", outward(stack["lower"], stack["upper"])[0])
    keep(out, "upper", outward(stack["lower"], stack["upper"])[1])
    keep(out, "mean", stack["mean"].astype(np.float16))
    keep(out, "deviation", deviation.astype(np.float16))
    keep(rest, "fresh", stack["held_out"].astype(np.float16))
    for name, end in zip(
        ("naive_lower", "naive_upper"), outward(stack["naive_lower"], stack["naive_upper"]), strict=True
    ):
        keep(rest, name, end)
    fresh = stack["held_out"]
    within = np.clip(stack["lower"], 0, 1), np.clip(stack["upper"], 0, 1)
    estimates = torch.cat([denoise(score, part, sigma) for part in observed.split(256)])
    figures["sampling"] = {
        "seconds": round(seconds, 1), "samples": len(truth) * (options.samples + 1),
        "psnr_noisy": psnr(truth, unit(y)), "psnr_denoiser": psnr(truth, unit(estimates)),
        "psnr_mean": psnr(truth, stack["mean"]),
        "miss_rate": float(((truth < within[0]) | (truth > within[1])).mean()),
        "mean_length": float((within[1] - within[0]).mean()),
        "coverage_of_fresh_draw": float(((fresh >= stack["lower"]) & (fresh <= stack["upper"])).mean()),
        "exact_coverage": float(Fraction(options.samples + 1 - 2 * rank, options.samples + 1)),
    }  # fmt: skip
    print("sampling", json.dumps(figures["sampling"]), flush=True)
    (out / "figures.json").write_text(json.dumps(figures, indent=1))
    if options.only_score:
        return

    loss = {"loss": quantile_loss(float(a))}
    three = fit(
        "regressor",
        regressor(config, data_deviation=chosen["deviation"]),
        split["train"],
        options.regressor_seconds,
        1e-3,
        **loss,
    )
    for name, head in zip(("qr_lower", "qr_estimate", "qr_upper"), predict(three, y, sigma, batch=256), strict=True):
        keep(rest, name, unit(head).astype(np.float16))
    mean, spread = dropout_passes(three, y, sigma, passes=options.samples)
    keep(rest, "dropout_mean", unit(mean).astype(np.float16))
    keep(rest, "dropout_deviation", (spread / (high - low)).astype(np.float16))
    figures["dropout"] = {"mean_deviation": float(spread.mean() / (high - low)), "psnr_mean": psnr(truth, unit(mean))}
    two = fit("conffusion", conffusion(score.cpu()), split["tune"], options.tune_seconds, 3e-4, **loss)
    for name, head in zip(("conffusion_lower", "conffusion_upper"), predict(two, y, sigma, batch=256), strict=True):
        keep(rest, name, unit(head).astype(np.float16))
    (out / "figures.json").write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
