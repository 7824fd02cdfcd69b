"""The paper's way and ours on the same images, each with its seconds of a GPU counted: training, sampling, bands.

    python -m reproduce.gpu.end_to_end chest512 ours --data chest_512.zip --out ours --seconds 100 --bring-network
    python -m reproduce.gpu.end_to_end chest512 paper --data chest_512.zip --out paper --seconds 60
    python -m reproduce.gpu.end_to_end chest512 baselines --data ... --out base --start ours/network.safetensors
    python -m reproduce.gpu.end_to_end chest512 organs --data chest_512.zip --out organs --seconds 30
    python -m reproduce.gpu.end_to_end chest512 material --data chest_512.zip --out ours paper base organs --folder DIR

`session.sh` runs all of them. Images that train, that choose the average of ours, and that are measured are disjoint by
scan or patient.

ours       networks of other seeds, EDM's weights of noise levels, each stopped where validation images are best;
           samples by `heun` in 12 steps with the score of the first network, and with the mean of all; calibrated
           quantiles at miscoverage 0.1 and at the paper's
paper      one network with the paper's weights, trained to the end, its last average; samples of Algorithm 3 as
           printed; calibrated quantiles at the paper's miscoverage
baselines  quantile regression and MC-Dropout of one network, and N-Conffusion of the score network that `ours` left
organs     true labels of chests, and those that a small network finds in the noisy slices: often wrong, as labels are
material   their arrays as `python -m reproduce` reads them

Coverage of a further draw, misses and PSNR are measured on the device. Compiling is not of a way's seconds. torch,
numpy, safetensors and Pillow are all that it needs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from pixelbounds.diffusion.checkpoint import load_network
from pixelbounds.diffusion.regression import dropout_passes, n_conffusion, predict, quantile_loss, regressor

from .bench import PAPER, Bench, observe, pictures, write_arrays
from .measures import outward
from .organs import organs
from .sets import SETS
from .told import told

Array = np.ndarray


# ---------------------------------------------------------------- the two ways, and the networks of others


def ours(options: argparse.Namespace) -> None:
    """Some networks, samples with the first and with the mean of all."""
    bench, members = Bench(options), []
    one = bench.ready()
    more = bench.ready(options.members) if options.members > 1 else None
    bench.warm(one, paper=False)
    for seed in range(options.members):
        members.append(bench.fit(seed, paper=False))
        members[-1].requires_grad_(False)
        if options.bring_network and seed == 0:
            bench.bring(members[0])
    bench.draw("ours-1", bench.fill(one, members[:1]))
    if more is not None:
        bench.draw(f"ours-{len(members)}", bench.fill(more, members))


def paper(options: argparse.Namespace) -> None:
    """One network and Algorithm 3."""
    bench = Bench(options)
    one = bench.ready()
    bench.warm(one, paper=True)
    bench.fill(one, [bench.fit(0, paper=True)])
    bench.draw("paper", one, sampler="euler_maruyama", steps=options.printed_steps)


def baselines(options: argparse.Namespace) -> None:
    """Quantile regression, MC-Dropout on the same network, and N-Conffusion."""
    bench = Bench(options)
    low, high = bench.data.limits
    y, shown = observe(bench.shown, bench.data), bench.shown
    loss, sigma_0 = quantile_loss(PAPER[options.set]), bench.data.sigma_0

    def unit(x: Array) -> Array:
        return (x - low) / (high - low)

    network = regressor(bench.config, data_deviation=bench.deviation)
    if options.compile:
        first = {name: x.clone() for name, x in network.state_dict().items()}
        bench.trained("compiling", network, shown.train, loss, validation=shown.validation, steps=2, seconds=None)
        network.load_state_dict(first)
        bench.figures["training"] = []
    bench.turn()
    three = bench.trained("regressor", network, shown.train, loss, validation=shown.validation)
    passes = 2**18 // bench.data.size**2
    lower, estimate, upper = (unit(head) for head in predict(three, y, sigma_0, batch=4 * passes))
    ends = outward(lower, upper)
    write_arrays(bench.out, {"qr_lower": ends[0], "qr_upper": ends[1], "qr_estimate": estimate})
    bench.band("regressor", lower, upper, estimate)
    mean, spread = dropout_passes(three, y, sigma_0, passes=options.passes, batch=16 * passes)
    write_arrays(bench.out, {"dropout_mean": unit(mean), "dropout_deviation": spread / (high - low)})
    bench.band("dropout", unit(mean - spread), unit(mean + spread), unit(mean))
    score, _, _ = load_network(options.start, kind="score")
    changes = {"learning_rate": 3e-4, "warmup": 20, "seconds": options.tune_seconds, "compile": False}
    two = bench.trained("conffusion", n_conffusion(score), shown.validation, loss, **changes)
    lower, upper = (unit(head) for head in predict(two, y, sigma_0, batch=4 * passes))
    ends = outward(lower, upper)
    write_arrays(bench.out, {"conffusion_lower": ends[0], "conffusion_upper": ends[1]})
    bench.band("conffusion", lower, upper)


# ---------------------------------------------------------------- what is made of them


def material(options: argparse.Namespace) -> None:
    """The arrays of several ways as a folder that `reproduce` reads."""
    target = Path(options.folder)
    target.mkdir(parents=True, exist_ok=True)
    calls = [json.loads((Path(folder) / "figures.json").read_text()) for folder in options.out]
    count = min(call["images"]["measured"] for call in calls)
    shown, data = pictures(options.set, options.data, count), SETS[options.set]
    low, high = data.limits
    arrays = {"truth": shown.truth, "observation": (observe(shown, data) - low) / (high - low), "unit": shown.unit}
    for folder in options.out:
        for path in sorted(Path(folder).glob("array-*.npy")):
            arrays[path.stem.removeprefix("array-")] = np.load(path, allow_pickle=False)
    for name, x in arrays.items():
        if len(x) != count:
            raise SystemExit(f"{name} is of {len(x)} images, not {count}: its call was cut short, leave it out")
        np.save(target / f"{name}.npy", x)
    (target / "figures.json").write_text(json.dumps(told(calls, arrays), indent=1) + "\n")
    print(target, count, "images:", ", ".join(arrays))


def main() -> None:
    """Run a way on the device, or collect what it brought."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("does", choices=("ours", "paper", "baselines", "organs", "material"))
    parser.add_argument("--data", required=True, help="the zip of images")
    parser.add_argument("--out", nargs="+", required=True, help="folder of the way; material: folders of all ways")
    parser.add_argument("--folder", help="material: the folder to write")
    parser.add_argument("--images", type=int, default=640, help="that are measured")
    parser.add_argument("--network", default="lean")
    parser.add_argument("--blocks", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--members", type=int, default=1, help="ours: networks")
    parser.add_argument("--seconds", type=float, help="to train a network, without compiling")
    parser.add_argument("--steps", type=int, help="or steps to train")
    parser.add_argument("--tune-seconds", type=float, default=20, help="baselines: to fine-tune N-Conffusion")
    parser.add_argument("--start", help="baselines: the score network that is fine-tuned")
    parser.add_argument("--batch", type=int, default=256, help="of training")
    parser.add_argument("--draw-batch", type=int, default=1032, help="samples in the network at a time")
    parser.add_argument("--samples", type=int, default=128, help="drawn of each image, with a fresh one besides")
    parser.add_argument("--printed-steps", type=int, default=100, help="paper: of Algorithm 3, over [0, 1]")
    parser.add_argument("--until", type=float, default=900, help="seconds of a way after which nothing is drawn")
    parser.add_argument("--bring-network", action="store_true")
    parser.add_argument("--passes", type=int, default=128, help="baselines: of MC-Dropout")
    parser.add_argument("--wait", help="compile, then wait until this file is there")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    ways = {"ours": ours, "paper": paper, "baselines": baselines, "organs": organs, "material": material}
    ways[options.does](options)


if __name__ == "__main__":
    main()
