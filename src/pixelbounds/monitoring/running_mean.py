"""The mean of what was expected in all rounds so far, held at all times at once, with three numbers of state.

For values X in [0, 1] with mean m given what came before, and any guess g that was made before,

    exp(b (X - m) - (-log(1 - b) - b) (X - g)^2)

is at most 1 in the mean, for every b in [0, 1) (Fan and others 2015; Howard and others 2021). So is the mixture over
some b, and by Ville the product over rounds is ever above 1 / alpha with probability at most alpha. Solved for the mean
of m over the rounds that is a bound at every time; the same of 1 - X is the other end. Nothing says that m stays the
same: where the source drifts, the mean over the rounds is what is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from ..images.library import Array

_BETS = 0.9 * 2.0 ** -np.arange(10)
_PRICE = -np.log1p(-_BETS) - _BETS


@dataclass(frozen=True)
class RunningMean:
    """Rounds, the sum of their values in [0, 1], and the sum of squared distances from guesses made before.

    >>> mean = RunningMean()
    >>> for _ in range(400):
    ...     mean = mean.then(0.1)
    >>> low, high = mean.ends(0.95)
    >>> 0.08 < low < 0.1 < high < 0.12
    True
    """

    rounds: int = 0
    total: float = 0.0
    squares: float = 0.0

    def then(self, value: float) -> RunningMean:
        """After another round."""
        guess = (0.5 + self.total) / (1 + self.rounds)
        return RunningMean(self.rounds + 1, self.total + value, self.squares + (value - guess) ** 2)

    def ends(self, level: float) -> tuple[float, float]:
        """Both ends, which hold the mean of what was expected at all times with probability `level`."""
        if not self.rounds:
            return 0.0, 1.0
        slack = _slack(self.squares, (1 - level) / 2) / self.rounds
        mean = self.total / self.rounds
        return max(0.0, mean - slack), min(1.0, mean + slack)


def _slack(squares: float, failure_prob: float) -> float:
    """The y at which the mixture of exp(b y - price squares) is 1 / failure_prob, rounded upward."""
    objective = np.log(len(_BETS) / failure_prob)
    low, high = 0.0, float(np.min((objective + _PRICE * squares) / _BETS))  # one bet alone has it there
    for _ in range(40):
        middle = (low + high) / 2
        if _mixture(middle, squares) >= objective:
            high = middle
        else:
            low = middle
    return high


def _mixture(y: float, squares: float) -> float:
    return float(np.logaddexp.reduce(_BETS * y - _PRICE * squares))


_NO_ROUNDS = RunningMean()


@dataclass(frozen=True)
class RunningRatio:
    """The same of a ratio of two means, 0 <= top <= bottom <= 1: of losses times weights, and of weights."""

    top: RunningMean = _NO_ROUNDS
    bottom: RunningMean = _NO_ROUNDS

    def then(self, top: float, bottom: float) -> RunningRatio:
        """After another round."""
        return RunningRatio(self.top.then(top), self.bottom.then(bottom))

    @property
    def value(self) -> float:
        """The ratio that was seen; NaN before the first round."""
        return self.top.total / self.bottom.total if self.bottom.total else float("nan")

    def ends(self, level: float) -> tuple[float, float]:
        """Both ends; where every bottom was 1 those of the mean of tops."""
        if self.bottom.total == self.bottom.rounds:
            return self.top.ends(level)
        half = (1 + level) / 2
        top, bottom = self.top.ends(half), self.bottom.ends(half)
        return top[0] / bottom[1], min(1.0, top[1] / bottom[0] if bottom[0] else inf)

    @property
    def state(self) -> Array:
        """Six numbers."""
        return np.array([x for part in (self.top, self.bottom) for x in (part.rounds, part.total, part.squares)])

    @classmethod
    def from_state(cls, state: Array) -> RunningRatio:
        """What a file holds, checked."""
        rounds, total, squares = state[[0, 3]], state[[1, 4]], state[[2, 5]]
        whole = (rounds == np.floor(rounds)).all() and rounds[0] == rounds[1] < 2**53
        if not whole or not (total >= 0).all() or not (total <= rounds).all() or total[0] > total[1] * (1 + 1e-9):
            raise ValueError(f"{state.tolist()} are no sums of losses")
        if not (squares >= 0).all() or not (squares <= rounds).all():
            raise ValueError(f"{state.tolist()} are no squares of losses")
        parts = [RunningMean(int(n), float(t), float(s)) for n, t, s in zip(rounds, total, squares, strict=True)]
        return cls(*parts)


NOTHING_SEEN = RunningRatio()
