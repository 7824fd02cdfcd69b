"""What a coordinator refuses of announcements, settings and study files, each with words that name what is wrong."""

import numpy as np
import pytest
from hospitals import BY_BAND, announced, data, edited, parts_of, regions_of, said, table, with_regions
from refusals import refuses

import pixelbounds as pb
from pixelbounds import federated
from pixelbounds.federated.messages import message_of

KEY = bytes(32)


# ---------------------------------------------------------------- announcements, at the coordinator


def tables(**new):
    return lambda text, tables: tables.update(new)


def without(name):
    return lambda text, tables: tables.pop(name)


ANNOUNCEMENTS = {  # change, words of the refusal
    "fewer than no images": (said(images=-5), "images -5"),
    "more images than anyone has": (said(images=10**12), "images 1000000000000"),
    "more pixels than memory": (said(pixels=[10**9, 10**9]), "pixels"),
    "limits that fall": (said(limits=[1, 0]), "limits [1, 0]"),
    "a name with a path": (said(site="<b>/../../x"), "site '<b>/../../x'"),
    "a missing field": (lambda text, tables: text.pop("family"), "lacks family"),
    "a region of no kind": (said(regions=[{"name": "edges", "place": "all"}]), "regions.0.place"),
    "other regions than tables": (said(regions=[{"name": "edges", "place": "region"}]), "must have"),
    "no units": (without("unit_of"), "must have"),
    "more units than images": (said(units=51), "(51, 16)"),
    "units out of range": (tables(unit_of=np.full(50, 10**9)), "at most 24"),
    "units without images": (tables(unit_of=np.zeros(50, int)), "have no image"),
    "sizes where all have one": (tables(sizes=np.ones(50, int)), "sizes"),
    "a digest in parts": (tables(image_hashes=np.zeros(8)), "image_hashes of float64"),
    "two units of one name": (tables(names=np.zeros((25, 16), int)), "one name"),
    "sizes below 0": (table("region_sizes", lambda x: x - 99), "region_sizes with the value"),
    "subgroups by number": (table("subgroups", lambda x: x.astype(int)), "subgroups of int64"),
}


@pytest.fixture(scope="module")
def keyed():
    truth, band = data()
    sites = with_regions(parts_of(truth, band), regions_of(truth))
    units = {"north": np.arange(50) // 2, "east": np.arange(7) + 100, "south": np.arange(63) + 200}
    return [federated.announce(t, b, units=units[name], unit_key=KEY, **how) for name, (t, b, how) in sites.items()]


@pytest.mark.parametrize("change, word", ANNOUNCEMENTS.values(), ids=ANNOUNCEMENTS)
def test_a_wrong_announcement_is_refused_by_field_and_value(keyed, change, word):
    wrong = edited(keyed[0], change)
    refuses(lambda: federated.begin([wrong, *keyed[1:]], risk_level=0.2), word)
    assert federated.begin(keyed, method=BY_BAND, risk_level=0.2).plan.tables


def test_sites_that_do_not_fit_together_are_refused_by_name_and_none_is_accused():
    sites = parts_of(*data())
    t, b, _ = sites["east"]
    north = federated.announce(*sites["north"][:2], site="north")
    made = [pb.Source("calibrated quantiles", samples=m, miscoverage=0.1, sampler="euler") for m in (19, 399)]
    for how, words in (
        ({"band": b, "site": "north"}, ["'north' announces itself twice"]),
        ({"band": b, "limits": (0, 2)}, ["limits", "'east'", "'north'", "cannot be known"]),
        ({"band": b, "units": np.arange(7)}, ["given units False at 'north', True at 'east'"]),
        ({"band": pb.Band(b.lower, b.upper, source="other")}, ["source: kind unknown at 'north', other at 'east'"]),
        ({"band": pb.Band(b.lower, b.upper, b.upper)}, ["family additive at 'north', scaled at 'east'"]),
        ({"band": b, "measure": pb.Measure.of_window((400, 40))}, ["measure None at 'north'"]),
        ({"band": b, "site": " "}, ["site ' '"]),
    ):
        refuses(lambda how=how: federated.begin(
            [north, federated.announce(t, **{"site": "east", **how})], risk_level=0.2), *words)  # fmt: skip
    pair = [federated.announce(t, pb.Band(b.lower, b.upper, source=x), site=f"s{x.samples}") for x in made]
    refuses(lambda: federated.begin(pair, risk_level=0.2), "source: samples 19 at 's19', 399 at 's399'",
            never=["miscoverage", "sampler"])  # fmt: skip


# ---------------------------------------------------------------- settings and study files, at the coordinator

SETTINGS = {  # arguments of begin, words of the refusal
    "krcps": ({"method": "krcps"}, ["krcps", "frontier, rcps"]),
    "learned groups": ({"method": pb.Frontier("learned")}, ["learned", "band"]),
    "a level of 2": ({"risk_level": 2.0}, ["risk_level is 2.0"]),
    "all images fit": ({"method": pb.RCPS(n_fit=120)}, ["n_fit is 120"]),
    "two levels": ({"promises": [pb.share(0.3)]}, ["either risk_level"]),
    "an unknown region": ({"risk_level": None, "promises": [pb.share(0.3, name="heart")]}, ["'heart'", "no region"]),
    "a region of its own": (
        {"risk_level": None, "promises": [pb.share(0.3, within=np.ones((120, 8, 8)))]}, ["regions are at the sites"]),
    "a loss": ({"risk_level": None, "promises": [pb.loss(0.3, lambda truth, interval: 0.0)]}, ["none travels"]),
    "images without units": ({"max_images": 2}, ["max_images"]),
    "an unknown weighting": ({"weighting": "pixels"}, ["weighting"]),
}  # fmt: skip


@pytest.mark.parametrize("how, words", SETTINGS.values(), ids=SETTINGS)
def test_settings_of_a_study_are_refused_by_name(worlds, how, words):
    refuses(lambda: federated.begin(announced(worlds["regions"][0]), **{"risk_level": 0.2, **how}), *words)


def test_a_study_file_is_checked_when_it_is_read_again(worlds, tmp_path):
    study, answers = worlds["plain"][1]["misses"]
    path = tmp_path / "study.safetensors"
    federated.merge(study, list(answers.values())).save(path)
    kept = federated.load(path)
    last = f"site.1.{kept.text['rounds']}"
    first = worlds["plain"][1]["cells"][1]["east"].to_bytes()
    wrong = edited(message_of(kept.tables[last].astype(np.uint8).tobytes()), table("missed", lambda x: x + 70))
    for change, word in (
        (table(last, lambda x: np.frombuffer(wrong.to_bytes(), np.uint8)), "than it has"),
        (table(last, lambda x: np.frombuffer(first, np.uint8)), "answers another plan"),
        (table(last, lambda x: x[:100]), "cut short"),
        (lambda text, tables: tables.pop(last), "incomplete"),
        (lambda text, tables: text["settings"].update(failure_prob=2.0), "failure_prob is 2.0"),
        (lambda text, tables: text["settings"].update(more=2.0), "'more'"),
        (lambda text, tables: text["settings"].update(promises=[3]), "unknown settings"),
        (lambda text, tables: text["settings"].update(bound="none"), "bound is 'none'"),
        (table("site.0.0", lambda x: x[:100]), "cut short"),
        (said(sites=9), "site.3"),
        (said(rounds=99), "rounds 99"),
    ):
        edited(kept, change).save(path)
        refuses(lambda: federated.load_study(path).plan, word)
