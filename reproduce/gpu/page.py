"""Write what was measured on the GPU into docs/diffusion.md, between its markers: python -m reproduce.gpu.page.

Reads what the makers of the materials of `python -m reproduce` said (benchmarks/results/reproduce), speed_gpu.json
(from `speed`), rates_gpu.json (from `rates`), generalise_*.json and dropout.json (from `certified`), budgets_ct64.json
and cpu_training.json.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.readme import HERE, made, result, where, with_figures
from pixelbounds.bands import calibrated_ranks

PAGE, BEGIN = "docs/diffusion.md", "<!-- figures: python -m reproduce.gpu.page -->"
SETS = {
    "faces64": "faces, 64 x 64, sigma_0 = 1 in [-1, 1]",
    "ct64": "abdominal CT, 64 x 64, sigma_0 = 0.4 in [0, 1]",
    "chest128": "chest CT, 128 x 128, sigma_0 = 0.3 in [0, 1]",
}


def trained(found: dict[str, dict[str, Any]]) -> list[str]:
    """The networks and their bands before any risk control."""
    rows: dict[str, Any] = {
        "images that train, fine-tune, are held out": lambda f: ", ".join(f"{x:,}" for x in f["images"].values()),
        "score networks: parameters of each, steps and seconds of all": lambda f: (
            f"{f['score'].get('networks', 1)}: {f['score']['parameters'] / 1e6:.1f}M, {f['score']['step']:,}, "
            f"{f['score']['seconds']:.0f}"
        ),
        "PSNR of the observation, the mean of samples": lambda f: " / ".join(
            f"{f['sampling'][x]:.2f}" for x in ("psnr_noisy", "psnr_mean")
        ),
        "miscoverage alpha, asked coverage 1 - alpha": lambda f: f"{f['miscoverage']:g}, {1 - f['miscoverage']:g}",
        "calibrated quantiles: miss rate, mean length": lambda f: band(f["sampling"]),
        "coverage of fresh draws +- standard error (expected)": lambda f: (
            f"{f['sampling']['coverage_of_fresh_draw']:.4f} +- {f['sampling']['coverage_error']:.4f} "
            f"({f['sampling']['exact_coverage']:.4f})"
        ),
        "naive quantiles: miss rate, mean length": lambda f: band(f["sampling"]["naive"]),
        "quantile regression: steps, PSNR, miss rate, mean length": lambda f: (
            f"{f['regressor']['step']:,}, {f['regressor_band']['psnr_estimate']:.2f}, {band(f['regressor_band'])}"
        ),
        "N-Conffusion: steps, miss rate, mean length": lambda f: (
            f"{f['conffusion']['step']:,}, {band(f['conffusion_band'])}"
        ),
        "MC-Dropout: PSNR of the mean, mean deviation": lambda f: (
            f"{f['dropout']['psnr_mean']:.2f}, {f['dropout']['mean_deviation']:.4f}"
        ),
        "samples of each image": lambda f: f"{f['sampling']['m']}",
        "seconds for all samples and a fresh one, after compiling": lambda f: (
            f"{f['sampling']['samples']:,} in {f['sampling']['seconds_after_the_first_batch']:.0f}"
        ),
    }
    lines = [f"| | {' | '.join(SETS[name] for name in found)} |", "|---" * (1 + len(found)) + "|"]
    return lines + [f"| {what} | {' | '.join(cell(f) for f in found.values())} |" for what, cell in rows.items()]


def band(figures: dict[str, float]) -> str:
    return f"{figures['miss_rate']:.3f}, {figures['mean_length']:.3f}"


def fresh(found: dict[str, dict[str, Any]]) -> str:
    """How far the coverage of fresh draws is from what is expected, in standard errors."""
    parts = []
    for name, f in found.items():
        s, counted, said = f["sampling"], _counted(f), SETS[name].split(",")[0]
        off = {
            m: f"{(b[f'coverage_{m}'] - _expected(b, m)) / b[f'coverage_error_{m}']:+.1f}" for m, b in counted.items()
        }
        if s["m"] in off:
            parts.append(f"{said} {off[s['m']]}")
            continue
        stored = [s["coverage_before_rounding_at_least"], s["coverage_of_fresh_draw"]]
        ends = " to ".join(f"{(x - s['exact_coverage']) / s['coverage_error']:+.1f}" for x in stored)
        most = max(counted, default=0)
        parts.append(f"{said} {ends}" + (f" ({off[most]} for bands of the first {most} samples)" if most else ""))
    return (
        f"Coverage of fresh draws less what is expected, in standard errors: {', '.join(parts)}. The arrays are stored "
        "in float16 with ends rounded outward, and cover a little more, as in the table; where the GPU did not count "
        "before rounding, that coverage lies between the two numbers."
    )


def _counted(figures: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """By number of samples, bands of the material's networks whose coverage was counted where they were drawn."""
    label, level = f"ours-{figures['score']['networks']}", figures["miscoverage"]
    bands = [band for call in figures["calls"] for band in call["bands"]]
    found = {}
    for told in (band for band in bands if band["label"] == label and band["miscoverage"] == level):
        counts = [key.removeprefix("coverage_") for key in told]
        found |= {int(count): told for count in reversed(counts) if count.isdigit() and int(count) not in found}
    return found


def _expected(told: dict[str, Any], m: int) -> float:
    low, high = calibrated_ranks(m, told["miscoverage"])
    return (high - low) / (m + 1)


def speed(found: dict[str, Any]) -> str:
    """One paragraph on how fast it is."""
    s = found["sampling"]
    return (
        f"Speed (`python -m reproduce.gpu.speed`, one run, {found['device']}, torch {found['torch']}, "
        f"{found['parameters'] / 1e6:.1f}M parameters, {found['flops_per_evaluation'] / 1e9:.2f} GFLOP an evaluation): "
        f"with `--compile` the shipped path evaluates the network {s['evaluations_per_second']:,.0f} times a second, "
        f"{s['ratio']:.1f} times as often as the plain fp32 eager loop of Algorithm 3 "
        f"({s['plain_fp32_eager']:,.0f}), which is {s['share_of_peak']:.1%} of the bf16 matrix peak that the same run "
        f"measured ({found['peak_bf16'] / 1e12:.0f} TFLOP/s). Batches of {s['batch']}, chosen automatically, took "
        f"{s['memory_gib']:.1f} of {s['free_gib']:.0f} GiB."
    )


WAYS = {
    "plain": "as `--compile` has it",
    "phases": "doubling by four maps, one for each place of a pixel",
    "cast": "weights cast to bfloat16 once",
    "phases-cast": "doubling by four maps, weights cast once",
    "frozen": "weights as constants of the program",
    "phases-frozen": "doubling by four maps, weights as constants",
    "tuned": "tiles of kernels searched",
    "shifted": "doubling by shifted sums",
    "native": "doubling by torch's own kernel",
    "autotuned": "convolutions searched among Triton's",
    "large-batch": "weights cast to bfloat16 once",
    "batch-128": "as `--compile` has it",
    "batch-64": "doubling by four maps, weights cast once",
    "batch-32": "doubling by four maps, weights cast once",
    "batch-32-frozen": "doubling by four maps, weights as constants",
    "width-32": "half the width",
    "width-128": "twice the width",
    "patch": "squares of 2 x 2 pixels as channels, three levels of 128",
    "size-128": "128 x 128",
    "celeba": "`celeba`, 128 x 128 x 3",
}
ANOTHER = ("width-32", "width-128", "patch", "size-128", "celeba")  # networks or sizes, last in the table


def _place(row: dict[str, Any]) -> tuple[bool, int, int]:
    another = row["way"] in ANOTHER
    return another, 0 if another else -row["batch"], list(WAYS).index(row["way"])


def _papers_speed(name: str) -> dict[str, Any]:
    """How fast the network was when it drew the paper's way, in that run."""
    [told] = [told for told in result(name)["figures"] if told["way"] == "paper"]
    return dict(told["speed"])


def ways(rows: list[dict[str, Any]]) -> list[str]:
    """The table of ways to evaluate `small`, and where the time of a batch goes."""
    lines = [
        "| `small`, one block a level, 64 x 64, unless told | batch | evaluations a second | share of the bf16 peak "
        "| launched at once: evaluations a second, share |",
        "|---|---|---|---|---|",
    ]
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        first.setdefault(row["way"], row)
    for row in sorted(first.values(), key=_place):
        lines.append(
            f"| {WAYS[row['way']]} | {row['batch']:,} | {row['evaluations']:,.0f} | {row['share']:.1%} "
            f"| {row['evaluations_in_a_graph']:,.0f}, {row['share_in_a_graph']:.1%} |"
        )
    plains = [row for row in rows if row["way"] == "plain"]
    plain, repeated = plains[0], " and ".join(f"{row['evaluations']:,.0f} ({row['share']:.1%})" for row in plains)
    commits = " and ".join(dict.fromkeys(row["commit"] for row in rows))
    [whole, *most] = plain["kernels"]
    products = sum(ms for ms, _, name in most if any(kind in name for kind in ("xmma", "nvjet", "convolve", "sdpa")))
    least = plain["flops"] * plain["batch"] / plain["peak"] * 1e3
    symbolic, constant = (_papers_speed(f"equal_time_chest128{run}") for run in ("", "_600s"))
    peaks = [row["peak"] / 1e12 for row in rows]
    return [
        *lines,
        "",
        f"`python -m reproduce.gpu.rates`, {plain['device']}, torch {plain['torch']}, commits {commits}, at each of "
        f"which batches of {plain['batch']:,} as `--compile` has it were timed: {repeated}. `small` takes "
        f"{plain['flops'] / 1e9:.2f} GFLOP an evaluation of 64 x 64; each way ran in a process of its own, the peak "
        f"({min(peaks):.0f} to {max(peaks):.0f} TFLOP/s) measured just before. Of the {whole[0]:.1f} ms of a batch of "
        f"{plain['batch']:,}, convolutions and matrix products take at least {products:.1f}, for which the peak would "
        f"need {least:.1f}; the rest moves maps: norms, activations, sums, resampling. In a process that has trained "
        "before, torch takes the number of images for a variable of the program. Since it is a constant "
        f"(`compiled(network, dynamic=False)`), `small` is evaluated {constant['evaluations']:,.0f} times a second "
        f"({constant['share']:.1%}) in batches of {constant['batch']} chests of 128 x 128, where it was "
        f"{symbolic['evaluations']:,.0f} ({symbolic['share']:.1%}) before. Seconds of sampling below are from before, "
        "but for the paper's way in the last table.",
    ]


TRIED = {
    "as before: the last average": "as before, the last average kept",
    "plain": "stopping by validation: the best average kept",
    "edm-network": "... and the denoiser preconditioned as in EDM",
    "edm-loss": "... and the loss weighted as in EDM",
    "changes": "... and small turns, shifts, zooms, contrast and mirrors in place of the paper's rotations",
    "moves+rotations": "... and small turns, shifts and zooms for every other image, the paper's for the rest",
    "decay-1": "... and weight decay 1",
}


def generalised(found: dict[str, Any]) -> list[str]:
    """The table of what was tried at equal seconds, and what it says."""
    first = np.array(found["rows"][1]["lengths"])
    lines = [
        "| `small`, CT, one change each | steps, best at | validation loss: best, last | PSNR of the mean of samples | "
        "certified length | against stopping alone |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        length = np.array(row["lengths"])
        ratio = length / first - 1
        error = ratio.std(ddof=1) / np.sqrt(len(ratio))
        weighted = " (another loss)" if row["variant"] == "edm-loss" else ""
        compared = "" if row["variant"] == "plain" else f"{ratio.mean():+.1%} +- {error:.1%}"
        lines.append(
            f"| {TRIED[row['variant']]} | {row['steps']:,}, {row['best_step']:,} | {row['best_loss']:.4f}, "
            f"{row['last_loss']:.4f}{weighted} | {row['psnr']:.2f} | {length.mean():.4f} | {compared} |"
        )
    images = found["images"]
    lines += [
        "",
        f"{found['device']}, torch {found['torch']}, commit {found['commit']}: {found['train_seconds']:.0f} s of "
        f"training each in batches of {found['batch']} on {images['train']:,} images, {images['validation']} for "
        f"validation; {found['samples']} samples of {images['measured']} images in {found['sampler_steps']} steps "
        f"of `heun`, miscoverage {found['miscoverage']:g}. Certified at {found['risk_level']:g} with failure "
        f"probability {found['failure_prob']:g} (`frontier`, betting) on {found['calibration']} of them, measured on "
        "the rest, "
        f"mean over {found['draws']} draws; the error is that of the mean over draws, which share their images, and "
        "each network was trained once, with one seed: differences of about a percent are not settled by this. All "
        f"calls together held the machine for {found['device_seconds']:,.0f} s, most of them to compile.",
    ]
    return lines


AGAIN = {
    "plain@0": "stopping by validation",
    "edm-loss@0": "... and the loss weighted as in EDM",
    "edm-loss,decay-1@0": "... and the loss weighted as in EDM, weight decay 1",
    "patch@0": "... and 2 x 2 pixels as channels, three levels of 128",
    "patch,edm-loss@0": "... and both of these: EDM's weights, 2 x 2 pixels as channels",
    "width-32@0": "... and half the width",
}


def retried(found: dict[str, Any]) -> list[str]:
    """The table of the second sweep: one row a variant, all of one seed."""
    rows = [row for row in found["rows"] if row["average"] == "best"]
    first = np.array(rows[0]["lengths"])
    lines = [
        "| `small`, CT, second sweep | parameters | steps, best at | PSNR of the mean of samples | "
        "seconds to sample | certified length | against stopping alone |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        length = np.array(row["lengths"])
        ratio = length / first - 1
        error = ratio.std(ddof=1) / np.sqrt(len(ratio))
        compared = "" if row is rows[0] else f"{ratio.mean():+.1%} +- {error:.1%}"
        busy = " (beside a compiler)" if row["variant"] == "patch,edm-loss@0" else ""
        lines.append(
            f"| {AGAIN[row['variant']]} | {row['parameters'] / 1e6:.1f}M | {row['steps']:,}, {row['best_step']:,} | "
            f"{row['psnr']:.2f} | {row['sample_seconds']:.1f}{busy} | {length.mean():.4f} | {compared} |"
        )
    images = rows[0]["images"]
    lines += [
        "",
        f"{found['device']}, torch {found['torch']}, commit {found['commit']}: {rows[0]['train_seconds']:.0f} s of "
        f"training each, while other processes compiled; {found['samples']} samples of {images['measured']} images in "
        f"{found['sampler_steps']} steps of `heun`, and the rest as above, mean over {found['draws']} draws. One seed "
        f"each, and no run on held-out scans: no default follows from it. The session held the machine for "
        f"{found['device_seconds']:,.0f} s, of which compiling and a machine that was lost took most.",
    ]
    return lines


def dropped(found: dict[str, Any]) -> list[str]:
    """The table of rates of dropout."""
    rows = found["rows"]
    [usual] = [row for row in rows if row["dropout"] == 0.1]
    lines = [
        "| dropout | steps, best at | validation loss | PSNR of the mean of samples | miss rate before any control | "
        "certified length | against 0.1 |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = np.array(row["lengths"]) / np.array(usual["lengths"]) - 1
        compared = "" if row is usual else f"{ratio.mean():+.1%} +- {ratio.std(ddof=1) / np.sqrt(len(ratio)):.1%}"
        lines.append(
            f"| {row['dropout']:g} | {row['steps']:,}, {row['best_step']:,} | {row['loss']:.4f} | {row['psnr']:.2f} | "
            f"{row['miss_rate']:.3f} | {np.mean(row['lengths']):.4f} | {compared} |"
        )
    images = found["images"]
    lines += [
        "",
        f"{found['device']}, torch {found['torch']}, commit {found['commit']}: all else as of ours with one "
        f"network below, {rows[0]['seconds']:.0f} s of training each, {rows[0]['samples']} samples of "
        f"{images['measured']} images of {found['units']} held-out scans at miscoverage 0.1, certified at "
        f"{found['risk_level']:g} on {found['calibration']} of them, mean over {found['draws']} draws, which "
        "share their images. One seed each: differences below a percent are not settled. The default was 0.1 "
        "before; nothing was chosen by these scans.",
    ]
    return lines


def spent(found: dict[str, Any]) -> list[str]:
    """Length against steps, samples and miscoverage."""
    rows = {(row["steps"], row["samples"], row["miscoverage"]): row for row in found["rows"]}
    steps = sorted({key[0] for key in rows})
    levels = sorted({key[2] for key in rows})
    head = " | ".join(f"{n} steps, miscoverage {a:g}" for n in steps for a in levels)
    lines = [f"| samples | {head} |", "|---" * (1 + len(steps) * len(levels)) + "|"]
    for m in sorted({key[1] for key in rows}):
        cells = [rows.get((n, m, a)) for n in steps for a in levels]
        shown = ["" if cell is None else f"{np.mean(cell['lengths']):.4f}" for cell in cells]
        lines.append(f"| {m} | {' | '.join(shown)} |")
    few, many = (np.array(rows[12, m, 0.1]["lengths"]) for m in (79, 128))
    fewer = np.array(rows[8, 79, 0.1]["lengths"])
    lines += [
        "",
        "Certified lengths of one network, half as wide as `small`, trained uncompiled for "
        f"{found['train_seconds']:.0f} s (commit {found['commit']}), on {found['images']['measured']} images of scans "
        "for development, "
        f"{found['calibration']} of which calibrate (`frontier`, groups `{found['groups']}`, {found['risk_level']:g} "
        f"with failure probability {found['failure_prob']:g}), mean over {found['draws']} draws: lengths are those of "
        f"few images, and are to be compared with each other alone. At miscoverage 0.1 and 12 steps, 79 samples give "
        f"{(few / many).mean() - 1:+.1%} against 128; at 79 samples, 8 steps give {(fewer / few).mean() - 1:+.1%} "
        "against 12.",
    ]
    return lines


def threads(found: dict[str, Any]) -> str:
    """One paragraph on threads that wait."""

    def one(name: str) -> str:
        way = found[name]
        return f"{'' if way['finished'] else 'less than '}{way['images_per_second']:.1f}"

    ways = "one thread", "a thread a core", "a thread a core, asleep"
    return (
        f"Training `tiny` at 64 x 64 on {found['cores']} cores (`python -m benchmarks.cpu_training`, load "
        f"{found['load_before']:.1f} before it began), images a second beside {{}} further busy program: "
        + ", ".join(f"{name} {one(f'{name}, 1 neighbours')}" for name in ways)
        + "; beside none: "
        + ", ".join(f"{name} {one(f'{name}, 0 neighbours')}" for name in ways)
        + "."
    ).format("one")


def cpu(found: dict[str, Any]) -> str:
    """One paragraph on the `tiny` network without a GPU."""
    plain, ours, whole = found["rows"]
    return (
        f"On a CPU (`python -m benchmarks cpu_sampling`; {where(found)}): a denoising step of `tiny` takes "
        f"{ours['ms per image']:.1f} ms an image, {plain['seconds'] / ours['seconds']:.2f} times as fast as plain "
        f"eager mode, and {whole['what']} takes {whole['seconds']:.1f} s."
    ).replace(", heun, 24 steps takes", " (`heun`, 24 steps) take")


def text() -> str:
    found = {name: made(name) for name in SETS}
    parts = [
        *trained(found),
        "",
        *generalised(result("generalise_ct64")),
        "",
        *retried(result("generalise_ct64_60s")),
        "",
        *dropped(result("dropout")),
        "",
        *spent(result("budgets_ct64")),
        "",
        fresh(found),
        "",
        speed(result("speed_gpu")),
        "",
        *ways(result("rates_gpu")["rows"]),
        "",
        cpu(result("cpu_sampling")),
        "",
        threads(result("cpu_training")),
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    (HERE.parent / PAGE).write_text(with_figures(PAGE, BEGIN, text()))
