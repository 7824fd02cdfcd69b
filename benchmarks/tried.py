"""What else was tried: other groups, features and bases than the default, on the arrays of an experiment.

python -m benchmarks.tried faces64=local/faces64 ct64=local/ct64    (writes benchmarks/results/tried.json)
python -m benchmarks.tried                                          (writes docs/research/tried.md of it)

Each is fitted on as many images as the experiment's frontier (or several times as many) and cut where the risk on
images that fitted none of them is just epsilon, which is what a perfect bound would give; all see the same splits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.ndimage import uniform_filter

from benchmarks.materials import measure_or_write
from benchmarks.readme import result, where
from pixelbounds.calibration.data import CalibrationData
from pixelbounds.calibration.groups.band_bins import fit_band_groups
from pixelbounds.calibration.groups.learned import fit_learned_groups
from pixelbounds.calibration.groups.positions import by_loss
from pixelbounds.calibration.paths.frontier import frontier_of
from pixelbounds.images.library import Array
from reproduce.draws import LIMITS
from reproduce.experiment import Experiment, load_experiment
from reproduce.fits import cut, measure
from reproduce.material import Material

PAGE = "docs/research/tried.md"
BEGIN = "<!-- figures: python -m benchmarks.tried -->"
SPLITS = 4


@dataclass(frozen=True)
class Try:
    """Groups by a function of (data, images), further images, the base band, and how many times as many images fit."""

    what: str
    groups: Any
    features: tuple[str, ...] = ()
    band: str = "calibrated"
    times: int = 1


def learned(**options: Any) -> Any:
    return lambda data, images: fit_learned_groups(data, images, np.random.default_rng(0), **options)


HEADS = ("qr_lower", "qr_upper")
TRIES = (
    Try("learned groups", learned()),
    Try("learned, quantile 0.5 of the score instead of 0.75", learned(quantile=0.5)),
    Try("learned, quantile 0.9", learned(quantile=0.9)),
    Try("learned, quantile 0.95", learned(quantile=0.95)),
    Try("learned, 64 bins a side instead of 16", learned(bins_per_side=64)),
    Try("learned, no bins of room", learned(room=1)),
    Try("learned, 200 trees instead of 50", learned(trees=200)),
    Try("band groups", fit_band_groups),
    Try("the paper's groups by loss, K = 32", partial(by_loss, k=32)),
    Try("learned, twice as many fitting images", learned(), times=2),
    Try("learned, four times as many fitting images", learned(), times=4),
    Try("learned, mean, deviation and observation as features", learned(), ("mean", "deviation", "observation")),
    Try("learned, observation less level smoothed over 5 x 5 as a feature", learned(), ("residual",)),
    Try("learned, the regressor's quantiles as features", learned(), HEADS),
    Try("learned, quantile 0.9, the regressor's quantiles as features", learned(quantile=0.9), HEADS),
    Try(
        "learned, quantile 0.9, quantiles of regressor and N-Conffusion, MC-Dropout as features",
        learned(quantile=0.9),
        (*HEADS, "conffusion_lower", "conffusion_upper", "dropout_mean", "dropout_deviation"),
    ),
    Try("learned, from mean ± 0.8 deviations (no entrywise coverage)", learned(), band="narrow"),
)


def image_of(material: Material, name: str) -> Array:
    """An array of the material, or the smoothed residual of the observation."""
    if name != "residual":
        return material[name]
    level = (material["lower"] + material["upper"]) / 2
    smooth = uniform_filter(material["observation"] - level, (0, 5, 5), mode="nearest")
    return np.asarray(level + smooth)  # learned groups subtract the level themselves


def length(material: Material, experiment: Experiment, tried: Try, split: int) -> float:
    """Mean length on the images that did not fit, where their risk is just epsilon."""
    band = material.band(tried.band)
    level = experiment.task.risk_level
    features = np.stack([image_of(material, name) for name in tried.features], axis=1) if tried.features else None
    data: Any = CalibrationData(material.truth, band, features=features, limits=LIMITS)
    order = np.random.default_rng([split, 1]).permutation(len(data))
    count = experiment.frontier.n_opt * tried.times
    fitting = data.take(np.sort(order[:count]))
    others = data.take(np.sort(order[experiment.frontier.n_opt * max(t.times for t in TRIES) :]))  # the same for all
    every = np.arange(count)
    path = frontier_of(fitting, every, tried.groups(fitting, every), level)
    return measure(others, path.grouping, cut(others, path, level))["length"]


def rows_of(name: str, material: Material, splits: int = SPLITS) -> Iterator[dict[str, Any]]:
    """Mean length of each try, and its difference from the first as a share: mean, least and greatest of the splits."""
    experiment = load_experiment(name)
    default = None
    for tried in TRIES:
        if any(x not in material.arrays for x in tried.features if x != "residual"):
            continue
        lengths = np.array([length(material, experiment, tried, split) for split in range(splits)])
        default = lengths if default is None else default
        change = lengths / default - 1
        yield {
            "data": name,
            "what": tried.what,
            "mean length": float(lengths.mean()),
            "difference": float(change.mean()),
            "least": float(change.min()),
            "greatest": float(change.max()),
        }


def text() -> str:
    found = result("tried")
    names = list(dict.fromkeys(row["data"] for row in found["rows"]))
    by = {(row["data"], row["what"]): row for row in found["rows"]}
    lines = [
        f"| what | {' | '.join(f'{name}: mean length | against the first row' for name in names)} |",
        "|---|" + "---:|---:|" * len(names),
    ]
    for what in dict.fromkeys(row["what"] for row in found["rows"]):
        cells = []
        for name in names:
            if (row := by.get((name, what))) is None:  # its arrays are missing there
                cells += ["", ""]
                continue
            spread = f"{row['difference']:+.1%} ({row['least']:+.1%} to {row['greatest']:+.1%})"
            cells += [f"{row['mean length']:.4f}", "" if what == TRIES[0].what else spread]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    splits = f"{found['splits']} splits; {where(found)}."
    return "\n".join([*lines, "", f"In brackets the least and the greatest difference of {splits}"])


if __name__ == "__main__":
    measure_or_write("tried", "what else was tried", rows_of, (PAGE, BEGIN), text, splits=SPLITS)
