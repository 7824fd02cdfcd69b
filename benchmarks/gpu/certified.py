"""Certified lengths of the bands of `generalise`: python -m benchmarks.gpu.certified ct64 --data ct64.npz FILE.npz ...

At home: the bands that came back, calibrated on some of the measured images and applied to the others, over several
draws, the same for every variant. Writes benchmarks/results/generalise_SET.json, from which docs/diffusion.md has its
table (`python -m benchmarks.gpu.page`).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import pixelbounds as pb

from .generalise import SETS, parts

Array = np.ndarray
RESULTS = Path(__file__).parent.parent / "results"
RISK, FAILURE = 0.05, 0.1


def lengths(truth: Array, band: pb.Band, draws: int, calibration: int) -> tuple[Array, Array]:
    """Mean length and risk on the images that did not calibrate, draw by draw: (draws,) each."""
    found = []
    for draw in range(draws):
        order = np.random.default_rng([7, draw]).permutation(len(truth))
        ours, others = np.split(order, [calibration])
        chosen = pb.Band(band.lower[ours], band.upper[ours])
        calibrated = pb.calibrate(truth[ours], chosen, risk_level=RISK, failure_prob=FAILURE, method="frontier")
        interval = calibrated.apply(pb.Band(band.lower[others], band.upper[others]))
        evaluation = pb.evaluate(truth[others], interval)
        found.append((evaluation.mean_length, evaluation.risk))
    length, risk = np.array(found).T
    return length, risk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("files", nargs="+", type=Path, help="what `generalise` brought back")
    parser.add_argument("--data", required=True, help="the npz of images")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--calibration", type=int, default=256, help="images that calibrate; the others are measured")
    parser.add_argument("--device-seconds", type=float, default=0.0, help="of GPU that all calls took, compiling too")
    options = parser.parse_args()
    with np.load(options.data) as file:
        images, scan = file[SETS[options.set].key], file["scan"]
    known = {"draws": options.draws, "calibration": options.calibration, "risk_level": RISK, "failure_prob": FAILURE}
    known |= {"device_seconds": options.device_seconds}
    target = RESULTS / f"generalise_{options.set}.json"
    rows: list[dict[str, Any]] = []
    common: dict[str, Any] = {}
    for path in options.files:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["rows"]))
            own = about.pop("rows")
            common = common or about
            if {**about, "files": 0} != {**common, "files": 0}:
                raise SystemExit(f"{path} was made otherwise than {options.files[0]}")
            chosen = parts(options.set, about["split"], scan, about["images"]["measured"]).measured
            truth = images[chosen].astype(np.float32) / 255
            for row in own:
                ends = (file[f"{row['variant']}/{end}"].astype(np.float32) for end in ("lower", "upper"))
                length, risk = lengths(truth, pb.Band(*ends), options.draws, options.calibration)
                row |= {"lengths": length.tolist(), "risks": risk.tolist()}
                print(f"{row['variant']:32} {length.mean():.4f} risk {risk.mean():.4f}", flush=True)
                rows.append(row)
                target.write_text(json.dumps(common | known | {"rows": rows}) + "\n")  # as it goes


if __name__ == "__main__":
    main()
