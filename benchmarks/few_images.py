"""What few images certify: the default beside RCPS, whose one group needs no image to be fitted on.

python -m benchmarks.few_images faces64=local/faces64 ct64=local/ct64 chest128=local/chest128 phantom=packaged (JSON)
python -m benchmarks.few_images                                       (writes the table of docs/tried.md of it)

Mean length on images that calibrate nothing, for multiples of the fewest images that can certify the experiment's risk
level at all; both with betting, in the same splits. `few_images_before.json` is of the rules that were there before.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from benchmarks.__main__ import RESULTS, machine, show
from benchmarks.readme import HERE, result, where, with_figures
from pixelbounds.calibration.confidence import least_images
from pixelbounds.calibration.front_door import calibrate
from pixelbounds.experiments.draws import LIMITS
from pixelbounds.experiments.experiment import load_experiment
from pixelbounds.experiments.material import Material, load_material

PAGE = "docs/tried.md"
BEGIN = "<!-- figures: python -m benchmarks.few_images -->"
TIMES = 1.6, 2.1, 3, 4, 6, 9
SPLITS, JUDGING = 10, 300


def lengths(material: Material, count: int, split: int, risk_level: float) -> tuple[float, float]:
    """Mean length of RCPS and of the default on images that calibrate nothing."""
    order = np.random.default_rng([split, 7]).permutation(len(material.truth))
    band = material.band("calibrated")
    some, others = np.sort(order[:count]), np.sort(order[count:][:JUDGING])
    cal, new = (band.map(lambda x, at=at: x[at], checked=True) for at in (some, others))
    found = []
    for method in ("rcps", "frontier"):
        asked = {"risk_level": risk_level, "failure_prob": 0.1, "seed": split, "limits": LIMITS}
        interval = calibrate(material.truth[some], cal, method=method, **asked).apply(new)
        found.append(float(np.mean(interval.upper - interval.lower)))
    return found[0], found[1]


def rows_of(name: str, material: Material, splits: int = SPLITS) -> list[dict[str, Any]]:
    """A row for each number of images of which enough others are left to judge."""
    level = load_experiment(name).task.risk_level
    least = least_images(level, 0.1, confidence="betting")
    counts = [count for times in TIMES if (count := round(times * least)) + JUDGING // 2 <= len(material.truth)]
    rows = []
    for count in counts:
        both = np.array([lengths(material, count, split, level) for split in range(splits)])
        change = both[:, 1] / both[:, 0] - 1
        rows.append({
            "data": name, "risk level": level, "least": least, "images": count, "splits": splits,
            "rcps": float(both[:, 0].mean()), "frontier": float(both[:, 1].mean()),
            "difference": float(change.mean()), "error": float(change.std(ddof=1) / np.sqrt(splits)),
        })  # fmt: skip
    return rows


def text() -> str:
    now, before = result("few_images"), result("few_images_before")
    old = {(row["data"], row["images"]): row for row in before["rows"]}
    lines = [
        "| | risk level | images, of which this many can certify at all | RCPS | the default | against RCPS | before |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for row in now["rows"]:
        was = old[row["data"], row["images"]]
        lines.append(
            f"| {row['data']} | {row['risk level']:g} | {row['images']}, {row['least']} | {row['rcps']:.4f} "
            f"| {row['frontier']:.4f} | {row['difference']:+.1%} +- {row['error']:.1%} | {was['difference']:+.1%} |"
        )
    splits = now["rows"][0]["splits"]
    told = f"Mean length over {splits} splits; {where(now)}; before: commit {before['machine']['commit']}."
    return "\n".join([*lines, "", told])


def main() -> None:
    """Measure on the named materials, or write the table of what was measured."""
    if sys.argv[1:]:
        words = [word.split("=") for word in sys.argv[1:]]
        rows = [row for name, folder in words for row in rows_of(name, load_material(folder))]
        show("what few images certify", rows)
        content = {"benchmark": "few_images", "machine": machine(), "rows": rows}
        (RESULTS / "few_images.json").write_text(json.dumps(content, indent=1) + "\n")
    (HERE.parent / PAGE).write_text(with_figures(PAGE, BEGIN, text()))


if __name__ == "__main__":
    main()
