"""The main job on the embedded default, from packaged bands to a page: what a stranger sees first.

Phantoms that the network never saw come with its bands of them. They calibrate every method; some that no calibration
saw judge them; then the network draws samples of new noisy phantoms, here and now, and the calibration turns these
into intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ..bands import calibrated_quantiles
from ..calibration.front_door import calibrate
from ..calibration.result import Calibration
from ..evaluation.evaluation import Evaluation
from ..evaluation.held_out import evaluate
from ..execution.progress import Progress
from ..formats.maps import write_interval
from ..images.checks import check_count
from ..images.ends import Band, Interval
from ..images.library import Array
from ..images.source import Source
from ..report.example import Row, examples_of
from ..report.page import write_report
from .packaged import NEW, figures, in_8_bits, material, network_file, observe, some_phantoms

RISK_LEVEL = 0.05
FAILURE_PROB = 0.1
CALIBRATION = 512  # phantoms; the others are held out
DEMO_METHODS: dict[str, dict[str, Any]] = {
    "RCPS, Hoeffding-Bentkus": {"method": "rcps", "confidence": "hoeffding_bentkus"},
    "K-RCPS, Hoeffding-Bentkus (the paper)": {"method": "krcps", "confidence": "hoeffding_bentkus"},
    "RCPS, betting": {"method": "rcps"},
    "K-RCPS, betting": {"method": "krcps"},
    "frontier, betting (ours)": {},
}

Step = Callable[[str], None]  # called with what begins


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo found and where it put it; seconds by step."""

    rows: tuple[Row, ...]
    new: Evaluation
    calibration_file: Path
    intervals: Path
    report: Path
    seconds: dict[str, float]

    @property
    def calibration(self) -> Calibration:
        """Of the method that is shown: the last."""
        return self.rows[-1].calibration


def packaged_band(arrays: dict[str, Any]) -> Band:
    """Calibrated quantiles of the packaged samples."""
    return Band(arrays["lower"], arrays["upper"], source=_demo_source())


def run(folder: Path, *, new: int = 4, seed: int = 0, step: Step = print, progress: Progress | None = None) -> Demo:
    """Calibrate on the packaged phantoms, sample new ones, and write a calibration, intervals and a report."""
    new = check_count(new, "new", most=64)
    seed = check_count(seed, "seed", least=0)
    folder.mkdir(parents=True, exist_ok=True)
    clock = _Clock(step)
    with clock("make the phantoms anew and read the network's bands of them"):
        arrays = material()
        truth = arrays["truth"]
        band = packaged_band(arrays)
        fresh = arrays["fresh"][:, None]
    with clock(
        f"calibrate {len(DEMO_METHODS)} methods on {CALIBRATION} phantoms, judge them on {len(truth) - CALIBRATION}"
    ):
        rows = tuple(_row(name, choices, truth, band, fresh) for name, choices in DEMO_METHODS.items())
    shown = rows[-1].calibration
    with clock(f"draw {figures()['samples']} posterior samples each of {new} new noisy phantoms"):
        made = some_phantoms(new, NEW + new * seed)
        noisy = observe(made.images, seed)
        samples = draw(noisy, seed, progress)
        new_band = samples_band(samples)
    with clock("turn them into intervals and write everything"):
        interval = shown.apply(new_band)
        found = evaluate(made.images, interval, calibration=shown)
        shown.save(folder / "calibration.safetensors")
        write_interval(folder / "intervals.npz", interval)
        page = _report(folder / "report.html", rows, made.images, noisy, samples, new_band, interval)
    return Demo(rows, found, folder / "calibration.safetensors", folder / "intervals.npz", page, clock.seconds)


def _row(name: str, choices: dict[str, Any], truth: Array, band: Band, fresh: Array) -> Row:
    begin = perf_counter()
    cal = calibrate(
        truth[:CALIBRATION], band[:CALIBRATION], risk_level=RISK_LEVEL, failure_prob=FAILURE_PROB, **choices
    )
    seconds = perf_counter() - begin
    others = slice(CALIBRATION, None)
    found = evaluate(truth[others], cal.apply(band[others]), samples=fresh[others], calibration=cal)
    return Row(name, cal, found, seconds)


def draw(noisy: Array, seed: int, progress: Progress | None = None) -> Array:
    """Posterior samples of noisy phantoms with the packaged network: (n, h, w) -> (n, m, h, w) float32."""
    import torch

    from ..diffusion import sample
    from ..diffusion.checkpoint import load_network

    network, sde, _ = load_network(network_file(), kind="score")
    about = figures()
    drawn = sample(
        network, torch.from_numpy(noisy)[:, None], about["sigma_0"], sde, samples=about["samples"],
        steps=about["steps"], seed=seed, progress=progress,
    )  # fmt: skip
    return np.stack([x[:, 0].numpy() for x in drawn])


def samples_band(samples: Array) -> Band:
    """The band of new samples, made and rounded exactly as the packaged ones are."""
    band = calibrated_quantiles(samples, figures()["miscoverage"])
    source = replace(_demo_source(), samples=band.source.samples)
    return Band(*in_8_bits(band.lower, band.upper), source=source)


def _demo_source() -> Source:
    about = figures()
    return Source(
        "calibrated quantiles in 8 bits of the demo's network",
        samples=about["samples"], miscoverage=about["miscoverage"], steps=about["steps"], sigma_0=about["sigma_0"],
    )  # fmt: skip


def _report(
    path: Path, rows: tuple[Row, ...], truth: Array, noisy: Array, samples: Array, band: Band, interval: Interval
) -> Path:
    names = [f"new phantom {i + 1}" for i in range(len(truth))]
    examples = examples_of(
        interval, range(len(truth)), names=names, band=band, estimate=samples.mean(axis=1), truth=truth,
        samples=samples, observation=noisy,
    )  # fmt: skip
    about = figures()
    notes = [
        f"The images are phantoms: synthetic abdominal CT slices of {truth.shape[1]} x {truth.shape[2]} pixels, "
        f"windowed to [0, 1] (width 400, level 40 Hounsfield units), with noise of deviation {about['sigma_0']:g} "
        f"added. A small diffusion model, trained on other phantoms, drew {about['samples']} samples of the clean "
        "image for each.",
        f"{CALIBRATION} phantoms calibrated; {len(rows[-1].evaluation.by_image)} others, which no calibration saw, are "
        f"behind the numbers of this page. The {len(truth)} images to look at are new: they were sampled when this "
        "page was made.",
    ]
    return write_report(
        path, title="pixelbounds demo: synthetic abdominal CT", calibration=rows[-1].calibration,
        evaluation=rows[-1].evaluation, examples=examples, comparison=rows, notes=notes,
    )  # fmt: skip


class _Clock:
    """Tells what begins and keeps how long it took."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.seconds: dict[str, float] = {}

    def __call__(self, what: str) -> _Clock:
        self.what = what
        self.step(what)
        return self

    def __enter__(self) -> None:
        self.begin = perf_counter()

    def __exit__(self, *error: object) -> None:
        self.seconds[self.what] = perf_counter() - self.begin
