"""The session at the paper's sizes, for docs/research/gpu.md: networks side by side, both ways end to end, organs.

Reads benchmarks/results: networks.json, reproduce/faces128.json and chest512.json, and organs512.json; what was not
measured yet is left out.
"""

from __future__ import annotations

from typing import Any

from benchmarks.chest import LEVELS, summary
from benchmarks.pages import HERE, result
from reproduce.summaries import length_differences, summaries

PAGE = "docs/research/gpu.md"
PAPERS = "printed/krcps_best/hoeffding_bentkus"
OURS = ("ours/frontier/betting", "calibrated/frontier/betting")  # the first that there is
NAMES = {"lean": "`lean`", "small": "`small` (NCSN++)", "azula": "azula UNet", "diffusers": "diffusers UNet2DModel"}


def peers(found: dict[str, Any]) -> str:
    """Rates and seconds of each network, and what equal seconds of training bring."""
    lines = [
        "| network | parameters | evaluations/s, 64 | 128 | share of the peak, 64 | 128 | seconds to compile, 64 "
        "| certified length | PSNR | fresh draws: from expected, in standard errors | 400 images, start to finish |",
        "|---" * 11 + "|",
    ]
    for name, words in NAMES.items():
        if "rate_64" not in (row := found["networks"].get(name, {})):
            continue
        cells = [f"{row['parameters'] / 1e6:.1f}M", *(f"{row[f'rate_{size}']:,.0f}" for size in (64, 128))]
        cells += [*(f"{row[f'share_{size}']:.1%}" for size in (64, 128)), f"{row['compile_64']:.0f}"]
        if "lengths" in row:
            off = (row["fresh"] - 0.9) / row["fresh_error"]
            cells += [f"{sum(row['lengths']) / len(row['lengths']):.4f}", f"{row['psnr']:.2f}", f"{off:+.1f}"]
        else:
            cells += ["", "", ""]
        whole = [f"{x:.0f} s ({key.split(', ')[1]})" for key, x in found["whole"].items() if key.startswith(name) and x]
        lines.append(f"| {words} | {' | '.join(cells)} | {', '.join(whole)} |")
    again = [row.get("compiled_in_sampling", 0) for row in found["networks"].values()]
    said = (
        f"{found['device']}, torch {found['torch']}, commit {found['commit']}: compiled, bf16, batches of 1,024 (64 x "
        f"64) and 256 (128 x 128); {found['seconds']:.0f} s of training each on ct64, 39 samples of 384 images of "
        "scans for development, certified at 0.05 on 256 of them, mean of 20 draws. Programs compiled again inside "
        f"`sample`: {sum(again)}."
    )
    return "\n".join([*lines, "", said])


def ends(names: list[str]) -> str:
    """Both ways end to end, each with its own network and seconds."""
    lines = [
        "| images | way | seconds of GPU: training, sampling | mean length | risk | draws above the level "
        "| fresh draws: from expected, in standard errors |",
        "|---" * 7 + "|",
    ]
    said = []
    for name in names:
        results = result(f"reproduce/{name}")
        by_key = {s.row.key: s for s in summaries(results)}
        calls = {call["way"]: call for call in results["material"]["figures"]["calls"]}
        mine = next(key for key in OURS if key in by_key)
        for way, key, words in (("paper", PAPERS, "the paper's way"), ("ours", mine, "ours")):
            row, drawn = by_key[key], calls[way]["bands"][-1]
            m = drawn["samples"]
            off = drawn[f"coverage_{m}"] - drawn[f"coverage_expected_{m}"]
            seconds = sum(run["seconds"] for run in calls[way]["training"]), drawn["seconds"]
            lines.append(
                f"| {results['configuration']['title']} | {words}, {m} samples | {seconds[0]:.0f}, "
                f"{seconds[1]:.0f} | {row.length.mean():.4f} | {row.risk.mean():.4f} | {row.above:.0%} "
                f"| {off / drawn[f'coverage_error_{m}']:+.1f} |"
            )
        [gain] = [d for d in length_differences(results, PAPERS) if d.row.key == mine]
        speed = calls["ours"].get("speed", {"evaluations": 0, "share": 0})
        said.append(
            f"{results['configuration']['title']}: ours {gain.value:+.1%} ({gain.low:+.1%} to {gain.high:+.1%}), "
            f"shorter in {gain.shorter} of {gain.draws} draws; {speed['evaluations']:,.0f} evaluations/s, "
            f"{speed['share']:.0%} of the bf16 peak"
        )
    return "\n".join([*lines, "", "; ".join(said) + "."])


def organs(found: dict[str, Any]) -> str:
    """Promises for organs on chest512."""
    told = summary(found["rows"])
    names = next((list(x["risks"]) for x in told if x["certified"]), [])
    heads = " | ".join(f"{name} {LEVELS[name]:.0%}" for name in names)
    lines = [f"| way | certified | all kept | {heads} | length |", "|---" * (4 + len(names)) + "|"]
    for x in told:
        cells = [f"{x['certified']} of {x['draws']}"]
        if x["certified"]:
            cells += [str(x["kept"]), *(f"{x['risks'][name]:.1%}" for name in names), f"{x['lengths']['all']:.4f}"]
        lines.append(f"| {x['way']} | {' | '.join(cells)} |")
    return "\n".join(
        [*lines, "", f"True risks of {found['slices']} slices of 512 x 512 of {found['patients']} patients."]
    )


def text() -> str:
    """What is measured."""
    there = {path.relative_to(HERE / "results").as_posix() for path in (HERE / "results").rglob("*.json")}
    sizes = [name for name in ("faces128", "chest512") if f"reproduce/{name}.json" in there]
    parts = [peers(result("networks"))] if "networks.json" in there else []
    parts += [ends(sizes)] if sizes else []
    parts += [organs(result("organs512"))] if "organs512.json" in there else []
    return "\n\n".join(parts) or "Not measured yet: `reproduce/gpu/README.md` has the calls."
