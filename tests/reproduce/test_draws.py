"""Draws: rows are what `calibrate` gives, choices see no certifying image, and splits are clean."""

from functools import partial

import numpy as np
import pytest

import pixelbounds as pb
from pixelbounds.calibration.block import all_entries
from pixelbounds.calibration.confidence import greatest_loss
from pixelbounds.calibration.data import LocalData
from pixelbounds.calibration.families import additive
from pixelbounds.calibration.procedures import frontier, groups_for
from reproduce.draws import Draw, compute, schedule
from reproduce.experiment import KRCPSSection, load_experiment, miniature
from reproduce.fits import (
    Remembered,
    certify,
    choose_cell,
    cut,
    fit,
    fit_grid,
    krcps_method,
    measure,
    split_pairs,
)
from reproduce.material import load_material
from reproduce.rows import ALL_BOUNDS, PAPER_BOUNDS, all_rows

LEVEL, DELTA = 0.3, 0.1
GAMMAS = [0.3, 0.5, 0.7]


def grid_of(d_opt, k):
    return KRCPSSection(n_opt=[8], d_opt=d_opt, k=k, gammas=(0.3, 0.7, 3))


@pytest.fixture(scope="module")
def pairs(material):
    return LocalData(material.truth, material.band("calibrated"))


def same_as_calibrate(pairs, fitted, bound, **words):
    outcome = certify(fitted, bound, LEVEL, DELTA)
    found = pb.calibrate(
        pairs.truth, pairs.band, risk_level=LEVEL, failure_prob=DELTA, confidence=bound, seed=5, **words
    )
    np.testing.assert_array_equal(outcome.widening, found.widening)
    assert outcome.certifying == found.record.certifying
    interval, here = found.apply(pairs.band), measure(pairs, fitted.grouping, outcome.widening)
    assert here["length"] == pytest.approx(float(interval.length.mean(dtype=np.float64)), rel=1e-12)
    assert here["risk"] == pytest.approx(1 - interval.contains(pairs.truth).mean(), abs=1e-12)


@pytest.mark.parametrize("bound", PAPER_BOUNDS)
def test_shared_work_gives_what_calibrate_gives(pairs, bound):
    same_as_calibrate(pairs, fit(split_pairs(pairs, 0, 5), None, LEVEL), bound, method="rcps")
    for cell, fitted in fit_grid(pairs, [8, 12], grid_of([20, "all"], [2, 4]), LEVEL, 5):
        d_opt = None if cell["d_opt"] == "all" else cell["d_opt"]
        words = {"n_opt": cell["n_opt"], "k": cell["k"], "d_opt": d_opt, "gammas": GAMMAS}
        same_as_calibrate(pairs, fitted, bound, method="krcps", **words)


@pytest.mark.parametrize("bound", ALL_BOUNDS[:3])
def test_the_frontier_is_that_of_calibrate(pairs, bound):
    same_as_calibrate(pairs, fit(split_pairs(pairs, 8, 5), frontier, LEVEL), bound, n_opt=8)
    learned = fit(split_pairs(pairs, 8, 5), partial(frontier, groups="learned"), LEVEL)
    assert isinstance(learned.grouping, Remembered)
    same_as_calibrate(pairs, learned, bound, n_opt=8, groups="learned")


def test_units_are_certified_whole(pairs, material):
    parts = split_pairs(pairs, 3, 5, material.unit)
    assert set(material.unit[parts.split.fitting]).isdisjoint(parts.split.order)
    fitted = fit(parts, partial(frontier, groups=groups_for(3)), LEVEL)
    names = [f"{unit:03d}" for unit in material.unit]  # calibrate sorts units by name
    found = pb.calibrate(pairs.truth, pairs.band, risk_level=LEVEL, units=names, n_opt=3, seed=5, failure_prob=DELTA)
    np.testing.assert_array_equal(certify(fitted, "betting", LEVEL, DELTA).widening, found.widening)


def test_remembered_labels_are_the_groupings_own(pairs):
    grouping = fit(split_pairs(pairs, 8, 5), partial(frontier, groups="learned"), LEVEL).grouping
    for images in (np.arange(4), np.arange(20, 24), np.arange(4)):  # blocks of one size, others in content
        _, block = pairs.gather(images)
        np.testing.assert_array_equal(
            grouping.at(block, *all_entries(block)), grouping.inner.at(block, *all_entries(block))
        )


def test_the_choice_of_a_cell_sees_the_fitting_images_only(pairs):
    parts = split_pairs(pairs, 12, 5)
    grid = grid_of([20, "all"], [2, 4, 8])
    chosen, _ = choose_cell(parts, grid, PAPER_BOUNDS, LEVEL, DELTA)
    truth = pairs.truth.copy()
    truth[~parts.split.fitting] = 1 - truth[~parts.split.fitting]  # another world for the certifying images
    other = split_pairs(LocalData(truth, pairs.band), 12, 5)
    assert choose_cell(other, grid, PAPER_BOUNDS, LEVEL, DELTA)[0] == chosen
    assert set(chosen) == set(PAPER_BOUNDS)
    assert all(cell["n_opt"] == 12 for cell in chosen.values())


def test_the_cell_that_is_chosen_is_the_shortest_where_cells_differ_much(rng):
    """Half of the pixels need a widening, half need none: two groups beat one by far."""
    truth = rng.uniform(0.3, 0.7, (60, 8, 8))
    off = np.where(np.arange(64).reshape(8, 8) < 32, 0.2, 0.0) * rng.uniform(-1, 1, truth.shape)
    band = pb.Band(truth + off - 0.01, truth + off + 0.01)
    parts = split_pairs(LocalData(truth, band), 20, 0)
    chosen, _ = choose_cell(parts, grid_of(["all"], [1, 2]), PAPER_BOUNDS, 0.15, DELTA)
    assert {cell["k"] for cell in chosen.values()} == {2}


def test_a_cut_is_at_the_level_on_the_very_images(pairs):
    grouping, path = krcps_method({"k": 4, "d_opt": "all"}, GAMMAS)(pairs, np.arange(20), np.random.default_rng(0), 0.1)
    assert 0.099 < measure(pairs, grouping, cut(pairs, grouping, path, 0.1))["risk"] <= 0.1


def test_what_cannot_be_certified_is_everything(pairs):
    fitted = fit(split_pairs(pairs, 0, 5), None, 0.01)
    outcome = certify(fitted, "hoeffding", 0.01, DELTA)
    assert outcome.widening is None
    assert measure(pairs, fitted.grouping, outcome.widening, pairs.truth) == {"length": 1.0, "risk": 0.0, "fresh": 1.0}


def test_units_weigh_the_same_when_measured(pairs):
    fitted = fit(split_pairs(pairs, 0, 5), None, LEVEL)
    widening = np.array([0.01])
    unit = np.r_[0, np.ones(len(pairs) - 1, int)]
    alone = measure(pairs.take(np.arange(1)), fitted.grouping, widening)
    rest = measure(pairs.take(np.arange(1, len(pairs))), fitted.grouping, widening)
    both = measure(pairs, fitted.grouping, widening, unit_of=unit)
    assert both["risk"] == pytest.approx((alone["risk"] + rest["risk"]) / 2)


# ---------------------------------------------------------------- draws


def test_draws_are_disjoint_and_scans_stay_whole(plan, material):
    seen = set()
    for number in range(4):
        draw = Draw(plan, material, number)
        cal, val = draw.images
        assert (len(cal), len(val)) == (plan.draws.calibration, plan.draws.validation)
        assert not set(cal) & set(val)
        seen.add(tuple(val))
        first, last = draw.scans
        assert len(first) + len(last) == len(material)
        assert not set(material.unit[first]) & set(material.unit[last])
    assert len(seen) == 4


def test_every_row_of_the_table_is_computed(plan, material):
    records = [r for draw, group in schedule(plan, material) if draw == 0 for r in compute(plan, material, 0, group)]
    keys = {r["row"].replace("/krcps/", "/krcps_best/").replace("_few/", "_equal/") for r in records if "row" in r}
    assert keys == {row.key for row in all_rows(plan.scans.risk_levels)}
    assert {r["curve"] for r in records if "curve" in r} == {"calibration", "groups"}
    for r in records:
        assert 0 <= r["risk"] <= 1
        assert 0 < r["length"] <= 1
    oracle = {r["row"].split("/")[1]: r for r in records if r.get("row", "").endswith("/none")}
    assert oracle["oracle"]["risk"] <= plan.task.risk_level
    assert oracle["oracle"]["length"] <= oracle["oracle_cut"]["length"] <= oracle["oracle_bound"]["length"]
    certifying = next(r["certifying"] for r in records if r.get("row") == "calibrated/frontier/betting")
    assert oracle["oracle_bound"]["risk"] <= greatest_loss(certifying, plan.task.risk_level, plan.task.failure_prob)
    few = {r["row"]: r for r in records if r.get("row", "").endswith("/scan 0.2")}  # too few scans to fit on any
    assert few["calibrated/frontier/betting/scan 0.2"]["length"] == few["calibrated/rcps/betting/scan 0.2"]["length"]


def test_rows_without_their_arrays_are_left_out(plan, material):
    few = load_material({name: material[name] for name in ("truth", "lower", "upper")})
    groups = {group for _, group in schedule(plan, few)}
    assert groups == {"calibrated", "frontier", "featured", "by_calibration", "by_groups"}
    assert compute(plan, few, 0, "featured") == []


@pytest.mark.parametrize("change, message", [
    ({"upper": None}, "lacks upper"),
    ({"mean": np.zeros((3, 16, 16))}, "mean of material has shape"),
    ({"unit": np.zeros(3)}, "unit of material has shape"),
    ({"truth": np.full((48, 16, 16), 2.0)}, "outside the limits"),
    ({"lower": np.zeros((48, 16, 16), np.uint8)}, "must be floating"),
    ({"fresh": np.full((48, 16, 16), np.nan)}, "NaN"),
], ids=["missing", "shape", "unit", "range", "dtype", "nan"])  # fmt: skip
def test_wrong_material_is_refused(material, change, message):
    arrays = {**material.arrays, "unit": material.unit, **change}
    with pytest.raises(ValueError, match=message):
        load_material({name: x for name, x in arrays.items() if x is not None})


def test_material_reads_the_same_from_every_kind_of_file(material, tmp_path):
    import zarr

    arrays = {**material.arrays, "unit": material.unit}
    np.savez(tmp_path / "all.npz", **arrays)
    (tmp_path / "folder").mkdir()
    group = zarr.open_group(tmp_path / "all.zarr", mode="w")
    for name, x in arrays.items():
        np.save(tmp_path / "folder" / f"{name}.npy", x)
        group.create_array(name, data=x)
    (tmp_path / "folder" / "figures.json").write_text('{"score": {"steps": 7}}')
    found = [load_material(tmp_path / name) for name in ("all.npz", "folder", "all.zarr")]
    assert {m.digest for m in found} == {load_material(arrays).digest}
    assert found[1].figures == {"score": {"steps": 7}}
    arrays["lower"] = arrays["lower"] - np.float32(1e-3)
    assert load_material(arrays).digest != found[0].digest


def test_a_cap_on_images_is_what_calibrate_makes_of_it_and_is_what_is_measured(material):
    plan = miniature(load_experiment("chest128"))
    records = {record["row"]: record for record in compute(plan, material, 0, "scans")}
    levels, cap = plan.scans.risk_levels, plan.scans.cap
    assert len(records) == 3 * len(PAPER_BOUNDS) * len(levels)
    draw = Draw(plan, material, 0)
    first, last = draw.scans
    cal, val = draw.pairs("calibrated", first), draw.pairs("calibrated", last)
    names = [f"{unit:03d}" for unit in material.unit[first]]
    found = pb.calibrate(
        cal.truth, cal.band, promises=[pb.share(levels[-1], cap=cap)], units=names, failure_prob=DELTA, seed=draw.seed
    )
    interval = found.apply(val.band)
    missed = 1 - interval.contains(val.truth).reshape(len(last), -1).mean(axis=1)
    unit = material.unit[last]
    risk = np.mean([np.minimum(missed[unit == one], cap).mean() for one in np.unique(unit)])
    record = records[f"calibrated/frontier/betting/scan {levels[-1]:g} cap {cap:g}"]
    assert record["certified"]
    assert record["risk"] == pytest.approx(risk, abs=1e-12)
    assert record["certifying"] == found.promises[0].certifying


def test_rows_whose_arrays_are_missing_are_left_out(material):
    plan = miniature(load_experiment("chest128")).changed(frontier={"features": ["mean", "observation"]})
    few = ("truth", "observation", "lower", "upper", "mean")
    slim = load_material({**{name: material[name] for name in few}, "unit": material.unit})
    groups = {group for _, group in schedule(plan, slim)}
    assert groups == {"calibrated", "frontier", "featured", "scans", "by_calibration", "by_groups"}
    assert [record["row"] for record in compute(plan, slim, 0, "featured")] == ["calibrated/featured/betting"]
