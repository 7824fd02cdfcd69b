"""Attacks on the sentences (`benchmarks/attacks.py`), small: promises hold in them, and what is wrong is caught.

`make guarantees` runs PIXELBOUNDS_WORLDS worlds of each.
"""

import numpy as np
import pytest
from trials import WORLDS, consistent

import pixelbounds as pb
from benchmarks.attacks import ATTACKS, BOUNDS, DELTA, ONLY, WRONG, count
from benchmarks.populations import Asked, lucky
from pixelbounds.images import library

pytestmark = pytest.mark.guarantees

LARGE = WORLDS >= 200
CAUGHT = 1e-3  # worlds that were drawn for good; the chance of so many broken ones, if at most delta were
QUICK = ["coin tosses: five promises that break at one point", "ties: truths of eight values"]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    monkeypatch.setattr(library, "_THREADS", 1)


@pytest.mark.parametrize("attack", ATTACKS)
def test_promises_hold_under_attack(attack, record_property):
    for bound in ONLY.get(attack, BOUNDS):
        if bound != WRONG:
            worlds = WORLDS if LARGE else 3
            found = count(attack, bound, worlds)
            record_property(f"broken, {bound}", f"{found['broken']} of {worlds}")
            assert consistent(found["broken"], worlds, DELTA)


@pytest.mark.parametrize("attack", [name for name in ATTACKS if WRONG in ONLY.get(name, BOUNDS)] if LARGE else QUICK)
def test_what_is_wrong_is_caught(attack, record_property):
    worlds = 100 if LARGE else 24
    found = count(attack, WRONG, worlds)
    record_property("broken", f"{found['broken']} of {worlds}")
    assert not consistent(found["broken"], worlds, DELTA, CAUGHT)


def test_the_true_risk_of_a_population_is_what_images_show():
    """Counted in another way: on many units that were drawn."""
    easy = {"chance": 0.6, "hardness": [np.linspace(0.2, 1, 8)] * 3, "regions": {"a": [np.arange(8) < 2] * 3}}
    hard = {"chance": 0.4, "hardness": np.ones((1, 8)), "regions": {"a": np.arange(8)[None] > 4}}
    world = lucky([easy, hard], steps=10)
    drawn = world.draw(np.random.default_rng(0), 20_000)
    upper = 0.7
    missed = drawn.truth > upper
    asked = [
        Asked(0.1), Asked(0.1, "a"), Asked(0.1, "a", cap=0.4), Asked(0.1, above=0.3), Asked(0.1, weighting="images"),
        Asked(0.1, "a", weighting="pixels"),
    ]  # fmt: skip
    interval = pb.Interval(np.zeros(drawn.truth.shape), np.full(drawn.truth.shape, upper))
    seen = pb.evaluate(drawn.truth, interval, promises=drawn.promises(asked), units=drawn.units).promises
    for one, found in zip(asked, seen, strict=True):
        true = world.risk(one, world.truth > upper, found.weighting)
        assert found.risk == pytest.approx(true, abs=0.015), one
    assert missed.any()
