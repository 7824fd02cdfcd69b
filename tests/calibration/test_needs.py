"""What a plan says of promises is what `calibrate` does: the least images certify, one fewer does not."""

import numpy as np
import pytest
from commands import call, done, flat
from flat import flat_calibrate
from refusals import refuses
from scipy.stats import binom, gamma

import pixelbounds as pb
from pixelbounds.calibration.bounds import gamma_quantiles

KINDS = {
    "share": pb.share(0.1, name="x"),
    "cap": pb.share(0.1, cap=0.4, name="x"),
    "tail": pb.tail(0.15, above=0.1, name="x"),
}


def certifies(n, promise, prevalence, per_unit=1, **how):
    """Whether n units that lose nothing certify a promise about a region that so many have."""
    truth = np.random.default_rng(0).uniform(0.4, 0.6, (n * per_unit, 2, 2))
    band = pb.Band(truth - 0.1, truth + 0.1)
    within = np.zeros(truth.shape, bool)
    within[: int(round(prevalence * n, 9)) * per_unit] = True
    asked = pb.Promise(promise.kind, promise.at_most, promise.above, within, promise.cap, promise.name)
    units = np.arange(n).repeat(per_unit) + 50 if per_unit > 1 else None
    try:
        flat_calibrate(truth, band, promises=[pb.share(0.5), asked], units=units, **how)
    except pb.NoGuarantee:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["rcps", "krcps"])
def test_the_least_images_of_a_plan_certify_and_fewer_do_not(kind, method):
    promise = KINDS[kind]
    how = {"method": method, "bound": "hoeffding_bentkus"}
    (found,) = pb.plan(promises=[promise], images=(100,), **how).promises
    more = {"k": 2} if method == "krcps" else {}
    assert certifies(found.images, promise, 1.0, **how, **more)
    assert not certifies(found.images - 1, promise, 1.0, **how, **more)
    assert certifies(found.images, promise, 1.0, per_unit=2, **how, **more)


def test_tails_of_a_plan_are_certified_by_the_exact_test_as_those_of_calibrate_are():
    numbers = (60, 100, 200)
    (found,) = pb.plan(promises=[pb.tail(0.1, above=0.2)], method="rcps", images=numbers).promises
    bad = [int(binom.ppf(0.1, n, 0.1)) - 1 for n in numbers]  # the most with P(Bin <= bad) < 0.1
    assert all(binom.cdf(k, n, 0.1) < 0.1 <= binom.cdf(k + 1, n, 0.1) for k, n in zip(bad, numbers, strict=True))
    assert found.certified == pytest.approx([k / n for k, n in zip(bad, numbers, strict=True)])
    for k, n in zip(bad, numbers, strict=True):
        for lost, passes in ((k, True), (k + 1, False)):
            truth = np.where(np.arange(n) < lost, 0.0, 0.5)[:, None] * np.ones(4)
            band = pb.Band(np.full((n, 4), 0.4), np.full((n, 4), 0.6)).with_family("multiplicative")
            try:
                pb.calibrate(truth, band, promises=[pb.tail(0.1, above=0.2)], method="rcps")
            except pb.NoGuarantee:
                assert not passes
            else:
                assert passes


@pytest.mark.parametrize("kind", KINDS)
def test_a_region_in_some_images_is_certified_in_nine_of_ten_worlds(kind):
    """Of 400 worlds at 0.9, fewer than 340 would be 3.3 deviations off; the mean number suffices in half of them."""
    how, promise = {"method": "rcps", "bound": "hoeffding_bentkus"}, KINDS[kind]
    (found,) = pb.plan(promises=[promise], prevalence={"x": 0.3}, images=(100,), **how).promises
    least = pb.least_images(promise.at_most / (promise.cap or 1), bound="hoeffding_bentkus")
    drawn = np.random.default_rng(1)
    kept = {n: np.mean(drawn.binomial(n, 0.3, 400) >= least) for n in (found.images, int(least / 0.3))}
    assert kept[found.images] > 0.85
    assert kept[int(least / 0.3)] < 0.7
    assert certifies(found.images, promise, least / found.images, **how)


def test_units_that_are_counted_by_their_images_need_more_of_them():
    """Units of 1, 2, 3 or 10 images: 24 that lose nothing certify where all count alike, and not by images."""
    promise, sizes = pb.share(0.1, weighting="images"), [1] * 4 + [2] * 3 + [3] * 2 + [10]
    (found,) = pb.plan(promises=[promise], unit_sizes=sizes, method="rcps", images=(100,)).promises
    rng, kept = np.random.default_rng(0), {24: 0, found.images: 0}
    for n in kept:
        for _ in range(20):
            ids = np.arange(n).repeat(rng.choice(sizes, n))
            truth = rng.uniform(0.4, 0.6, (len(ids), 2, 2))
            units = pb.Units(ids, weighting="images", max_images=10)
            try:
                pb.calibrate(truth, pb.Band(truth - 0.1, truth + 0.1), risk_level=0.1, units=units, method="rcps")
                kept[n] += 1
            except pb.NoGuarantee:
                pass
    assert kept[24] == 0
    assert kept[found.images] >= 15
    refuses(lambda: pb.plan(promises=[promise]), "unit_sizes", "[1, 2, 10]")


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0, 3.0])
def test_losses_spread_by_the_gamma_law(spread):
    shares = (np.arange(500) + 0.5) / 500
    np.testing.assert_allclose(gamma_quantiles(shares, spread**-2), gamma.ppf(shares, spread**-2), 1e-11, 1e-300)


def test_a_plan_prints_as_text():
    said = str(pb.plan(0.1, images=(20, 100), miscoverage=0.1))
    assert "at least 23 images (or units) in all, 23 of which certify" in said
    assert "20 images certify nothing" in said
    assert "19 samples" in said


def test_few_patients_are_told_what_a_cap_a_level_and_more_of_them_give():
    rng = np.random.default_rng(0)
    truth = rng.uniform(0.3, 0.7, (58, 8, 8))
    band = pb.Band(truth - 0.02, truth + rng.uniform(-0.01, 0.02, truth.shape))
    units = pb.Units(np.arange(58), name="patient")
    cal = pb.calibrate(truth, band, risk_level=0.05, units=units, method="rcps")
    assert (
        "58 patients are few for 0.05: where losses spread as usual, it is certified if they miss at most" in cal.note
    )
    assert "0.041 with cap=0.25 (an image then counts for at most that), 0.03 with 116 patients" in cal.note
    with pytest.raises(pb.NoGuarantee) as refused:
        pb.calibrate(truth[:30], band[:30], risk_level=0.05, units=np.arange(30), method="rcps")
    remedy, numbers, _ = str(refused.value).splitlines()
    assert remedy.startswith("Give at least 46 units that certify")
    assert "0.032 with cap=0.25" in numbers
    with pytest.raises(pb.NoGuarantee) as refused:
        pb.calibrate(truth[:9], band[:9], risk_level=0.1, units=np.arange(9), method="rcps")
    numbers = str(refused.value).splitlines()[1]
    assert "with cap" not in numbers, "9 units certify nothing with this cap either"
    assert "with 46 units" in numbers


def test_a_cap_saves_what_the_plan_says():
    (found,) = pb.plan(promises=[pb.share(0.05, cap=0.25)], images=(58,), method="rcps").promises
    assert found.certified[0] == pytest.approx(0.041, abs=0.001)
    assert found.certified_without_cap[0] == pytest.approx(0.010, abs=0.001)
    assert found.images < found.images_without_cap


def test_a_plan_of_promises_in_words():
    words = "--promise", "share:0.05,cap=0.25", "--promise", "share:0.1,prevalence=0.08,name=trachea", "--images", 500
    said = done("plan", *words)
    assert [one["prevalence"] for one in said["promises"]] == [1.0, 0.08]
    rare = said["promises"][1]
    assert rare["images"] == said["bounds"][0]["images"] > pb.least_images(0.1) / 0.08  # some of them fit
    alone = done("plan", *words, "--method", "rcps")["promises"][1]
    enough = [binom.sf(pb.least_images(0.1) - 1, n, 0.08) for n in (alone["images"] - 1, alone["images"])]
    assert enough[0] < 0.9 <= enough[1]
    text = flat(call("plan", *words).stdout)
    assert "To promise 2 things jointly" in text
    assert "without the cap" in text
    assert call("plan", *words[:2], "--risk-level", 0.1).exit_code == 2
    assert call("plan", *words[:-1], 200).exit_code == 1
    refuses(lambda: pb.plan(promises=[pb.share(0.1)], prevalence={"lung": 0.5}), "'lung'", "no promise has that name")
    refuses(lambda: pb.plan(), "either risk_level")
