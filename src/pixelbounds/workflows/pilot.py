"""What samples, steps and miscoverage are worth, from a pilot: a few images with truth whose samples were kept.

More samples and steps make intervals shorter, with less and less to gain, and cost a GPU's time in proportion. A
pilot run of `pixelbounds sample --keep-samples` holds every smaller number of samples already: its first m draws are
those that a run of m would have made. So one run shows length against samples and miscoverage, and runs of other
steps show length against steps.

Lengths are those at which intervals of other pilot images miss the risk level on average, with no margin for how few
images there are: a pilot compares ways to sample and promises nothing. Its images have chosen, and a choice suits the
images that made it: they must not calibrate afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..bands import calibrated_quantiles, least_samples
from ..calibration.calibrate import calibrate
from ..calibration.methods import Frontier
from ..execution.progress import Progress, silent
from ..formats.arrays import FilePath, Reading
from ..formats.inputs import open_truth
from ..images.checks import check_count, check_limits, check_number, check_open_unit
from ..images.library import Array, to_numpy
from ..report.style import new_figure
from ..samplers.runs import Run, open_run

_LEAST = 16  # images: half of them shape the intervals whose length the others show
_PARTS = (1, 2, 4)  # of the miscoverage that is accepted: all of it, a half, a quarter
_DRAWS = 2  # splits into halves, both ways
_EVALUATIONS = {"heun": (1, 1), "reverse_sde": (1, 0), "predictor_corrector": (2, 1)}  # per step, and once more


@dataclass(frozen=True)
class Choice:
    """One way to sample: what it costs an image, and the mean length of its intervals with its standard error.

    `longer` is the length over that of the shortest choice, less 1; `seconds` is None where a run does not know its
    pace.
    """

    run: str
    sampler: str
    steps: int
    samples: int
    miscoverage: float
    evaluations: int
    seconds: float | None
    length: float
    error: float
    longer: float = 0.0


@dataclass(frozen=True)
class Pilot:
    """All choices, the cheapest first, and the cheapest of those that are hardly longer than the shortest."""

    images: int
    risk_level: float
    tolerance: float
    choices: tuple[Choice, ...]
    recommended: Choice


def pilot_runs(
    runs: Sequence[FilePath],
    truth: FilePath,
    *,
    risk_level: float,
    miscoverage: float = 0.1,
    tolerance: float = 0.01,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    progress: Progress = silent,
) -> Pilot:
    """Compare ways to sample on pilot runs of the same images; `miscoverage` is the most that is accepted.

    The cheapest choice that is at most `tolerance` longer than the shortest one is recommended.
    """
    risk_level = check_open_unit(risk_level, "risk_level")
    check_open_unit(miscoverage, "miscoverage")
    if check_number(tolerance, "tolerance") < 0:
        raise ValueError(f"tolerance is {tolerance}; it must be at least 0, for example 0.01")
    opened = [_opened(path) for path in runs]
    if not opened:
        raise ValueError("no pilot run is given; give the store of `pixelbounds sample ... --keep-samples`")
    limits = check_limits(tuple(opened[0].about["limits"]))
    true = to_numpy(open_truth(truth, reading, limits).pixels[:]).astype(np.float32)
    for run in opened:
        _check_pair(run, opened[0], true)
    ways = [(run, m, level) for run in opened for m, level in affordable(run.about["samples"], miscoverage)]
    if not ways:
        drawn = max(int(run.about["samples"]) for run in opened)
        raise ValueError(
            f"{drawn} samples per image cannot give coverage {1 - miscoverage:g}: draw at least "
            f"{least_samples(miscoverage)} in the pilot"
        )
    choices = []
    for done, (run, m, level) in enumerate(ways, 1):
        length, error = _length(true, run["samples"][:, :m], level, risk_level, limits)
        choices.append(_choice(run, m, level, length, error))
        progress(done, len(ways))
    shortest = min(choice.length for choice in choices)
    choices = [replace(choice, longer=choice.length / shortest - 1) for choice in choices]
    choices.sort(key=lambda x: (x.evaluations if x.seconds is None else x.seconds, x.length))
    recommended = next(choice for choice in choices if choice.longer <= tolerance)
    return Pilot(len(true), risk_level, tolerance, tuple(choices), recommended)


def affordable(samples: int, miscoverage: float) -> list[tuple[int, Fraction]]:
    """Numbers of samples, halved from all of them down, and the accepted miscoverages that each can give.

    >>> [(m, str(level)) for m, level in affordable(79, 0.1)]
    [(79, '1/10'), (79, '1/20'), (79, '1/40'), (39, '1/10'), (39, '1/20'), (19, '1/10')]
    """
    accepted = Fraction(repr(float(miscoverage)))
    m, choices = check_count(samples, "samples"), []
    while m >= least_samples(accepted):
        choices += [(m, accepted / part) for part in _PARTS if m >= least_samples(accepted / part)]
        m = (m + 1) // 2 - 1
    return choices


# ---------------------------------------------------------------- runs


def _opened(path: FilePath) -> Run:
    run = open_run(path)
    if run.about["kind"] != "score":
        raise ValueError(f"{path} is a run of kind {run.about['kind']!r}; a pilot compares runs of score networks")
    if not run.about["keep_samples"]:
        raise ValueError(f"{path} kept no samples; draw the pilot with `pixelbounds sample ... --keep-samples`")
    if not run.done.all():
        count = f"{int(run.done.sum())} of {len(run)} images"
        raise ValueError(f"{path} has {count}; run the same `pixelbounds sample` again to draw the rest")
    run.check(("samples",))
    return run


def _check_pair(run: Run, first: Run, truth: Array) -> None:
    """A run is of the images whose truth is given, and of the observations of the first run."""
    shape = (len(run), *run["observation"].shape[1:])
    if truth.shape != shape:
        raise ValueError(f"{run.path} has images {shape}, the truth {truth.shape}; give the truth of these images")
    if len(truth) < _LEAST:
        raise ValueError(f"a pilot of {len(truth)} images says too little; draw samples of at least {_LEAST}")
    for name in ("observations", "sigma_0", "limits"):
        if run.about[name] != first.about[name]:
            raise ValueError(
                f"{name} of {run.path} and of {first.path} differ; pilots are compared on the same observations"
            )


def _choice(run: Run, m: int, level: Fraction, length: float, error: float) -> Choice:
    about = run.about
    steps, pace = int(about["steps"]), about.get("pace")
    drawn = int(about["samples"]) + int(about["held_out"])
    each, more = _EVALUATIONS.get(about["sampler"], (1, 0))
    seconds = None if pace is None else pace * m / drawn
    return Choice(
        str(run.path), about["sampler"], steps, m, float(level), m * (each * steps + more), seconds, length, error
    )


# ---------------------------------------------------------------- lengths


def _length(
    truth: Array, samples: Array, level: Fraction, risk_level: float, limits: tuple[float, float]
) -> tuple[float, float]:
    """Mean length on halves of the images of what the other halves shaped, and its error over images."""
    band = calibrated_quantiles(samples, level)
    total = np.zeros(len(truth))
    for draw in range(_DRAWS):
        order = np.random.default_rng([draw, len(truth)]).permutation(len(truth))
        halves = np.array_split(order, 2)
        for ours, others in (halves, halves[::-1]):
            shaped = calibrate(
                truth[ours], band[ours], risk_level=risk_level, method=Frontier("band"), bound=_mean, limits=limits,
                seed=draw,
            )  # fmt: skip
            interval = shaped.apply(band[others])
            total[others] += np.asarray(interval.length).reshape(len(others), -1).mean(axis=1) / _DRAWS
    return float(total.mean()), float(total.std(ddof=1) / np.sqrt(len(total)))


def _mean(losses: Array, failure_prob: float) -> float:
    """No bound at all: what the risk would be with images without end."""
    return float(losses.mean())


# ---------------------------------------------------------------- plot


def draw_pilot(pilot: Pilot, path: FilePath) -> Path:
    """Length against cost, a line for each number of steps and miscoverage, the recommended choice marked."""
    figure, axes = new_figure(7, 4.5)
    timed = all(choice.seconds is not None for choice in pilot.choices)

    def cost(choice: Choice) -> Any:
        return choice.seconds if timed else choice.evaluations

    for key in sorted({(c.run, c.sampler, c.steps, c.miscoverage) for c in pilot.choices}):
        line = [c for c in pilot.choices if (c.run, c.sampler, c.steps, c.miscoverage) == key]
        label = f"{key[1]}, {key[2]} steps, miscoverage {key[3]:g}"
        axes.plot([cost(c) for c in line], [c.length for c in line], marker="o", markersize=4, label=label)
        for c in line:
            axes.annotate(str(c.samples), (cost(c), c.length), (3, 4), textcoords="offset points", fontsize=7)
    best = pilot.recommended
    axes.plot(cost(best), best.length, marker="o", markersize=13, fillstyle="none", color="black", linestyle="none",
              label="recommended")  # fmt: skip
    axes.set(
        xscale="log", xlabel="seconds an image" if timed else "evaluations an image",
        ylabel=f"mean length at {pilot.risk_level:g} missed",
    )  # fmt: skip
    axes.set_title("numbers at the points: samples", fontsize=9)
    axes.legend(fontsize=7)
    path = Path(path)
    figure.savefig(path, dpi=120)
    return path
