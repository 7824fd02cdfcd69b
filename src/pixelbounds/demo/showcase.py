"""The main job on the embedded default, from packaged bands to a page: what a stranger sees first.

Phantoms that the network never saw come with its bands of them. They calibrate every method, and then, as their organs
are known, promises about body, organs and edges at once; some that no calibration saw judge them; then the network
draws samples of new noisy phantoms, here and now, and the calibration of all promises turns these into intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from ..bands import calibrated_quantiles
from ..calibration.calibration import Calibration, calibrate
from ..calibration.promises import Promise, share
from ..evaluation.evaluation import Evaluation, SeenPromise
from ..evaluation.held_out import evaluate
from ..execution.runner import Progress
from ..formats.maps import write_interval
from ..images.checks import check_count
from ..images.ends import Band
from ..images.library import Array
from ..images.measure import Measure
from ..images.regions import edges, label
from ..images.source import Source
from ..report.example import Example, Row, examples_of
from ..report.page import write_report
from .canvas import Organ
from .packaged import CALIBRATION, NEW, figures, in_8_bits, material, network_file, observe, some_phantoms

RISK_LEVEL = 0.05
FAILURE_PROB = 0.1
MEASURE = Measure.of_window((400, 40))  # what 0 and 1 of phantoms stand for, in Hounsfield units
CALIBRATING = 176  # of the packaged phantoms: few enough that those held out decide what they certify
_FIRST, _OTHERS = slice(CALIBRATING), slice(CALIBRATION, None)  # phantoms that calibrate, and that are held out
WORST = 2  # held-out phantoms on the page, those that miss most
DEMO_METHODS: dict[str, dict[str, Any]] = {
    "RCPS, Hoeffding-Bentkus": {"method": "rcps", "bound": "hoeffding_bentkus"},
    "K-RCPS, Hoeffding-Bentkus (the paper)": {"method": "krcps", "bound": "hoeffding_bentkus"},
    "RCPS, betting": {"method": "rcps"},
    "K-RCPS, betting": {"method": "krcps"},
    "frontier, betting (ours)": {},
}

PROMISED = {"all pixels": 0.05, "body": 0.05, "liver": 0.04, "kidneys": 0.1, "edges": 0.1}  # at most, of each region
SHARPEST = 0.05  # of the pixels are edges


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo found and where it put it; seconds by step.

    `rows` are the methods at one level for all pixels, `promised` the last of them with several promises, and `plain`
    what these come to without having been promised.
    """

    rows: tuple[Row, ...]
    promised: Row
    plain: tuple[SeenPromise, ...]
    new: Evaluation
    calibration_file: Path
    intervals: Path
    report: Path
    seconds: dict[str, float]

    @property
    def calibration(self) -> Calibration:
        """What is shown and written: that of all promises."""
        return self.promised.calibration


def demo_promises(truth: Array, organs: Array) -> list[Promise]:
    """Promises about phantoms (n, h, w) with the organ of each pixel (n, h, w)."""
    regions = {
        "body": ~np.isin(organs, (Organ.AIR, Organ.TABLE)),
        "liver": label(organs, int(Organ.LIVER)),
        "kidneys": label(organs, int(Organ.KIDNEY)),
        "edges": edges(truth, top=SHARPEST),
    }
    return [share(level, within=regions.get(name), name=name) for name, level in PROMISED.items()]


def packaged_band(arrays: dict[str, Any]) -> Band:
    """Calibrated quantiles of the packaged samples."""
    return Band(arrays["lower"], arrays["upper"], source=_demo_source())


def run(
    folder: Path, *, new: int = 4, seed: int = 0, step: Callable[[str], None] = print, progress: Progress | None = None
) -> Demo:
    """Calibrate on the packaged phantoms, sample new ones, and write a calibration, intervals and a report."""
    new = check_count(new, "new", most=64)
    seed = check_count(seed, "seed", least=0)
    folder.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}

    @contextmanager
    def clock(what: str) -> Iterator[None]:
        """Tells what begins and keeps how long it took."""
        step(what)
        begin = perf_counter()
        yield
        seconds[what] = perf_counter() - begin

    with clock("generate the phantoms and read the network's bands of them"):
        arrays = material()
        truth = arrays["truth"]
        band = packaged_band(arrays)
        fresh = arrays["fresh"][:, None]
    with clock(
        f"calibrate {len(DEMO_METHODS)} methods on {CALIBRATING} phantoms, evaluate on {len(truth) - CALIBRATION}"
    ):
        rows = tuple(
            _row(name, truth, band, fresh, risk_level=RISK_LEVEL, **choices) for name, choices in DEMO_METHODS.items()
        )
    with clock(f"promise {', '.join(PROMISED)} together"):
        promises, asked = (demo_promises(truth[part], arrays["organs"][part]) for part in (_FIRST, _OTHERS))
        promised = _row(f"frontier, {len(asked)} promises jointly", truth, band, asked=asked, promises=promises)
        plain = evaluate(truth[_OTHERS], rows[-1].calibration.apply(band[_OTHERS]), promises=asked).promises
    shown = promised.calibration
    with clock(f"draw {figures()['samples']} posterior samples each of {new} new noisy phantoms"):
        made = some_phantoms(new, NEW + new * seed)
        noisy = observe(made.images, seed)
        samples = draw(noisy, seed, progress)
        new_band = samples_band(samples)
    with clock("turn them into intervals and write everything"):
        interval = shown.apply(new_band)
        promises = demo_promises(made.images, made.organs)
        seen = evaluate(made.images, interval, calibration=shown, promises=promises)
        shown.save(folder / "calibration.safetensors")
        write_interval(folder / "intervals.npz", interval)
        examples = examples_of(
            interval, range(new), names=[f"new phantom {i + 1}" for i in range(new)], band=new_band, truth=made.images,
            estimate=samples.mean(axis=1), samples=samples, observation=noisy, promises=promises,
        )  # fmt: skip
        worst = examples_of(
            shown.apply(band[_OTHERS]), promised.evaluation.worst(WORST).tolist(), band=band[_OTHERS],
            names=[f"held-out phantom {i}" for i in range(len(truth) - CALIBRATION)], truth=truth[_OTHERS],
            promises=asked,
        )  # fmt: skip
        page = _report(folder / "report.html", (*rows, promised), examples, worst)
    return Demo(
        rows, promised, plain, seen, folder / "calibration.safetensors", folder / "intervals.npz", page, seconds
    )


def _row(name: str, truth: Array, band: Band, fresh: Any = None, asked: Any = None, **choices: Any) -> Row:
    """A calibration of the first phantoms, judged on the others; `asked` are the promises for these."""
    begin = perf_counter()
    cal = calibrate(truth[_FIRST], band[_FIRST], failure_prob=FAILURE_PROB, measure=MEASURE, **choices)
    seconds = perf_counter() - begin
    seen = evaluate(truth[_OTHERS], cal.apply(band[_OTHERS]), samples=fresh, calibration=cal, promises=asked)
    return Row(name, cal, seen, seconds)


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


def _report(path: Path, rows: tuple[Row, ...], examples: list[Example], worst: list[Example]) -> Path:
    """The page of the last row, beside the others, with new examples and the worst of those held out."""
    about = figures()
    height, width = examples[0].pixels
    others = len(rows[-1].evaluation.by_image)
    notes = [
        f"The images are phantoms: synthetic abdominal CT slices of {height} x {width} pixels, windowed to [0, 1] "
        f"(width 400, level 40 Hounsfield units), with noise of deviation {about['sigma_0']:g} added. A small "
        f"diffusion model, trained on other phantoms, drew {about['samples']} samples of the clean image for each.",
        f"{CALIBRATING} phantoms calibrated. The numbers of this page come from {others} others, which no calibration "
        f"saw. The first {len(examples)} images of the viewer are new, sampled when this page was made; the last "
        f"{len(worst)} are those of the {others} with the most misses.",
        "The organs of phantoms are known, so each can have a promise. A future image needs no labels.",
    ]
    return write_report(
        path, title="pixelbounds demo: synthetic abdominal CT", calibration=rows[-1].calibration,
        evaluation=rows[-1].evaluation, examples=[*examples, *worst], comparison=rows, notes=notes,
    )  # fmt: skip
