"""Drift without truth: conformal ranks of band statistics drive test martingales for exchangeability.

n values of a reference cut the line into n + 1 cells. While all values are exchangeable, the next one falls into each
of the gaps between all earlier ones, the reference's and t new ones, with the same probability; a cell that holds m new
ones has m + 1 of those n + t + 1 gaps. So given the cells of all earlier new values the next falls into a cell with
probability (m + 1) / (n + t + 1), a Polya urn, whatever the law of the values: exact, with one count per cell and no
value kept. (New values ranked among the reference alone would not be independent: a reference that happens to lie low
makes all look high, and bets on that would win without any change.)

A bet has a density g on [0, 1]; where the cell spans the gaps from a to b, as shares of all, its factor is the mean of
g between a and b: 1 on average. Ties with values of the reference are broken at random, and so is the place within the
cell where one number is asked for (`Rank.p_value`). These random numbers come from the calibration's digest and the
number of the round: the same stream gives the same bits, and images that are alike get numbers of their own.

Martingales of several statistics share the probability of a false alarm evenly: their histories differ, so they are no
martingale together.

A calibration keeps statistics of the bands of its first certifying units (`calibration.provenance`). Nothing that they
depend on knows the certifying images, so while new images come from the same source, statistics of both are
exchangeable. That says nothing about risk. With units, images of one unit are not exchangeable with those of others,
but one image of a new unit is with one image of each unit of the calibration: the p-value of an image is valid by
itself, and several images of a unit are low together, so how many of them are is no count of independent ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from ..calibration.block import read_block
from ..calibration.calibration import Calibration
from ..calibration.paths.path import STATISTICS, BandStatistics, describe
from ..images.ends import Band
from ..images.library import Array, alike, block_of, in_threads, sizes_of
from ..kernels.bets import EProcess
from .status import StatisticStatus

POWERS = np.array([1.3, 2.0, 4.0, 12.0])
BETS = 2 * len(POWERS) + 2
RECENT = 40  # images (units) whose p-values are kept
NO_PAUSES = np.ones(BETS, np.int64)
_RESERVE = 0.1  # of a bet's wealth stays out of every round
_AT_ONCE = 1024  # new images compared at a time
_FINE = 1e-12  # rounding, of distances of which the farthest is near 1


class Rank(NamedTuple):
    """Where a new value falls: its cell, and the ranks that the cell spans, as shares of all.

    The smoothed conformal p-value is uniform on (0, 1), independent of those before, while nothing changes.
    """

    cell: int
    low: float
    high: float
    p_value: float


@dataclass(frozen=True, eq=False)
class ConformalRanks:
    """Values of a reference, (n,), ascending, random numbers that break ties, and new values per cell, (n + 1,)."""

    values: Array
    ties: Array
    counts: Array

    @classmethod
    def of(cls, values: Array, seed: int) -> ConformalRanks:
        """Before any new value; the seed breaks ties."""
        ties = np.random.default_rng(seed).random(len(values))
        order = np.lexsort((ties, values))
        return cls(values[order], ties[order], np.zeros(len(values) + 1, np.int64))

    def rank(self, value: float, uniforms: Array) -> Rank:
        """Where a new value falls, given two random numbers."""
        first = int(np.searchsorted(self.values, value))
        last = int(np.searchsorted(self.values, value, side="right"))
        cell = first + int(np.searchsorted(self.ties[first:last], uniforms[0]))
        gaps = len(self.counts) + int(self.counts.sum())
        before = cell + int(self.counts[:cell].sum())
        low, high = before / gaps, (before + 1 + int(self.counts[cell])) / gaps
        return Rank(cell, low, high, min(max(low + float(uniforms[1]) * (high - low), 1e-12), 1 - 1e-12))

    def update(self, cell: int) -> ConformalRanks:
        """After a new value fell into a cell."""
        return replace(self, counts=self.counts + (np.arange(len(self.counts)) == cell))


def log_rank_factors(low: Array | float, high: Array | float) -> Array:
    """What bets on ranks multiply by, as logs: ranks from low to high (...) -> (..., BETS).

    First bets on high ranks, then on low ones, then on both ends, then on the middle.
    """
    a = np.asarray(low)[..., None]
    b = np.asarray(high)[..., None]
    up = b**POWERS - a**POWERS
    down = (1 - a) ** POWERS - (1 - b) ** POWERS
    ends = (np.arcsin(np.sqrt(b)) - np.arcsin(np.sqrt(a))) * (2 / np.pi)
    middle = b * b * (3 - 2 * b) - a * a * (3 - 2 * a)
    mean = np.concatenate([up, down, ends, middle], axis=-1) / (b - a)
    return np.asarray(np.log(_RESERVE + (1 - _RESERVE) * np.maximum(mean, 0.0)))


def recent_p_value(p_values: Array) -> tuple[float, bool]:
    """Two-sided p-value of the mean of p-values, (m,), and whether they lie high.

    Normal scores of independent uniform numbers have a sum of variance m, exactly, so it is valid at any one time.
    """
    score = float(ndtri(p_values).sum() / np.sqrt(len(p_values)))
    return min(1.0, 2 * float(ndtr(-abs(score)))), score > 0


@dataclass(frozen=True, eq=False)
class DriftMartingale:
    """One statistic: ranks and e-process, the last few p-values (m,), the sum of all values, whether it changed."""

    name: str
    ranks: ConformalRanks
    e_process: EProcess
    recent: Array
    total: float = 0.0
    changed: bool = False

    def update(self, value: float, uniforms: Array, failure_prob: float) -> DriftMartingale:
        """After another image (unit)."""
        rank = self.ranks.rank(value, uniforms)
        e_process = self.e_process.update(log_rank_factors(rank.low, rank.high))
        changed = self.changed or bool(e_process.log_e_value >= np.log(1 / failure_prob))
        recent, ranks = np.append(self.recent, rank.p_value)[-RECENT:], self.ranks.update(rank.cell)
        return DriftMartingale(self.name, ranks, e_process, recent, self.total + value, changed)

    @property
    def status(self) -> StatisticStatus:
        """What was seen of it."""
        p_value, up = recent_p_value(self.recent) if len(self.recent) else (1.0, True)
        return StatisticStatus(self.name, self.e_process.e_value, len(self.recent), p_value, up, self.changed)


def drift_martingales(reference: BandStatistics, seed: int) -> tuple[DriftMartingale, ...]:
    """The martingales of a reference before any new image; none where there is no reference."""
    columns = reference.of_units.T.astype(np.float64) if len(reference) else ()
    return tuple(
        DriftMartingale(name, ConformalRanks.of(column, seed), EProcess.new(NO_PAUSES), np.empty(0))
        for name, column in zip(STATISTICS, columns, strict=False)
    )


def update_drift(
    martingales: Sequence[DriftMartingale], rows: Array, seed: int, failure_prob: float
) -> tuple[DriftMartingale, ...]:
    """The martingales after further images (units), with statistics (u, 5), in order; they share `failure_prob`."""
    now = tuple(martingales)
    for row in rows.astype(np.float64):
        uniforms = np.random.default_rng([seed, now[0].e_process.rounds]).random(2)
        each = failure_prob / len(now)
        now = tuple(x.update(float(value), uniforms, each) for x, value in zip(now, row, strict=True))
    return now


def statistics_of(
    calibration: Calibration, band: Band, *, features: Any = None, labels: Any = None, threads: bool = True
) -> Array:
    """Statistics of new images as the reference of a calibration has them: Band (n, *pixels) -> (n, 5) float32."""
    if not isinstance(calibration, Calibration):
        raise TypeError(f"calibration is a {type(calibration).__name__}; give what pixelbounds.calibrate returns")
    reference = calibration.reference
    if not len(reference):
        why = "its images stayed at their sites, or must not be disclosed"
        raise ValueError(f"this calibration keeps no statistics to compare new bands with: {why}")
    band, features, labels = calibration.check_band(band, features, labels)

    def work(start: int, stop: int) -> list[Array]:
        runs = alike(band.lower, range(start, stop))
        blocks = (read_block(band, run[0], run[-1] + 1, calibration.limits, features, labels) for run in runs)
        made = calibration.family, calibration.grouping, reference.widening, reference.shares
        return [describe(block, *made) for block in blocks]

    block = block_of(int(sizes_of(band.lower).mean()), len(band)) if threads else len(band)
    return np.concatenate([row for rows in in_threads(work, len(band), block) for row in rows])


def conformal_p_values(
    calibration: Calibration, band: Band, *, features: Any = None, labels: Any = None, threads: bool = True
) -> Array:
    """The p-value of "this image comes from the calibration's source", by its band alone: Band (n, *pixels) -> (n,).

    For one image of a new unit it is at most p with probability at most p, on average over calibrations; of an anytime
    calibration at a look that was not chosen by its result. `features` and `labels` as in `apply`.
    """
    rows = statistics_of(calibration, band, features=features, labels=labels, threads=threads)
    return p_values(calibration.reference.of_images, rows)


def p_values(reference: Array, rows: Array) -> Array:
    """Share of images, the reference's and the new one, that lie at least as far out: (n, 5), (m, 5) -> (m,).

    How far out an image lies is the sum of squared distances from the mean of all n + 1, in units of their deviation:
    the same function of all of them, whichever is the new one, so the p-value is at most p with probability at most p.

    >>> at = np.arange(99.0)[:, None]
    >>> p_values(at, np.array([[49.0], [500.0]]))
    array([1.  , 0.01])
    """
    n = len(reference)
    centre = reference.mean(axis=0, dtype=np.float64)
    centred = reference - centre
    squares = centred**2
    values = np.empty(len(rows))
    for start in range(0, len(rows), _AT_ONCE):
        new = rows[start : start + _AT_ONCE] - centre
        mean = new / (n + 1)  # of all; that of the reference is 0
        total = squares.sum(axis=0) + new**2 - (n + 1) * mean**2
        share = 1 / np.where(total > 0, total, 1.0)
        distance = ((new - mean) ** 2 * share).sum(axis=1)
        others = share @ squares.T - 2 * (mean * share) @ centred.T + (mean**2 * share).sum(axis=1)[:, None]
        values[start : start + len(new)] = (1 + (others >= distance[:, None] - _FINE).sum(axis=1)) / (n + 1)
    return values
