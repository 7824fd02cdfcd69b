"""Tests that few images need: the exact one for losses of 0 and 1, and bets that stake almost all from the first on."""

import numpy as np
import pytest
from scipy.stats import binom
from trials import WORLDS, check_failures, generator

import pixelbounds as pb
from pixelbounds.calibration.bounds import betting, binomial, for_zero_one, rejects
from pixelbounds.kernels.bets import betting_wealth, few_to

pytestmark = pytest.mark.guarantees
DELTA = 0.1


def laws(n, level, rng):
    """Losses with the mean `level`: coins, catastrophes among small ones, and ones that vary little."""
    rare = level / 3
    return {
        "coins": rng.random(n) < level,
        "catastrophes": np.where(rng.random(n) < rare, 1.0, (level - rare) / (1 - rare) * rng.uniform(0.5, 1.5, n)),
        "alike": level * rng.uniform(0.8, 1.2, n),
        "nothing or much": np.where(rng.random(n) < 2 * level, 0.5, 0.0),
    }


@pytest.mark.parametrize("n, level", [(46, 0.05), (60, 0.05), (88, 0.05), (25, 0.1), (43, 0.1), (12, 0.2), (20, 0.2)])
def test_bets_on_few_losses_hold(n, level, record_property):
    worlds = max(300, 2 * WORLDS)
    assert level <= few_to(n, DELTA)
    failed = dict.fromkeys(laws(1, level, np.random.default_rng(0)), 0)
    for seed in range(worlds):
        for name, losses in laws(n, level, generator("few", n, level, seed=seed)).items():
            failed[name] += rejects(betting, losses.astype(float), DELTA, level)
    for count in failed.values():
        check_failures(count, worlds, DELTA, ("delta doubled", 0.2), record_property)


def test_a_level_is_rejected_exactly_above_the_bound():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        losses = np.minimum(rng.gamma(0.5, 2, 60) * rng.uniform(0, 0.08), 1)
        bound = betting(losses, DELTA)
        levels = np.linspace(0.01, 0.3, 100)
        above = [rejects(betting, losses, DELTA, level) for level in levels if level > bound + 1e-9]
        assert all(above)
        assert bound == 1 or not rejects(betting, losses, DELTA, bound - 1e-6)


def test_the_first_bets_count_where_losses_are_few():
    """Before, the bettor began with small bets: 50 losses certified 14% less of the level of 5%, 60 of them 4%."""
    for n, gain in ((50, 1.14), (60, 1.04), (300, 1.0)):
        shape = np.random.default_rng(0).gamma(4, 0.25, n)
        most = {}
        for name, wealth in {"now": betting_wealth, "before": begun_small}.items():
            scales = np.linspace(0, 0.05, 2001)
            passed = [wealth(np.minimum(c * shape, 1), 0.05, DELTA) > -np.log(DELTA) for c in scales]
            most[name] = scales[np.flatnonzero(passed)[-1]]
        assert most["now"] >= gain * most["before"]
        assert n < 300 or most["now"] == most["before"]


def begun_small(losses, level, delta):
    """The bettor of Waudby-Smith and Ramdas, who begins with a mean of 1/2 and a variance of 1/4."""
    n = len(losses)
    means = (0.5 + np.cumsum(losses)) / (np.arange(n) + 2)
    variance = np.append(0.25, (0.25 + np.cumsum((losses - means) ** 2)) / (np.arange(n) + 2))[:-1]
    bets = np.minimum((1 - 1 / n) / (1 - level), np.sqrt(2 * np.log(1 / delta) / (n * variance)))
    return max(0, np.cumsum(np.log1p(bets * (level - losses))).max())


def test_the_exact_test_holds_for_every_number_and_is_chosen_before_the_data():
    for level in (0.02, 0.05, 0.1, 0.3):
        for n in range(5, 150, 7):
            bound = for_zero_one(betting, n, DELTA, level)
            passing = [k for k in range(n) if rejects(binomial, np.repeat([1.0, 0.0], [k, n - k]), DELTA, level)]
            assert (bound is binomial) == (len(passing) > 1)
            assert not passing or binom.cdf(passing[-1], n, level) < DELTA  # the chance that it errs at the level
            assert passing == list(range(len(passing)))
    with pytest.raises(ValueError, match="0 and 1 alone"):
        binomial(np.array([0.5]), DELTA)


@pytest.mark.parametrize("what", ["tail", "one number"])
def test_losses_of_0_and_1_certify_shorter_intervals_and_units_go_on_betting(what):
    n, rng = 200, np.random.default_rng(3)
    shape = (n, 4, 4) if what == "tail" else (n, 1)
    centre = rng.uniform(0.4, 0.6, shape)
    spread = 0.03 * np.exp(0.4 * rng.standard_normal((n,) + (1,) * (len(shape) - 1)))
    truth, band = centre + spread * rng.standard_normal(shape), pb.Band(centre - 0.01, centre + 0.01)
    promises = [pb.tail(0.05, above=0.2) if what == "tail" else pb.share(0.05)]

    def length(bound="betting", units=None):
        cal = pb.calibrate(truth, band, promises=promises, method="rcps", bound=bound, units=units)
        return float(cal.apply(band).length.mean())

    def bets(losses, delta):
        return betting(losses, delta)

    assert length() < 0.98 * length(bets)
    assert length() == pytest.approx(length(binomial), rel=1e-3)
    assert length(units=np.arange(n)) == length(bets, np.arange(n))


def test_promises_of_tails_hold(record_property):
    """Scores of images are all that tails see: the certified place along a path breaks as rarely as promised."""
    worlds = max(300, 2 * WORLDS)
    points = np.linspace(0, 1, 2001)
    for n, level in ((80, 0.05), (150, 0.1)):
        bound = for_zero_one(betting, n, DELTA, level)
        allowed = [rejects(bound, np.repeat([1.0, 0.0], [k, n - k]), DELTA, level) for k in range(n + 1)]
        failed = 0
        for seed in range(worlds):
            need = np.sort(generator("tails", n, seed=seed).random(n))  # an image is bad at points before its need
            bad = n - np.searchsorted(need, points)
            passed = np.array(allowed)[bad]
            stop = len(points) - int(np.argmin(passed[::-1]))
            failed += 1 - points[stop] > level
        check_failures(failed, worlds, DELTA, ("delta doubled", 0.2), record_property)
