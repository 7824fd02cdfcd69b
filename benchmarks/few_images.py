"""What few images certify: the default beside RCPS, whose one group needs no image to be fitted on.

python -m benchmarks.few_images faces64=local/faces64 ct64=local/ct64 chest128=local/chest128 phantom=packaged (JSON)
python -m benchmarks.few_images                                       (writes the table of docs/research/tried.md of it)

Mean length on images that calibrate nothing, for multiples of the fewest images that can certify the experiment's risk
level at all; both with betting, in the same splits. `few_images_before.json` is what this file measured beside the
source of the commit that it names, with the rules that were there before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.materials import measure_or_write
from benchmarks.readme import result, where
from pixelbounds.calibration.bounds import least_images
from pixelbounds.calibration.calibrate import calibrate
from reproduce.draws import LIMITS
from reproduce.experiment import TaskSection, load_experiment
from reproduce.material import Material

PAGE = "docs/research/tried.md"
BEGIN = "<!-- figures: python -m benchmarks.few_images -->"
TIMES = 1.6, 2.1, 3, 4, 6, 9
SPLITS, JUDGING = 10, 300


def lengths(task: TaskSection, material: Material, count: int, split: int) -> tuple[float, float]:
    """Mean length of RCPS and of the default on images that calibrate nothing."""
    order = np.random.default_rng([split, 7]).permutation(len(material.truth))
    band = material.band("calibrated")
    some, others = np.sort(order[:count]), np.sort(order[count:][:JUDGING])
    cal, new = (band.map(lambda x, at=at: x[at], checked=True) for at in (some, others))
    found = []
    for method in ("rcps", "frontier"):
        made = calibrate(
            material.truth[some], cal, method=method, risk_level=task.risk_level, failure_prob=task.failure_prob,
            seed=split, limits=LIMITS,
        )  # fmt: skip
        found.append(float(made.apply(new).length.mean()))
    return found[0], found[1]


def rows_of(name: str, material: Material, splits: int = SPLITS) -> list[dict[str, Any]]:
    """A row for each number of images of which enough others are left to judge."""
    task = load_experiment(name).task
    least = least_images(task.risk_level, task.failure_prob, bound="betting")
    counts = [count for times in TIMES if (count := round(times * least)) + JUDGING // 2 <= len(material.truth)]
    rows = []
    for count in counts:
        both = np.array([lengths(task, material, count, split) for split in range(splits)])
        change = both[:, 1] / both[:, 0] - 1
        rows.append({
            "data": name, "risk level": task.risk_level, "least": least, "images": count, "splits": splits,
            "rcps": float(both[:, 0].mean()), "frontier": float(both[:, 1].mean()),
            "difference": float(change.mean()), "error": float(change.std(ddof=1) / np.sqrt(splits)),
        })  # fmt: skip
    return rows


def text() -> str:
    now, before = result("few_images"), result("few_images_before")
    old = {(row["data"], row["images"]): row for row in before["rows"]}
    lines = [
        "| | risk level | images, fewest that can certify at all | RCPS | the default | against RCPS | before |",
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


if __name__ == "__main__":
    measure_or_write("few_images", "what few images certify", rows_of, (PAGE, BEGIN), text)
