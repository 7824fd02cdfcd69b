"""A small world to report on: synthetic images, a crude sampler, two methods."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import pixelbounds as pb
from pixelbounds.demo.synthetic import flawed_samples, synthetic_images
from pixelbounds.report.example import Example, Row, examples_of
from pixelbounds.report.page import write_report

HOSTILE = "<img src=x onerror=alert(1)>.png"
SIZE = 32


@dataclass(frozen=True)
class World:
    calibration: pb.Calibration
    evaluation: pb.Evaluation
    examples: list[Example]
    rows: list[Row]

    def write(self, path: Path, **changes: Any) -> Path:
        parts = {"title": "Test", "calibration": self.calibration, "evaluation": self.evaluation}
        return write_report(path, **{**parts, "examples": self.examples, "comparison": self.rows, **changes})


@cache
def world() -> World:
    rng = np.random.default_rng(0)
    truth = synthetic_images(140, SIZE, rng)
    samples = flawed_samples(truth, 19, rng)
    band, rows = pb.calibrated_quantiles(samples, 0.2), []
    for name, choices in {"RCPS": {"method": "rcps"}, "frontier": {"method": pb.Frontier(groups="band")}}.items():
        calibration = pb.calibrate(truth[:100], band[:100], risk_level=0.1, **choices)
        interval = calibration.apply(band[100:])
        groups, units = (truth[100:] * 5).astype(int), [f"patient {i // 2}" for i in range(40)]
        rows.append(
            Row(
                name,
                calibration,
                pb.evaluate(truth[100:], interval, groups=groups, units=units, calibration=calibration),
            )
        )
    examples = examples_of(
        interval, [0, 1, 2], names=["first", HOSTILE, *map(str, range(38))], band=band[100:],
        estimate=samples[100:].mean(axis=1), truth=truth[100:], samples=samples[100:], observation=samples[100:, 0],
    )  # fmt: skip
    return World(rows[-1].calibration, rows[-1].evaluation, examples, rows)


@cache
def promised_world() -> World:
    """Three promises, of which the region of the last is a disc that only some images have."""
    rng = np.random.default_rng(1)
    truth = synthetic_images(120, SIZE, rng)
    band = pb.calibrated_quantiles(flawed_samples(truth, 9, rng), 0.2)
    rows, columns = np.indices((SIZE, SIZE))
    disc = np.broadcast_to((rows - 12) ** 2 + (columns - 10) ** 2 < 40, truth.shape).copy()
    disc[::4] = False
    bright = truth > 0.5

    def promises(images: slice) -> list[pb.Promise]:
        return [
            pb.share(0.1), pb.share(0.2, within=bright[images], name="bright"),
            pb.tail(0.3, above=0.2, within=disc[images], name="disc"),
        ]  # fmt: skip

    first, others = slice(0, 80), slice(80, None)
    calibration = pb.calibrate(truth[first], band[first], promises=promises(first), method="rcps")
    interval = calibration.apply(band[others])
    evaluation = pb.evaluate(truth[others], interval, calibration=calibration, promises=promises(others))
    examples = examples_of(interval, [0, 1, 2], truth=truth[others], promises=promises(others))
    return World(calibration, evaluation, examples, [])


def pictures_of(pixels: tuple[int, ...], seed: int = 0, scale: float = 1.0) -> Example:
    """An example of any shape in which about one pixel in five is missed."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(0.2, 0.8, pixels).astype(np.float32)
    lower, upper = truth - rng.uniform(-0.02, 0.1, pixels), truth + rng.uniform(-0.02, 0.1, pixels)
    ends = (np.minimum(lower, upper) * scale, np.maximum(lower, upper) * scale)
    return Example(
        f"shape {pixels}", *ends, truth=truth * scale, samples=scale * (truth + rng.normal(0, 0.03, (9, *pixels)))
    )
