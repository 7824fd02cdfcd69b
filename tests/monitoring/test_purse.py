"""EProcesses, ranks and running means against their literal definitions."""

from itertools import combinations

import numpy as np

from pixelbounds.monitoring.conformal_ranks import ConformalRanks, log_rank_factors, recent_chance
from pixelbounds.monitoring.e_process import PAUSES, STAKES, EProcess, log_factors, named_by_means, unspent
from pixelbounds.monitoring.running_mean import RunningMean, RunningRatio


def literal_worth(losses, level):
    """The purse as its docstring says it: every bet, every time at which it begins."""
    total = 0.0
    for stake, pause in zip(STAKES, PAUSES, strict=True):
        begun = 0
        for start in range(0, len(losses), pause):
            share = unspent(begun) - unspent(begun + 1)
            total += share * np.prod(1 + stake * (losses[start:] - level) / level)
            begun += 1
        total += unspent(begun)
    return total / len(STAKES)


def test_one_number_per_bet_stands_for_all_times_at_which_it_begins(rng):
    losses = rng.beta(1, 6, 130)
    e_process = EProcess.new(PAUSES)
    for loss in losses:
        e_process = e_process.play(log_factors(loss - 0.1, 0.1))
    assert np.isclose(np.exp(e_process.log_worth), literal_worth(losses, 0.1), rtol=1e-10)


def test_a_promise_is_named_where_every_set_that_holds_it_falls(rng):
    for _ in range(50):
        e_values = rng.normal(3, 3, 4)
        expected = [
            all(
                np.exp(e_values[[j, *others]]).mean() >= 20
                for size in range(4)
                for others in combinations([i for i in range(4) if i != j], size)
            )
            for j in range(4)
        ]
        assert named_by_means(e_values, 0.05).tolist() == expected


def test_cells_give_the_ranks_among_all_earlier_values(rng):
    reference = rng.standard_normal(9).round(1)  # with ties
    urn = ConformalRanks.of(reference, 0)
    fell = []
    for t in range(60):
        arrival = urn.arrival(round(rng.standard_normal(), 1), np.uint64(rng.integers(2**63)))
        places = 10 + t
        assert arrival.low == (arrival.cell + sum(cell < arrival.cell for cell in fell)) / places
        assert np.isclose(arrival.high - arrival.low, (1 + fell.count(arrival.cell)) / places)
        assert arrival.low <= arrival.place <= arrival.high
        fell.append(arrival.cell)
        urn = urn.with_one_in(arrival.cell)


def test_bets_on_ranks_gain_nothing_in_the_mean(rng):
    edges = np.sort(np.concatenate([[0, 1], rng.random(30)]))
    low, high = edges[:-1], edges[1:]
    assert np.allclose((high - low) @ np.exp(log_rank_factors(low, high)), 1, atol=1e-12)


def test_places_by_lot_are_even_where_reference_and_new_values_tie(rng):
    places = []
    for seed in range(60):
        urn = ConformalRanks.of(rng.integers(0, 3, 20).astype(float), seed)
        for _ in range(20):
            arrival = urn.arrival(float(rng.integers(0, 3)), np.uint64(rng.integers(2**63)))
            places.append(arrival.place)
            urn = urn.with_one_in(arrival.cell)
    counts = np.histogram(places, 10, (0, 1))[0]
    assert ((counts - 120) ** 2 / 120).sum() < 35  # chi square with 9 degrees of freedom
    assert recent_chance(np.array([0.9] * 10))[1]


def test_the_running_mean_is_held_at_all_times(rng):
    wrong = 0
    for _ in range(20):
        chance = rng.uniform(0.02, 0.4, 120).cumsum() / np.arange(1, 121)  # it drifts
        mean = RunningMean()
        outside = False
        for i, p in enumerate(chance, 1):
            mean = mean.then(float(rng.random() < p))
            if i % 5 == 0:
                low, high = mean.ends(0.8)
                outside |= not low <= chance[:i].mean() <= high
        wrong += outside
    assert wrong <= 10  # of 20, each with probability 0.2 at most


def test_a_ratio_lies_between_its_ends(rng):
    ratio = RunningRatio()
    for weight in rng.uniform(0.2, 1, 300):
        ratio = ratio.then(0.3 * weight, weight)
    low, high = ratio.ends(0.95)
    assert low < 0.3 < high < 0.4
    assert np.isclose(ratio.value, 0.3)
    assert RunningRatio.from_state(ratio.state) == ratio
