"""Chest CT from four times fewer projections, with promises for lung and heart: one call of a GPU, the rest at home.

    python -m reproduce.gpu.projections run --data chest_128.zip --out $OUT         # on the GPU
    python -m reproduce.gpu.projections collect --data chest_128.zip --out DIR      # at home

Parallel beams from a quarter of as many angles as a slice has pixels along a side. A score network learns slices of the
training patients of `reproduce.gpu.sets`; `--start` names one that was trained to denoise, and trains it further
over the whole range of noise. Slices of the measured patients are drawn in a random order, a block at a time, until the
call's time is up; the steps of the sampler are as many as that time allows for `--images` of them. What comes back is
float16, ends outward, in files of at most 16 MiB, written after every block. torch, numpy, numba and safetensors are
all that `run` needs. `collect` calibrates and judges and writes benchmarks/results/projections.json; `picture` makes
docs/projections.png of it. None of them shows a slice.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .parcels import Kept, brought
from .sets import Parts, organs_of, patient_parts, unpacked

if TYPE_CHECKING:
    from pixelbounds.problems import Problem

Array = np.ndarray
ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks/results/projections.json"
PICTURE = ROOT / "docs/projections.png"
PAGE = "docs/research/samplers.md"
FEWER = 4
SIGMA_0 = 0.002  # deviation of the noise of a ray; a ray through a slice of value 1 has about 1
SIGMA_MIN = 0.01
MISCOVERAGE, DELTA = 0.1, 0.1
ORGANS = {"heart": 2, "lung": 3}
LEVELS = {"all": 0.05, "lung": 0.05, "heart": 0.10}
CAP = 0.25  # that a slice counts for at most in lung and heart, which not all have
FLAT = 2.0**-20  # deviation of a slice of one value


def scanner(size: int, fewer: int = FEWER) -> Problem:
    """Parallel beams from size / fewer angles."""
    from pixelbounds.problems import ct

    return ct(size // fewer, size, SIGMA_0)


def seen(problem: Problem, truth: Array, numbers: Array) -> Array:
    """Sinograms of slices, each with a noise of its own, made on the CPU by torch, which needs no scipy."""
    import torch

    clean = problem.forward(torch.from_numpy(truth)).numpy()
    noise = [np.random.default_rng([17, int(i)]).standard_normal(clean.shape[1:], np.float32) for i in numbers]
    return np.asarray(clean + np.float32(SIGMA_0) * np.stack(noise))


def psnr(squares: Array) -> float:
    """Decibels, from the mean squared error of each slice."""
    return float(-10 * np.log10(np.mean(squares)))


# ---------------------------------------------------------------- on the device


def run(options: argparse.Namespace) -> None:
    """Train for some seconds, then draw until the time is up; what is done is written after every block."""
    import torch

    from pixelbounds.diffusion import VESDE

    begin = time.monotonic()
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images, patients = unpacked(Path(options.data), 1)
    numbers = patient_parts(patients)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    sde = VESDE(SIGMA_MIN, options.sigma_max)
    score, figures = fitted(options, images, numbers, sde, device)
    figures |= {
        "commit": options.commit, "torch": torch.__version__, "size": int(images.shape[-1]), "fewer": FEWER,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu", "sigma_0": SIGMA_0,
        "sigma_max": options.sigma_max, "samples": options.samples, "miscoverage": MISCOVERAGE,
        "method": options.method, "solver_steps": options.solver_steps,
        "seconds_until_trained": round(time.monotonic() - begin, 1),
    }  # fmt: skip
    print(json.dumps({key: value for key, value in figures.items() if key != "curve"}), flush=True)
    (out / "figures.json").write_text(json.dumps(figures) + "\n")
    draw(options, score, sde, images, numbers.measured, Kept(out, figures), begin, device)


def fitted(
    options: argparse.Namespace, images: Array, numbers: Parts, sde: Any, device: Any
) -> tuple[Any, dict[str, Any]]:
    """A network of all levels of noise, ready to draw with, and the figures of its training."""
    import torch

    from pixelbounds.diffusion import configuration, network_of
    from pixelbounds.diffusion.batches import AUGMENTATIONS
    from pixelbounds.diffusion.checkpoint import load_network
    from pixelbounds.diffusion.trainer import Settings, train, weighted_matching

    known = images[numbers.train]
    spread = float((known.astype(np.float32) / 255).std())
    if options.start:
        network, _, _ = load_network(options.start, kind="score", device=device)
    else:
        network = network_of(configuration(options.network, size=images.shape[-1], dropout=options.dropout))
    settings = Settings(
        seconds=options.seconds, batch=options.batch, learning_rate=options.rate, warmup=200, patience=None,
        augment=AUGMENTATIONS["small_moves"], compile=options.compile, log_every=50, checkpoint_every=10**9,
    )  # fmt: skip
    curve: list[dict[str, Any]] = []
    done = train(
        network.train().requires_grad_(), known, weighted_matching(spread), sde=sde, settings=settings,
        limits=(0.0, 1.0), device=device, validation=images[numbers.validation], progress=curve.append,
    )  # fmt: skip
    score = done.network.to(device, memory_format=torch.channels_last).eval().requires_grad_(False)
    return score, {
        "network": options.network, "parameters": sum(x.numel() for x in network.parameters()),
        "started": bool(options.start), "train_steps": done.step, "train_seconds": round(done.seconds, 1),
        "best_step": done.best, "best_loss": done.loss, "trivial_loss": done.trivial,
        "slices": {name: len(x) for name, x in vars(numbers).items()},
        "curve": [[x["step"], round(x["loss"], 5), round(x["validation"], 5)] for x in curve if "validation" in x],
    }  # fmt: skip


def draw(
    options: argparse.Namespace,
    score: Any,
    sde: Any,
    images: Array,
    wanted: Array,
    kept: Kept,
    begin: float,
    device: Any,
) -> None:
    """Bands of slices, and the squared errors of means and of least squares, block by block."""
    import torch

    from pixelbounds.bands import calibrated_ranks
    from pixelbounds.diffusion import Guidance, Reduction, sample_linear

    problem = scanner(images.shape[-1])
    whole = scanner(images.shape[-1], 1)
    reduction = Reduction(calibrated_ranks(options.samples, MISCOVERAGE))

    def block(some: Array, steps: int) -> dict[str, Array]:
        truth = images[some].astype(np.float32) / 255
        y = torch.from_numpy(seen(problem, truth, some))[:, None].to(device)
        full = torch.from_numpy(seen(whole, truth, some))[:, None].to(device)
        how = Guidance(method=options.method, steps=steps, solver_steps=options.solver_steps)
        drawn = list(
            sample_linear(
                score, y, problem, sde, how, samples=options.samples, reduce=reduction, image_ids=some.tolist(),
                batch=options.rows, autocast=True,
            )
        )  # fmt: skip
        parts = {name: torch.stack([getattr(x, name) for x in drawn]) for name in ("lower", "upper", "mean")}
        ends = {name: parts.pop(name)[:, 0].float().cpu().numpy() for name in ("lower", "upper")}
        parts["solved"] = problem.solve(y, damping=options.damping, steps=60)
        parts["solved_all_views"] = whole.solve(full, damping=options.damping, steps=60)
        shown = torch.from_numpy(truth)[:, None].to(device)
        wrong = {name: (x.clamp(0, 1) - shown).square().mean((1, 2, 3)) for name, x in parts.items()}
        return ends | {f"squares_{name}": x.cpu().numpy() for name, x in wrong.items()}

    wanted = wanted[images[wanted].std((1, 2)) / 255 > FLAT][: options.images]
    steps = options.steps or affordable(options, lambda n: block(wanted[: options.block], n), len(wanted), begin)
    kept.figures["steps"] = steps
    started = time.monotonic()
    for start in range(0, len(wanted), options.block):
        if time.monotonic() - begin > options.until:
            break
        some = wanted[start : start + options.block]
        found = block(some, steps)
        kept.figures["seconds"] = round(time.monotonic() - begin, 1)
        kept.figures["draw_seconds"] = round(time.monotonic() - started, 1)
        kept.add(some, found)
        print(f"{kept.count} slices, {kept.figures['seconds']:.0f} s", flush=True)


def affordable(options: argparse.Namespace, block: Callable[[int], Any], count: int, begin: float) -> int:
    """Steps of the sampler with which so many slices are drawn in time: two short blocks tell what a step costs."""
    block(1)  # warms up
    costs = []
    for steps in (1, 4):
        now = time.monotonic()
        block(steps)
        costs.append(time.monotonic() - now)
    step = max((costs[1] - costs[0]) / 3, 1e-6)
    blocks = -(-count // options.block)
    left = 0.95 * (options.until - (time.monotonic() - begin)) / blocks
    found = int(np.clip(1 + (left - costs[0]) / step, options.least_steps, options.most_steps))
    print(f"a step of {options.block} slices takes {step:.2f} s: {found} steps", flush=True)
    return found


# ---------------------------------------------------------------- back home


def collect(options: argparse.Namespace) -> None:
    """Calibrate on some slices, judge on the others, over several draws; figures, picture and page."""
    from benchmarks.__main__ import machine

    found, figures = brought(Path(options.out))
    images, patients = unpacked(Path(options.data), 1)
    labels, numbers = organs_of(Path(options.data)), found["numbers"]
    if np.isin(numbers, patient_parts(patients).measured).sum() < len(numbers) or len(set(numbers.tolist())) < len(
        numbers
    ):
        raise SystemExit(f"{options.out} holds slices that are not measured, or twice; was it another split?")
    truth, organs = images[numbers].astype(np.float32) / 255, labels[numbers]
    regions = {name: organs == value for name, value in ORGANS.items()}
    rows = [judged(truth, found, regions, draw, options.share) for draw in range(options.draws)]
    lower, upper = np.clip(found["lower"], 0, 1), np.clip(found["upper"], 0, 1)
    kept = {
        "benchmark": "projections",
        "machine": machine(),
        "run": figures,
        "slices": len(numbers),
        "patients": len(np.unique(patients[numbers])),
        "calibrate": int(options.share * len(numbers)),
        "failure_prob": DELTA,
        "levels": LEVELS,
        "cap": CAP,
        "psnr": {name: psnr(found[f"squares_{name}"]) for name in ("solved", "mean", "solved_all_views")},
        "band": {"length": float((upper - lower).mean()), "missed": float(((truth < lower) | (truth > upper)).mean())},
        "draws": rows,
    }
    Path(options.result).write_text(json.dumps(kept, indent=1) + "\n")
    print(json.dumps({key: value for key, value in kept.items() if key not in ("draws", "run")}))
    print(text(kept))


WAYS = {"all, lung and heart": ("all", "lung", "heart"), "all alone": ("all",)}


def judged(truth: Array, found: dict[str, Array], regions: dict[str, Array], draw: int, share: float) -> dict[str, Any]:
    """Of each way to promise: mean length, and what was missed where, on the slices that did not calibrate."""
    import pixelbounds as pb

    order = np.random.default_rng([29, draw]).permutation(len(truth))
    ours, others = np.split(order, [int(share * len(order))])
    band = pb.Band(found["lower"], found["upper"])
    row: dict[str, Any] = {}
    for way, names in WAYS.items():
        promises = _promised(names, regions, ours)
        cal = pb.calibrate(truth[ours], band[ours], promises=promises, failure_prob=DELTA)
        interval = cal.apply(band[others])
        came = pb.evaluate(truth[others], interval, promises=_promised(tuple(LEVELS), regions, others)).promises
        missed = (truth[others] < interval.lower) | (truth[others] > interval.upper)
        row[way] = {"length": float(interval.length.mean()), "risks": {told.name: float(told.risk) for told in came}}
        row[way]["lengths"] = {name: float(interval.length[region[others]].mean()) for name, region in regions.items()}
        row[way]["uncapped"] = {}
        for name, region in regions.items():
            here = region[others][region[others].any((1, 2))]
            inside = (missed[region[others].any((1, 2))] & here).sum((1, 2)) / here.sum((1, 2))
            row[way]["uncapped"][name] = float(inside.mean())
    return row


def _promised(names: tuple[str, ...], regions: dict[str, Array], some: Array) -> list[Any]:
    """The promises of these names for some slices."""
    import pixelbounds as pb

    made = [(x, {"within": regions[x][some], "cap": CAP} if x in regions else {}) for x in names]
    return [pb.share(LEVELS[name], name=name, **how) for name, how in made]


def show(kept: dict[str, Any], path: Path) -> None:
    """What was missed in each draw beside what was promised: numbers, no slices."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 2.6), layout="constrained")
    axes = figure.subplots(1, len(LEVELS), sharey=True)
    for ax, (name, level) in zip(axes, kept["levels"].items(), strict=True):
        for place, way in enumerate(WAYS):
            values = [row[way]["risks"][name] for row in kept["draws"]]
            ax.plot(np.full(len(values), place), values, "o", alpha=0.4)
        ax.axhline(level, color="black", linewidth=1)
        ax.set_xticks(range(len(WAYS)), [way.replace(" ", "\n", 1) for way in WAYS], fontsize=7)
        ax.set_xlim(-0.6, len(WAYS) - 0.4)
        ax.set_title(f"{name}: promised {level:.0%}", fontsize=8)
    most = max(row[way]["risks"][name] for row in kept["draws"] for way in WAYS for name in LEVELS)
    axes[0].set_ylim(0, 1.1 * max(most, *LEVELS.values()))
    axes[0].set_ylabel("share missed, a point a draw", fontsize=8)
    figure.savefig(path, dpi=100)


# ---------------------------------------------------------------- the page


def text(kept: dict[str, Any] | None = None) -> str:
    """The table of the page."""
    if kept is None:
        if not RESULT.exists():
            return "Not measured yet: it needs a GPU (`reproduce/gpu/README.md`)."
        kept = json.loads(RESULT.read_text())
    assert kept is not None
    about, decibels = kept["run"], kept["psnr"]
    lines = [
        "| promised | mean length | in the lung | in the heart | missed of all | of the lung | of the heart |",
        "|---|---|---|---|---|---|---|",
    ]
    for way in WAYS:
        rows = [row[way] for row in kept["draws"]]
        lengths = [np.mean([row["length"] for row in rows])]
        lengths += [np.mean([row["lengths"][name] for row in rows]) for name in ("lung", "heart")]
        missed = [np.mean([row["risks"][name] for row in rows]) for name in ("all", "lung", "heart")]
        cells = [f"{x:.4f}" for x in lengths] + [f"{x:.1%}" for x in missed]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    kept_all = sum(
        all(row["all, lung and heart"]["risks"][x] <= level for x, level in kept["levels"].items())
        for row in kept["draws"]
    )
    uncapped = {
        name: np.mean([row["all, lung and heart"]["uncapped"][name] for row in kept["draws"]])
        for name in ("lung", "heart")
    }
    trained = "a denoiser of such slices was trained on" if about["started"] else "trained"
    size, views = about["size"], about["size"] // about["fewer"]
    asked = ", ".join(f"{level:.0%} of {name}" for name, level in kept["levels"].items())
    said = (
        f"{kept['slices']} slices ({size} x {size}) of {kept['patients']} patients whose slices trained nothing, each "
        f"seen from {views} angles instead of {size} (noise {about['sigma_0']:g} a ray). PSNR of least squares "
        f"{decibels['solved']:.1f} dB, of the mean of {about['samples']} samples {decibels['mean']:.1f} dB; of least "
        f"squares from all {size} {decibels['solved_all_views']:.1f} dB. Promised at 90%: at most {asked} missed. "
        f"Of lung and heart a slice counts for at most {kept['cap']:g}, in what is promised and in the table; counted "
        f"whole, {uncapped['lung']:.1%} of the lung and {uncapped['heart']:.1%} of the heart were missed in the first "
        f"row. Of each of {len(kept['draws'])} draws "
        f"{kept['calibrate']} slices calibrate and the others, of the same patients, judge: a promise about slices "
        f"like these, not about a new patient. Means are shown. The bands of the samples, before calibration, have a "
        f"length of {kept['band']['length']:.4f} and miss {kept['band']['missed']:.0%}. What was missed of the judging "
        f"slices lay within all three levels in {kept_all} draws. {about['method']}, {about['steps']} steps; {trained} "
        f"for {about['train_seconds']:.0f} s and drawn in {about['draw_seconds']:.0f} s on {about['device']}, commit "
        f"{about['commit'] or kept['machine']['commit']}."
    )
    return "\n".join([*lines, "", said])


def picture(options: argparse.Namespace) -> None:
    """Draw what was kept."""
    show(json.loads(RESULT.read_text()), PICTURE)


def main() -> None:
    """Run, collect, or draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("does", choices=("run", "collect", "picture"))
    parser.add_argument("--data", help="the zip of slices")
    parser.add_argument("--out", default=".", help="folder for what comes back")
    parser.add_argument("--start", help="run: a network to train further, .safetensors; default: a fresh one")
    parser.add_argument("--network", default="small")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--sigma-max", type=float, default=3.0, help="run: the greatest deviation of noise")
    parser.add_argument("--seconds", type=float, default=120, help="run: to train, without compiling")
    parser.add_argument("--rate", type=float, default=1e-3, help="run: the learning rate")
    parser.add_argument("--batch", type=int, default=128, help="run: of training")
    parser.add_argument("--compile", action="store_true", help="run: the training; pays where it was compiled before")
    parser.add_argument("--until", type=float, default=430, help="run: seconds after which no block is begun")
    parser.add_argument("--images", type=int, default=440, help="run: slices that are measured at most")
    parser.add_argument("--block", type=int, default=22, help="run: slices that are drawn together")
    parser.add_argument("--rows", type=int, default=209, help="run: samples that pass the network together")
    parser.add_argument("--samples", type=int, default=19)
    parser.add_argument("--method", default="mmps")
    parser.add_argument("--solver-steps", type=int, default=1)
    parser.add_argument("--steps", type=int, help="run: of the sampler; default: as many as time allows")
    parser.add_argument("--least-steps", type=int, default=10)
    parser.add_argument("--most-steps", type=int, default=32)
    parser.add_argument("--damping", type=float, default=0.05, help="run: of least squares")
    parser.add_argument("--commit", default="")
    parser.add_argument("--draws", type=int, default=20, help="collect: of slices that calibrate")
    parser.add_argument("--share", type=float, default=0.6, help="collect: of the slices calibrate")
    parser.add_argument("--result", default=str(RESULT), help="collect: the JSON to write")
    options = parser.parse_args()
    {"run": run, "collect": collect, "picture": picture}[options.does](options)


if __name__ == "__main__":
    main()
