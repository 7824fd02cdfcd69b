"""K-RCPS end to end, 512 images of 128 x 128, against the literal paper pipeline."""

from __future__ import annotations

from time import perf_counter

import numpy as np

import pixelbounds as pb
from benchmarks.timing import seconds
from tests.support.literal import literal_krcps


def data(n: int = 512, size: int = 128) -> tuple[np.ndarray, pb.Band]:
    rng = np.random.default_rng(0)
    level = 0.1 + 0.8 * rng.random((n, size, size), dtype=np.float32)
    spread = np.exp(rng.normal(-3, 0.6, (1, size, size))).astype(np.float32)
    half = spread * (0.6 + 0.4 * rng.random((n, size, size), dtype=np.float32))
    truth = np.clip(level + 0.8 * spread * rng.standard_normal((n, size, size), dtype=np.float32), 0, 1)
    return truth, pb.Band(np.clip(level - half, 0, 1), np.clip(level + half, 0, 1))


def run() -> list[dict[str, object]]:
    truth, band = data()
    choices = {"risk_level": 0.05, "method": pb.KRCPS(k=8, n_fit=128), "bound": "hoeffding_bentkus"}
    cal = pb.calibrate(truth, band, **choices)
    ours = seconds(lambda: pb.calibrate(truth, band, **choices))
    begin = perf_counter()
    membership, widening = literal_krcps(
        truth, band.lower, band.upper, risk_level=0.05, failure_prob=0.1, k=8, n_opt=128, d_opt=100,
        gammas=np.linspace(0.3, 0.7, 16), step=0.002, rng=np.random.default_rng(0),
    )  # fmt: skip
    theirs = perf_counter() - begin

    def length(widening: np.ndarray) -> float:
        lower = np.clip(band.lower - widening, 0, 1)
        upper = np.clip(band.upper + widening, 0, 1)
        return float((upper - lower).mean())

    return [
        {"what": "krcps, all pixels", "seconds": ours, "times ours": 1.0,
         "mean length": length(cal.widening[cal.grouping.labels])},
        {"what": "literal, CVXPY, d_opt 100, step 0.002", "seconds": theirs, "times ours": theirs / ours,
         "mean length": length(widening[membership])},
    ]  # fmt: skip
