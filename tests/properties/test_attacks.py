"""Attacks on the sentences (`benchmarks/attacks.py`), small: promises hold in them, and what is wrong is caught.

Three of them are run here; the others take `python -m benchmarks attacks`, whose table of 2,000 worlds is checked.
"""

import json

import numpy as np
import pytest
from trials import DOUBLED, LARGE, check_failures, consistent

import pixelbounds as pb
from benchmarks.__main__ import RESULTS
from benchmarks.attacks import ATTACKS, BOUNDS, DELTA, ONLY, WRONG, count
from benchmarks.populations import Asked, lucky

pytestmark = pytest.mark.guarantees

QUICK = [name for name in ATTACKS if name.startswith(("coin", "ties", "trust"))]


@pytest.mark.parametrize("attack", QUICK)
def test_promises_hold_under_attack_and_what_is_wrong_breaks_them(attack, record_property):
    worlds, few = (400, 100) if LARGE else (40, 20)  # 400 refuse a doubled delta with 97%
    wrong = WRONG, count(attack, WRONG, few)["broken"] / few
    wrong = max(wrong, DOUBLED, key=lambda one: one[1])
    for bound in ONLY.get(attack, BOUNDS):
        if bound != WRONG:
            check_failures(count(attack, bound, worlds)["broken"], worlds, DELTA, wrong, record_property)


def test_the_table_of_attacks_is_of_worlds_enough_and_shows_promises_kept():
    rows = {(x["attack"], x["bound"]): x for x in json.loads((RESULTS / "attacks.json").read_text())["rows"]}
    assert rows.keys() == {(attack, bound) for attack in ATTACKS for bound in ONLY.get(attack, BOUNDS)}
    for (attack, bound), row in rows.items():
        if bound == WRONG:
            assert not consistent(row["broken"], row["worlds"], DELTA), attack
        else:
            wrong = rows[attack, WRONG]
            check_failures(row["broken"], row["worlds"], DELTA, (WRONG, wrong["broken"] / wrong["worlds"]))
            assert row["worlds"] >= 400


def test_the_true_risk_of_a_population_is_what_images_show():
    """Counted in another way: on many units that were drawn."""
    easy = {"chance": 0.6, "hardness": [np.linspace(0.2, 1, 8)] * 3, "regions": {"a": [np.arange(8) < 2] * 3}}
    hard = {"chance": 0.4, "hardness": np.ones((1, 8)), "regions": {"a": np.arange(8)[None] > 4}}
    world = lucky([easy, hard], steps=10)
    drawn = world.draw(np.random.default_rng(0), 20_000)
    asked = [
        Asked(0.1), Asked(0.1, "a"), Asked(0.1, "a", cap=0.4), Asked(0.1, above=0.3), Asked(0.1, weighting="images"),
        Asked(0.1, "a", weighting="pixels"),
    ]  # fmt: skip
    interval = pb.Interval(np.zeros(drawn.truth.shape), np.full(drawn.truth.shape, 0.7))
    seen = pb.evaluate(drawn.truth, interval, promises=drawn.promises(asked), units=drawn.units).promises
    for one, found in zip(asked, seen, strict=True):
        true = world.risk(one, world.truth > 0.7, found.weighting)
        assert found.risk == pytest.approx(true, abs=0.015), one
