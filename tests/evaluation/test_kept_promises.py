"""What promises come to on images that had no part in a calibration, with intervals that hold."""

import numpy as np
import pytest
from refusals import refuses
from scipy.stats import binom
from trials import LARGE, WORLDS, check_failures, generator
from worlds import heteroscedastic

import pixelbounds as pb


def judged(n=60):
    rng = np.random.default_rng(5)
    truth, band = heteroscedastic(n, rng, size=8, dtype=np.float64)
    mask = truth > 0.6
    mask[::4] = False
    return truth, pb.Interval(band.lower, band.upper), mask, rng.uniform(size=truth.shape)


def test_each_promise_is_the_mean_that_it_says():
    truth, interval, mask, weights = judged()
    units = np.repeat(np.arange(24), np.where(np.arange(24) % 2, 4, 1))
    promises = [
        pb.share(0.5), pb.share(0.5, within=mask, name="mask"), pb.share(0.5, within=weights, name="weights"),
        pb.share(0.2, cap=0.4, name="capped"), pb.tail(0.5, above=0.4, within=mask, name="mask"),
        pb.share(0.5, within=mask, weighting="pixels", name="pooled"),
        pb.share(0.5, within=mask, weighting="images", name="images"),
        pb.share(0.5, within=np.arange(60) < 30, name="first"),
    ]  # fmt: skip
    missed = ~interval.contains(truth)
    has = mask.any(axis=(1, 2))
    all_of = missed.mean(axis=(1, 2))
    of_mask = (missed & mask).sum(axis=(1, 2)) / np.maximum(mask.sum(axis=(1, 2)), 1)
    of_weights = (missed * weights).sum(axis=(1, 2)) / weights.sum(axis=(1, 2))

    def by_units(values, counted):
        return np.mean([values[counted & (units == u)].mean() for u in np.unique(units[counted])])

    every = np.ones(60, bool)
    wanted = [
        by_units(all_of, every), by_units(of_mask, has), by_units(of_weights, every),
        by_units(np.minimum(all_of, 0.4), every), by_units(of_mask > 0.4, has), (missed & mask).sum() / mask.sum(),
        of_mask[has].mean(), by_units(all_of, np.arange(60) < 30),
    ]  # fmt: skip
    seen = pb.evaluate(truth, interval, units=units, promises=promises)
    for one, value in zip(seen.promises, wanted, strict=True):
        assert one.risk == pytest.approx(value, abs=1e-12), one.name
        assert 0 <= one.interval[0] <= one.risk <= one.interval[1] <= one.cap
    assert seen.promises[1].units == len(np.unique(units[has]))
    assert "pooled" in str(seen)
    assert "mask above 0.4" in str(seen)
    assert [one["name"] for one in seen.to_dict()["promises"]] == [one.name for one in seen.promises]
    assert "promises" not in pb.evaluate(truth, interval).to_dict()


def test_a_broken_promise_is_seen_and_images_without_the_region_say_nothing():
    truth = np.zeros((80, 6, 6))
    truth[:, :2] = 0.9
    interval = pb.Interval(np.full(truth.shape, -0.1), np.full(truth.shape, 0.5))
    top = np.zeros(truth.shape, bool)
    top[:, :2] = True
    promises = [pb.share(0.4), pb.share(0.4, within=top, name="top"), pb.share(0.4, within=top & False, name="none")]
    whole, hard, none = pb.evaluate(truth, interval, promises=promises).promises
    assert (whole.broken, hard.broken, none.broken) == (False, True, False)
    assert np.isnan(none.risk)
    assert (none.units, none.interval) == (0, (0.0, 1.0))


def test_several_promises_are_judged_at_once():
    """Each is called kept or broken only where it would be at a share of the error."""
    truth, interval, mask, _ = judged()
    promises = [pb.share(0.1), pb.share(0.1, within=mask, name="mask"), pb.tail(0.1, above=0.2)]
    seen = pb.evaluate(truth, interval, promises=promises, confidence_level=0.9).promises
    for one, promise in zip(seen, promises, strict=True):
        (alone,) = pb.evaluate(truth, interval, promises=[promise], confidence_level=1 - 0.1 / 3).promises
        assert one.jointly == alone.interval
        assert one.jointly[0] < one.interval[0] < one.interval[1] <= one.jointly[1]


def test_a_calibration_of_promises_is_judged_by_the_same_ones():
    truth, band = heteroscedastic(200, np.random.default_rng(0), size=8, dtype=np.float64)
    mask = truth > 0.6
    mask[::4] = False

    def promises(at):
        return [pb.share(0.3), pb.share(0.3, within=mask[at], name="mask", weighting="pixels"), pb.tail(0.3, above=0.4)]

    early, late = slice(0, 120), slice(120, 200)
    cal = pb.calibrate(truth[early], band[early], promises=promises(early), method=pb.RCPS(n_fit=20))
    interval = cal.apply(band[late])
    seen = pb.evaluate(truth[late], interval, promises=promises(late), calibration=cal)
    assert not any(one.broken for one in seen.promises)
    size = np.minimum(mask[late].sum(axis=(1, 2)), cal.promises[1].most)
    part = (mask[late] & ~interval.contains(truth[late])).sum(axis=(1, 2)) / np.maximum(mask[late].sum(axis=(1, 2)), 1)
    assert seen.promises[1].risk == pytest.approx((size * part).sum() / size.sum(), abs=1e-12)
    check = pb.evaluation.judge(pb.evaluate(truth[late], interval, calibration=cal), cal)
    assert "evaluate(promises=...)" in check.notes[0]
    assert check.level is None  # one mean over all pixels does not judge several promises
    refuses(
        lambda: pb.evaluate(truth[late], interval, promises=[pb.share(0.2)], calibration=cal), "certified were",
        "same order",
    )  # fmt: skip
    refuses(lambda: pb.evaluate(truth[late], interval, promises=promises(early)), "within of promise 2")


@pytest.mark.guarantees
@pytest.mark.skipif(not LARGE, reason="needs many worlds: make guarantees")
def test_the_intervals_of_promises_hold(record_property):
    """Regions in some units only, of sizes that go with how hard they are: both ends err as rarely as they say."""
    worlds = WORLDS
    errors = np.zeros((3, 2), int)
    for seed in range(worlds):
        rng = generator("promises seen", seed=seed)
        small = rng.random(40) < 0.5
        mask = np.zeros((40, 10), bool)
        mask[:, :8] = ~small[:, None]
        mask[:, :2] = True
        mask &= rng.random((40, 1)) < 0.7
        chance = np.where(small, 0.4, 0.1)
        missed = rng.random((40, 10)) < chance[:, None]
        interval = pb.Interval(np.full((40, 10), -1.0), np.full((40, 10), 0.5))
        promises = [
            pb.share(0.5, within=mask, name="m"), pb.share(0.5, within=mask, weighting="pixels", name="p"),
            pb.tail(0.5, above=0.3),
        ]  # fmt: skip
        found = pb.evaluate(missed * 1.0, interval, promises=promises, confidence_level=0.8, seed=rng).promises
        true = [0.25, (0.5 * 2 * 0.4 + 0.5 * 8 * 0.1) / 5, (binom.sf(3, 10, 0.4) + binom.sf(3, 10, 0.1)) / 2]
        for i, (one, value) in enumerate(zip(found, true, strict=True)):
            errors[i] += [one.interval[0] > value, one.interval[1] < value]
    for count in errors.reshape(-1).tolist():
        check_failures(count, worlds, 0.1, ("both ends err with the whole probability", 0.2), record_property)
