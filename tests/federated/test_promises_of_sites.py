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
    regions_of,
    rounds,
    studies_of,
    with_regions,
)
from refusals import refuses

import pixelbounds as pb
from pixelbounds import federated
from pixelbounds.federated.questions import reported_sizes
from pixelbounds.federated.sites import Site

LEAST = 5


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


CASES = {
    "frontier": ("plain", {}),
    "no limits": ("centred", {"limits": None, "bound": "hoeffding_bentkus"}),
    "rcps": ("plain", {"method": "rcps", "seed": 2}),
}


@pytest.mark.parametrize("kind, how", CASES.values(), ids=CASES)
def test_promises_of_three_sites_equal_one_place_byte_for_byte(kind, how):
    truth, band = data(kind)
    regions = regions_of(truth)
    how = {"failure_prob": 0.2, "method": pb.Frontier("band", 3), **how}
    limits = how.pop("limits", (0.0, 1.0))
    sites = with_regions(parts_of(truth, band, limits=limits), regions)
    pooled = in_one_place(truth, band, promises=asked(regions), limits=limits, **how)
    found, plans = rounds(sites, federated.begin(announced(sites), promises=asked(), **how))
    assert found.to_bytes() == pooled.to_bytes()
    fitted = [] if how["method"] == "rcps" else ["spend", "missed_cells"]
    assert [plan.text["statistic"] for plan in plans][-len(fitted) - 1 :] == [*fitted, "misses"]
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

    how = {"failure_prob": 0.3, "method": pb.Frontier("band", 2)}
    study = federated.begin(announced(sites), promises=promises(None), **how)
    study.save(tmp_path / "study.safetensors")
    found, _ = rounds(sites, federated.load_study(tmp_path / "study.safetensors"))
    pooled = in_one_place(truth, band, promises=promises(regions), units=named, **how)
    assert found.to_bytes() == pooled.to_bytes()


# ---------------------------------------------------------------- small counts


@pytest.fixture(scope="module")
def coarse():
    truth, band = data()
    regions = {name: values for name, values in regions_of(truth).items() if name != "weights"}
    sites = with_regions(parts_of(truth, band, least_count=LEAST), regions)
    promises = [pb.share(0.5), pb.share(0.7, name="edges"), pb.tail(0.7, above=0.9, name="rare")]
    begun = federated.begin(announced(sites), method=pb.Frontier("band", 2), promises=promises, failure_prob=0.2)
    return sites, studies_of(sites, begun), begun


def test_shares_of_regions_are_never_reported_too_small_and_no_image_by_itself(coarse):
    sites, studies, _ = coarse
    seen = {name: answers_of(sites, study.plan) for name, study in studies.items()}
    for name, (truth, band, how) in sites.items():
        reported = seen["misses"][name].tables
        certifying = ~studies["cells"].plan.tables[f"fitting.{NAMES.index(name)}"]
        sizes = Site(federated.announce(truth, band, **how)).answering(("edges", "rare"), certifying).sizes
        rows = reported["missed"][certifying]
        assert (sizes[:, 1:] % LEAST == 0).all()
        exact = np.stack([how["regions"][x].reshape(len(truth), -1).sum(axis=1) for x in ("edges", "rare")], axis=1)
        assert ((sizes[:, 1:] > 0) == (exact[certifying] > 0)).all()
        told = rows.reshape(*sizes.shape, -1)[:, 1:] / np.maximum(sizes[:, 1:, None], 1)
        plan = edited(studies["misses"].plan, lambda text, _: [s.update(least_count=1) for s in text["sites"]])
        honest = federated.answer(plan, truth, band, **{**how, "least_count": 1})
        true = honest.tables["missed"][certifying].reshape(*sizes.shape, -1)[:, 1:]
        true = true / np.maximum(exact[certifying][:, :, None], 1)
        assert (told >= true).all()
        assert (told > true).any()
        if seen["missed_cells"][name].tables:
            pooling = seen["missed_cells"][name].tables
            assert len(set(pooling["counts"].tolist())) == 1
            pooled = np.stack([np.bincount(pooling["cells"], x) for x in pooling["weights"].T])
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
    np.testing.assert_array_equal(reported_sizes(np.array([0, 1, 5, 9, 10]), 5), [0, 5, 5, 5, 10])
