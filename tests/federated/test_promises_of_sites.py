"""Promises across sites: regions stay with the images, and what is certified is that of one place, byte for byte."""

from itertools import pairwise

import numpy as np
import pytest
from hospitals import (
    COUNTS,
    CUTS,
    NAMES,
    announced,
    answers_of,
    data,
    edited,
    in_one_place,
    parts_of,
    refuses,
    rounds,
    said,
    studies_of,
    table,
)
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds import federated
from pixelbounds.federated import suppression

LEAST = 5


def regions_of(truth):
    """Masks that overlap, one of them rare, weights, and a subgroup of whole images."""
    n = len(truth)
    edges = pb.regions.edges(truth, top=0.3)
    rare = np.zeros(truth.shape, bool)
    rare[::2, 2:5, 2:5] = True
    return {"edges": edges, "rare": rare, "weights": np.abs(truth - 0.5), "women": np.arange(n) % 3 > 0}


def asked(regions=None):
    """Promises by name, or with the regions themselves."""

    def within(name):
        return {"name": name} | ({} if regions is None else {"within": regions[name]})

    return [
        pb.share(0.3),
        pb.share(0.4, **within("edges")),
        pb.tail(0.5, above=0.5, **within("rare")),
        pb.share(0.4, **within("weights")),
        pb.share(0.4, cap=0.8, **within("women")),
    ]


def with_regions(sites, regions):
    """Each site with its own part of the regions."""
    parts = ({name: values[a:b] for name, values in regions.items()} for a, b in pairwise(CUTS))
    return {name: (t, b, how | {"regions": own}) for (name, (t, b, how)), own in zip(sites.items(), parts, strict=True)}


CASES = {
    "frontier": ("plain", {"k": 3}),
    "no limits": ("centred", {"limits": None, "confidence": "hoeffding_bentkus", "k": 3}),
    "rcps": ("plain", {"method": "rcps", "seed": 2}),
}


@pytest.mark.parametrize("kind, how", CASES.values(), ids=CASES)
def test_promises_of_three_sites_equal_one_place_byte_for_byte(kind, how):
    truth, band = data(kind)
    regions = regions_of(truth)
    how = {"failure_prob": 0.2, **how}
    limits = how.pop("limits", (0.0, 1.0))
    sites = with_regions(parts_of(truth, band, limits=limits), regions)
    groups = {} if how.get("method") else {"groups": "band"}
    pooled = in_one_place(truth, band, promises=asked(regions), limits=limits, **groups, **how)
    found, plans = rounds(sites, federated.begin(announced(sites), groups="band", promises=asked(), **how))
    assert found.to_bytes() == pooled.to_bytes()
    fitted = {"rcps": []}.get(how.get("method"), ["spend", "missed_cells"])
    assert [plan.text["statistic"] for plan in plans][-len(fitted) - 1 :] == [*fitted, "regional_misses"]
    assert [about["name"] for about in plans[-1].text["regions"]] == ["edges", "rare", "weights"]
    assert "women" in found.guarantee


def test_units_pixels_and_images_of_regions_count_as_in_one_place(tmp_path):
    truth, band = data()
    regions = {"edges": regions_of(truth)["edges"], "rare": regions_of(truth)["rare"]}
    local = np.concatenate([np.arange(count) // 2 for count in COUNTS]).astype(str)
    named = [f"{i} {unit}" for i, (a, b) in enumerate(pairwise(CUTS)) for unit in local[a:b]]
    sites = with_regions(parts_of(truth, band, local), regions)

    def promises(given):
        pooled = [pb.share(0.5, name="edges", weighting="pixels"), pb.share(0.6, name="rare", weighting="images")]
        return [pb.Promise(**{**vars(p), "within": given[p.name] if given else None}) for p in pooled]

    how = {"failure_prob": 0.3, "k": 2}
    study = federated.begin(announced(sites), groups="band", promises=promises(None), **how)
    study.save(tmp_path / "study.safetensors")
    found, _ = rounds(sites, federated.load_study(tmp_path / "study.safetensors"))
    pooled = in_one_place(truth, band, promises=promises(regions), units=named, groups="band", **how)
    assert found.to_bytes() == pooled.to_bytes()


def test_images_of_different_sizes_keep_their_regions():
    rng = np.random.default_rng(0)
    made = {name: heteroscedastic(count, rng, size=s) for name, count, s in zip(NAMES, COUNTS, (8, 6, 11), strict=True)}
    sites = {name: (t, b, {"site": name, "regions": {"edges": t > 0.5}}) for name, (t, b) in made.items()}
    truth = [image for t, _ in made.values() for image in t]
    edges = [image > 0.5 for image in truth]
    found, _ = rounds(
        sites, federated.begin(announced(sites), groups="band", promises=[pb.share(0.3, name="edges")], k=3)
    )
    promises = [pb.share(0.3, within=edges, name="edges")]
    pooled = in_one_place(truth, [b for _, b in made.values()], promises=promises, groups="band", k=3)
    assert found.to_bytes() == pooled.to_bytes()


# ---------------------------------------------------------------- small counts


@pytest.fixture(scope="module")
def coarse():
    truth, band = data()
    regions = {name: values for name, values in regions_of(truth).items() if name != "weights"}
    sites = with_regions(parts_of(truth, band, least_count=LEAST), regions)
    promises = [pb.share(0.5), pb.share(0.7, name="edges"), pb.tail(0.7, above=0.9, name="rare")]
    begun = federated.begin(announced(sites), groups="band", promises=promises, failure_prob=0.2, k=2)
    return sites, studies_of(sites, begun), begun


def test_shares_of_regions_are_never_told_too_small_and_no_image_by_itself(coarse):
    sites, studies, _ = coarse
    seen = {name: answers_of(sites, study.plan) for name, study in studies.items()}
    for name, (truth, band, how) in sites.items():
        rows, sizes, *_ = (seen["regional_misses"][name].tables[j] for j in "0123")
        assert (sizes[:, 1:] % LEAST == 0).all()
        certifying = ~studies["cells"].plan.tables[f"fitting.{NAMES.index(name)}"]
        exact = np.stack([how["regions"][x].reshape(len(truth), -1).sum(axis=1) for x in ("edges", "rare")], axis=1)
        assert ((sizes[:, 1:] > 0) == (exact[certifying] > 0)).all()
        told = rows.reshape(*sizes.shape, -1)[:, 1:] / np.maximum(sizes[:, 1:, None], 1)
        plan = edited(studies["regional_misses"].plan, lambda text, _: [s.update(least_count=1) for s in text["sites"]])
        honest = federated.answer(plan, truth, band, **{**how, "least_count": 1})
        true = honest.tables["0"].reshape(*sizes.shape, -1)[:, 1:] / np.maximum(honest.tables["1"][:, 1:, None], 1)
        assert (told >= true).all()
        assert (told > true).any()
        if seen["missed_cells"][name].tables:
            counts, key, weights, _ = (seen["missed_cells"][name].tables[j] for j in "0123")
            assert len(set(counts.tolist())) == 1
            pooled = np.stack([np.bincount(key, x) for x in weights.T])
            assert pooled[0].any()
            assert np.abs(pooled - LEAST * np.rint(pooled / LEAST)).max() < 1e-9


def test_small_counts_are_certified_and_what_cannot_be_is_refused(coarse):
    sites, _, begun = coarse
    found, _ = rounds(sites, begun)
    assert found.record.settings == {"least_count": dict.fromkeys(NAMES, LEAST)}
    pixels = [pb.share(0.5, name="edges", weighting="pixels")]
    refuses(lambda: federated.begin(announced(sites), promises=pixels), "pools pixels", "'north'", "least_count")
    t, b, _ = sites["east"]
    weights = {"weights": np.abs(t - 0.5)}
    refuses(lambda: federated.announce(t, b, site="east", regions=weights, least_count=2), "weights", "least_count")
    np.testing.assert_array_equal(suppression.told_sizes(np.array([0, 1, 5, 9, 10]), 5), [0, 5, 5, 5, 10])


# ---------------------------------------------------------------- what is refused


@pytest.fixture(scope="module")
def world():
    truth, band = data()
    sites = with_regions(parts_of(truth, band), regions_of(truth))
    studies = studies_of(
        sites, federated.begin(announced(sites), groups="band", promises=asked(), failure_prob=0.2, k=2)
    )
    return sites, {name: (study, answers_of(sites, study.plan)) for name, study in studies.items()}


def backwards(x):
    """Misses of each of four regions, from the wide end on."""
    return x.reshape(len(x), 4, -1)[:, :, ::-1].reshape(x.shape).copy()


IMPOSSIBLE = {  # question, change, words of the refusal
    "misses beyond a region": ("regional_misses", table("0", lambda x: x + 70), "than its regions have"),
    "misses that grow": ("regional_misses", table("0", backwards), "widen"),
    "misses that are NaN": ("regional_misses", table("0", lambda x: x * np.nan), "NaN"),
    "other sizes": ("regional_misses", table("1", lambda x: x + 1), "other sizes"),
    "other regions": ("regional_misses", table("3", lambda x: x + 1), "other regions"),
    "other images": ("regional_misses", table("2", lambda x: x + 1), "other images"),
    "misses of one region": ("regional_misses", table("0", lambda x: x[:, :9]), "shape"),
    "cells that are not listed": ("missed_cells", table("1", lambda x: x[1:]), "lists"),
    "cells that nobody has": ("missed_cells", table("1", lambda x: x + 10**9), "a cell 1000"),
    "cells below 0": ("missed_cells", table("1", lambda x: x - 10**9), "impossible"),
    "more in cells than in regions": ("missed_cells", table("2", lambda x: x + 65), "than its regions have"),
    "sizes of other regions": ("missed_cells", table("3", lambda x: x[::-1] + 1), "other sizes"),
}


@pytest.mark.parametrize("question, change, word", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_tables_of_regions_that_cannot_be_are_refused_by_name(world, question, change, word):
    study, answers = world[1][question]
    bad = {**answers, "south": edited(answers["south"], change)}
    refuses(lambda: federated.merge(study, list(bad.values())), "'south'", word, never=["'north'", "'east'"])


def test_regions_must_be_those_that_were_announced(world):
    sites, studies = world
    study, _ = studies["regional_misses"]
    t, b, how = sites["east"]

    def answer(**regions):
        return federated.answer(study.plan, t, b, site="east", regions={**how["regions"], **regions})

    refuses(lambda: federated.answer(study.plan, t, b, site="east"), "'edges' (region)", "has none", "'east'")
    refuses(lambda: answer(rare=np.ones(t.shape)), "'rare' (region)", "has weights")
    moved = np.roll(how["regions"]["rare"], 1, axis=2)
    others = [federated.answer(study.plan, *sites[name][:2], **sites[name][2]) for name in ("north", "south")]
    refuses(lambda: federated.merge(study, [*others, answer(rare=moved)]), "'east'", "other regions")
    told = announced(sites)
    for change, words in (
        (said(regions=[{"name": "edges", "place": "region"}]), ["should have"]),
        (said(regions=[{"name": "edges", "place": "all"}]), ["regions.0.place"]),
        (table("region_sizes", lambda x: x - 1), ["region_sizes", "below 0"]),
        (table("region_sizes", lambda x: x[:, :1]), ["region_sizes", "shape"]),
        (table("subgroups", lambda x: x.astype(int)), ["subgroups"]),
    ):
        bad = [edited(told[0], change), *told[1:]]
        refuses(lambda bad=bad: federated.begin(bad, promises=asked()), "'north'" if "regions" not in words[0] else "",
                *words)  # fmt: skip


def test_promises_are_about_regions_that_all_sites_have(world):
    sites, _ = world
    told = announced(sites)

    def begin(*promises, **how):
        return lambda: federated.begin(told, groups="band", promises=list(promises), **how)

    refuses(begin(pb.share(0.3, name="heart")), "'heart'", "'north'", "announced no region")
    refuses(begin(pb.share(0.3, within=np.ones((120, 8, 8)))), "regions are at the sites", "within")
    refuses(begin(pb.loss(0.3, lambda truth, interval: np.zeros(len(truth)))), "is a function", "none travels")
    refuses(begin(pb.share(0.3), risk_level=0.2), "either risk_level")
    t, b, how = sites["east"]
    other = federated.announce(t, b, site="east", regions={**how["regions"], "rare": np.ones(t.shape)})
    mixed = [told[0], other, told[2]]
    refuses(lambda: federated.begin(mixed, promises=asked()), "'rare' is a region at site 'north'", "weights at 'east'")
    refuses(lambda: federated.announce(t, b, site="east", regions={"all pixels": t > 0}), "another name")
    refuses(lambda: federated.announce(t, b, site="east", regions=[t > 0]), "by the name", error=TypeError)
    refuses(lambda: federated.announce(t, b, site="east", regions={"edges": t[1:] > 0}), "region 'edges'", "shape")
    short = federated.begin(told, groups="band", promises=[pb.share(0.2)])
    assert short.id == federated.begin(told, groups="band", risk_level=0.2).id
