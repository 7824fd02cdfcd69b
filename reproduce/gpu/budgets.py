"""What steps and samples are worth: python -m reproduce.gpu.budgets FOLDER --data ct64.npz --out budgets_ct64.json.

Reads what `generalise` left for a line with `budget=1`: bands of one network for every number of steps and samples and
every miscoverage, of the same images. Each is calibrated on some of these and measured on the others, in processes of
its own. It needs numpy, scipy, numba and safetensors, with `--groups band`, and may run beside the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from .certified import FAILURE, RISK, decoded, lengths, measured
from .generalise import affordable


def one(path: Path, samples: int, miscoverage: float, options: argparse.Namespace) -> dict[str, Any]:
    """The certified length of one band."""
    with np.load(path, allow_pickle=False) as file:
        about = json.loads(str(file["about"]))
        band = decoded(file, f"{samples}/{miscoverage}")
        fresh = file["fresh"].astype(np.float32)
    truth = measured(about["set"], options.data, about["split"], about["images"]["measured"])
    length, risk = lengths(truth, band, options.draws, options.calibration, options.groups)
    missed = (truth < band.lower) | (truth > band.upper)
    held = ((np.clip(fresh, 0, 1) >= band.lower) & (np.clip(fresh, 0, 1) <= band.upper)).reshape(len(fresh), -1).mean(1)
    return {
        "steps": about["sampler_steps"], "samples": samples, "miscoverage": miscoverage, "lengths": length.tolist(),
        "risks": risk.tolist(), "miss_rate": float(missed.mean()),
        "band_length": float((band.upper - band.lower).mean()),
        "coverage_of_fresh_draw": float(held.mean()), "coverage_error": float(held.std(ddof=1) / np.sqrt(len(held))),
        "seconds_per_image": about["seconds"] / about["images"]["measured"] * samples / about["drawn"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", required=True, help="the npz of images")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--calibration", type=int, default=256)
    parser.add_argument("--groups", default=None, help="of the frontier; its own choice unless told")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    files = sorted(options.folder.glob("budget-*[0-9].npz"))
    with np.load(files[0], allow_pickle=False) as file:
        about = json.loads(str(file["about"]))
    for key in ("sampler_steps", "seconds"):
        about.pop(key)
    about |= {"draws": options.draws, "calibration": options.calibration, "groups": options.groups}
    about |= {"risk_level": RISK, "failure_prob": FAILURE}
    rows = []
    jobs = [(path, m, a) for path in files for m, a in affordable()]
    first, *others = jobs
    rows.append(one(*first, options))  # compiles into the cache
    with ProcessPoolExecutor(options.processes) as pool:
        for found in pool.map(one, *zip(*others, strict=True), [options] * len(others)):
            rows.append(found)
            options.out.write_text(json.dumps(about | {"rows": rows}) + "\n")
    for row in rows:
        row_length = np.mean(row["lengths"])
        print(row["steps"], row["samples"], row["miscoverage"], f"{row_length:.4f} {np.mean(row['risks']):.4f}")


if __name__ == "__main__":
    main()
