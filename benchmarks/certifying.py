"""Why K-RCPS may be longer than RCPS: what the images that it fits with would have certified.

python -m benchmarks.certifying faces64=local/faces64 ct64=local/ct64 chest128=local/chest128    (writes JSON)
python -m benchmarks.certifying                                 (writes the table of docs/research/tried.md of it)

In every draw of the experiment: RCPS with all images, RCPS with those alone that K-RCPS certifies with, and K-RCPS.
The first step is the price of fitting, the second what the groups give.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.materials import measure_or_write
from benchmarks.readme import result, where
from pixelbounds.calibration.methods import KRCPS, RCPS
from reproduce.draws import Draw
from reproduce.experiment import Experiment, load_experiment
from reproduce.fits import certified, measure
from reproduce.material import Material
from reproduce.rows import PAPER_BOUNDS

PAGE = "docs/research/tried.md"
BEGIN = "<!-- figures: python -m benchmarks.certifying -->"
FITTING, GROUPS = 128, 4
WHAT = "RCPS, all images", "RCPS, the images that K-RCPS certifies with", f"K-RCPS, K = {GROUPS}"
BOUNDS = {"hoeffding_bentkus": "Hoeffding-Bentkus", "betting": "betting"}


def lengths(experiment: Experiment, material: Material, draw: int) -> dict[tuple[str, str], float]:
    """Mean length on the validation images of one draw, by procedure and bound."""
    drawn = Draw(experiment, material, draw)
    cal, val = drawn.both("calibrated")
    methods = RCPS(), RCPS(n_fit=FITTING), KRCPS(GROUPS, gammas=experiment.krcps.gamma_values, n_fit=FITTING)
    fits = [drawn.fit(cal, method) for method in methods]
    return {
        (what, bound): measure(val, found.path.grouping, certified(found, bound).widening)["length"]
        for what, found in zip(WHAT, fits, strict=True)
        for bound in PAPER_BOUNDS
    }


def rows_of(name: str, material: Material, draws: int | None = None) -> list[dict[str, Any]]:
    """Mean lengths over the draws of an experiment."""
    experiment = load_experiment(name)
    count = experiment.draws.count if draws is None else draws
    found = [lengths(experiment, material, draw) for draw in range(count)]
    images = {WHAT[0]: experiment.draws.calibration} | dict.fromkeys(WHAT[1:], experiment.draws.calibration - FITTING)
    return [
        {
            "data": name, "what": what, "bound": bound, "draws": count, "certifying": images[what],
            "mean length": float(np.mean([one[what, bound] for one in found])),
        }
        for what, bound in found[0]
    ]  # fmt: skip


def text() -> str:
    found = result("certifying")
    lines = [f"| | bound | {' | '.join(WHAT)} |", "|---|---|---:|---:|---:|"]
    for name in dict.fromkeys(row["data"] for row in found["rows"]):
        for bound, title in BOUNDS.items():
            some = [row for row in found["rows"] if (row["data"], row["bound"]) == (name, bound)]
            cells = [f"{row['mean length']:.4f} ({row['certifying']})" for row in some]
            lines.append(f"| {name} | {title} | {' | '.join(cells)} |")
    draws = found["rows"][0]["draws"]
    told = f"Mean length over {draws} draws, in brackets the images that certify; {where(found)}."
    return "\n".join([*lines, "", told])


if __name__ == "__main__":
    measure_or_write("certifying", "what the fitting images would have certified", rows_of, (PAGE, BEGIN), text)
