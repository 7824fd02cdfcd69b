"""Of several bands the fitting images choose one: the promise is kept; choosing by the certifying images breaks it."""

import numpy as np
import pytest
from flat import flat_calibrate
from trials import WORLDS, check_failures
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds.calibration import calibration
from pixelbounds.calibration.choice import shortest_band
from pixelbounds.calibration.data import FittingImages

RISK, DELTA, BANDS = 0.2, 0.1, 20


def world(seed):
    """Truth and bands of one point each that know nothing of it, all alike: the risk at widening w is (1 - w)**2."""
    rng = np.random.default_rng([4, seed])
    truth = rng.random((90, 1))
    points = [rng.random(truth.shape) for _ in range(BANDS)]
    return truth, {str(i): pb.Band(x, x) for i, x in enumerate(points)}


HOW = {"risk_level": RISK, "failure_prob": DELTA, "method": "rcps", "n_fit": 30, "bound": "hoeffding_bentkus"}
HOW["limits"] = (-1, 2)


def broken(widening):
    return (1 - float(widening[0])) ** 2 > RISK


def failures(count):
    return sum(broken(flat_calibrate(*world(seed), **HOW, seed=seed).widening) for seed in range(count))


@pytest.mark.guarantees
def test_a_choice_on_the_fitting_images_keeps_the_promise_and_one_on_the_certifying_does_not(
    monkeypatch, record_property
):
    kept = failures(WORLDS)
    every = {}
    with_data = calibration.with_data

    def noted(parts, data, target):
        found = with_data(parts, data, target)
        every[id(found.fitting)] = found.certifying
        return found

    def choose(offered, target, method, rng):
        at = pb.Target([pb.share(7 / 60)])  # the share of 60 certifying images that may be missed at the point
        certifying = {name: every[id(fitting)] for name, fitting in offered.items()}
        looked = {
            name: FittingImages(x.data.take(np.flatnonzero(x.images)), np.arange(x.images.sum()), x.risks, 60)
            for name, x in certifying.items()
        }
        return shortest_band(looked, at, method, rng)

    monkeypatch.setattr(calibration, "with_data", noted)
    monkeypatch.setattr(calibration, "shortest_band", choose)
    looked = failures(12) / 12
    check_failures(kept, WORLDS, DELTA, ("a choice on the certifying images", looked), record_property)


@pytest.mark.parametrize("how", [{"groups": "band"}, {"method": "krcps"}, {"method": "rcps", "n_fit": 8}], ids=str)
def test_the_shorter_band_is_chosen_and_what_is_kept_is_that_of_it_alone(how):
    truth, band = heteroscedastic(80, np.random.default_rng(0), size=10)
    blurred = pb.Band(
        np.full_like(band.lower, 0.4), np.full_like(band.upper, 0.6), source=pb.Source("quantiles", miscoverage="1/5")
    )
    mask = truth > 0.6
    promises = [pb.share(0.2), pb.share(0.25, within=mask, name="bright")]
    how = {"promises": promises, "failure_prob": 0.2, **how}
    found = flat_calibrate(truth, {"blurred": blurred, "sharp": band}, **how)
    assert found.record.settings["band"] == "sharp"
    assert found.record.settings["bands"]["sharp"] < found.record.settings["bands"]["blurred"]
    assert found.record.source == band.source
    assert flat_calibrate(truth, {"sharp": band}, **how).to_bytes() == flat_calibrate(truth, band, **how).to_bytes()
    alone = flat_calibrate(truth, {"blurred": blurred}, **how)
    assert alone.record.source == blurred.source


def test_certifying_images_have_no_say():
    """Truth of the certifying images may be anything: the lengths by which a band is chosen stay the same."""
    truth, band = heteroscedastic(60, np.random.default_rng(1), size=8)
    bands = {"a": band, "b": pb.Band(band.lower - 0.02, band.upper + 0.02)}
    how = {"risk_level": 0.3, "groups": "band", "n_fit": 20}
    first = flat_calibrate(truth, bands, **how)
    fitted = np.isin(np.arange(60), np.random.default_rng(0).permutation(60)[:20])
    other = truth.copy()
    other[~fitted] = np.roll(truth[~fitted], 1, axis=0)
    assert flat_calibrate(other, bands, **how).record.settings == first.record.settings
    other = truth.copy()
    other[fitted] = np.roll(truth[fitted], 1, axis=0)
    assert flat_calibrate(other, bands, **how).record.settings != first.record.settings
