"""Every bound keeps one contract, and errs no more often than it says."""

from fractions import Fraction
from itertools import accumulate
from math import ceil, comb, e, log, sqrt
from operator import mul

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from pixelbounds import bounds, least_images
from pixelbounds.calibration.bounds import BOUNDS, binomial_tail, greatest_loss

ALL = sorted(BOUNDS)
HIGH_PROBABILITY = [name for name in ALL if name != "conformal"]
DELTA = 0.1

every_bound = pytest.mark.parametrize("name", ALL)
losses_of = st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40).map(np.array)
quick = settings(max_examples=40, deadline=None, derandomize=True)


def draws(n, seed):
    """Losses of n images, some constant, some skewed, some on two points."""
    rng = np.random.default_rng(seed)
    yield np.zeros(n)
    yield np.ones(n)
    yield np.full(n, 0.3)
    yield rng.uniform(size=n)
    yield rng.beta(0.5, 8, size=n)
    yield (rng.uniform(size=n) < 0.1).astype(float)


# ---------------------------------------------------------------- the contract


@every_bound
@quick
@given(losses=losses_of)
def test_a_bound_is_a_positive_float_and_deterministic(name, losses):
    kept = losses.copy()
    bound = BOUNDS[name](losses, DELTA)
    assert type(bound) is float
    assert np.isfinite(bound)
    assert bound > 0
    assert bound == BOUNDS[name](losses, DELTA)
    np.testing.assert_array_equal(losses, kept)


@every_bound
@pytest.mark.parametrize("n", [1, 2, 16, 300])
def test_a_bound_is_at_least_the_mean(name, n):
    for losses in draws(n, seed=n):
        assert BOUNDS[name](losses, DELTA) >= losses.mean() - 1e-12


@every_bound
@quick
@given(losses=losses_of, probs=st.tuples(st.floats(0.001, 0.999), st.floats(0.001, 0.999)))
def test_a_smaller_failure_probability_never_lowers_a_bound(name, losses, probs):
    if name == "betting":  # its bets aim at one failure_prob, so this holds of typical losses, not of every sequence
        losses = np.full(len(losses), losses.mean())
    low, high = sorted(probs)
    assert BOUNDS[name](losses, low) >= BOUNDS[name](losses, high) - 1e-9


@every_bound
@quick
@given(losses=losses_of, raised=st.floats(0, 1), seed=st.integers(0, 2**16))
def test_higher_losses_never_lower_a_bound_that_sees_the_mean_only(name, losses, raised, seed):
    if not bounds.sees_mean_only(BOUNDS[name]):
        return
    higher = np.maximum(losses, raised)
    assert BOUNDS[name](higher, DELTA) >= BOUNDS[name](losses, DELTA) - 1e-9
    shuffled = np.random.default_rng(seed).permutation(losses)
    assert BOUNDS[name](shuffled, DELTA) == pytest.approx(BOUNDS[name](losses, DELTA), abs=1e-9)


@every_bound
@quick
@given(losses=losses_of, prob=st.floats(0.001, 0.9), level=st.floats(0.001, 0.999))
def test_the_test_rejects_exactly_the_levels_above_the_bound(name, losses, prob, level):
    bound = BOUNDS[name](losses, prob)
    for at in (level, bound + 1e-9, bound - 1e-9):
        if 0 < at < 1 and abs(at - bound) > 5e-10:
            assert bounds.rejects(BOUNDS[name], losses, prob, at) == (bound < at)


# ---------------------------------------------------------------- closed forms


@quick
@given(losses=losses_of, prob=st.floats(0.001, 0.999))
def test_hoeffding_and_conformal_are_their_closed_forms(losses, prob):
    n = len(losses)
    assert bounds.hoeffding(losses, prob) == pytest.approx(losses.mean() + sqrt(log(1 / prob) / (2 * n)))
    assert bounds.conformal(losses, prob) == pytest.approx((losses.sum() + 1) / (n + 1))


@pytest.mark.parametrize("n", [4, 16, 100])
def test_bentkus_takes_the_ceiling(n):
    rng = np.random.default_rng(n)
    for _ in range(20):
        losses = rng.uniform(0, 0.6, n)
        bound = bounds.bentkus(losses, DELTA)
        if bound < 1:
            k = ceil(losses.sum())
            assert e * binom.cdf(k, n, bound) == pytest.approx(DELTA, rel=1e-6)  # the bound solves this equation
            assert e * binom.cdf(k - 1, n, bound) < DELTA * 0.99  # with the floor the bound would be lower


@pytest.mark.parametrize("n", [1, 2, 15, 16, 46, 448, 1000])
def test_the_tail_of_a_coin_is_exact(n):
    rng = np.random.default_rng(n)
    for p in (1e-9, 0.003, 0.05, *rng.uniform(size=4).tolist(), 1 - 1e-9):
        heads, places = Fraction(p).as_integer_ratio()
        up, down = (list(accumulate([x] * n, mul, initial=1)) for x in (heads, places - heads))
        exact = list(accumulate(comb(n, i) * up[i] * down[n - i] for i in range(n + 1)))
        for k in {0, n // 20, round(n * p), rng.integers(n).item(), n - 1}:
            assert binomial_tail(k, n, p) == pytest.approx(exact[k] / exact[n], rel=0, abs=1e-12)
            assert binomial_tail(k, n, p) == pytest.approx(binom.cdf(k, n, p), rel=0, abs=1e-12)
    assert [binomial_tail(n - 1, n, p) for p in (0.0, 1.0)] == [1, 0]
    assert binomial_tail(n, n, 0.5) == 1


def test_hoeffding_bentkus_is_the_smaller_of_its_two_parts():
    rng = np.random.default_rng(0)
    for n in (10, 50, 400):
        losses = rng.beta(1, 9, n)
        both = bounds.hoeffding_bentkus(losses, DELTA)
        mean = losses.mean()
        levels = np.linspace(mean + 1e-9, 1 - 1e-9, 20001)
        divergence = mean * np.log(mean / levels) + (1 - mean) * np.log((1 - mean) / (1 - levels))
        by_entropy = levels[np.argmax(np.exp(-n * divergence) < DELTA)]
        assert both == pytest.approx(min(by_entropy, bounds.bentkus(losses, DELTA)), abs=1e-4)
        assert both < bounds.hoeffding(losses, DELTA)


def test_empirical_bernstein_is_the_bound_of_maurer_and_pontil():
    losses = np.random.default_rng(1).beta(1, 20, 200)
    term = log(2 / DELTA)
    expected = losses.mean() + sqrt(2 * losses.var(ddof=1) * term / 200) + 7 * term / (3 * 199)
    assert bounds.empirical_bernstein(losses, DELTA) == pytest.approx(expected)


def test_betting_is_the_plug_in_bettor_written_out():
    """The wealth of Waudby-Smith and Ramdas, step by step, crosses 1 / delta exactly above the bound."""
    losses = np.random.default_rng(4).beta(2, 20, 80)
    bound = bounds.betting(losses, DELTA)

    def greatest_wealth(level):
        wealth, best = 1.0, 1.0
        for i, loss in enumerate(losses):
            seen = losses[:i]
            means = [(0.5 + losses[: j + 1].sum()) / (j + 2) for j in range(i)]
            variance = (0.25 + sum((x - m) ** 2 for x, m in zip(seen, means, strict=True))) / (i + 1)
            most = (1 - 1 / len(losses)) / (1 - level)
            wealth *= 1 + min(most, sqrt(2 * log(1 / DELTA) / (len(losses) * variance))) * (level - loss)
            best = max(best, wealth)
        return best

    assert greatest_wealth(bound + 1e-6) > 1 / DELTA > greatest_wealth(bound - 1e-6)


def test_betting_needs_less_slack_than_hoeffding_bentkus_where_losses_vary_little():
    losses = np.random.default_rng(5).beta(40, 400, 640)
    slack = {name: BOUNDS[name](losses, DELTA) - losses.mean() for name in ALL}
    assert slack["betting"] < 0.5 * slack["hoeffding_bentkus"] < 0.5 * slack["hoeffding"]


# ---------------------------------------------------------------- the planner


@every_bound
@pytest.mark.parametrize("level, prob", [(0.1, 0.1), (0.05, 0.1), (0.2, 0.01), (0.5, 0.5)])
def test_least_images_is_really_the_least(name, level, prob):
    least = least_images(level, prob, bound=name)
    assert BOUNDS[name](np.zeros(least), prob) < level
    for n in range(1, least):
        assert BOUNDS[name](np.zeros(n), prob) >= level - 1e-9


def test_least_images_is_never_fewer_than_the_coin_needs():
    """No valid bound certifies with fewer than log(delta) / log(1 - epsilon) images (Bernoulli losses all 0)."""
    for name in HIGH_PROBABILITY:
        for level, prob in [(0.1, 0.1), (0.05, 0.05), (0.02, 0.1)]:
            assert least_images(level, prob, bound=name) >= log(prob) / log(1 - level)


def test_least_images_says_when_it_gives_up():
    with pytest.raises(ValueError, match="raise the risk level"):
        least_images(0.1, 0.1, bound=lambda losses, prob: 1.0)
    with pytest.raises(ValueError, match="did you mean 'betting'"):
        least_images(0.1, 0.1, bound="beting")


@pytest.mark.parametrize("n, level, prob", [(30, 0.1, 0.1), (448, 0.05, 0.1), (560, 0.1, 0.1), (2000, 0.02, 0.01)])
def test_no_bound_certifies_more_than_the_greatest_loss_and_betting_comes_near(n, level, prob):
    limit = greatest_loss(n, level, prob)
    assert (1 - limit) * (1 - prob ** (1 / n)) == pytest.approx(level - limit)  # what the unseen share adds
    for name in HIGH_PROBABILITY:
        assert BOUNDS[name](np.full(n, limit), prob) >= level - 1e-9
    near = limit - 0.1 * (level - limit)
    assert BOUNDS["betting"](np.full(n, near), prob) < level


def test_with_fewer_images_than_a_coin_needs_nothing_is_certified():
    assert greatest_loss(21, 0.1, 0.1) == 0
    assert greatest_loss(22, 0.1, 0.1) > 0
    with pytest.raises(ValueError, match="images is 0"):
        greatest_loss(0, 0.1)
    with pytest.raises(ValueError, match="risk_level is 1"):
        greatest_loss(10, 1.0)
