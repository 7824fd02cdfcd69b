"""An anytime calibration keeps its promise at all times together; repeated tests of reshuffled images do not."""

import numpy as np
import pytest
from scipy.stats import binom
from trials import DOUBLED, WORLDS, check_failures, generator

import pixelbounds as pb
from pixelbounds.calibration.bounds import betting, rejects
from pixelbounds.kernels.bets import PathEProcess

pytestmark = pytest.mark.guarantees

LEVEL, DELTA = 0.1, 0.1
MANY = 100 * WORLDS
TIMES = range(30, 301, 30)


def losses(kind, rng, n, worlds):
    """Losses of n images in many worlds, with a mean of the level: (n, worlds)."""
    if kind == "coins":
        return (rng.random((n, worlds)) < LEVEL).astype(float)
    if kind == "rare catastrophes":
        return np.where(rng.random((n, worlds)) < LEVEL / 2, 1.0, LEVEL / 2 / (1 - LEVEL / 2))
    return rng.beta(2, 2 / LEVEL - 2, (n, worlds))


@pytest.mark.parametrize("kind", ["coins", "rare catastrophes", "shares"])
def test_an_e_process_ever_reaches_its_goal_with_at_most_the_asked_probability(kind, record_property):
    e_process = PathEProcess.new(LEVEL, DELTA, MANY, binary=kind == "coins")
    e_process = e_process.update(losses(kind, generator(kind, seed=0), 600, MANY))
    failures = int(e_process.certified.sum())
    check_failures(failures, MANY, DELTA, DOUBLED, record_property)
    assert binom.cdf(failures, MANY, DELTA / 5) > 1e-6  # it does not hold because nothing is ever certified


def test_repeated_tests_of_reshuffled_losses_break_the_promise_and_planned_tries_do_not(record_property):
    count = 10 * WORLDS
    rng = generator("reshuffled", seed=0)
    drawn = losses("coins", rng, TIMES[-1], count).T

    def passes(x, n, failure_prob=DELTA):
        return rejects(betting, rng.permutation(x[:n]), failure_prob, LEVEL)

    often = sum(any(passes(x, n) for n in TIMES) for x in drawn) / count
    twice = sum(passes(x, TIMES[4], DELTA / 2) or passes(x, TIMES[-1], DELTA / 2) for x in drawn)
    check_failures(twice, count, DELTA, ("a look at every thirtieth image", often), record_property)


def hidden(rng, n):
    """Three in ten images are dark; of these a little more than the level cannot be covered, by whatever widening."""
    centre = rng.uniform(0.2, 0.8, (n, 4))
    dark = rng.random((n, 1)) < 0.3
    lost = dark & (rng.random((n, 1)) < 1.02 * LEVEL)
    return np.where(lost, 0.0, centre), pb.Band(centre - 0.1, centre + 0.1), np.broadcast_to(dark, centre.shape)


def test_promises_hold_jointly_at_all_times(record_property):
    """The second is broken at every point, the first at none: certified at any time, they have failed."""
    failures = alone = 0
    count = max(20, WORLDS // 2)
    for seed in range(count):
        rng = generator("hidden", seed=seed)
        truth, band, dark = hidden(rng, 8)
        asked = [pb.share(LEVEL), pb.share(LEVEL, within=dark, name="dark")]
        band = band.with_family("multiplicative")
        anytime = pb.AnytimeCalibration(truth, band, promises=asked, failure_prob=DELTA, method="rcps",
                                        seed=rng)  # fmt: skip
        for _ in range(6):
            truth, band, dark = hidden(rng, 20)
            anytime.add(truth, band, within={"dark": dark})
        alone += anytime._evidence.e_processes[0].certified[-1]
        failures += any(check.certified for check in anytime.checks)
    check_failures(failures, count, DELTA, ("the first promise decides", alone / count), record_property)
