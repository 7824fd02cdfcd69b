"""A claim is held against the mean that it is about, or not at all; what cannot be compared is said."""

from dataclasses import asdict

import numpy as np
import pytest

import pixelbounds as pb
from pixelbounds.calibration.promises import CertifiedPromise
from pixelbounds.evaluation.guarantee_check import StoredGuarantee, judge


def half_missed(n=60, missed=0.3, sizes=None, most=None):
    """Truth, interval and units, of which each misses a share of its 20 pixels."""
    truth = np.zeros((n, 20))
    truth[:, : round(20 * missed)] = 2.0
    truth += np.random.default_rng(0).uniform(0, 0.1, truth.shape)
    units = None if sizes is None else np.repeat(np.arange(len(sizes)), sizes)
    units = units if most is None else pb.Units(units, "unit", "images", most)
    return pb.evaluate(truth, pb.Interval(np.zeros_like(truth), np.ones_like(truth)), units=units)


def stored(kind="share", weighting="units", max_images=0, **changes):
    promise = CertifiedPromise(kind, "all pixels", "all", 0.1, 0.0, 1.0, weighting, float(max_images), 0.05, 60)
    usual = {"promises": (promise,), "unit_name": None, "max_images": max_images, "expected": False}
    return StoredGuarantee(**{**usual, "digest": "abc", "image_hashes": True, **changes})


def test_a_broken_claim_is_seen_and_chance_is_allowed_for():
    broken = judge(half_missed(missed=0.3), stored())
    assert broken.broken
    assert broken.verdict == "above the level"
    few = judge(half_missed(n=4, missed=0.15), stored())
    assert not few.broken
    assert few.verdict == "above the level, which chance may explain"
    assert judge(half_missed(missed=0.05), stored()).verdict == "within the level"


def test_scans_do_not_judge_a_promise_about_patients():
    """A patient may have several scans; a unit that has no name of its own may be a patient."""
    truth = np.full((60, 4), 2.0) + np.arange(60)[:, None]
    ids = np.arange(60) // 3
    interval = pb.Interval(np.zeros_like(truth), np.ones_like(truth))
    found = judge(pb.evaluate(truth, interval, units=pb.Units(ids, "scan")), stored(unit_name="patient"))
    assert found.verdict == "not compared with the level"
    assert any("by patients, and here scans are counted" in note for note in found.notes)
    assert judge(pb.evaluate(truth, interval, units=ids), stored(unit_name="patient")).broken


def test_units_against_a_calibration_by_images_are_flagged_and_images_are_compared():
    ev = half_missed(sizes=[20, 20, 10, 10])
    found = judge(ev, stored())
    assert found.promises[0].risk == ev.image_risk
    assert any("took images as independent" in note and "4 units" in note for note in found.notes)


def test_images_against_a_calibration_by_units_are_not_compared():
    found = judge(half_missed(), stored(unit_name="patient"))
    assert not found.broken
    assert found.level is None
    assert found.verdict == "not compared with the level"
    assert any("by patients" in note and "Give the patient of each image" in note for note in found.notes)
    assert judge(half_missed(sizes=[20, 40]), stored(unit_name="patient")).level is not None


@pytest.mark.parametrize(
    "changes, words", [({"kind": "loss"}, "other promises than one share"), ({"expected": True}, "on average")]
)
def test_what_was_promised_of_something_else_cannot_be_seen_broken(changes, words):
    found = judge(half_missed(missed=0.9), stored(**changes))
    assert not found.broken
    assert any(words in note for note in found.notes)


def test_images_are_compared_where_a_unit_counts_for_as_many_as_at_calibration():
    large = stored(unit_name="unit", weighting="images", max_images=20)
    assert judge(half_missed(sizes=[30, 20, 10], most=20), large).level is not None
    assert judge(half_missed(sizes=[30, 20, 10]), large).level is None
    assert judge(half_missed(sizes=[15] * 4), large).level is None  # larger ones may not be among these


def test_whether_images_calibrated_is_said_where_it_is_not_known():
    assert any("was not checked" in note for note in judge(half_missed(), stored()).notes)
    assert not judge(half_missed(), stored()).apart


def test_claims_of_a_calibration_travel_with_its_intervals():
    rng = np.random.default_rng(0)
    truth = rng.uniform(size=(60, 6, 6))
    band = pb.Band(np.full_like(truth, 0.1), np.full_like(truth, 0.9))
    units = np.arange(60) // 2
    cal = pb.calibrate(truth, band, risk_level=0.3, units=pb.Units(units, name="eye"))
    made = StoredGuarantee.of(cal)
    assert (made.promises[0].at_most, made.unit_name, made.image_hashes) == (0.3, "eye", True)
    assert StoredGuarantee.from_state(asdict(made)) == made
    assert StoredGuarantee.from_state(None) is None
    assert StoredGuarantee.from_state({"promises": []}) is None
    for name, value in {"promises": [], "max_images": -1, "unit_name": 3}.items():
        with pytest.raises((ValueError, TypeError)):
            StoredGuarantee.from_state({**asdict(made), name: value})
