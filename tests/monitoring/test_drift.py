"""Conformal ranks and the bets on them against their literal definitions."""

import numpy as np

from pixelbounds.monitoring.drift import ConformalRanks, log_rank_factors, recent_p_value


def test_cells_give_the_ranks_among_all_earlier_values(rng):
    ranks = ConformalRanks.of(rng.standard_normal(9).round(1), 0)  # with ties
    fell = []
    for t in range(60):
        rank = ranks.rank(round(rng.standard_normal(), 1), rng.random(2))
        gaps = 10 + t
        assert rank.low == (rank.cell + sum(cell < rank.cell for cell in fell)) / gaps
        assert np.isclose(rank.high - rank.low, (1 + fell.count(rank.cell)) / gaps)
        assert rank.low <= rank.p_value <= rank.high
        fell.append(rank.cell)
        ranks = ranks.update(rank.cell)


def test_bets_on_ranks_gain_nothing_on_average(rng):
    edges = np.sort(np.concatenate([[0, 1], rng.random(30)]))
    low, high = edges[:-1], edges[1:]
    assert np.allclose((high - low) @ np.exp(log_rank_factors(low, high)), 1, atol=1e-12)


def test_p_values_are_uniform_where_reference_and_new_values_tie(rng):
    p_values = []
    for seed in range(60):
        ranks = ConformalRanks.of(rng.integers(0, 3, 20).astype(float), seed)
        for _ in range(20):
            rank = ranks.rank(float(rng.integers(0, 3)), rng.random(2))
            p_values.append(rank.p_value)
            ranks = ranks.update(rank.cell)
    counts = np.histogram(p_values, 10, (0, 1))[0]
    assert ((counts - 120) ** 2 / 120).sum() < 35  # chi square with 9 degrees of freedom
    assert recent_p_value(np.array([0.9] * 10))[1]
