"""Sites that keep their images reach, byte for byte, the calibration of all images in one place."""

from itertools import pairwise

import numpy as np
import pytest
from hospitals import BY_BAND, COUNTS, CUTS, NAMES, announced, data, in_one_place, parts_of, rounds
from refusals import refuses
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds import federated
from pixelbounds.calibration.data import CalibrationData
from pixelbounds.calibration.groups.band_features import fit_band_groups
from pixelbounds.images.ragged import Ragged

CASES = {
    "band": ("plain", {}),
    "few bins": ("plain", {"method": pb.Frontier("band", k=3, n_fit=9), "failure_prob": 0.05}),
    "exact place between knots": ("plain", {"bound": "hoeffding_bentkus"}),
    "rcps": ("plain", {"method": "rcps"}),
    "rcps, exact": ("plain", {"method": "rcps", "bound": "bentkus", "seed": 5}),
    "scaled": ("centred", {}),
    "multiplicative": ("positive", {}),
}


@pytest.mark.parametrize("limits", [(0.0, 1.0), None], ids=["limits", "no limits"])
@pytest.mark.parametrize("kind, how", CASES.values(), ids=CASES)
def test_three_sites_equal_one_place_byte_for_byte(kind, how, limits):
    truth, band = data(kind)
    sites = parts_of(truth, band, limits=limits)
    how = {"method": BY_BAND, "risk_level": 0.2, **how}
    pooled = in_one_place(truth, band, limits=limits, **how)
    found, _ = rounds(sites, federated.begin(announced(sites), **how))
    assert found.to_bytes() == pooled.to_bytes()


GROUPS_LEFT_OUT = {  # size of images, what is asked of both, how one place has it, groups
    "few fit": (16, {}, {}, 8),
    "few values": (8, {}, {}, 4),
    "none fit": (8, {"risk_level": 0.028}, {}, 1),
    "many fit": (16, {"method": pb.Frontier(n_fit=20)}, {"method": pb.Frontier("band", n_fit=20)}, 192),
    "promises, few fit": (16, {"promises": [pb.share(0.2), pb.tail(0.3, above=0.4)]}, {}, 8),
}


@pytest.mark.parametrize("size, how, one_place, count", GROUPS_LEFT_OUT.values(), ids=GROUPS_LEFT_OUT)
def test_groups_that_are_left_out_are_few_where_few_units_fit(size, how, one_place, count):
    truth, band = data(size=size)
    asked = how if "promises" in how else {"risk_level": 0.2} | how
    pooled = in_one_place(truth, band, **asked | one_place)
    sites = parts_of(truth, band)
    found, _ = rounds(sites, federated.begin(announced(sites), **asked))
    assert found.to_bytes() == pooled.to_bytes()
    assert len(found.widening) == count


def test_the_order_of_the_sites_decides_the_split_and_nothing_else():
    truth, band = data()
    sites = parts_of(truth, band)
    first, second = (
        rounds(sites, federated.begin(x, method=BY_BAND, risk_level=0.2))[0]
        for x in (announced(sites), announced(sites)[::-1])
    )
    assert first.to_bytes() != second.to_bytes()
    assert first.record.digest == second.record.digest
    turned = np.concatenate([np.arange(a, b) for a, b in list(pairwise(CUTS))[::-1]])
    assert second.to_bytes() == in_one_place(truth[turned], band[turned], risk_level=0.2, method=BY_BAND).to_bytes()


def test_sites_whose_images_differ_in_size_equal_a_ragged_set():
    rng = np.random.default_rng(0)
    made = {name: heteroscedastic(count, rng, size=s) for name, count, s in zip(NAMES, COUNTS, (8, 6, 11), strict=True)}
    sites = {name: (*pair, {"site": name}) for name, pair in made.items()}
    truth = [image for t, _ in made.values() for image in t]
    bands = [band for _, band in made.values()]
    pooled = in_one_place(truth, bands, risk_level=0.2, method=BY_BAND)
    found, _ = rounds(sites, federated.begin(announced(sites), method=BY_BAND, risk_level=0.2))
    assert found.to_bytes() == pooled.to_bytes()
    lists = {name: (list(t), [b[i : i + 1] for i in range(len(t))], how) for name, (t, b, how) in sites.items()}
    ragged = {name: (Ragged(t), b, how) for name, (t, b, how) in lists.items()}
    again, _ = rounds(ragged, federated.begin(announced(ragged), method=BY_BAND, risk_level=0.2))
    assert again.to_bytes() == pooled.to_bytes()


def test_groups_that_saw_the_certifying_images_of_a_site_are_refused_there():
    truth, band = data()
    sites = parts_of(truth, band)
    t, b, how = sites["south"]
    pairs = CalibrationData(t, b)
    grouping = fit_band_groups(pairs, np.arange(20), width=4)
    study = federated.begin(announced(sites), risk_level=0.2, method=pb.Frontier(grouping))
    assert study.plan.text["statistic"] == "spend"
    study = federated.merge(study, [federated.answer(study.plan, t, b, **how) for t, b, how in sites.values()])
    refuses(lambda: federated.answer(study.plan, t, b, **how), "fitted on", "of this site's images", "voids")
    assert federated.answer(study.plan, *sites["north"][:2], site="north").tables


def test_units_have_a_name_and_may_count_by_their_images():
    truth, band = data()
    local = np.array([f"{unit // 2:02d}" for count in COUNTS for unit in range(count)])
    sites = parts_of(truth, band, local)
    named = [f"{i} {unit}" for i, (a, b) in enumerate(pairwise(CUTS)) for unit in local[a:b]]
    for how in ({"unit_name": "patient"}, {"unit_name": "scan", "weighting": "images", "max_images": 2}):
        found, _ = rounds(sites, federated.begin(announced(sites), method=BY_BAND, risk_level=0.3, **how))
        units = pb.Units(named, how["unit_name"], **{x: how[x] for x in ("weighting", "max_images") if x in how})
        pooled = in_one_place(truth, band, risk_level=0.3, method=BY_BAND, units=units)
        assert found.to_bytes() == pooled.to_bytes()
        assert f"{how['unit_name']}s for certification" in found.guarantee


def test_what_numbers_stand_for_is_the_same_at_all_sites_and_kept():
    truth, band = data()
    window = pb.Measure.of_window((400, 40))
    sites = parts_of(truth, band, measure=window)
    found, plans = rounds(sites, federated.begin(announced(sites), risk_level=0.2, method="rcps"))
    assert found.measure == window
    t, b, _ = sites["east"]
    refuses(lambda: federated.answer(plans[0], t, b, site="east"), "measure", "None", "'east'")
    raw = federated.announce(t, b, site="east")
    refuses(lambda: federated.begin([announced(sites)[0], raw], risk_level=0.2), "measure", "None at 'east'")


# ---------------------------------------------------------------- what travels


def test_no_message_grows_with_the_pixels():
    """Tables have as many entries for large images as for small ones, and announcements hold a few bytes."""
    entries = []
    for size in (6, 12):
        truth, band = data(size=size)
        sites = parts_of(truth, band)
        first = announced(sites)
        assert sum(x.size for message in first for x in message.tables.values()) == 3 * 8
        plans = rounds(sites, federated.begin(first, method=BY_BAND, risk_level=0.2))[1]
        answers = [federated.answer(plan, *sites["north"][:2], site="north") for plan in plans]
        assert [plan.text["statistic"] for plan in plans] == ["cells", "occupied", "spend", "misses"]
        sizes = [max(x.size for x in message.tables.values()) for message in answers]
        entries.append(sizes[:1])
        points = plans[-1].tables["given.path.points"].shape[1]
        assert answers[-1].tables["missed"].shape == (COUNTS[0], points)
        assert not answers[-1].tables["missed"][plans[-1].tables["fitting.0"]].any()
        assert answers[-1].tables["image_hashes"].shape == (8,)
        assert answers[1].tables["occurs"].dtype == bool
    assert entries[0] == entries[1]


def test_plans_hold_no_table_of_another_site():
    truth, band = data()
    sites = parts_of(truth, band)
    _, plans = rounds(
        sites, federated.begin(announced(sites), method=BY_BAND, risk_level=0.2, bound="hoeffding_bentkus")
    )
    assert [plan.text["statistic"] for plan in plans][-2:] == ["misses", "arriving"]
    for plan in plans:
        kinds = {name.split(".")[0] for name in plan.tables}
        assert kinds == {"given", "fitting"}
        assert set(plan.text["given"]) <= {"spans", "grouping", "edges", "units", "path", "point"}


def test_a_fitting_image_and_a_certifying_image_tell_different_things():
    """Only fitting images enter fitting tables, only certifying images the rows of losses."""
    truth, band = data()
    sites = parts_of(truth, band)
    plans = rounds(sites, federated.begin(announced(sites), method=BY_BAND, risk_level=0.2))[1]
    t, b, how = sites["north"]
    fitting = plans[0].tables["fitting.0"].astype(bool)
    spoilt = t.copy()
    spoilt[fitting] = 1 - spoilt[fitting]
    before, after = (federated.answer(plans[-1], x, b, **how) for x in (t, spoilt))
    np.testing.assert_array_equal(before.tables["missed"], after.tables["missed"])
    spoilt = t.copy()
    spoilt[~fitting] = 1 - spoilt[~fitting]
    before, after = (federated.answer(plans[2], x, b, **how) for x in (t, spoilt))
    assert before.to_bytes() == after.to_bytes()
    assert federated.answer(plans[2], 1 - t, b, **how).to_bytes() != before.to_bytes()
