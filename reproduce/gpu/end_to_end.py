"""The paper's way and ours on the same images, each with its seconds of a GPU counted: training, sampling, bands.

    python -m reproduce.gpu.end_to_end ct64 ours --data local/gpu/ct64.npz --out $OUT --seconds 70 --material
    python -m reproduce.gpu.end_to_end ct64 paper --data local/gpu/ct64.npz --out $OUT --seconds 150 --material
    python -m reproduce.gpu.end_to_end ct64 baselines --data local/gpu/ct64.npz --out $OUT --seconds 50 --start FILE
    python -m reproduce.gpu.end_to_end ct64 collect --data local/gpu/ct64.npz --out DIR --file local/gpu/ct64_ours.npz
    python -m reproduce.gpu.end_to_end ct64 material --data local/gpu/ct64.npz --out DIR DIR --folder local/ct64

Sets are `ct64`, `faces64` (`reproduce.gpu.sets`), `chest128` (`reproduce.gpu.chest images`), `faces128` and `chest512`
(their zips as they are); images that train, that choose the average of ours, and that are measured are disjoint by scan
or patient.

ours       networks of other seeds, EDM's weights of noise levels, each stopped where validation images are best;
           samples by `heun` in 12 steps with the score of the first network, and with the mean of all; calibrated
           quantiles at miscoverage 0.1
paper      one network with the paper's weights, trained to the end, its last average; 128 samples of Algorithm 3 as
           printed; calibrated quantiles at the paper's miscoverage
baselines  quantile regression and MC-Dropout of one network, and N-Conffusion of the score network that `ours` left

Bands of the first samples alone come along: they cost their share of the seconds. Ends are multiples of 1 / 2048 in
[0, 1], rounded outward; files of some images are written as the call goes, at most 16 MiB each. `--material` keeps what
`python -m reproduce` needs of all samples. Coverage of a further draw, misses and PSNR are measured on the device.
Compiling is not of a way's seconds. torch, numpy and safetensors are all that it needs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from pixelbounds.diffusion.checkpoint import load_network
from pixelbounds.diffusion.regression import dropout_passes, n_conffusion, predict, quantile_loss, regressor

from .bench import OURS, PAPER, Bench, observe, pictures, write_arrays
from .coded_bands import decoded
from .measures import outward
from .sets import SETS
from .told import told

Array = np.ndarray
FIRST = {"ours": (19, 39, 79), "paper": (32, 64, 128), "baselines": (128,)}  # samples whose bands come along


# ---------------------------------------------------------------- the two ways, and the networks of others


def ours(options: argparse.Namespace) -> None:
    """Some networks, samples with the first and with the mean of all, and a second seed for the coverage."""
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
    if options.again:
        bench.draw("again", one, seed=1, images=min(options.again, len(bench.shown.truth)))
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


# ---------------------------------------------------------------- back home


def collect(options: argparse.Namespace) -> None:
    """What a call brought back as one npz: truth, unit, and LABEL/M/lower and /upper of every band; its figures.

    M@A has miscoverage A in place of that of the way.
    """
    [folder] = map(Path, options.out)
    figures = json.loads((folder / "figures.json").read_text())
    shown = pictures(options.set, options.data, figures["images"]["measured"])
    kept: dict[str, Array] = {}
    count = len(shown.numbers)
    for label in (drawn["label"] for drawn in figures["bands"]):
        for m, numbers, lower, upper in decoded(folder, label):
            if not np.array_equal(numbers, shown.numbers[: len(numbers)]):
                raise SystemExit(f"{folder}: {label} is of other images; was it another split?")
            count = min(count, len(numbers))
            kept |= {f"{label}/{m}/lower": lower, f"{label}/{m}/upper": upper}
    kept = _of_material(folder, figures, options.set) | kept
    kept = {name: x[:count] for name, x in kept.items()}
    np.savez(
        options.file, truth=shown.truth[:count], unit=shown.unit[:count], numbers=shown.numbers[:count],
        figures=np.array(json.dumps(figures)), **kept,  # type: ignore[arg-type]
    )  # fmt: skip
    print(options.file, count, "images:", ", ".join(sorted({name.rsplit("/", 1)[0] for name in kept})))


def _of_material(folder: Path, figures: dict[str, Any], name: str) -> dict[str, Array]:
    """Bands of all samples at the paper's miscoverage, where the call kept the material of `ours`."""
    paths = {end: folder / f"array-{end}.npy" for end in ("lower", "upper")}
    if not all(path.is_file() for path in paths.values()):
        return {}
    drawn = [each for each in figures["bands"] if each["images"] == figures["images"]["measured"]][-1]
    at = "" if PAPER[name] == OURS else f"@{PAPER[name]:g}"
    ends = {end: np.load(path).astype(np.float32).clip(0, 1) for end, path in paths.items()}
    return {f"{drawn['label']}/{drawn['samples']}{at}/{end}": x for end, x in ends.items()}


def material(options: argparse.Namespace) -> None:
    """Arrays that calls with `--material` and `baselines` brought back, as a folder that `reproduce` reads."""
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
    parser.add_argument("does", choices=("ours", "paper", "baselines", "collect", "material"))
    parser.add_argument("--data", required=True, help="the npz or zip of images")
    parser.add_argument("--out", nargs="+", required=True, help="folder for what comes back; at home: where it lies")
    parser.add_argument("--file", help="collect: the npz to write")
    parser.add_argument("--folder", help="material: the folder to write")
    parser.add_argument("--images", type=int, default=640, help="that are measured")
    parser.add_argument("--network", default="small")
    parser.add_argument("--blocks", type=int, default=1)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--members", type=int, default=1, help="ours: networks")
    parser.add_argument("--seconds", type=float, help="to train a network, without compiling")
    parser.add_argument("--steps", type=int, help="or steps to train")
    parser.add_argument("--tune-seconds", type=float, default=20, help="baselines: to fine-tune N-Conffusion")
    parser.add_argument("--start", help="baselines: the score network that is fine-tuned")
    parser.add_argument("--batch", type=int, default=256, help="of training")
    parser.add_argument(
        "--draw-batch", type=int, default=1032, help="samples in the network at a time: whole images, with a fresh one"
    )
    parser.add_argument("--samples", type=int, default=128, help="drawn of each image")
    parser.add_argument("--first", type=int, nargs="*", help="numbers of samples whose bands come along")
    parser.add_argument("--again", type=int, default=256, help="ours: images that are drawn with a second seed")
    parser.add_argument("--printed-steps", type=int, default=100, help="paper: of Algorithm 3, over [0, 1]")
    parser.add_argument("--per-file", type=int, default=220, help="images")
    parser.add_argument("--until", type=float, default=560, help="seconds of the call after which nothing is drawn")
    parser.add_argument("--material", action="store_true", help="keep the arrays of `reproduce`")
    parser.add_argument("--bring-network", action="store_true")
    parser.add_argument(
        "--no-bands", dest="bands", action="store_false", help="keep no coded bands of the first samples"
    )
    parser.add_argument("--passes", type=int, default=128, help="baselines: of MC-Dropout")
    parser.add_argument("--wait", help="compile, then wait until this file is there")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    options.first = options.first or FIRST.get(options.does)
    ways = {"ours": ours, "paper": paper, "baselines": baselines, "collect": collect, "material": material}
    ways[options.does](options)


if __name__ == "__main__":
    main()
