"""E-processes and confidence sequences against their literal definitions."""

from itertools import combinations

import numpy as np

from pixelbounds.kernels.bets import (
    PAUSES,
    STAKES,
    EProcess,
    RunningMean,
    RunningRatio,
    log_factors,
    rejected_jointly,
    unused_share,
)


def literal_e_value(losses, level):
    """The mixture as the docstring of `EProcess` says it: every bet, every round in which it begins."""
    total = 0.0
    for stake, pause in zip(STAKES, PAUSES, strict=True):
        begun = 0
        for start in range(0, len(losses), pause):
            share = unused_share(begun) - unused_share(begun + 1)
            total += share * np.prod(1 + stake * (losses[start:] - level) / level)
            begun += 1
        total += unused_share(begun)
    return total / len(STAKES)


def test_one_number_per_bet_stands_for_all_rounds_in_which_it_begins(rng):
    losses = rng.beta(1, 6, 130)
    e_process = EProcess.new(PAUSES)
    for loss in losses:
        e_process = e_process.update(log_factors(loss - 0.1, 0.1))
    assert np.isclose(e_process.e_value, literal_e_value(losses, 0.1), rtol=1e-10)


def test_a_promise_is_named_where_every_set_that_holds_it_is_rejected(rng):
    for _ in range(50):
        logs = rng.normal(3, 3, 4)
        expected = [
            all(
                np.exp(logs[[j, *others]]).mean() >= 20
                for size in range(4)
                for others in combinations([i for i in range(4) if i != j], size)
            )
            for j in range(4)
        ]
        assert rejected_jointly(logs, 0.05).tolist() == expected


def test_the_running_mean_is_covered_at_all_times(rng):
    wrong = 0
    for _ in range(20):
        chance = rng.uniform(0.02, 0.4, 120).cumsum() / np.arange(1, 121)  # it drifts
        mean = RunningMean()
        outside = False
        for i, p in enumerate(chance, 1):
            mean = mean.update(float(rng.random() < p))
            if i % 5 == 0:
                low, high = mean.ends(0.8)
                outside |= not low <= chance[:i].mean() <= high
        wrong += outside
    assert wrong <= 10  # of 20, each with probability 0.2 at most


def test_a_ratio_lies_between_its_ends(rng):
    ratio = RunningRatio()
    for weight in rng.uniform(0.2, 1, 300):
        ratio = ratio.update(0.3 * weight, weight)
    low, high = ratio.ends(0.95)
    assert low < 0.3 < high < 0.4
    assert np.isclose(ratio.value, 0.3)
