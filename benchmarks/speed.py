"""Speed and synthetic lengths in docs/research/speed.md."""

from __future__ import annotations

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
    return "\n".join(lines)
