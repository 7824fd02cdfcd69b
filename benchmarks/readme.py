"""Write figures into README.md, between its two markers: python -m benchmarks.readme.

They come from benchmarks/results; those of real images from the JSONs of `python -m reproduce` in its folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reproduce.results import load_results
from reproduce.rows import REFERENCE, SHORTEST
from reproduce.summaries import gains, summaries

AGAINST = "against the paper's"
HERE = Path(__file__).parent
RESULTS = [HERE / "results/reproduce" / f"{name}.json" for name in ("faces64", "ct64", "chest128", "phantom")]
PAGE = "README.md"
BEGIN = "<!-- figures: python -m benchmarks.readme -->"
END = "<!-- end of figures -->"


def result(name: str) -> dict[str, Any]:
    return dict(json.loads((HERE / "results" / f"{name}.json").read_text()))


def made(name: str) -> dict[str, Any]:
    """What the makers of an experiment's material said of it."""
    return dict(result(f"reproduce/{name}")["material"]["figures"])


def where(found: dict[str, Any]) -> str:
    machine = found["machine"]
    return f"commit {machine['commit']}, {machine['cores']} cores of {machine['cpu'] or 'an unnamed CPU'}"


def reproduced() -> list[str]:
    """What `python -m reproduce` found, experiment by experiment."""
    lines = [
        "| data | risk level | K-RCPS, Hoeffding-Bentkus (the paper) | frontier, betting | difference | "
        "against K-RCPS, betting |",
        "|---|---|---|---|---|---|",
    ]
    for path in RESULTS:
        results = load_results(path)
        settings = results["configuration"]
        by_key = {s.row.key: s.length.mean() for s in summaries(results)}
        gain = {d.reference.key: d.value for d in gains(results)}
        lines.append(
            f"| {settings['title']} | {settings['task']['risk_level']:g} "
            f"| {by_key[REFERENCE]:.4f} | {by_key[SHORTEST]:.4f} "
            f"| {gain[REFERENCE]:+.1%} | {gain['calibrated/krcps_best/betting']:+.1%} |"
        )
    return lines


def end_to_end() -> list[str]:
    """Training, sampling and calibration together, the paper's way and ours with one network, a row a set."""
    from .equal_time import Compared, measured, title

    lines = [
        "| data | images that calibrate | the paper's way: seconds, length | ours, one network: seconds, length "
        "| shorter | if calibrated the paper's way | no longer than the paper's: seconds of sampling |",
        "|---|---|---|---|---|---|---|",
    ]
    for results in measured():
        found = Compared.of(results)
        took, takes = (row["seconds"]["sampling"] for row in (found.papers, found.cheapest))
        lines.append(
            f"| {title(results)} | {results['calibration']} | {found.said(found.papers)} "
            f"| {found.said(found.ours)} | {found.shorter(found.ours):.1%} | {found.shorter(found.crossed):.1%} "
            f"| {takes:.1f} in place of {took:.0f} |"
        )
    return lines


def text() -> str:
    krcps = result("krcps")
    frontier = result("frontier")
    times = {row["what"]: row for row in result("quantiles")["rows"]}
    ours = times["calibrated_quantiles"]
    lines = [
        "## Measured",
        "Mean length of intervals that hold the calibrated quantiles of posterior samples, over 20 draws of",
        "calibration and validation images; networks trained with this project's code, K-RCPS with the cell of",
        "its grid that is shortest on the validation images, as in the paper. The last column is the path's gain",
        "alone, with the same bound. All rows, the limit, and how it was done: [docs/results.md](docs/results.md).",
        "",
        *reproduced(),
        "",
        "From training to intervals, each way with its own network, samples and procedure, in seconds of an H200",
        "([docs/diffusion.md](docs/diffusion.md#what-seconds-of-a-gpu-buy)):",
        "",
        *end_to_end(),
        "",
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


def with_figures(page: str, begin: str, figures: str) -> str:
    """The text of a page with these figures between its markers."""
    before, rest = (HERE.parent / page).read_text().split(begin)
    return f"{before}{begin}\n{figures}\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    (HERE.parent / PAGE).write_text(with_figures(PAGE, BEGIN, text()))
