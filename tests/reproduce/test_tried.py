"""The benchmark of what else was tried, at toy size: every try runs and is told against the first."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from reproduce.experiment import load_experiment, miniature


@pytest.fixture
def tried(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2]), *sys.path])
    return import_module("benchmarks.tried")


def test_every_try_runs_and_is_compared_on_the_same_images(tried, material, monkeypatch):
    monkeypatch.setattr(
        tried, "load_experiment", lambda name: miniature(load_experiment(name)).changed(task={"risk_level": 0.06})
    )
    rows = list(tried.rows_of("ct64", material, splits=1))
    assert [row["what"] for row in rows] == [x.what for x in tried.TRIES]
    assert rows[0]["difference"] == 0
    for row in rows:
        assert 0 < row["mean length"] < 1
        assert row["difference"] == pytest.approx(row["mean length"] / rows[0]["mean length"] - 1)
        assert row["least"] <= row["difference"] <= row["greatest"]
    assert len({row["mean length"] for row in rows}) > len(rows) / 2  # they really differ


def test_the_residual_is_smoothed_within_images_alone(tried, material):
    made = material
    found = tried.image_of(made, "residual") - (made["lower"] + made["upper"]) / 2
    noise = np.asarray(made["observation"]) - (made["lower"] + made["upper"]) / 2
    assert found[3, 5, 5] == pytest.approx(float(noise[3, 3:8, 3:8].mean()), abs=1e-6)
