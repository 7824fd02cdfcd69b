"""Frontier with band-feature groups against one copy of its inputs, and how it grows with images and pixels."""

from __future__ import annotations

import numpy as np

import pixelbounds as pb
from benchmarks.timing import seconds


def data(n: int, size: int) -> tuple[np.ndarray, pb.Band]:
    rng = np.random.default_rng(0)
    level = 0.1 + 0.8 * rng.random((n, size, size), dtype=np.float32)
    half = 0.02 + 0.08 * rng.random((n, size, size), dtype=np.float32)
    truth = np.clip(level + 0.6 * half * rng.standard_normal((n, size, size), dtype=np.float32), 0, 1)
    return truth, pb.Band(np.clip(level - half, 0, 1), np.clip(level + half, 0, 1))


CASES = (  # images and size: the case asked for; 16-fold in images; 16-fold in pixels
    (512, 256), (128, 256), (512, 256), (2048, 256), (192, 128), (192, 256), (192, 512),
)  # fmt: skip


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for n, size in CASES:
        truth, band = data(n, size)
        inputs = truth, band.lower, band.upper
        copies = [np.empty_like(x) for x in inputs]
        copy = seconds(lambda to=copies, of=inputs: [np.copyto(a, b) for a, b in zip(to, of, strict=True)])
        ours = seconds(
            lambda x=truth, b=band: pb.calibrate(
                x, b, risk_level=0.05, method=pb.Frontier(groups="band", n_fit=len(x) // 10)
            )
        )
        rows.append(
            {
                "what": "frontier",
                "images": n,
                "size": size,
                "seconds": ours,
                "one copy": copy,
                "times one copy": ours / copy,
            }
        )
        del truth, band, inputs, copies
    for name, part, key in (("images", rows[1:4], "images"), ("pixels", rows[4:7], "size")):
        grown = np.log([float(row[key]) for row in part]) * (1 if key == "images" else 2)
        slope = np.polyfit(grown, np.log([row["seconds"] for row in part]), 1)[0]
        rows.append(
            {
                "what": f"exponent in {name}, 16-fold",
                "images": "",
                "size": "",
                "seconds": float(slope),
                "one copy": "",
                "times one copy": "",
            }
        )
    return rows
