"""Calibrating 512 slices of 512 x 512: seconds and memory of each method, and of the paper's way written out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

import pixelbounds as pb
from benchmarks.krcps import data
from tests.support.literal import literal_krcps, literal_rcps

COUNT, SIZE, FITTING, LEVEL = 512, 512, 128, 0.05
STEP, LARGEST = 0.01, 0.3  # of the literal way: finer steps from higher take longer
GAMMAS = np.linspace(0.3, 0.7, 16)
METHODS: dict[str, tuple[Any, str]] = {
    "rcps": (pb.RCPS(), "hoeffding_bentkus"),
    "krcps, 100 pixels": (pb.KRCPS(k=8, n_fit=FITTING, d_opt=100), "hoeffding_bentkus"),
    "krcps, all pixels": (pb.KRCPS(k=8, n_fit=FITTING), "hoeffding_bentkus"),
    "frontier, groups of the band": (pb.Frontier("band", n_fit=FITTING), "betting"),
    "frontier (default)": (pb.Frontier(n_fit=FITTING), "betting"),
}
LITERAL = ("literal rcps", "literal krcps, 100 pixels")


def calibrated(name: str, truth: np.ndarray, band: pb.Band) -> float:
    """Mean length after one calibration."""
    method, bound = METHODS[name]
    cal = pb.calibrate(truth, band, risk_level=LEVEL, failure_prob=0.1, method=method, bound=bound)
    few = slice(32)
    return float(cal.apply(band[few]).length.mean())


def literal(name: str, truth: np.ndarray, band: pb.Band) -> float:
    """The same, step by step over all images, as the paper prints it."""
    ends = band.lower, band.upper
    if name == "literal rcps":
        widening: Any = literal_rcps(truth, *ends, risk_level=LEVEL, failure_prob=0.1, step=STEP, largest=LARGEST)
    else:
        membership, solution = literal_krcps(
            truth, *ends, risk_level=LEVEL, failure_prob=0.1, k=8, n_opt=FITTING, d_opt=100, gammas=GAMMAS, step=STEP,
            largest=LARGEST, rng=np.random.default_rng(0),
        )  # fmt: skip
        widening = solution[membership]
    lower, upper = (np.clip(end[:32] + sign * widening, 0, 1) for end, sign in zip(ends, (-1, 1), strict=True))
    return float((upper - lower).mean())


def one(name: str) -> dict[str, Any]:
    """A method in this process: kernels are compiled on few small slices first."""
    work = literal if name in LITERAL else calibrated
    if work is calibrated:
        work(name, *data(FITTING + 256, 16))
    truth, band = data(COUNT, SIZE)
    held = truth.nbytes + band.lower.nbytes + band.upper.nbytes
    with open("/proc/self/clear_refs", "w") as file:  # the peak so far is that of making the slices
        file.write("5")
    begin, busy = time.perf_counter(), time.process_time()
    length = work(name, truth, band)
    taken = {"seconds": time.perf_counter() - begin, "CPU seconds": time.process_time() - busy}
    with open("/proc/self/status") as file:
        peak = next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    return {"what": name, **taken, "peak memory": peak, "arrays": held, "mean length": length}


def run() -> dict[str, Any]:
    """Each method in a process of its own, one after the other."""
    rows = []
    for name in (*METHODS, *LITERAL):
        load = os.getloadavg()[0]
        done = subprocess.run([sys.executable, "-m", __name__, name], check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]) | {"load": load})
        print(rows[-1], flush=True)
    return {"rows": rows}


if __name__ == "__main__":
    print(json.dumps(one(sys.argv[1])))
