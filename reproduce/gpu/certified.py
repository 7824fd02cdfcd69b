"""Certified lengths of the bands of `generalise`: python -m reproduce.gpu.certified ct64 --data ct64.npz FILE.npz ...

    python -m reproduce.gpu.certified dropout local/gpu/ct64_dropout_*.npz     # of files of `end_to_end collect`

At home: the bands that came back, calibrated on some of the measured images and applied to the others, over several
draws, the same for every variant. Writes benchmarks/results/generalise_SET.json, from which docs/diffusion.md has its
table (`python -m reproduce.gpu.page`).
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


def lengths(
    truth: Array, band: pb.Band, draws: int, calibration: int, groups: str | None = None
) -> tuple[Array, Array]:
    """Mean length and risk on the images that did not calibrate, draw by draw: (draws,) each."""
    found = []
    for draw in range(draws):
        order = np.random.default_rng([7, draw]).permutation(len(truth))
        ours, others = np.split(order, [calibration])
        chosen = pb.Band(band.lower[ours], band.upper[ours])
        calibrated = pb.calibrate(
            truth[ours], chosen, risk_level=RISK, failure_prob=FAILURE, method="frontier", groups=groups
        )
        interval = calibrated.apply(pb.Band(band.lower[others], band.upper[others]))
        evaluation = pb.evaluate(truth[others], interval)
        found.append((evaluation.mean_length, evaluation.risk))
    length, risk = np.array(found).T
    return length, risk


def decoded(file: Any, name: str) -> pb.Band:
    """A band of a file, whose ends are multiples of 1 / 2048."""
    lower, upper = (file[f"{name}/{end}"].astype(np.float32) / 2048 for end in ("lower", "upper"))
    return pb.Band(lower, upper)


def measured(name: str, data: str, split: str, count: int) -> Array:
    """The images of the bands, in [0, 1]."""
    with np.load(data) as file:
        images, scan = file[SETS[name].key], file["scan"]
    return images[parts(name, split, scan, count).measured].astype(np.float32) / 255


def dropouts(options: argparse.Namespace) -> None:
    """Networks with other rates of dropout, each of a call of `end_to_end`, into benchmarks/results/dropout.json."""
    rows = []
    for path in options.files:
        with np.load(path, allow_pickle=False) as file:
            told = json.loads(str(file["figures"]))
            [trained], [drawn] = told["training"], told["bands"]
            [m] = {int(name.split("/")[1]) for name in file.files if name.endswith("/lower")}
            band = pb.Band(file[f"{drawn['label']}/{m}/lower"], file[f"{drawn['label']}/{m}/upper"])
            length, risk = lengths(file["truth"], band, options.draws, options.calibration)
        row = {key: trained[key] for key in ("seconds", "steps", "best_step", "loss")} | {"dropout": told["dropout"]}
        row |= {"psnr": drawn["psnr"], "miss_rate": drawn[f"miss_rate_{m}"], "samples": m}
        rows.append(row | {"lengths": length.tolist(), "risks": risk.tolist()})
        print(f"dropout {told['dropout']:g}: {length.mean():.4f} risk {risk.mean():.4f}", flush=True)
    about = {key: told[key] for key in ("set", "commit", "torch", "device", "images", "units", "parameters")}
    about |= {"draws": options.draws, "calibration": options.calibration, "risk_level": RISK, "failure_prob": FAILURE}
    (RESULTS / "dropout.json").write_text(json.dumps(about | {"rows": sorted(rows, key=_rate)}) + "\n")


def _rate(row: dict[str, Any]) -> float:
    return float(row["dropout"])


def main() -> None:
    """Certify, and write the JSON as it goes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=(*SETS, "dropout"))
    parser.add_argument("files", nargs="+", type=Path, help="what `generalise` brought back")
    parser.add_argument("--data", help="the npz of images, which files of `generalise` do not hold")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--calibration", type=int, default=256, help="images that calibrate; the others are measured")
    parser.add_argument("--device-seconds", type=float, default=0.0, help="of GPU that all calls took, compiling too")
    parser.add_argument(
        "--out", type=Path, help="the JSON to write; benchmarks/results/generalise_SET.json unless told"
    )
    options = parser.parse_args()
    if options.set == "dropout":
        dropouts(options)
        return
    if options.data is None:
        parser.error("give --data, the npz of the images")
    known = {"draws": options.draws, "calibration": options.calibration, "risk_level": RISK, "failure_prob": FAILURE}
    known |= {"device_seconds": options.device_seconds}
    target = options.out or RESULTS / f"generalise_{options.set}.json"
    rows: list[dict[str, Any]] = json.loads(target.read_text())["rows"] if target.exists() else []
    there = {(row["variant"], row["split"], row["train_seconds"]) for row in rows if row.get("draws") == options.draws}
    for path in options.files:
        with np.load(path, allow_pickle=False) as file:
            about = json.loads(str(file["rows"]))
            own = about.pop("rows")
            if (own[0]["variant"], about["split"], about["train_seconds"]) in there:
                continue
            truth = measured(options.set, options.data, about["split"], about["images"]["measured"])
            for row in own:
                length, risk = lengths(truth, decoded(file, row["average"]), options.draws, options.calibration)
                row |= {key: about[key] for key in ("split", "train_seconds", "images")} | {"draws": options.draws}
                row |= {"lengths": length.tolist(), "risks": risk.tolist()}
                said = f"{row['variant']:36} {row['average']} {about['split']} {about['train_seconds']:g} s"
                print(f"{said} {length.mean():.4f} risk {risk.mean():.4f} psnr {row['psnr']:.2f}", flush=True)
                rows.append(row)
        for key in ("split", "train_seconds", "images"):
            about.pop(key)
        target.write_text(json.dumps(about | known | {"rows": rows}) + "\n")  # as it goes


if __name__ == "__main__":
    main()
