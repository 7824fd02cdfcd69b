"""Bettors who do not know how many images will come: one purse at each path point, shared by several of them.

Against "the mean loss is at least the level" a bet b multiplies wealth by 1 + b (level - loss), which is at most 1 in
the mean where that is true, whatever was seen before. So wealth is a test martingale, and it ever reaches 1 / delta
with probability at most delta (Ville): it may be looked at after every loss, without a correction.

Good bets depend on the number of losses to come. The bettor of `kernels.wealth` knows it; here each of a few supposes
another number: as many as no test can do without, and twice, four times, ... as many. Where losses vary little, as
shares of missed pixels do, all of them stake nearly all that a loss of 1 could take, so having several costs next to
nothing. Losses of 0 and 1 (`coins`) vary as much as they can, which is known beforehand: there nobody learns the
variance from the first few, which tell nothing of it, and all suppose twice as many losses: docs/anytime.md has
figures.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log, log1p

import numpy as np

from ..images.checks import check_number, check_open_unit
from ..images.library import Array

BETTORS = 8  # each supposes twice as many losses as the one before
_FADE = 0.8  # of the purse, from one bettor to the next
_MOST = 0.99  # of what a loss of 1 could take: nobody is ever ruined
_PLENTY = 1e250  # wealth that nobody needs: the failure probability is far above its inverse
_START = 0.25  # the variance before any loss was seen, as of one loss of 0 or 1


def fewest(level: float, failure_prob: float) -> int:
    """The fewest losses with which any test can certify the level, all of them being 0.

    >>> fewest(0.05, 0.1)
    45
    """
    level, failure_prob = check_open_unit(level, "level"), check_open_unit(failure_prob, "failure_prob")
    return ceil(min(log(failure_prob) / log1p(-level), 2.0**53))


def shares_of_the_purse() -> Array:
    """What each bettor begins with: (BETTORS,); together 1."""
    shares = _FADE ** np.arange(BETTORS)
    return shares / shares.sum()


@dataclass(eq=False)
class EProcesses:
    """Evidence at T path points that the mean loss is below a level, after `count` losses in the order of arrival.

    wealth     of each bettor, (BETTORS, T); what is beyond all need is given away
    total      sum of the losses, (T,)
    squares    of their deviations, as bettors learn them, (T,)
    best       greatest wealth of all bettors together so far, (T,)
    coins      losses are 0 or 1, or means of such
    """

    level: float
    failure_prob: float
    count: int
    wealth: Array
    total: Array
    squares: Array
    best: Array
    coins: bool = False

    @classmethod
    def new(cls, level: float, failure_prob: float, points: int, coins: bool = False) -> EProcesses:
        """Before any loss."""
        wealth = np.repeat(shares_of_the_purse()[:, None], points, axis=1)
        return cls(level, failure_prob, 0, wealth, np.zeros(points), np.full(points, _START), np.ones(points), coins)

    def __post_init__(self) -> None:
        check_open_unit(self.level, "level")
        check_open_unit(self.failure_prob, "failure_prob")
        if isinstance(self.count, bool) or not isinstance(self.count, int) or not 0 <= self.count < 2**53:
            raise ValueError(f"a purse after {self.count!r} losses cannot be")
        points = self.wealth.shape[-1]
        shapes = {"wealth": (BETTORS, points), "total": (points,), "squares": (points,), "best": (points,)}
        for name, shape in shapes.items():
            x = getattr(self, name)
            if x.dtype != np.float64 or x.shape != shape or not points or not np.isfinite(x).all():
                raise ValueError(f"{name} of purses is {x.dtype} {x.shape}; it must hold finite float64 {shape}")
        room = 1e-9 * (1 + self.count)
        if self.total.min() < 0 or self.total.max() > self.count + room or self.squares.min() < _START:
            raise ValueError(f"the losses of purses cannot be those of {self.count}")
        most = self.count * log1p(_MOST * self.level / (1 - self.level)) + room  # what bets can win, as a logarithm
        won = np.log(self.best.max()) if self.best.min() >= 1 - room else np.inf
        if won > most or self.wealth.min() < 0 or (self.wealth.sum(axis=0) > self.best * (1 + 1e-9)).any():
            raise ValueError("the wealth of purses is negative, or more than the greatest so far, or than bets can win")

    @property
    def reached(self) -> Array:
        """Where the level is certified: wealth was 1 / delta at some time, (T,) bool."""
        return np.asarray(self.best * self.failure_prob > 1)

    def after(self, losses: Array) -> EProcesses:
        """The purses after further losses in [0, 1], (n, T), in the order of arrival; the old ones stay as they are."""
        if losses.ndim != 2 or losses.shape[1] != len(self.best):
            raise ValueError(f"losses have shape {losses.shape}; give (n, {len(self.best)}), one at each path point")
        if not len(losses):
            return self
        if check_number(losses.min(), "a loss") < -1e-9 or check_number(losses.max(), "a loss") > 1 + 1e-9:
            raise ValueError(f"losses reach from {losses.min():g} to {losses.max():g}; they must lie in [0, 1]")
        supposed = fewest(self.level, self.failure_prob) * 2.0 ** (np.arange(BETTORS) + self.coins)
        stake = np.sqrt(-2 * log(self.failure_prob) / supposed)[:, None]
        most = _MOST / (1 - self.level)
        factor = np.empty_like(self.wealth)
        wealth = self.wealth.copy()
        total = self.total.copy()
        squares = self.squares.copy()
        best = self.best.copy()
        count = self.count
        for loss in np.clip(losses, 0.0, 1.0):
            variance = self.level * (1 - self.level) if self.coins else squares / (count + 1)
            np.divide(stake, np.sqrt(variance), out=factor)
            np.minimum(factor, most, out=factor)  # the bets
            factor *= self.level - loss
            factor += 1
            wealth *= factor
            np.maximum(best, wealth.sum(axis=0), out=best)
            if best.max() > _PLENTY:
                np.minimum(wealth, _PLENTY, out=wealth)
            total += loss
            count += 1
            squares += (loss - (total + 0.5) / (count + 1)) ** 2
        return replace(self, count=count, wealth=wealth, total=total, squares=squares, best=best)
