"""Real faces and CT: mean length and risk over 5 draws, from bands that benchmarks.gpu.posterior left in local/."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import pixelbounds as pb

LOCAL = Path(__file__).parents[1] / "local"
SETS = {"faces": (0.1, 640), "ct": (0.05, 512)}  # risk level and calibration images, as in the paper
RUNS = {
    "RCPS, Hoeffding-Bentkus": {"method": "rcps", "confidence": "hoeffding_bentkus"},
    **{
        f"K-RCPS, Hoeffding-Bentkus, K {k}": {"method": "krcps", "confidence": "hoeffding_bentkus", "k": k}
        for k in (4, 8, 32)
    },
    "RCPS, betting": {"method": "rcps"},
    "frontier, band features, betting": {"groups": "band"},
    "frontier, betting (default)": {},
}


def run(draws: int = 5) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    data = np.load(LOCAL / "data64.npz")
    for name, (risk_level, count) in SETS.items():
        folder = LOCAL / f"{name}64"
        truth = data[name][np.load(folder / "images.npz")["held_out"]].astype(np.float32) / 255
        band = pb.Band(*(np.load(folder / f"{end}.npy") for end in ("lower", "upper")))
        for what, choices in RUNS.items():
            found = []
            for draw in range(draws):
                order = np.random.default_rng(draw).permutation(len(truth))
                cal, val = np.sort(order[:count]), np.sort(order[count : count + 128])
                fitted = pb.calibrate(truth[cal], band[cal], risk_level=risk_level, seed=draw, **choices)
                interval = fitted.apply(band[val])
                found.append((float(interval.length.mean()), float(1 - interval.contains(truth[val]).mean())))
            length, risk = np.array(found).T
            rows.append({
                "data": name, "what": what, "mean length": float(length.mean()), "deviation": float(length.std()),
                "risk": float(risk.mean()), "draws above": int((risk > risk_level).sum()),
            })  # fmt: skip
    return rows
