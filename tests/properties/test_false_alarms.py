"""Streams without a change: a monitor ever raises an alarm as rarely as was asked, each detector and all together.

With PIXELBOUNDS_WORLDS of 1,000 there are 1,000 streams of 2,000 images. Teeth: a test for a fixed number of images
that is checked every day, and new images ranked among the reference alone, are caught.
"""

import numpy as np
import pytest
from scipy.stats import binom
from trials import WORLDS, check_failures, generator

from pixelbounds.kernels.bets import PAUSES, EProcess, log_factors
from pixelbounds.monitoring.drift import BETS, log_rank_factors

pytestmark = pytest.mark.guarantees

STREAMS, IMAGES = (1000, 2000) if WORLDS >= 1000 else (200, 250)
REFERENCE = 100
FALSE_ALARM = 0.1
REFERENCE_ALONE = "ranks among the reference alone", 0.22  # how often a wrong one raises an alarm
DAILY = "a test for a fixed number, checked every day", 0.3
EVERY = np.ones(BETS, int)
ABOVE = 0.9**19 + 19 * 0.1 * 0.9**18  # chance that a share of Beta(2, 18) is above 0.1


def losses_at(level, rng, kind):
    """Losses of every stream, of which the mean is the level itself: (streams,)."""
    if kind == "tail":
        return (rng.random(STREAMS) < level).astype(float)
    return rng.beta(20 * level, 20 * (1 - level), STREAMS)


def greatest_e_value(kind, rng):
    """Greatest e-value of each stream, as a log: (streams,)."""
    e_process = EProcess.new(PAUSES, (STREAMS,))
    best = np.zeros(STREAMS)
    for _ in range(IMAGES):
        e_process = e_process.update(log_factors(losses_at(0.1, rng, kind) - 0.1, 0.1))
        best = np.maximum(best, e_process.log_e_values)
    return best


class Ranks:
    """Conformal ranks of all streams side by side."""

    def __init__(self, rng):
        self.reference = np.sort(rng.standard_normal((STREAMS, REFERENCE)), axis=1)
        self.counts = np.zeros((STREAMS, REFERENCE + 1))
        self.e_process = EProcess.new(EVERY, (STREAMS,))
        self.every = np.arange(STREAMS)

    def update(self, values, learn=True):
        """Another image of each stream; without `learn` ranks are those among the reference alone."""
        cell = (self.reference < values[:, None]).sum(axis=1)
        high = np.cumsum(self.counts + 1, axis=1)
        total = high[:, -1]
        high = high[self.every, cell]
        low = high - self.counts[self.every, cell] - 1
        self.e_process = self.e_process.update(log_rank_factors(low / total, high / total))
        if learn:
            self.counts[self.every, cell] += 1
        return self.e_process.log_e_values


def test_each_promise_by_itself(record_property):
    for kind in ("share", "tail"):
        alarms = int((greatest_e_value(kind, generator("alarms", kind, seed=0)) >= np.log(1 / FALSE_ALARM)).sum())
        check_failures(alarms, STREAMS, FALSE_ALARM, DAILY, record_property)
        assert alarms >= STREAMS * FALSE_ALARM / 20  # not far below it either: the risk is the level itself


def test_a_statistic_without_truth_by_itself(record_property):
    rng = generator("ranks", seed=0)
    ranks = Ranks(rng)
    best = np.max([ranks.update(rng.standard_normal(STREAMS)) for _ in range(IMAGES)], axis=0)
    alarms = int((best >= np.log(1 / FALSE_ALARM)).sum())
    check_failures(alarms, STREAMS, FALSE_ALARM, REFERENCE_ALONE, record_property)


def test_ranks_among_the_reference_alone_are_caught():
    rng = generator("wrong ranks", seed=0)
    ranks = Ranks(rng)
    best = np.max([ranks.update(rng.standard_normal(STREAMS), learn=False) for _ in range(IMAGES)], axis=0)
    assert (best >= np.log(1 / FALSE_ALARM)).mean() > REFERENCE_ALONE[1]


def test_all_detectors_jointly(record_property):
    rng = generator("jointly", seed=0)
    e_processes = [EProcess.new(PAUSES, (STREAMS,)) for _ in range(3)]
    statistics = [Ranks(rng) for _ in range(2)]
    alarm = np.zeros(STREAMS, bool)
    for _ in range(IMAGES):
        same = rng.beta(2, 18, STREAMS)  # the promises are about the same images
        other = np.where(rng.random(STREAMS) < 0.5, same, rng.beta(2, 18, STREAMS))
        losses = [same, (same > 0.1) * 0.1 / ABOVE, other]
        e_processes = [p.update(log_factors(x - 0.1, 0.1)) for p, x in zip(e_processes, losses, strict=True)]
        mean = np.logaddexp.reduce([p.log_e_values for p in e_processes]) - np.log(3)
        common = rng.standard_normal(STREAMS)
        e_values = [ranks.update(0.7 * common + 0.7 * rng.standard_normal(STREAMS)) for ranks in statistics]
        alarm |= mean >= np.log(2 / FALSE_ALARM)
        alarm |= np.max(e_values, axis=0) >= np.log(2 * len(statistics) / FALSE_ALARM)
    check_failures(int(alarm.sum()), STREAMS, FALSE_ALARM, DAILY, record_property)


def test_a_test_for_a_fixed_number_checked_daily_is_caught():
    rng = generator("daily", seed=0)
    bad = np.cumsum([losses_at(0.1, rng, "tail") for _ in range(IMAGES)], axis=0)
    days = np.arange(10, IMAGES + 1, 10)
    alarm = (binom.sf(bad[days - 1] - 1, days[:, None], 0.1) <= FALSE_ALARM).any(axis=0)
    assert alarm.mean() > DAILY[1]
