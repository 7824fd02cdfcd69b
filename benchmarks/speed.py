"""Speed and synthetic lengths in docs/research/speed.md."""

from __future__ import annotations

from typing import Any

from .pages import result, where

PAGE = "docs/research/speed.md"
AGAINST = "against the paper's"


def text() -> str:
    krcps = result("krcps")
    frontier = result("frontier")
    times = {row["what"]: row for row in result("quantiles")["rows"]}
    ours = times["calibrated_quantiles"]
    lines = [
        f"Ratios of one run each (`make bench`; {where(frontier)}).",
        "",
        f"- `calibrated_quantiles` of 128 samples of 512 x 512: {ours['seconds']:.2g} s, "
        f"{times['np.sort']['times ours']:.1f} times faster than `np.sort`, "
        f"{times['torch.quantile']['times ours']:.0f} times faster than `torch.quantile`, "
        f"with {ours['extra memory'].split()[0]} extra memory.",
        f"- `krcps` on 512 images of 128 x 128, all pixels, 16 gammas: {krcps['rows'][0]['seconds']:.2g} s, "
        f"{krcps['rows'][1]['times ours']:.0f} times faster than the paper's pipeline written out literally.",
        f"- `frontier` with band features on 512 images of 256 x 256: {frontier['rows'][0]['seconds']:.2g} s, "
        f"{frontier['rows'][0]['times one copy']:.0f} times one copy of its input; it grows with images to the power "
        f"{frontier['rows'][7]['seconds']:.2f} and with pixels to the power {frontier['rows'][8]['seconds']:.2f} "
        "(over a 16-fold range).",
        "",
        "Synthetic images and a crude sampler, risk level 0.1, 640 calibration and 640 held-out images of 64 x 64:",
        "",
        "| method | mean length | against the paper's | risk | seconds |",
        "|---|---|---|---|---|",
    ]
    for row in result("learned")["rows"]:
        lines.append(
            f"| {row['what']} | {row['mean length']:.4f} | {row[AGAINST]} | {row['risk']:.4f} "
            f"| {row['seconds to calibrate']:.2g} |"
        )
    return "\n".join([*lines, "", *slices(result("slices"))])


def slices(found: dict[str, Any]) -> list[str]:
    """512 slices of 512 x 512, by every method and written out."""
    rows, held = found["rows"], found["rows"][0]["arrays"] / 1e9
    loads = [row["load"] for row in rows]
    lines = [
        f"512 slices of 512 x 512 ({held:.1f} GB of truth and band, synthetic), level 0.05, 128 slices fit; each "
        f"method in a process of its own (`python -m benchmarks slices`; {where(found)}, load {min(loads):.0f} to "
        f"{max(loads):.0f}: seconds of the cores say more than seconds passed). The literal ways step down by 0.01 "
        "from 0.3; finer steps from higher take longer.",
        "",
        "| method | seconds of the cores | seconds passed | peak memory | mean length |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        taken = f"{row['CPU seconds']:.1f} | {row['seconds']:.0f} | {row['peak memory'] / 1e9:.1f} GB"
        lines.append(f"| {row['what']} | {taken} | {row['mean length']:.4f} |")
    times = {row["what"]: row["CPU seconds"] for row in rows}
    return [
        *lines,
        "",
        f"The paper's way written out takes {times['literal krcps, 100 pixels'] / times['krcps, 100 pixels']:.0f} "
        f"times the seconds of `krcps` with as many pixels, RCPS {times['literal rcps'] / times['rcps']:.0f} times.",
    ]
