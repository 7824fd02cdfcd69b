"""Monitors: false alarms without a change, delay after one, and a hospital's year.

python -m benchmarks monitoring    (some ten minutes on one core)

MAPIE's `RiskMonitoring` runs in an environment of its own, PIXELBOUNDS_MAPIE=/path/to/python; else rows say so. It is
given the level as its threshold, and the same chance of a false alarm for its bound on the stream.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from scipy.stats import binom, norm

import pixelbounds as pb
from benchmarks.pages import result
from benchmarks.timing import resident
from pixelbounds.images.library import Array
from pixelbounds.kernels.bets import PAUSES, EProcess, log_factors
from pixelbounds.monitoring.drift import BETS, log_rank_factors

PAGE = "docs/research/after_deployment.md"
SIZE = 1000, 2000  # streams, and images of each
REFERENCE = 200
CHANCES = (0.01, 0.05, 0.1)
ALARM = 0.01
LATEST = 4000  # images after a change
COMPARED = 5  # streams on which MAPIE's monitor runs, which takes its time
Rng, seeded = np.random.Generator, np.random.default_rng
Size = tuple[int, int]
Draw = Callable[[Rng, Array], Array]  # risks (streams,) -> losses (streams,)


def tails(rng: Rng, risk: Array) -> Array:
    """Images that are bad or not."""
    return (rng.random(len(risk)) < risk).astype(float)


def shares(rng: Rng, risk: Array) -> Array:
    """Shares of missed pixels that vary between images as those of 20 independent pixels would."""
    return rng.beta(20 * risk, 20 * (1 - risk))


# ---------------------------------------------------------------- false alarms


class Ranks:
    """A statistic of bands without truth, its conformal ranks and e-processes, side by side in many streams."""

    def __init__(self, rng: Rng, streams: int, reference: int = REFERENCE) -> None:
        self.reference = np.sort(rng.standard_normal((streams, reference)), axis=1)
        self.counts = np.zeros((streams, reference + 1))
        self.e_process = EProcess.new(np.ones(BETS, int), (streams,))
        self.every = np.arange(streams)

    def update(self, values: Array, learn: bool = True) -> Array:
        """Log e-values after another image of each stream; without `learn` ranks are among the reference alone."""
        cell = (self.reference < values[:, None]).sum(axis=1)
        ends = np.cumsum(self.counts + 1, axis=1)
        total, high = ends[:, -1], ends[self.every, cell]
        low = high - self.counts[self.every, cell] - 1
        self.e_process = self.e_process.update(log_rank_factors(low / total, high / total))
        if learn:
            self.counts[self.every, cell] += 1
        return self.e_process.log_e_values


def promise_e_values(rng: Rng, draw: Draw, level: float, size: Size = SIZE) -> Array:
    """Greatest e-value of each stream, as a log, where the risk is the level itself."""
    e_process = EProcess.new(PAUSES, size[:1])
    best = np.zeros(size[0])
    for _ in range(size[1]):
        e_process = e_process.update(log_factors(draw(rng, np.full(size[0], level)) - level, level))
        best = np.maximum(best, e_process.log_e_values)
    return best


def statistic_e_values(rng: Rng, size: Size = SIZE, reference: int = REFERENCE, *, learn: bool = True) -> Array:
    """The same of a statistic without truth."""
    ranks = Ranks(rng, size[0], reference)
    return np.max([ranks.update(rng.standard_normal(size[0]), learn) for _ in range(size[1])], axis=0)


def joint_alarms(rng: Rng, size: Size = SIZE, reference: int = REFERENCE) -> dict[float, Array]:
    """Which streams have any alarm of three promises about the same images and two statistics, by what was asked."""
    streams, images = size
    e_processes = [EProcess.new(PAUSES, (streams,)) for _ in range(3)]
    statistics = [Ranks(rng, streams, reference) for _ in range(2)]
    mean, most = np.zeros(streams), np.zeros(streams)
    above = 0.9**19 + 19 * 0.1 * 0.9**18  # chance that a share of Beta(2, 18) is above 0.1
    for _ in range(images):
        same = rng.beta(2, 18, streams)
        other = np.where(rng.random(streams) < 0.5, same, rng.beta(2, 18, streams))
        losses = [same, (same > 0.1) * 0.1 / above, other]
        e_processes = [p.update(log_factors(x - 0.1, 0.1)) for p, x in zip(e_processes, losses, strict=True)]
        mean = np.maximum(mean, np.logaddexp.reduce([p.log_e_values for p in e_processes]) - np.log(3))
        common = rng.standard_normal(streams)
        e_values = [ranks.update(0.7 * common + 0.7 * rng.standard_normal(streams)) for ranks in statistics]
        most = np.maximum(most, np.max(e_values, axis=0))
    return {chance: (mean >= np.log(2 / chance)) | (most >= np.log(4 / chance)) for chance in CHANCES}


def daily_test(rng: Rng, size: Size = SIZE) -> dict[float, Array]:
    """The wrong way: an exact test for a fixed number of images, looked at every ten images."""
    bad = np.cumsum([tails(rng, np.full(size[0], 0.1)) for _ in range(size[1])], axis=0)
    days = np.arange(10, size[1] + 1, 10)
    p = binom.sf(bad[days - 1] - 1, days[:, None], 0.1).min(axis=0)
    return {chance: p <= chance for chance in CHANCES}


def false_alarms() -> list[dict[str, Any]]:
    """How often streams without a change ever raise an alarm, by what was asked."""

    def reached(best: Array) -> dict[float, Array]:
        return {chance: best >= np.log(1 / chance) for chance in CHANCES}

    found = {
        "a promise on shares, risk at its level of 10%": reached(promise_e_values(seeded(1), shares, 0.1)),
        "a promise on bad images, at its level of 5%": reached(promise_e_values(seeded(2), tails, 0.05)),
        "a statistic without truth": reached(statistic_e_values(seeded(3))),
        "all jointly: three promises, two statistics": joint_alarms(seeded(4)),
        "(wrong) a fixed-n test looked at every 10 images": daily_test(seeded(5)),
    }
    return [
        {"detector": name, "streams": SIZE[0], "images": SIZE[1], **{str(x): float(a.mean()) for x, a in by.items()}}
        for name, by in found.items()
    ]


# ---------------------------------------------------------------- delay


def risk_along(kind: str, quiet: int, level: float, images: int) -> Array:
    """The risk of each image: 0.9 times the level, then 1.5 times, at once or drifting over 1,000 images."""
    at = np.arange(images)
    part = (at >= quiet).astype(float) if kind == "jump" else np.clip((at - quiet) / 1000, 0, 1)
    return level * (0.9 + 0.6 * part)


def our_delays(losses: Array, level: float, quiet: int) -> Array:
    """Images after the change until an alarm: losses (images, streams) -> (streams,); infinite where there is none."""
    e_process = EProcess.new(PAUSES, (losses.shape[1],))
    first = np.full(losses.shape[1], np.inf)
    for i, row in enumerate(losses):
        e_process = e_process.update(log_factors(row - level, level))
        first = np.where(np.isinf(first) & (e_process.log_e_values >= np.log(1 / ALARM)), i + 1, first)
    return first - quiet


_MAPIE = """
import sys, numpy as np, warnings
warnings.simplefilter("ignore")
from mapie.exchangeability_testing import RiskMonitoring
losses = np.load(sys.argv[1]); level = float(sys.argv[2]); alarm = float(sys.argv[3])
for row in losses.T:
    monitor = RiskMonitoring(risk="accuracy", test_level=2 * alarm, threshold=level, warn=False)
    monitor.update(np.zeros(len(row), int), row.astype(int))
    above = monitor.online_risk_lower_bound_sequence_history > level
    print(int(np.argmax(above)) + 1 if above.any() else -1)
"""


def mapie_delays(losses: Array, level: float, quiet: int) -> Array | None:
    """The same of MAPIE's RiskMonitoring on 0/1 losses; None where it is not installed."""
    python = os.environ.get("PIXELBOUNDS_MAPIE", "")
    if not python:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "losses.npy"
        np.save(path, losses)
        words = [python, "-c", _MAPIE, str(path), str(level), str(ALARM)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    first = np.array([int(x) for x in done.stdout.split()], float)
    return np.where(first < 0, np.inf, first) - quiet


def fixed_n(draw: Draw, level: float) -> int:
    """Images that a test for a fixed number needs, which knows the time of the change, to succeed half of the time."""
    if draw is tails:
        for n in range(10, LATEST):
            least = int(binom.isf(ALARM, n, level)) + 1
            if binom.sf(least - 1, n, 1.5 * level) >= 0.5:
                return n
    rng = np.random.default_rng(0)
    losses = np.cumsum([draw(rng, np.full(2000, 1.5 * level)) for _ in range(60)], axis=0)
    spread = draw(rng, np.full(20000, level)).std()
    n = np.arange(1, 61)[:, None]
    passed = (losses / n - level) * np.sqrt(n) / spread >= norm.isf(ALARM)
    return int(np.argmax(passed.mean(axis=1) >= 0.5)) + 1


def delays(streams: int = 200, compared: int = COMPARED) -> list[dict[str, Any]]:
    """Median and 90% quantile of the delay, beside the fixed-n test and MAPIE's monitor."""
    rows = []
    for name, draw, level in (("shares", shares, 0.1), ("bad images", tails, 0.1)):
        for kind, quiet in (("jump", 0), ("jump", 200), ("jump", 1000), ("drift", 200)):
            rng = np.random.default_rng([quiet, len(name), len(kind)])
            risk = risk_along(kind, quiet, level, quiet + LATEST)
            losses = np.array([draw(rng, np.full(streams, r)) for r in risk])
            ours = our_delays(losses, level, quiet)
            theirs = mapie_delays(losses[: quiet + 2500, :compared], level, quiet) if draw is tails else None
            rows.append(
                {
                    "losses": name, "change": f"{kind} after {quiet}", "early": int((ours <= 0).sum()),
                    "median": _number(np.median(ours)), "90%": _number(np.quantile(ours, 0.9, method="higher")),
                    "fixed n": fixed_n(draw, level) if kind == "jump" else None,
                    "MAPIE median": None if theirs is None else _number(np.median(theirs)),
                    "ours, same streams": None if theirs is None else _number(np.median(ours[:compared])),
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
    return rows


def _number(value: Any) -> int | str:
    return int(value) if np.isfinite(value) else f"> {LATEST}"


# ---------------------------------------------------------------- a hospital's year


def year(days: int = 365, images: int = 200, known: int = 10, size: int = 16) -> dict[str, Any]:
    """A state that is read and written twice a day: bands of all images, and the truth of some."""
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[Array, pb.Band]:
        truth = rng.uniform(size=(n, size, size)).astype(np.float32)
        centre = truth + 0.1 * rng.standard_normal(truth.shape).astype(np.float32)
        return truth, pb.Band(centre - 0.1, centre + 0.1)

    truth, band = draw(600)
    monitor = pb.Monitor(pb.calibrate(truth, band, risk_level=0.1, method=pb.Frontier(groups="band")))
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state.safetensors"
        pb.save_monitor(monitor, state)
        first = state.stat().st_size
        begin, took = resident(), []
        for _ in range(days):
            truth, band = draw(images)
            start = perf_counter()
            monitor = pb.load_monitor(state)
            monitor.check_drift(band)
            pb.save_monitor(monitor, state)
            monitor = pb.load_monitor(state)
            status = monitor.update(truth[:known], band[:known])
            pb.save_monitor(monitor, state)
            took.append(perf_counter() - start)
        return {
            "days": days, "images": status.drift_images, "with truth": status.images, "alarm": status.alarm,
            "state at first": first, "state at the end": state.stat().st_size,
            "seconds a day": float(np.median(took)), "memory grown": max(0, resident() - begin),
        }  # fmt: skip


# ---------------------------------------------------------------- the page


def run() -> dict[str, Any]:
    """All of it."""
    return {"false alarms": false_alarms(), "delays": delays(), "year": year()}


def text() -> str:
    """The tables of the page."""
    kept = result("monitoring")
    lines = [
        "| ever an alarm in 2,000 images without a change, of 1,000 streams | asked 1% | 5% | 10% |",
        "|---|---|---|---|",
    ]
    for row in kept["false alarms"]:
        lines.append(f"| {row['detector']} | " + " | ".join(f"{row[str(c)]:.1%}" for c in CHANCES) + " |")
    head = "| losses, level 10% | risk from 0.9 to 1.5 times the level | delay, median | 90% of streams | fixed n |"
    lines += ["", f"{head} MAPIE on {COMPARED} streams, ours on these |", "|---|---|---|---|---|---|"]
    for row in kept["delays"]:
        theirs = "does not apply" if row["losses"] == "shares" else "not installed"
        if row["MAPIE median"] is not None:
            theirs = f"{row['MAPIE median']}, {row['ours, same streams']}"
        fixed = "" if row["fixed n"] is None else row["fixed n"]
        lines.append(f"| {row['losses']} | {row['change']} | {row['median']} | {row['90%']} | {fixed} | {theirs} |")
    year = kept["year"]
    lines += [
        "",
        f"A year of {year['images']:,} images, {year['with truth']:,} of them with truth later: the state grew from "
        f"{year['state at first'] / 1e3:.0f} to {year['state at the end'] / 1e3:.0f} kB, a day took "
        f"{year['seconds a day']:.2f} s (median), memory grew by {year['memory grown'] / 1e6:.0f} MB, and there was "
        f"{'an' if year['alarm'] else 'no'} alarm.",
        "",
        f"Measured at commit {kept['machine']['commit']} (`python -m benchmarks monitoring`), "
        f"{kept['machine']['cpu']}, a shared machine.",
    ]
    return "\n".join(lines)
