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
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pixelbounds.diffusion import NCSNpp, Reduction, posterior_mean, sample
from pixelbounds.diffusion.checkpoint import load_network
from pixelbounds.diffusion.posterior import Draws
from pixelbounds.diffusion.regression import dropout_passes, n_conffusion, predict, quantile_loss, regressor
from pixelbounds.diffusion.trainer import score_matching

from .material import Run
from .measures import before_control, covered, outward, psnr
from .pictures import DATA, make_phantoms, observe, pictures

RESULTS = Path(__file__).parent.parent / "results"
HEUN_STEPS = 24  # as the plans of the experiments say


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
        "samples": len(run.truth) * (options.samples + 1), "psnr_noisy": psnr(run.unit(run.y), run.truth),
        "psnr_denoiser": psnr(run.unit(torch.cat(estimates)), run.truth), "psnr_mean": psnr(stack["mean"], run.truth),
        **before_control(run.truth, stack["lower"], stack["upper"]), **run.coverage(stack),
        "naive": before_control(run.truth, stack["naive_lower"], stack["naive_upper"]),
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
    run.say("conffusion_band", before_control(run.truth, lower, upper))
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
    run.say("printed", {**told, **before_control(run.truth, stack["lower"], stack["upper"]), **run.coverage(stack)})
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
    run.say("regressor_band", {"psnr_estimate": psnr(estimate, run.truth), **before_control(run.truth, lower, upper)})
    ends = outward(lower, upper)
    run.keep(qr_lower=ends[0], qr_upper=ends[1])
    mean, spread = dropout_passes(three, run.y, data.sigma_0, passes=run.options.samples)
    deviation = spread / (data.limits[1] - data.limits[0])
    run.say("dropout", {"mean_deviation": float(deviation.mean()), "psnr_mean": psnr(run.unit(mean), run.truth)})
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
