"""An evaluation as pandas DataFrames: what they hold is what the evaluation holds."""

import sys

import numpy as np
import pytest

import pixelbounds as pb

pandas = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def evaluation():
    rng = np.random.default_rng(0)
    truth = rng.uniform(size=(30, 6, 6))
    interval = pb.Interval(truth * 0, truth * 0 + 0.8)
    patients = [f"P{i // 4}" for i in range(30)]
    promises = [pb.share(0.3), pb.share(0.4, within=truth > 0.5, name="bright"), pb.tail(0.5, above=0.3)]
    groups = np.arange(36).reshape(6, 6) % 3
    return pb.evaluate(truth, interval, units=pb.Units(patients, "patient"), promises=promises, groups=groups)


def test_images_and_units(evaluation):
    frame = evaluation.to_frame()
    assert list(frame.columns) == ["patient", "missed", "mean_length"]
    assert np.array_equal(frame.missed, evaluation.by_image)
    units = evaluation.to_frame("unit")
    assert units.index.name == "patient"
    assert np.allclose(frame.groupby("patient").missed.mean(), units.missed)
    assert units.loc["P7", "images"] == 2
    assert np.isclose(units.missed.mean(), evaluation.risk)
    assert np.isclose(units.mean_length.mean(), evaluation.mean_length)


def test_promises_and_strata(evaluation):
    frame = evaluation.to_frame("promise")
    assert frame.loc["bright", "risk"] == evaluation.promises[1].risk
    assert (frame.low <= frame.risk).all()
    assert "interval" not in frame
    for by, strata in evaluation.strata.items():
        found = evaluation.to_frame(by)
        assert np.array_equal(found.risk, strata.risk)
        assert np.isclose(found.share.sum(), 1)
    assert list(evaluation.to_frame("edge").columns[:2]) == ["least", "most"]


def test_what_cannot_be_had_says_what_can(evaluation, monkeypatch):
    with pytest.raises(ValueError, match="of is 'images'; did you mean 'image'"):
        evaluation.to_frame("images")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
        evaluation.to_frame()
