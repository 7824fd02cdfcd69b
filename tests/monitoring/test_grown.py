"""A anytime calibration: what it certifies is what the literal bettors certify, and no image counts twice."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from refusals import refuses
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds.monitoring.horizons import BETTORS, EProcesses, fewest, shares_of_the_purse

N, SIZE = 60, 8
FIT = slice(0, 20)
DAYS = [slice(a, b) for a, b in pairwise((20, 33, 34, 60))]


@pytest.fixture(scope="module")
def images():
    """Truth, band and a region of a few images."""
    truth, band = heteroscedastic(N, np.random.default_rng(0), size=SIZE, dtype=np.float64)
    return truth, band, truth > 0.5


def begun(images, **how):
    """A anytime calibration of the fitting images."""
    truth, band, _ = images
    return pb.AnytimeCalibration(truth[FIT], band[FIT], **{"risk_level": 0.3, "groups": "band", "k": 3, **how})


def literal_wealth(losses, level, delta, coins=False):
    """Greatest wealth of the bettors together, one loss and one bettor at a time."""
    e_process = shares_of_the_purse().tolist()
    best, total, squares = 1.0, 0.5, 0.25
    for i, loss in enumerate(losses):
        for k in range(BETTORS):
            supposed = fewest(level, delta) * 2 ** (k + coins)
            variance = level * (1 - level) if coins else squares / (i + 1)
            bet = min(0.99 / (1 - level), (2 * np.log(1 / delta) / supposed / variance) ** 0.5)
            e_process[k] *= 1 + bet * (level - loss)
        best = max(best, sum(e_process))
        total += loss
        squares += (loss - total / (i + 2)) ** 2
    return best


# ---------------------------------------------------------------- what is certified


@pytest.mark.parametrize("method", ["frontier", "krcps", "rcps"])
def test_the_certified_point_is_where_the_literal_bettors_have_won(images, method):
    truth, band, _ = images
    how = {"frontier": {}, "krcps": {"groups": "loss"}, "rcps": {"k": None, "groups": None}}[method]
    growing = begun(images, method=method, **how)
    for day in DAYS:
        growing.add(truth[day], band[day])
    cal = growing.certified
    first = 0 if method == "rcps" else 20
    knots = growing._terms.path.knots
    at = int(np.flatnonzero((knots == cal.widening[:, None]).all(axis=0))[0])
    assert at == growing.looks[-1].knot > 0
    for knot, passes in ((at, True), (at - 1, False)):
        there = {"widening": knots[:, knot].copy(), "loss": "own", "curve": cal.curve[:0], "chosen": 0}
        widened = replace(cal, **there)
        losses = pb.losses.l01(truth[first:], widened.apply(band[first:]))
        assert (literal_wealth(losses, 0.3, 0.1) > 10) == passes
    assert cal.risk == pytest.approx(pb.losses.l01(truth[first:], cal.apply(band[first:])).mean())


def test_every_promise_must_pass_by_units_that_have_its_region(images):
    truth, band, bright = images
    units = np.arange(N) // 2
    bright = bright & (np.arange(N) % 6 < 4)[:, None, None]  # a third of the units has none
    asked = [pb.share(0.4), pb.share(0.5, within=bright[FIT], name="bright", cap=0.8), pb.tail(0.6, above=0.4)]
    growing = begun(images, risk_level=None, promises=asked, units=units[FIT], unit_name="patient")
    growing.add(truth[20:], band[20:], within={"bright": bright[20:]}, units=units[20:])
    cal = growing.certified
    assert [promise.certifying for promise in cal.promises] == [20, 13, 20]
    interval = cal.apply(band[20:])
    missed = (truth[20:] < interval.lower) | (truth[20:] > interval.upper)
    some = bright[20:].any(axis=(1, 2))
    inside = (missed & bright[20:])[some].sum(axis=(1, 2)) / bright[20:][some].sum(axis=(1, 2))
    by_unit = np.minimum(inside, 0.8).reshape(-1, 2).mean(axis=1)
    assert cal.promises[1].risk == pytest.approx(by_unit.mean())
    assert "jointly at every other look" in cal.guarantee
    knot = growing.looks[-1].knot
    e_processes = growing._evidence.e_processes
    assert e_processes[1].best[knot] == pytest.approx(literal_wealth(by_unit / 0.8, 0.5 / 0.8, 0.1))
    bad = (missed.mean(axis=(1, 2)) > 0.4).astype(float).reshape(-1, 2).mean(axis=1)
    assert e_processes[2].best[knot] == pytest.approx(literal_wealth(bad, 0.6, 0.1, coins=True))
    stops = [int(np.append(-1, np.flatnonzero(~x.reached))[-1]) + 1 for x in e_processes]
    assert knot == max(stops) > min(stops)


def test_intervals_only_shorten_and_bets_know_no_number(images):
    truth, band, _ = images
    growing = begun(images)
    lengths = []
    for i in range(20, N):
        growing.add(truth[i : i + 1], band[i : i + 1])
        if growing.certified is not None:
            lengths.append(growing.certified.apply(band[:4]).length.mean())
    assert 1 < len(lengths) < 40
    assert (np.diff(lengths) <= 0).all()
    assert lengths[-1] < lengths[0]


def test_no_other_bound_may_call_itself_anytime_and_its_level_is_within_reach(images):
    truth, band, _ = images

    def anytime(losses, failure_prob):
        return pb.confidence.hoeffding(losses, failure_prob)

    assert pb.calibrate(truth, band, risk_level=0.5, method="rcps", confidence=anytime).confidence == "custom"
    growing = begun(images)
    growing.add(truth[20:], band[20:])
    refuses(lambda: replace(growing.certified, risk_level=0.01), "40 images cannot certify")


# ---------------------------------------------------------------- files, cuts, kills


def test_cut_saved_and_resumed_it_is_the_same_bits(images, tmp_path):
    truth, band, _ = images
    whole = begun(images)
    whole.add(truth[20:], band[20:])
    parts = begun(images)
    for day in DAYS:
        parts.add(truth[day], band[day])
        parts.save(tmp_path / "state.safetensors")
        again = pb.AnytimeCalibration.load(tmp_path / "state.safetensors")
        assert again.to_bytes() == parts.to_bytes()
        parts = again
    assert parts.certified.to_bytes() == whole.certified.to_bytes()
    assert len(whole.certified.reference) == 40
    assert (whole.certified.conformal_p_values(band[20:]) > 1 / 42).all()  # images of the reference itself
    parts.certified.save(tmp_path / "cal.safetensors")
    assert pb.load_calibration(tmp_path / "cal.safetensors").to_bytes() == whole.certified.to_bytes()


def test_no_image_counts_twice_nor_after_it_fitted(images):
    truth, band, _ = images
    growing = begun(images)
    growing.add(truth[20:40], band[20:40])
    before = growing.to_bytes()
    refuses(
        lambda: growing.add(truth[39:45], band[39:45]), "1 of these 6 images", "image 0 is the first", "none counts"
    )
    refuses(lambda: growing.add(truth[19:20], band[19:20]), "fitted or were counted before")
    twice = np.array([50, 51, 50])
    refuses(lambda: growing.add(truth[twice], band[twice]), "truth of another one", "give units=")
    broken = truth[40:].copy()
    broken[-1, 0, 0] = np.nan
    refuses(lambda: growing.add(broken, band[40:]), "NaN")
    assert growing.to_bytes() == before
    assert growing.add(truth[15:45], band[15:45], skip_known=True) == 5
    assert growing.add(truth[15:45], band[15:45], skip_known=True) == 0
    assert growing.images == 25


def test_units_come_whole_and_once(images):
    truth, band, _ = images
    units = np.arange(N) // 2
    growing = begun(images, units=units[FIT], unit_name="patient")
    growing.add(truth[20:30], band[20:30], units=units[20:30])
    refuses(lambda: growing.add(truth[40:42], band[40:42], units=[10, 10]), "patient '10' was counted before")
    refuses(lambda: growing.add(truth[20:22], band[20:22], units=[70, 70]), "under another name")
    refuses(lambda: growing.add(truth[:2], band[:2], units=units[:2]), "fitted or were counted before")
    refuses(lambda: growing.add(truth[40:42], band[40:42]), "give units= here, too")
    assert growing.add(truth[24:34], band[24:34], units=units[24:34], skip_known=True) == 4
    assert growing.looks[-1].units == 7


def test_labels_and_features_known_at_test_time_come_with_every_image(images):
    truth, band, _ = images
    labels = (np.arange(SIZE) // 4 + np.zeros((N, SIZE, 1))).astype(int)
    growing = begun(images, labels=labels[FIT])
    growing.add(truth[20:], band[20:], labels=labels[20:])
    assert pb.AnytimeCalibration.from_bytes(growing.to_bytes()).to_bytes() == growing.to_bytes()
    interval = growing.certified.apply(band[20:], labels=labels[20:])
    assert growing.certified.risk == pytest.approx(pb.losses.l01(truth[20:], interval).mean())
    refuses(lambda: begun(images, labels=labels[FIT]).add(truth[20:], band[20:]), "features= and labels=")
    refuses(lambda: begun(images).add(truth[20:], band[20:], features=truth[20:]), "features= and labels=")


def test_what_is_not_as_at_first_is_refused(images):
    truth, band, bright = images
    growing = begun(images, risk_level=None, promises=[pb.share(0.3, within=bright[FIT], name="bright")])
    rest = truth[20:], band[20:]
    refuses(lambda: growing.add(*rest), "within={'bright': ...}")
    refuses(lambda: growing.add(*rest, within={"bright": bright[20:], "dark": bright[20:]}), "'dark'")
    refuses(lambda: growing.add(*rest, within={"bright": 0.5 * bright[20:]}), "'weights'", "'region'")
    refuses(lambda: growing.add(truth[20:, :4], band[20:].map(lambda x: x[:, :4])), "shape (4, 8)")
    made = begun((truth, pb.Band(band.lower, band.upper, source="sampler 2"), bright))
    refuses(lambda: made.add(*rest), "made in another way", "sampler 2")
    refuses(lambda: begun(images, method="rcps"), "rcps takes no groups, k")
    both = [pb.share(0.3, within=bright[FIT], name="x"), pb.share(0.3, within=~bright[FIT], name="x")]
    refuses(lambda: begun(images, risk_level=None, promises=both), "both called 'x'", "different regions")


def test_losses_outside_their_range_are_no_bets():
    e_processes = EProcesses.new(0.1, 0.1, 2)
    refuses(lambda: e_processes.after(np.array([[0.5, 1.5]])), "must lie in [0, 1]")
    refuses(lambda: e_processes.after(np.zeros((3, 1))), "give (n, 2)")


# ---------------------------------------------------------------- another source


def test_weights_make_images_stand_for_another_source():
    rng = np.random.default_rng(0)
    n = 1200
    hard = rng.random(n) < 0.2
    centre = rng.uniform(0.3, 0.7, (n, 4, 4))
    truth = centre + np.where(hard, 0.12, 0.03)[:, None, None] * rng.standard_normal(centre.shape)
    images = np.clip(truth, 0, 1), pb.Band(centre - 0.03, centre + 0.03)
    weights = np.where(hard, 0.6 / 0.2, 0.4 / 0.8)
    how = {"risk_level": 0.1, "method": "rcps"}
    cal = pb.recalibrate(*images, weights=weights, most_weight=3.0, **how)
    assert abs(cal.record.images - n / 3) < 60
    assert "shifted source" in cal.guarantee
    assert f"of {n} calibration images {cal.record.images} were kept" in cal.guarantee
    losses = pb.losses.l01(images[0], cal.apply(images[1]))
    assert (
        np.mean(weights * losses)
        < 0.1
        < np.mean(weights * pb.losses.l01(images[0], pb.calibrate(*images, **how).apply(images[1])))
    )
    tail = [pb.tail(0.5, above=0.2, within=hard, name="hard images"), pb.share(0.2, within=truth > 0.5)]
    jointly = pb.recalibrate(*images, weights=weights, most_weight=3.0, promises=tail, method="rcps")
    assert [promise.name for promise in jointly.promises] == ["hard images", "region 2"]
    refuses(lambda: pb.recalibrate(*images, weights=weights, most_weight=2.0, **how), "above most_weight")
    refuses(lambda: pb.recalibrate(*images, weights=weights / 2, most_weight=2.0, **how), "have mean 1")
    refuses(
        lambda: pb.recalibrate(images[0][:60], images[1][:60], weights=weights[:60], most_weight=3.0, **how),
        "effective number", "AnytimeCalibration",
    )  # fmt: skip
    units = np.arange(n) // 2
    refuses(lambda: pb.recalibrate(*images, weights=weights, most_weight=3.0, units=units, **how), "of the whole unit")
