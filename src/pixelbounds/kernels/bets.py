"""Betting: evidence about the mean of bounded losses, in the four ways in which this package counts them.

A bet b against "the mean loss is at least m" multiplies its wealth by 1 + b (m - loss): by at most 1 on average where
that hypothesis is true, whatever came before. Wealth that begins at 1 is then an e-process: it ever reaches 1 / delta
with probability at most delta (Ville), however often it is looked at. Any mixture of bets is an e-process, too.

betting_wealth, rejects_ratio   the number n of losses is known: bounds and confidence intervals
PathEProcess                    n is unknown, at every point of a path: anytime calibration
EProcess                        n is unknown and so is the time of a change: monitors
RunningMean, RunningRatio       confidence sequences for means that may drift

Waudby-Smith and Ramdas 2024 for the bets, Vovk and Wang 2021 for means of e-values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, exp, inf, log, log1p

import numpy as np
from numba import njit

Array = np.ndarray

# ---------------------------------------------------------------- n is known

_FEW = 2.0  # times the fewest losses that certify a level: up to there the start of the bets matters


@njit(nogil=True, cache=True)
def few_to(n: int, failure_prob: float) -> float:
    """The greatest level for which n losses are few: at most twice as many as any test needs to certify it."""
    return 1.0 - failure_prob ** (_FEW / n)


@njit(nogil=True, cache=True)
def betting_wealth(losses: np.ndarray, level: float, failure_prob: float) -> float:
    """Greatest log wealth of the predictable plug-in bet against "the mean is at least `level`".

    It stakes almost all that a loss of 1 could take: where losses vary little, that is what limits every valid bound.
    Before any loss it supposes a mean of 1/2 and the variance of a coin. Where losses are few (`few_to`), that start
    costs what cannot be won back: there it supposes so little that it stakes almost all from the first loss on.
    """
    n = len(losses)
    scale, max_bet = 2.0 * np.log(1.0 / failure_prob) / n, (1.0 - 1.0 / n) / (1.0 - level)
    total, squares = 0.5, 0.25
    if level <= few_to(n, failure_prob):
        total, squares = 1.0 - failure_prob ** (1.0 / n), min(0.25, scale / 2.0)
    variance = squares
    wealth, best = 0.0, 0.0
    for i in range(n):
        bet = min(max_bet, np.sqrt(scale / variance))
        wealth += np.log1p(bet * (level - losses[i]))
        best = max(best, wealth)
        total += losses[i]
        deviation = losses[i] - total / (i + 2)
        squares += deviation * deviation
        variance = squares / (i + 2)
    return best


@njit(nogil=True, cache=True)
def betting_bound(losses: np.ndarray, failure_prob: float, width: float) -> float:
    """The least level that the bets reject, rounded upward by at most `width`."""
    goal, few = -np.log(failure_prob), few_to(len(losses), failure_prob)  # bets below `few` begin in another way
    low, high = few, 1.0
    if betting_wealth(losses, np.nextafter(few, 1.0), failure_prob) > goal:
        low, high = 0.0, few
    for _ in range(60):
        if high - low <= width:
            break
        middle = (low + high) / 2
        if betting_wealth(losses, middle, failure_prob) > goal:
            high = middle
        else:
            low = middle
    return high


@njit(nogil=True, cache=True)
def rejects_ratio(top: np.ndarray, bottom: np.ndarray, ratio: float, failure_prob: float, steady: np.ndarray) -> bool:
    """Whether bets against "E[top] / E[bottom] is at least `ratio`" ever multiply their wealth by 1 / failure_prob.

    0 <= top <= bottom <= 1, (n,) each. A bet b gains b (ratio bottom - top) in a round. Half of the wealth follows the
    predictable plug-in bet, the rest in equal parts bets of a `steady` share, below 1, of what the worst round could
    take; without these the plug-in bet has it all. With bottoms of 1 this is about a mean. Every factor grows with
    `ratio`, so what is rejected here is rejected at every larger ratio.
    """
    n = len(top)
    count = len(steady)
    goal = 1.0 / failure_prob
    scale = 2.0 * np.log(goal) / n
    max_bet = (1.0 - 1.0 / n) / (1.0 - ratio)
    tops, bottoms, squares, variance = 0.5, 1.0, 0.25, 0.25
    plug_in = 0.5 if count else 1.0
    others = np.full(count, 0.5 / max(count, 1))
    for i in range(n):
        gain = ratio * bottom[i] - top[i]
        plug_in *= 1.0 + min(max_bet, np.sqrt(scale / variance)) * gain
        total = plug_in
        for k in range(count):
            others[k] *= 1.0 + steady[k] / (1.0 - ratio) * gain
            total += others[k]
        if total > goal:
            return True
        tops += top[i]
        bottoms += bottom[i]
        deviation = top[i] - tops / bottoms * bottom[i]
        squares += deviation * deviation
        variance = squares / (i + 2)
    return False


def bisect(test: Callable[[float], bool], low: float, high: float, *, steps: int = 60, width: float = 0.0) -> float:
    """The least number from low to high at which a monotone test holds, rounded upward.

    >>> round(bisect(lambda x: x * x >= 2, 0.0, 2.0), 6)
    1.414214
    """
    for _ in range(steps):
        if high - low <= width:
            break
        middle = (low + high) / 2
        low, high = (low, middle) if test(middle) else (middle, high)
    return high


# ---------------------------------------------------------------- n is unknown, along a path

HORIZONS = 8  # each supposes twice as many losses as the one before
INITIAL_WEALTH = 0.8 ** np.arange(HORIZONS) / (0.8 ** np.arange(HORIZONS)).sum()  # of the bet of each horizon
_MAX_STAKE = 0.99  # of what a loss of 1 could take: no bet is ever ruined
_ENOUGH = 1e250  # more wealth than any test needs
_START = 0.25  # the variance before any loss was seen, as of one loss of 0 or 1


def min_losses(level: float, failure_prob: float) -> int:
    """The fewest losses with which any test can certify the level, all of them being 0.

    >>> min_losses(0.05, 0.1)
    45
    """
    return ceil(min(log(failure_prob) / log1p(-level), 2.0**53))


@dataclass(frozen=True, eq=False)
class PathEProcess:
    """Evidence at T path points that the mean loss is below a level, after `count` losses in the order of arrival.

    Good bets depend on the number of losses to come. Here each of a few bets supposes another one: as many as no test
    can do without, and twice, four times, ... as many. Where losses vary little, as shares of missed pixels do, all of
    them stake nearly all that a loss of 1 could take, so having several costs next to nothing. `binary` losses (0 or 1,
    or means of such) vary as much as they can: their variance is not learned, and all suppose twice as many losses.

    wealth       of each bet, (HORIZONS, T)
    total        sum of the losses, (T,)
    squares      of their deviations from means of the losses before, (T,)
    max_wealth   greatest wealth of all bets together so far, (T,)
    """

    level: float
    failure_prob: float
    count: int
    wealth: Array
    total: Array
    squares: Array
    max_wealth: Array
    binary: bool = False

    @classmethod
    def new(cls, level: float, failure_prob: float, points: int, *, binary: bool = False) -> PathEProcess:
        """Before any loss."""
        wealth = np.repeat(INITIAL_WEALTH[:, None], points, axis=1)
        start = np.zeros(points), np.full(points, _START), np.ones(points)
        return cls(level, failure_prob, 0, wealth, *start, binary)

    @property
    def e_values(self) -> Array:
        """Wealth of all bets together: (T,)."""
        return np.asarray(self.wealth.sum(axis=0))

    @property
    def certified(self) -> Array:
        """Where the level is certified: wealth was 1 / failure_prob at some time, (T,) bool."""
        return np.asarray(self.max_wealth * self.failure_prob > 1)

    def update(self, losses: Array) -> PathEProcess:
        """The process after further losses in [0, 1], (n, T), in the order of arrival."""
        supposed = min_losses(self.level, self.failure_prob) * 2.0 ** (np.arange(HORIZONS) + self.binary)
        stake = np.sqrt(-2 * log(self.failure_prob) / supposed)[:, None]
        max_bet = _MAX_STAKE / (1 - self.level)
        factor = np.empty_like(self.wealth)
        wealth, total, squares = self.wealth.copy(), self.total.copy(), self.squares.copy()
        max_wealth = self.max_wealth.copy()
        count = self.count
        for loss in np.clip(losses, 0.0, 1.0):
            variance = self.level * (1 - self.level) if self.binary else squares / (count + 1)
            np.divide(stake, np.sqrt(variance), out=factor)
            np.minimum(factor, max_bet, out=factor)  # the bets
            factor *= self.level - loss
            factor += 1
            wealth *= factor
            np.maximum(max_wealth, wealth.sum(axis=0), out=max_wealth)
            if max_wealth.max() > _ENOUGH:
                np.minimum(wealth, _ENOUGH, out=wealth)
            total += loss
            count += 1
            squares += (loss - (total + 0.5) / (count + 1)) ** 2
        return replace(self, count=count, wealth=wealth, total=total, squares=squares, max_wealth=max_wealth)


# ---------------------------------------------------------------- a change at an unknown time

STAKES = np.array([0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 0.95])  # of what a loss of 0 could take
PAUSES = np.ceil(0.5 / STAKES).astype(np.int64)  # rounds between two beginnings of each


def unused_share(rounds: Array | int) -> Array:
    """Share of the initial wealth that is not at stake after so many rounds: 1 / (1 + log(1 + n)).

    >>> unused_share(np.array([0, 1, 1000])).round(3)
    array([1.   , 0.591, 0.126])
    """
    return np.asarray(1 / (1 + np.log1p(rounds)))


@dataclass(frozen=True, eq=False)
class EProcess:
    """A mixture of bets and of the rounds in which they begin, so that quiet rounds before a change cost little.

    With shares w_1 + w_2 + ... = 1 of the wealth that are put at stake in rounds 1, 2, ..., and factors f of one bet,
    what is at stake is V_n = f_n (V_{n-1} + w_n), one number for all beginnings at once; the e-value is what is unused
    plus the mean of V_n over the bets. The price of a change in round k is log(1 / w_k), about log k + 2 log log k, not
    what k quiet rounds have eaten. A bet that wins slowly begins only every few rounds (`pauses`), each time with more.

    log_stakes   log of what is at stake for each bet, (..., bets); leading axes are processes side by side
    pauses       rounds between two beginnings of each bet, (bets,)

    >>> process = EProcess.new(np.array([1, 1]))
    >>> round(process.update(np.log([1.5, 0.9])).log_e_value, 3)
    0.079
    """

    log_stakes: Array
    pauses: Array
    rounds: int = 0

    @classmethod
    def new(cls, pauses: Array, beside: tuple[int, ...] = ()) -> EProcess:
        """A process before the first round."""
        return cls(np.full((*beside, len(pauses)), -np.inf), pauses)

    def update(self, log_factors: Array) -> EProcess:
        """The process after another round, in which the bets multiply by these factors: logs, (..., bets)."""
        before = -(-self.rounds // self.pauses)
        after = -(-(self.rounds + 1) // self.pauses)
        with np.errstate(divide="ignore"):
            begun = np.log(unused_share(before) - unused_share(after))
        return EProcess(log_factors + np.logaddexp(self.log_stakes, begun), self.pauses, self.rounds + 1)

    @property
    def log_e_values(self) -> Array:
        """Log e-values of processes side by side: (...)."""
        unused = np.log(unused_share(-(-self.rounds // self.pauses)))
        return np.asarray(
            np.logaddexp.reduce(np.logaddexp(self.log_stakes, unused), axis=-1) - np.log(len(self.pauses))
        )

    @property
    def log_e_value(self) -> float:
        """Log e-value of a single process."""
        return float(self.log_e_values)

    @property
    def e_value(self) -> float:
        """The e-value of a single process, at most 1e300."""
        return e_value_of(self.log_e_value)


def e_value_of(log_e_value: float) -> float:
    """The e-value of its log, at most 1e300."""
    return exp(log_e_value) if log_e_value < 690 else 1e300


def log_factors(excess: Array | float, level: float) -> Array:
    """What stakes on "the mean loss is above the level" multiply by, as logs: loss - level (...) -> (..., bets).

    A stake s gains s (loss - level) / level: on average at most nothing while the mean loss, whatever came before, is
    at most the level. Losses are at least 0, so a factor is at least 1 - s.
    """
    return np.asarray(np.log1p(STAKES * (np.asarray(excess)[..., None] / level)))


def mean_log_e_value(log_e_values: Array) -> float:
    """Log of the mean of e-processes that count the same rounds: an e-process, too."""
    return float(np.logaddexp.reduce(log_e_values) - np.log(len(log_e_values)))


def rejected_jointly(log_e_values: Array, failure_prob: float) -> Array:
    """Which hypotheses are rejected; a true one ever is with probability at most `failure_prob`: (n,) bool.

    One is rejected where the mean e-value over every set of hypotheses that holds it is at least 1 / failure_prob
    (closed testing with means, Vovk and Wang 2021); the worst set holds the smallest of the others. Where any is
    rejected, the mean over all has reached 1 / failure_prob.

    >>> rejected_jointly(np.log([500.0, 0.5]), 0.01)
    array([ True, False])
    """
    goal = np.log(1 / failure_prob)
    order = np.argsort(log_e_values)
    rejected = np.zeros(len(log_e_values), bool)
    for j in range(len(log_e_values)):
        others = log_e_values[order[order != j]]
        sums = np.logaddexp.accumulate(np.append(log_e_values[j], others))
        rejected[j] = (sums - np.log(np.arange(1, len(sums) + 1)) >= goal).all()
    return rejected


# ---------------------------------------------------------------- confidence sequences for means that may drift

_BETS = 0.9 * 2.0 ** -np.arange(10)
_PRICE = -np.log1p(-_BETS) - _BETS


@dataclass(frozen=True)
class RunningMean:
    """Rounds, the sum of their values in [0, 1], and the sum of squared distances from guesses made before.

    For values X with mean m given what came before, and any guess g that was made before, the mean of
    exp(b (X - m) - (-log(1 - b) - b) (X - g)^2) is at most 1 for every b in [0, 1) (Fan and others 2015; Howard and
    others 2021). So is the mixture over some b; solved for the mean of m over the rounds it is a bound at every time,
    also where the source drifts. The same of 1 - X is the other end.

    >>> mean = RunningMean()
    >>> for _ in range(400):
    ...     mean = mean.update(0.1)
    >>> low, high = mean.ends(0.95)
    >>> 0.08 < low < 0.1 < high < 0.12
    True
    """

    rounds: int = 0
    total: float = 0.0
    squares: float = 0.0

    def update(self, value: float) -> RunningMean:
        """After another round."""
        guess = (0.5 + self.total) / (1 + self.rounds)
        return RunningMean(self.rounds + 1, self.total + value, self.squares + (value - guess) ** 2)

    def ends(self, level: float) -> tuple[float, float]:
        """Both ends, which cover the mean of the conditional means at all times with probability `level`."""
        if not self.rounds:
            return 0.0, 1.0
        slack = _slack(self.squares, (1 - level) / 2) / self.rounds
        mean = self.total / self.rounds
        return max(0.0, mean - slack), min(1.0, mean + slack)


def _slack(squares: float, failure_prob: float) -> float:
    """The y at which the mixture of exp(b y - price squares) is 1 / failure_prob, rounded upward."""
    goal = np.log(len(_BETS) / failure_prob)
    enough = float(np.min((goal + _PRICE * squares) / _BETS))  # one bet alone has it there
    return bisect(lambda y: bool(np.logaddexp.reduce(_BETS * y - _PRICE * squares) >= goal), 0.0, enough, steps=40)


NO_ROUNDS = RunningMean()


@dataclass(frozen=True)
class RunningRatio:
    """The same of a ratio of two means, 0 <= top <= bottom <= 1: of losses times weights, and of weights."""

    top: RunningMean = NO_ROUNDS
    bottom: RunningMean = NO_ROUNDS

    def update(self, top: float, bottom: float) -> RunningRatio:
        """After another round."""
        return RunningRatio(self.top.update(top), self.bottom.update(bottom))

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


NOTHING_SEEN = RunningRatio()
