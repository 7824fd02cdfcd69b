"""What learned groups cost and gain: synthetic images and a crude sampler (the demo's), 640 images of 64 x 64."""

from __future__ import annotations

from typing import Any

import pixelbounds as pb
from benchmarks.timing import seconds
from pixelbounds.demo.synthetic import synthetic_pairs

RISK_LEVEL = 0.1
RUNS: dict[str, dict[str, Any]] = {
    "RCPS, Hoeffding-Bentkus": {"method": "rcps", "bound": "hoeffding_bentkus"},
    "K-RCPS, Hoeffding-Bentkus (the paper)": {"method": "krcps", "bound": "hoeffding_bentkus"},
    "RCPS, betting": {"method": "rcps"},
    "K-RCPS, betting": {"method": "krcps"},
    "frontier, band features, betting": {"method": pb.Frontier("band")},
    "frontier, learned groups, betting": {"method": pb.Frontier("learned")},
    "frontier, betting (default: the shorter of the two)": {},
}


def run() -> list[dict[str, object]]:
    truth, band, _ = synthetic_pairs(640, 64, seed=1)
    new_truth, new_band, _ = synthetic_pairs(640, 64, seed=2)
    rows = []
    for name, choices in RUNS.items():
        found = pb.calibrate(truth, band, risk_level=RISK_LEVEL, **choices)
        interval = found.apply(new_band)
        rows.append({
            "what": name,
            "seconds to calibrate": seconds(lambda c=choices: pb.calibrate(truth, band, risk_level=RISK_LEVEL, **c), 2),
            "seconds to apply": seconds(lambda f=found: f.apply(new_band), 1),
            "mean length": float(interval.length.mean()),
            "risk": float(1 - interval.contains(new_truth).mean()),
        })  # fmt: skip
    paper = rows[1]["mean length"]
    return [{**row, "against the paper's": f"{row['mean length'] / paper - 1:+.1%}"} for row in rows]
