"""An anytime calibration certifies what the literal bets certify, and no call and no unit counts twice."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from refusals import refuses
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds.kernels.bets import HORIZONS, INITIAL_WEALTH, min_losses

N, SIZE = 60, 8
FIT = slice(0, 20)
DAYS = [slice(a, b) for a, b in pairwise((20, 33, 34, 60))]


@pytest.fixture(scope="module")
def images():
    """Truth, band and a region of a few images."""
    truth, band = heteroscedastic(N, np.random.default_rng(0), size=SIZE, dtype=np.float64)
    return truth, band, truth > 0.5


def begun(images, **how):
    """An anytime calibration of the fitting images."""
    truth, band, _ = images
    how = {"risk_level": 0.3, "method": pb.Frontier(groups="band", k=3), **how}
    return pb.AnytimeCalibration(truth[FIT], band[FIT], **how)


def literal_wealth(losses, level, delta, binary=False):
    """Greatest wealth of all bets together, one loss and one bet at a time."""
    wealth = INITIAL_WEALTH.tolist()
    best, total, squares = 1.0, 0.5, 0.25
    for i, loss in enumerate(losses):
        for k in range(HORIZONS):
            supposed = min_losses(level, delta) * 2 ** (k + binary)
            variance = level * (1 - level) if binary else squares / (i + 1)
            bet = min(0.99 / (1 - level), (2 * np.log(1 / delta) / supposed / variance) ** 0.5)
            wealth[k] *= 1 + bet * (level - loss)
        best = max(best, sum(wealth))
        total += loss
        squares += (loss - total / (i + 2)) ** 2
    return best


# ---------------------------------------------------------------- what is certified


@pytest.mark.parametrize("method", ["frontier", "krcps", "rcps"])
def test_the_certified_point_is_where_the_literal_bets_have_won(images, method):
    truth, band, _ = images
    how = {"frontier": pb.Frontier(groups="band", k=3), "krcps": pb.KRCPS(k=3), "rcps": pb.RCPS()}[method]
    anytime = begun(images, method=how)
    for day in DAYS:
        anytime.add(truth[day], band[day])
    cal = anytime.certified
    first = 0 if method == "rcps" else 20
    points = anytime._evidence.path.points
    at = int(np.flatnonzero((points == cal.widening[:, None]).all(axis=0))[0])
    assert at == anytime.checks[-1].point > 0
    for point, passes in ((at, True), (at - 1, False)):
        widened = replace(cal, widening=points[:, point].copy())
        losses = pb.losses.l01(truth[first:], widened.apply(band[first:]))
        assert (literal_wealth(losses, 0.3, 0.1) > 10) == passes
    assert cal.risk == pytest.approx(pb.losses.l01(truth[first:], cal.apply(band[first:])).mean())


def test_every_promise_must_pass_by_units_that_have_its_region(images):
    truth, band, bright = images
    units = np.arange(N) // 2
    bright = bright & (np.arange(N) % 6 < 4)[:, None, None]  # a third of the units has none
    asked = [pb.share(0.4), pb.share(0.5, within=bright[FIT], name="bright", cap=0.8), pb.tail(0.6, above=0.4)]
    anytime = begun(images, risk_level=None, promises=asked, units=pb.Units(units[FIT], "patient"))
    anytime.add(truth[20:], band[20:], within={"bright": bright[20:]}, units=units[20:])
    cal = anytime.certified
    assert [promise.certifying for promise in cal.promises] == [20, 13, 20]
    interval = cal.apply(band[20:])
    missed = (truth[20:] < interval.lower) | (truth[20:] > interval.upper)
    some = bright[20:].any(axis=(1, 2))
    inside = (missed & bright[20:])[some].sum(axis=(1, 2)) / bright[20:][some].sum(axis=(1, 2))
    by_unit = np.minimum(inside, 0.8).reshape(-1, 2).mean(axis=1)
    assert cal.promises[1].risk == pytest.approx(by_unit.mean())
    assert "jointly at every other look" in cal.guarantee
    point = anytime.checks[-1].point
    e_processes = anytime._evidence.e_processes
    assert e_processes[1].max_wealth[point] == pytest.approx(literal_wealth(by_unit / 0.8, 0.5 / 0.8, 0.1))
    bad = (missed.mean(axis=(1, 2)) > 0.4).astype(float).reshape(-1, 2).mean(axis=1)
    assert e_processes[2].max_wealth[point] == pytest.approx(literal_wealth(bad, 0.6, 0.1, binary=True))
    stops = [int(np.append(-1, np.flatnonzero(~x.certified))[-1]) + 1 for x in e_processes]
    assert point == max(stops) > min(stops)


def test_intervals_only_shorten_and_bets_know_no_number(images):
    truth, band, _ = images
    anytime = begun(images)
    lengths = []
    for i in range(20, N):
        anytime.add(truth[i : i + 1], band[i : i + 1])
        if anytime.certified is not None:
            lengths.append(anytime.certified.apply(band[:4]).length.mean())
    assert 1 < len(lengths) < 40
    assert (np.diff(lengths) <= 0).all()
    assert lengths[-1] < lengths[0]


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
    assert (pb.conformal_p_values(whole.certified, band[20:]) > 1 / 42).all()  # images of the reference itself
    parts.certified.save(tmp_path / "cal.safetensors")
    assert pb.load_calibration(tmp_path / "cal.safetensors").to_bytes() == whole.certified.to_bytes()


def test_a_call_and_a_batch_count_once_and_images_that_fitted_never(images):
    truth, band, _ = images
    anytime = begun(images)
    assert anytime.add(truth[20:30], band[20:30]) == 10
    assert anytime.add(truth[30:40], band[30:40], batch="monday") == 10
    before = anytime.to_bytes()
    refuses(lambda: anytime.add(truth[20:45], band[20:45]), "first 10 of these images", "batch=")
    refuses(lambda: anytime.add(truth[40:], band[40:], batch="monday"), "counted with other images")
    refuses(lambda: anytime.add(truth[:20], band[:20]), "these images fitted")
    broken = truth[40:].copy()
    broken[-1, 0, 0] = np.nan
    refuses(lambda: anytime.add(broken, band[40:]), "NaN")
    assert anytime.add(truth[30:40], band[30:40], batch="monday") == 0
    assert anytime.to_bytes() == before
    with pytest.warns(UserWarning, match="1 of 5 images have the truth of one that fitted"):
        assert anytime.add(truth[19:24], band[19:24], batch="tuesday") == 5
    assert anytime.images == 25


def test_units_count_once(images):
    truth, band, _ = images
    units = np.arange(N) // 2
    anytime = begun(images, units=pb.Units(units[FIT], "patient"))
    assert anytime.add(truth[20:30], band[20:30], units=units[20:30]) == 10
    assert anytime.add(truth[:2], band[:2], units=units[:2]) == 0
    refuses(lambda: anytime.add(truth[40:42], band[40:42]), "give units= here, too")
    assert anytime.add(truth[24:34], band[24:34], units=units[24:34]) == 4
    assert anytime.checks[-1].units == 7


def test_labels_and_features_known_at_test_time_come_with_every_image(images):
    truth, band, _ = images
    labels = (np.arange(SIZE) // 4 + np.zeros((N, SIZE, 1))).astype(int)
    anytime = begun(images, labels=labels[FIT])
    anytime.add(truth[20:], band[20:], labels=labels[20:])
    assert pb.AnytimeCalibration.from_bytes(anytime.to_bytes()).to_bytes() == anytime.to_bytes()
    interval = anytime.certified.apply(band[20:], labels=labels[20:])
    assert anytime.certified.risk == pytest.approx(pb.losses.l01(truth[20:], interval).mean())
    refuses(lambda: begun(images, labels=labels[FIT]).add(truth[20:], band[20:]), "give labels=")
    refuses(lambda: begun(images).add(truth[20:], band[20:], features=truth[20:]), "leave them out")


def test_what_is_not_as_at_first_is_refused(images):
    truth, band, bright = images
    anytime = begun(images, risk_level=None, promises=[pb.share(0.3, within=bright[FIT], name="bright")])
    rest = truth[20:], band[20:]
    refuses(lambda: anytime.add(*rest), "within={'bright': ...}")
    refuses(lambda: anytime.add(*rest, within={"bright": bright[20:], "dark": bright[20:]}), "'dark'")
    refuses(lambda: anytime.add(*rest, within={"bright": 0.5 * bright[20:]}), "'weights'", "'region'")
    refuses(lambda: anytime.add(truth[20:, :4], band[20:].map(lambda x: x[:, :4])), "shape (4, 8)")
    made = begun((truth, pb.Band(band.lower, band.upper, source="sampler 2"), bright))
    refuses(lambda: made.add(*rest), "made in another way", "sampler 2")
    both = [pb.share(0.3, within=bright[FIT], name="x"), pb.share(0.3, within=~bright[FIT], name="x")]
    refuses(lambda: begun(images, risk_level=None, promises=both), "both called 'x'", "different regions")
