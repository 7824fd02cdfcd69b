"""New images among those of a reference: ranks that are independent and even while all come from one source.

n values of a reference cut the line into n + 1 cells. While all values are exchangeable, the next one falls into each
of the places between all earlier ones, the reference's and t new ones, with the same chance; a cell that holds m new
ones has m + 1 of those n + t + 1 places. So given the cells of all earlier new ones the next falls into a cell with
chance (m + 1) / (n + t + 1), a Polya urn, whatever the law of the values: exact, with one count per cell and no value
kept. (New values ranked among the reference alone would not be independent: a reference that happens to lie low makes
all look high, and bets on that would win without any change.)

A bet has a density g on [0, 1]; where the cell spans the places from a to b, as shares of all, its factor is the mean
of g between a and b, in the mean exactly 1. Values that tie with some of the reference fall before or after each of
them by lot; so does the place within the cell where a single number is asked for (`Arrival.place`): those are
independent and evenly distributed. Lots are drawn from digests of the images, so that the same images give the same
bits.

The purses of several statistics win and lose by their own histories: they are no purse together, and share the chance
of a false alarm evenly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from ..images.library import Array

POWERS = np.array([1.3, 2.0, 4.0, 12.0])
BETS = 2 * len(POWERS) + 2
_KEPT = 0.1  # of a bet's money stays out of every round
_MIX = np.uint64(0xBF58476D1CE4E5B9)


@dataclass(frozen=True)
class Arrival:
    """Where a new value fell: its cell, and the places that the cell spans, as shares of all."""

    cell: int
    low: float
    high: float
    lot: float

    @property
    def place(self) -> float:
        """One place within the cell, by lot: evenly distributed on (0, 1), independent of those before."""
        return min(max(self.low + self.lot * (self.high - self.low), 1e-12), 1 - 1e-12)


@dataclass(frozen=True, eq=False)
class ConformalRanks:
    """Values of a reference, (n,), ascending, with lots for ties, and how many new ones each cell holds, (n + 1,)."""

    values: Array
    lots: Array
    counts: Array

    @classmethod
    def of(cls, values: Array, seed: int) -> ConformalRanks:
        """The empty urn of a reference, (n,); the seed, one of its own for each reference, draws the lots."""
        lots = np.random.default_rng(seed).random(len(values))
        order = np.lexsort((lots, values))
        return cls(values[order], lots[order], np.zeros(len(values) + 1, np.int64))

    def arrival(self, value: float, digest: np.uint64) -> Arrival:
        """Where a new value falls; its digest draws the lots."""
        tie, lot = lots_of(digest)
        first = int(np.searchsorted(self.values, value))
        last = int(np.searchsorted(self.values, value, side="right"))
        cell = first + int(np.searchsorted(self.lots[first:last], tie))
        places = len(self.values) + 1 + int(self.counts.sum())
        before = cell + int(self.counts[:cell].sum())
        return Arrival(cell, before / places, (before + 1 + int(self.counts[cell])) / places, lot)

    def with_one_in(self, cell: int) -> ConformalRanks:
        """The urn after a value fell into a cell."""
        counts = self.counts.copy()
        counts[cell] += 1
        return ConformalRanks(self.values, self.lots, counts)


def lots_of(digest: np.uint64) -> tuple[float, float]:
    """Two numbers in [0, 1) from a digest."""
    found = []
    with np.errstate(over="ignore"):
        for _ in range(2):
            digest = (digest ^ (digest >> np.uint64(30))) * _MIX
            digest ^= digest >> np.uint64(27)
            found.append(float(digest >> np.uint64(11)) / 2**53)
    return found[0], found[1]


def log_rank_factors(low: Array | float, high: Array | float) -> Array:
    """What bets on ranks multiply by, as logs: places low to high (...) -> (..., BETS).

    First those on high ranks, then those on low ones, then on both ends, then on the middle.
    """
    a = np.asarray(low)[..., None]
    b = np.asarray(high)[..., None]
    up = b**POWERS - a**POWERS
    down = (1 - a) ** POWERS - (1 - b) ** POWERS
    ends = (np.arcsin(np.sqrt(b)) - np.arcsin(np.sqrt(a))) * (2 / np.pi)
    middle = b * b * (3 - 2 * b) - a * a * (3 - 2 * a)
    mean = np.concatenate([up, down, ends, middle], axis=-1) / (b - a)
    return np.asarray(np.log(_KEPT + (1 - _KEPT) * np.maximum(mean, 0.0)))


def recent_chance(places: Array) -> tuple[float, bool]:
    """Chance of places that lie at least as far up or down in the mean, (m,), and whether they lie up.

    Normal scores of independent even places have a sum of variance m, exactly, so this is a p-value at any one time.
    """
    score = float(ndtri(places).sum() / np.sqrt(len(places)))
    return min(1.0, 2 * float(ndtr(-abs(score)))), score > 0
