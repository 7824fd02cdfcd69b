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


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    # growth by 16 in images, then by 16 in pixels; n_opt follows n, as it does by default for small n
    for n, size, n_opt in (
        (64, 256, 8),
        (256, 256, 32),
        (1024, 256, 128),
        (512, 64, 51),
        (512, 128, 51),
        (512, 256, 51),
    ):
        truth, band = data(n, size)
        inputs = truth, band.lower, band.upper
        copies = [np.empty_like(x) for x in inputs]
        copy = seconds(lambda to=copies, of=inputs: [np.copyto(a, b) for a, b in zip(to, of, strict=True)])
        ours = seconds(lambda x=truth, b=band, m=n_opt: pb.calibrate(x, b, risk_level=0.05, groups="band", n_opt=m), 4)
        what = {(512, 256): "the case asked for"}.get((n, size), "")
        rows.append({"what": what, "images": n, "size": size, "seconds": ours, "copy seconds": copy,
                     "times one copy": ours / copy})  # fmt: skip
    for name, part, size_of in (
        ("in images", rows[:3], lambda r: r["images"]),
        ("in pixels", rows[3:6], lambda r: r["size"] ** 2),
    ):
        slope = np.polyfit(np.log([size_of(r) for r in part]), np.log([r["seconds"] for r in part]), 1)[0]
        rows.append({"what": f"exponent {name}", "images": "", "size": "", "seconds": float(slope), "copy seconds": "",
                     "times one copy": ""})  # fmt: skip
    return rows
