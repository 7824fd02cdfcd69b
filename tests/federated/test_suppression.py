"""Small counts that a site does not tell: no table tells one, and what is certified only becomes wider."""

import numpy as np
import pytest
from hospitals import NAMES, announced, answers_of, data, edited, parts_of, rounds, said, studies_of
from refusals import refuses

import pixelbounds as pb
from pixelbounds import federated

LEAST = 5


@pytest.fixture(scope="module")
def world():
    truth, band = data()
    exact, coarse = parts_of(truth, band), parts_of(truth, band, least_count=LEAST)
    how = {"risk_level": 0.2, "bound": "hoeffding_bentkus", "method": pb.Frontier("band", 3)}
    studies = studies_of(coarse, federated.begin(announced(coarse), **how))
    return exact, coarse, studies


def test_no_table_tells_of_fewer_pixels_than_the_least(world):
    _, coarse, studies = world
    assert set(studies) == {"cells", "occupied", "spend", "misses", "arriving"}
    seen = {name: answers_of(coarse, study.plan) for name, study in studies.items()}
    for site in NAMES:
        cells = seen["cells"][site].tables.get("counts", np.zeros(1, int))
        assert cells[cells > 0].min(initial=10**9) >= 2 * LEAST  # both ends of a pixel count
        missed, sums = (seen["spend"][site].tables.get(x, np.zeros((2, 1), int)) for x in ("missed", "lengths"))
        assert missed[missed > 0].min(initial=10**9) >= LEAST
        ends = sums[0] >> 32
        assert ends[ends > 0].min(initial=10**9) >= 2 * LEAST
        assert not sums[1][ends == 0].any()
        rows = seen["misses"][site].tables["missed"]
        assert ((rows % LEAST == 0) | (rows == 64)).all()
        assert set(seen["arriving"][site].tables["shares"].tolist()) <= {1.0}


def test_reported_misses_are_at_least_the_true_ones_and_fall(world):
    exact, coarse, studies = world
    plan = studies["misses"].plan
    honest = edited(plan, lambda text, tables: [site.update(least_count=1) for site in text["sites"]])
    for name in NAMES:
        true = federated.answer(honest, *exact[name][:2], site=name).tables["missed"]
        told = federated.answer(plan, *coarse[name][:2], **coarse[name][2]).tables["missed"]
        assert (told >= true).all()
        assert (told < true + LEAST).all()
        assert (np.diff(told, axis=1) <= 0).all()
        assert (told[true == 0] == 0).all()


@pytest.mark.parametrize("bound", ["betting", "hoeffding_bentkus", "hoeffding"])
def test_what_is_certified_only_becomes_wider(world, bound):
    """The path of rcps depends on no image, so that widenings compare."""
    exact, coarse, _ = world
    how = {"risk_level": 0.3, "method": "rcps", "bound": bound}
    true, _ = rounds(exact, federated.begin(announced(exact), **how))
    told, _ = rounds(coarse, federated.begin(announced(coarse), **how))
    mixed = {**exact, "south": coarse["south"]}
    between, _ = rounds(mixed, federated.begin(announced(mixed), **how))
    assert true.widening < between.widening < told.widening
    assert between.record.settings == {"least_count": {"south": LEAST}}
    assert not true.record.settings
    truth, band = data()
    interval = told.apply(band)
    assert ((truth < interval.lower) | (truth > interval.upper)).mean() <= told.risk


def test_the_least_count_is_fixed_when_a_site_announces(world):
    _, coarse, studies = world
    plan = studies["misses"].plan
    t, b, how = coarse["north"]
    refuses(lambda: federated.answer(plan, t, b, site="north"), "least_count 5", "has 1")
    refuses(lambda: federated.answer(plan, t, b, site="north", least_count=6), "least_count 5", "has 6")
    refuses(lambda: federated.announce(t, b, site="north", least_count=0), "least_count is 0")
    curious = edited(plan, lambda text, tables: text["sites"][0].update(least_count=1))
    refuses(lambda: federated.answer(curious, t, b, **how), "least_count 1", "has 5")
    refuses(lambda: federated.answer(edited(plan, said(sites=[])), t, b, **how), "sites")
