"""Intervals of evaluations, tested by simulation: each end errs in at most (1 - level) / 2 of worlds.

Rare catastrophes, losses of 0 and 1, two points, no loss at all, units of unequal sizes, strata that the images
themselves cut. Ends by a bootstrap, which sees only what occurred, err in more than 9% of worlds with a skewed law.
"""

import numpy as np
import pytest
from trials import WORLDS, check_failures, consistent, generator

import pixelbounds as pb
from pixelbounds.evaluation.guarantee_check import judge
from pixelbounds.evaluation.unit_means import mean_interval, ratio_interval

pytestmark = pytest.mark.guarantees

LEVEL = 0.95
ERR = (1 - LEVEL) / 2  # how often each end may err
BOOTSTRAP = "a bootstrap", 0.09
UNITS = (20, 100, 500) if WORLDS < 100 else (20, 50, 100, 500, 2000)

LAWS = {  # losses of n units, and their mean
    "catastrophes": (lambda rng, n: np.where(rng.random(n) < 0.01, 1.0, 0.02), 0.01 + 0.99 * 0.02),
    "more catastrophes": (lambda rng, n: np.where(rng.random(n) < 0.03, 1.0, 0.02), 0.03 + 0.97 * 0.02),
    "0 or 1": (lambda rng, n: (rng.random(n) < 0.05) * 1.0, 0.05),
    "spared": (lambda rng, n: (rng.random(n) < 0.98) * 0.1, 0.098),
    "two points": (lambda rng, n: np.where(rng.random(n) < 0.5, 0.2, 0.0), 0.1),
    "nothing": (lambda rng, n: np.zeros(n), 0.0),
    "skewed": (lambda rng, n: rng.beta(0.05, 0.45, n), 0.1),
    "alike": (lambda rng, n: rng.beta(16, 144, n), 0.1),
}


def errors(ends, mean, worlds):
    """How often the low end lies above the mean, and the high end below it."""
    found = np.array([ends(seed) for seed in range(worlds)])
    return int((found[:, 0] > mean + 1e-9).sum()), int((found[:, 1] < mean - 1e-9).sum())


@pytest.mark.parametrize("n", UNITS)
@pytest.mark.parametrize("law", LAWS)
def test_each_end_errs_as_rarely_as_it_says(law, n, record_property):
    draw, mean = LAWS[law]
    worlds = max(225, 3 * WORLDS)
    low, high = errors(lambda seed: mean_interval(draw(generator(law, n, seed=seed), n), LEVEL), mean, worlds)
    for count in (low, high):
        check_failures(count, worlds, ERR, BOOTSTRAP, record_property)


def bootstrap(losses, rng, draws=200):
    means = losses[rng.integers(len(losses), size=(draws, len(losses)))].mean(axis=1)
    return np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])


@pytest.mark.parametrize("law", ["catastrophes", "more catastrophes", "0 or 1", "skewed"])
def test_a_bootstrap_is_caught(law):
    draw, mean = LAWS[law]

    def ends(seed):
        rng = generator("bootstrap", law, seed=seed)
        return bootstrap(draw(rng, 30), rng)

    _, high = errors(ends, mean, 300)
    assert not consistent(high, 300, ERR)
    assert high / 300 > BOOTSTRAP[1]


def unequal(rng, units):
    """Sizes and losses of units: of 20 images that lose much, or of 2 that lose little, and rarely everything."""
    hard = rng.random(units) < 0.5
    losses = np.where(hard, 0.15, 0.05) * rng.uniform(0.5, 1.5, units)
    return np.where(hard, 20, 2), np.where(rng.random(units) < 0.02, 1.0, losses)


UNIT_MEAN = 0.02 + 0.98 * 0.1
IMAGE_MEAN = 0.02 + 0.98 * (20 * 0.15 + 2 * 0.05) / 22


@pytest.mark.parametrize("units", UNITS[:2])
def test_the_mean_over_images_of_unequal_units_is_held(units, record_property):
    worlds = 15 * WORLDS

    def ends(seed):
        sizes, losses = unequal(generator("unequal", units, seed=seed), units)
        return ratio_interval(losses * sizes / 20, sizes / 20, LEVEL)

    low, high = errors(ends, IMAGE_MEAN, worlds)
    for count in (low, high):
        check_failures(count, worlds, ERR, BOOTSTRAP, record_property)


def images_of(rng, sizes, losses, pixels=40):
    """Images of units, each pixel of which is missed with the unit's chance; intervals differ in length."""
    chance = np.repeat(losses, sizes)[:, None]
    missed = rng.random((len(chance), pixels)) < chance
    half = rng.uniform(0.1, 0.5, missed.shape) * rng.uniform(0.5, 1, (len(chance), 1))
    truth = np.where(missed, 2.0, 0.0) + rng.uniform(-0.05, 0.05, missed.shape)
    return truth, pb.Interval(-half, half)


def test_evaluations_hold_both_means_and_every_stratum_at_once_with_what_cuts_it(record_property):
    worlds = max(225, WORLDS)
    found = {"unit": [0, 0], "image": [0, 0], "stratum": [0, 0]}
    gap = 0
    for seed in range(worlds):
        rng = generator("evaluations", seed=seed)
        sizes, losses = unequal(rng, 40)
        truth, interval = images_of(rng, sizes, losses)
        units = pb.Units(np.repeat(np.arange(40), sizes), "unit", "images", max_images=20)
        ev = pb.evaluate(truth, interval, units=units, seed=seed)
        strata = ev.size_stratified
        ends = {
            "unit": (ev.risk_interval, UNIT_MEAN),
            "image": (ev.image_risk_interval, IMAGE_MEAN),
            "stratum": ((strata.low[-1], strata.high[-1]), UNIT_MEAN),  # misses do not depend on length here
        }
        for name, (interval_of, mean) in ends.items():
            found[name][0] += interval_of[0] > mean
            found[name][1] += interval_of[1] < mean
        gap += ev.image_risk > ev.risk
    assert gap > 0.9 * worlds  # the two means differ, and are both there
    for count in (count for ends in found.values() for count in ends):
        check_failures(count, worlds, ERR, BOOTSTRAP, record_property)


def test_a_kept_promise_is_rarely_seen_broken_and_a_broken_one_is(record_property):
    """The true risk is exactly the level, then half as much again: exit code 1 of the commands is `broken`."""
    rng = generator("promise", seed=0)
    truth = rng.uniform(size=(100, 50))
    band = pb.Band(np.zeros_like(truth), np.ones_like(truth))
    cal = pb.calibrate(truth, band, risk_level=0.1)
    seen, above = {}, 0
    worlds = max(60, WORLDS)
    for risk in (0.1, 0.15):
        count = 0
        for seed in range(worlds):
            rng = generator("kept", risk, seed=seed)
            bad = rng.random(100) < 0.01  # which lose everything
            chance = np.where(bad, 1.0, (risk - 0.01) / 0.99 * rng.uniform(0.5, 1.5, 100))[:, None]
            missed = rng.random((100, 50)) < chance
            truth = np.where(missed, 1.2, rng.uniform(size=missed.shape))  # farther out it is another scale
            ev = pb.evaluate(truth, cal.apply(band), calibration=cal, seed=seed)
            count += judge(ev, cal).broken
            above += risk == 0.1 and ev.risk > 0.1
        seen[risk] = count
    check_failures(seen[0.1], worlds, ERR, ("the mean alone decides", above / worlds), record_property)
    assert seen[0.15] > 0.8 * worlds
