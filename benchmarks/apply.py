"""What applying costs in copies of the band, and what learned groups add to a calibration with a loss of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pixelbounds as pb
from benchmarks.timing import seconds
from pixelbounds.demo.synthetic import synthetic_pairs

CASES = ((1, 128), (64, 128), (16, 512))  # images and size
GROUPS = ("band", "learned")
RISK_LEVEL = 0.1
TURNS = 15


def own_loss(truth: np.ndarray, interval: pb.Interval) -> np.ndarray:
    """The share of missed pixels, as a user may write it."""
    missed = (truth < interval.lower) | (truth > interval.upper)
    return missed.reshape(len(truth), -1).mean(axis=1)


def copying(band: pb.Band) -> Callable[[], object]:
    """One copy of both ends, into arrays that are there."""
    to = np.empty_like(band.lower), np.empty_like(band.upper)
    return lambda: (np.copyto(to[0], band.lower), np.copyto(to[1], band.upper))


def applied() -> list[dict[str, Any]]:
    """Copies and applications take turns, since the speed of memory changes by the second; the middle ratio counts."""
    truth, band, _ = synthetic_pairs(160, 64, seed=1)
    fitted = {
        name: pb.calibrate(truth, band, risk_level=RISK_LEVEL, method=pb.Frontier(groups=name)) for name in GROUPS
    }
    rows = []
    for n, size in CASES:
        _, fresh, _ = synthetic_pairs(n, size, seed=2)
        copy = copying(fresh)
        for name, cal in fitted.items():
            pairs = [(seconds(lambda c=cal, b=fresh: c.apply(b), 2), seconds(copy, 9)) for _ in range(TURNS)]
            ours, unit = sorted(pairs, key=lambda pair: pair[0] / pair[1])[TURNS // 2]
            rows.append(row(f"apply, {name} groups", n, size, ours, unit))
    return rows


def with_own_loss() -> list[dict[str, Any]]:
    n, size = 640, 64
    truth, band, _ = synthetic_pairs(n, size, seed=1)
    took = {
        name: seconds(
            lambda g=name: pb.calibrate(
                truth, band, promises=[pb.loss(RISK_LEVEL, own_loss)], method=pb.Frontier(groups=g)
            ),
            2,
        )
        for name in GROUPS
    }
    return [
        row(f"calibrate with a loss of one's own, {name} groups", n, size, took[name], took["band"]) for name in GROUPS
    ]


def row(what: str, n: int, size: int, ours: float, unit: float) -> dict[str, Any]:
    """`unit` is one copy of the band, or for a user's loss the seconds with band groups."""
    return {"what": what, "images": n, "size": size, "seconds": ours, "unit": unit, "times": ours / unit}


def run() -> list[dict[str, Any]]:
    return [*applied(), *with_own_loss()]
