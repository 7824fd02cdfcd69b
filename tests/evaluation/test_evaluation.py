"""What an evaluation says in words: both means where units differ in size."""

import numpy as np
import pytest

import pixelbounds as pb
from pixelbounds.evaluation.held_out import evaluate


def uneven(rng):
    """Patients of 20 images that miss half, and of 2 that miss nothing: truth, interval, patients."""
    patients = np.repeat(np.arange(20), [20, 2] * 10)
    hard = (patients % 2 == 0)[:, None]
    truth = rng.uniform(size=(len(patients), 16))
    upper = np.where(hard, 0.5, 1.0) * np.ones_like(truth)
    return truth, pb.Interval(np.zeros_like(truth), upper), [f"p{x}" for x in patients]


def test_both_means_are_shown_where_units_differ_in_size(rng):
    truth, interval, patients = uneven(rng)
    ev = evaluate(truth, interval, units=patients, unit_name="patient")
    assert ev.image_risk == pytest.approx(ev.by_image.mean())
    assert ev.image_risk > 1.7 * ev.risk
    assert ev.image_risk_interval[0] < ev.image_risk < ev.image_risk_interval[1]
    shown = str(ev)
    assert f"{ev.risk:.2%}" in shown
    assert "each patient counting the same" in shown
    assert f"{ev.image_risk:.2%}" in shown
    assert "each image counting the same in patients of at most 20" in shown
    assert "220 images of 20 patients" in shown
    alike = evaluate(truth, interval, units=np.arange(len(truth)) // 2)
    assert alike.image_risk == pytest.approx(alike.risk)
    assert "counting the same" not in str(alike)
    assert "110 units" in str(alike)
