"""What was measured on the GPU, for docs/research/gpu.md (`python -m benchmarks.pages`).

Reads what the makers of the materials of `python -m reproduce` said (benchmarks/results/reproduce), speed_gpu.json
(measured at commit 600536b by a program of the history) and cpu_sampling.json.
"""

from __future__ import annotations

from typing import Any

from benchmarks.pages import RESULTS, made, result, where
from pixelbounds.bands import calibrated_ranks

PAGE = "docs/research/gpu.md"
SETS = {
    "faces64": "faces, 64 x 64, sigma_0 = 1 in [-1, 1]",
    "ct64": "abdominal CT, 64 x 64, sigma_0 = 0.4 in [0, 1]",
    "chest128": "chest CT, 128 x 128, sigma_0 = 0.3 in [0, 1]",
    "faces128": "faces, 128 x 128 x 3, sigma_0 = 1 in [-1, 1]",
    "chest512": "chest CT, 512 x 512, sigma_0 = 0.4 in [0, 1]",
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
        f"Speed (NCSN++, one run, {found['device']}, torch {found['torch']}, "
        f"{found['parameters'] / 1e6:.1f}M parameters, {found['flops_per_evaluation'] / 1e9:.2f} GFLOP an evaluation): "
        f"with `--compile` the shipped path evaluates the network {s['evaluations_per_second']:,.0f} times a second, "
        f"{s['ratio']:.1f} times as often as the plain fp32 eager loop of Algorithm 3 "
        f"({s['plain_fp32_eager']:,.0f}), which is {s['share_of_peak']:.1%} of the bf16 matrix peak that the same run "
        f"measured ({found['peak_bf16'] / 1e12:.0f} TFLOP/s). Batches of {s['batch']}, chosen automatically, took "
        f"{s['memory_gib']:.1f} of {s['free_gib']:.0f} GiB."
    )


def cpu(found: dict[str, Any]) -> str:
    """One paragraph on networks without a GPU."""
    rates = {row["what"]: row["evaluations/s"] for row in found["rows"]}
    said = ", ".join(
        f"`{row['what']}` ({row['parameters'] / 1e6:.1f}M) {rates[row['what']]:.0f}" for row in found["rows"]
    )
    names = list(rates)
    ratios = [rates[b] / rates[a] for a, b in zip(names[::2], names[1::2], strict=True)]
    return (
        f"On a CPU (`python -m benchmarks cpu_sampling`; {where(found)}, load {found['load']:.0f}; in turns in one "
        f"process), evaluations of 64 x 64 a second of a core: {said}. That is {ratios[0]:.1f} times `small`, and "
        f"{ratios[1]:.1f} times `tiny` for the network of the hands-on path."
    )


def text() -> str:
    found = {name: made(name) for name in SETS if name in {path.stem for path in RESULTS}}
    parts = [
        *trained(found),
        "",
        fresh(found),
        "",
        speed(result("speed_gpu")),
        "",
        cpu(result("cpu_sampling")),
    ]
    return "\n".join(parts)
