"""What is said beside the sentence: why a promise stands of which more was seen, and what nobody can check."""

import re

import numpy as np
import pytest
from commands import call, done, flat

import pixelbounds as pb
from pixelbounds.report.page import write_report

LUCKY = 14  # of 60 seeds one of two in which early bets win and later images lose
LEVEL = 0.2


def coin_tosses(seed, n=100):
    """All pixels of an image are missed together, at a widening of a uniform law."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(0.5 + 0.4 * rng.random((n, 1)), 4, axis=1).reshape(n, 2, 2)
    return truth, pb.Band(np.full(truth.shape, 0.25), np.full(truth.shape, 0.5))


def calibrated(seed, **how):
    return pb.calibrate(*coin_tosses(seed), **{"risk_level": LEVEL, "method": "rcps", **how})


def test_more_was_seen_than_the_level_and_it_is_said_why():
    cal = calibrated(LUCKY)
    assert cal.risk > LEVEL
    assert cal.note.startswith("More was seen than the level (all pixels: 26% where 20% is promised)")
    assert "Seen above the level" in cal.note
    assert cal.note.split(":")[0] in cal._repr_html_()


def test_of_promises_those_are_named_of_which_more_was_seen():
    promises = [pb.share(0.9), pb.tail(LEVEL, above=0.5)]
    cal = calibrated(LUCKY, risk_level=None, promises=promises)
    assert "images that miss more than 50%, all pixels: 26% where 20%" in cal.note
    assert "90%" not in cal.note


@pytest.mark.parametrize("how", [{}, {"confidence": "hoeffding_bentkus"}])
def test_nothing_is_said_where_less_was_seen(how):
    cal = calibrated(LUCKY + 1, **how)
    assert cal.risk <= LEVEL
    assert cal.note == ""


def test_bounds_of_the_mean_certify_no_such_point():
    cal = calibrated(LUCKY, confidence="hoeffding_bentkus")
    assert cal.risk < LEVEL


def test_the_terminal_and_the_page_say_it(tmp_path):
    truth, band = coin_tosses(LUCKY)
    np.save(tmp_path / "truth.npy", truth)
    np.savez(tmp_path / "bands.npz", lower=band.lower, upper=band.upper)
    asked = ["--risk-level", str(LEVEL), "--method", "rcps", "--out", tmp_path / "cal.safetensors"]
    made = call("calibrate", tmp_path / "truth.npy", tmp_path / "bands.npz", *asked)
    for said in (made.output, call("info", tmp_path / "cal.safetensors").output):
        assert "More was seen than the level" in flat(said)
    assert done("info", tmp_path / "cal.safetensors")["note"].startswith("More was seen than the level")
    cal = pb.load_calibration(tmp_path / "cal.safetensors")
    other, its_band = coin_tosses(99)
    evaluation = pb.evaluate(other, cal.apply(its_band), calibration=cal)
    page = write_report(tmp_path / "page.html", title="a page", calibration=cal, evaluation=evaluation, examples=[])
    assert "More was seen than the level" in page.read_text()


def test_a_growing_calibration_says_it():
    truth, band = coin_tosses(0, 400)
    growing = pb.AnytimeCalibration(truth[:2], band[:2], risk_level=LEVEL, method="rcps")
    order = np.argsort(truth[2:, 0, 0], kind="stable") + 2  # the easy ones come first: not what is promised about
    growing.add(truth[order], band[order])
    assert growing.certified is not None
    assert growing.certified.risk > LEVEL
    assert growing.certified.note


def test_a_bound_of_ones_own_must_be_valid_and_the_sentence_says_so():
    def careless(losses, failure_prob):
        return float(losses.mean())

    cal = calibrated(0, confidence=careless)
    assert 'and your bound "careless" is a valid one, which cannot be checked here' in cal.guarantee
    assert "and your bound is a valid one" in calibrated(0, confidence=lambda x, d: float(x.mean())).guarantee
    for name in pb.confidence.BOUNDS:
        assert not re.search("your bound", calibrated(0, confidence=name, risk_level=0.4).guarantee), name
