"""A purse that is worth 1 at first: how much it is worth is evidence, at any time that one cares to look.

A bet multiplies its money in every round by a factor that is at most 1 in the mean, whatever came before, while nothing
is wrong. So does any mixture of bets, and of *times at which a bet begins*: with shares w_1 + w_2 + ... = 1 of the
purse that are put to work in rounds 1, 2, ..., and factors f of one bet, what is at work is

    V_n = f_n (V_{n-1} + w_n),

one number for all times at once, and the purse is worth what is not yet at work plus the mean of V_n over the bets.
That is a nonnegative supermartingale which begins at 1, so it ever reaches 1 / alpha with probability at most alpha
(Ville), over an unlimited time: nothing is paid for looking every day. What begins after a change has lost nothing
before it: the price of a change in round k is log(1 / w_k), about log k + 2 log log k, not what k quiet rounds have
eaten. A bet that wins slowly need not begin in every round: with a stake s it begins every 1 / (2 s) rounds, each time
with more.

Money is kept as logarithms, since after a change it grows without end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..images.library import Array

STAKES = np.array([0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 0.95])  # of what a loss of 0 could take
PAUSES = np.ceil(0.5 / STAKES).astype(np.int64)  # rounds between two beginnings of each


def unspent(rounds: Array | int) -> Array:
    """Share of the purse that is not at work after so many rounds: 1 / (1 + log(1 + n)), which goes to 0.

    >>> unspent(np.array([0, 1, 1000])).round(3)
    array([1.   , 0.591, 0.126])
    """
    return np.asarray(1 / (1 + np.log1p(rounds)))


@dataclass(frozen=True, eq=False)
class EProcess:
    """Log of what is at work for each bet, (..., bets), after so many rounds; leading axes are purses side by side.

    `every` says how many rounds lie between two beginnings of a bet, (bets,).

    >>> purse = EProcess.new(np.array([1, 1]))
    >>> round(purse.play(np.log([1.5, 0.9])).log_worth, 3)
    0.079
    """

    at_work: Array
    every: Array
    rounds: int = 0

    @classmethod
    def new(cls, every: Array, beside: tuple[int, ...] = ()) -> EProcess:
        """A purse of which nothing is at work."""
        return cls(np.full((*beside, len(every)), -np.inf), every)

    def play(self, log_factors: Array) -> EProcess:
        """The purse after another round, in which the bets multiply by these factors: logs, (..., bets)."""
        before = -(-self.rounds // self.every)
        after = -(-(self.rounds + 1) // self.every)
        with np.errstate(divide="ignore"):
            begun = np.log(unspent(before) - unspent(after))
        return EProcess(log_factors + np.logaddexp(self.at_work, begun), self.every, self.rounds + 1)

    @property
    def log_worths(self) -> Array:
        """Log of the worth of purses side by side: (...)."""
        left = np.log(unspent(-(-self.rounds // self.every)))
        e_value = np.logaddexp(self.at_work, left)
        return np.asarray(np.logaddexp.reduce(e_value, axis=-1) - np.log(len(self.every)))

    @property
    def log_worth(self) -> float:
        """The same of a single one."""
        return float(self.log_worths)


def log_factors(excess: Array | float, level: float) -> Array:
    """What stakes on "the mean loss is above the level" multiply by, as logs: loss - level (...) -> (..., bets).

    A stake s of what can be lost at most gains s (loss - level) / level: in the mean at most nothing while the mean
    loss, whatever came before, is at most the level. Losses are at least 0, so a factor is at least 1 - s.
    """
    return np.asarray(np.log1p(STAKES * (np.asarray(excess)[..., None] / level)))


def named_by_means(log_worths: Array, failure_prob: float) -> Array:
    """Which of several hypotheses fall while the chance that a true one ever does is at most `failure_prob`: (n,) bool.

    One falls where the mean worth over every set of hypotheses that holds it is at least 1 / failure_prob (closed
    testing with means, Vovk and Wang 2021); the worst set holds the poorest of the others. Where any falls, the mean
    over all has reached it.

    >>> named_by_means(np.log([500.0, 0.5]), 0.01)
    array([ True, False])
    """
    objective = np.log(1 / failure_prob)
    order = np.argsort(log_worths)
    found = np.zeros(len(log_worths), bool)
    for j in range(len(log_worths)):
        others = log_worths[order[order != j]]
        sums = np.logaddexp.accumulate(np.append(log_worths[j], others))
        found[j] = (sums - np.log(np.arange(1, len(sums) + 1)) >= objective).all()
    return found


def mean_worth(log_worths: Array) -> float:
    """Log of the mean worth of several purses that play on the same rounds: a purse, too."""
    return float(np.logaddexp.reduce(log_worths) - np.log(len(log_worths)))
