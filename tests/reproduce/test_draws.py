"""Draws: rows are what `calibrate` gives, choices see no certifying image, and splits are clean."""

import numpy as np
import pytest

import pixelbounds as pb
from pixelbounds.calibration.bounds import greatest_loss
from reproduce.draws import Draw, compute, schedule
from reproduce.experiment import KRCPSSection, load_experiment, miniature
from reproduce.fits import cells_of, certified, choose_cell, cut, fit, fit_on_all, krcps_of, measure
from reproduce.rows import ALL_BOUNDS, PAPER_BOUNDS, all_rows

LEVEL, DELTA = 0.3, 0.1
GAMMAS = [0.3, 0.5, 0.7]
TARGET = pb.Target([pb.share(LEVEL)], DELTA)


def grid_of(d_opt, k, n_opt=8):
    return KRCPSSection(n_opt=[n_opt], d_opt=d_opt, k=k, gammas=(0.3, 0.7, 3))


@pytest.fixture(scope="module")
def data(material):
    return pb.CalibrationData(material.truth, material.band("calibrated"))


METHODS = [pb.RCPS(), pb.Frontier(n_fit=8), pb.Frontier("learned", n_fit=8)]
METHODS += [krcps_of(cell, GAMMAS) for cell in cells_of(grid_of([20, "all"], [2, 4]), [8, 12])]


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_a_table_that_bounds_share_gives_what_calibrate_gives(data, method):
    fitted = fit(data, method, TARGET, 5)
    for bound in ALL_BOUNDS[:3]:
        found = pb.calibrate(
            data.truth, data.band, risk_level=LEVEL, failure_prob=DELTA, bound=bound, method=method, seed=5
        )
        widening = certified(fitted, bound).widening
        np.testing.assert_array_equal(widening, found.widening)
        assert fitted.certifying == found.record.certifying
    interval, here = found.apply(data.band), measure(data, fitted.path.grouping, widening)
    assert here["length"] == pytest.approx(float(interval.length.mean(dtype=np.float64)), rel=1e-12)
    assert here["risk"] == pytest.approx(1 - interval.contains(data.truth).mean(), abs=1e-12)


def test_the_choice_of_a_cell_sees_the_fitting_images_only(data):
    fitting = ~fit(data, pb.KRCPS(n_fit=12), TARGET, 5).table.images.images
    grid = grid_of([20, "all"], [2, 4, 8], 12)
    chosen, _ = choose_cell(data, grid, PAPER_BOUNDS, TARGET, 5)
    truth = np.where(fitting[:, None, None], data.truth, 1 - data.truth)  # another world for the certifying images
    other = pb.CalibrationData(truth, data.band)
    assert choose_cell(other, grid, PAPER_BOUNDS, TARGET, 5)[0] == chosen
    assert set(chosen) == set(PAPER_BOUNDS)


def test_a_cut_is_at_the_level_on_the_very_images(data):
    path = fit_on_all(data, krcps_of({"n_opt": None, "k": 4, "d_opt": "all"}, GAMMAS), TARGET, 0)
    assert 0.099 < measure(data, path.grouping, cut(data, path, 0.1))["risk"] <= 0.1


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


@pytest.mark.parametrize("cap", [None, 0.8])
def test_scans_are_what_calibrate_makes_of_them_and_a_cap_is_what_is_measured(material, cap):
    plan = miniature(load_experiment("chest128")).changed(scans={"cap": cap})
    records = {record["row"]: record for record in compute(plan, material, 0, "scans")}
    level = plan.scans.risk_levels[-1]
    assert len(records) == 3 * len(PAPER_BOUNDS) * len(plan.scans.risk_levels)
    draw = Draw(plan, material, 0)
    first, last = draw.scans
    cal, val = draw.data("calibrated", first), draw.data("calibrated", last)
    names = [f"{unit:03d}" for unit in material.unit[first]]
    promises = [pb.share(level, cap=cap)]
    found = pb.calibrate(cal.truth, cal.band, promises=promises, units=names, failure_prob=DELTA, seed=draw.seed)
    missed = 1 - found.apply(val.band).contains(val.truth).reshape(len(last), -1).mean(axis=1)
    unit = material.unit[last]
    risk = np.mean([np.minimum(missed[unit == one], cap or 1).mean() for one in np.unique(unit)])
    record = records[f"calibrated/frontier/betting/scan {level:g}" + (f" cap {cap:g}" if cap else "")]
    assert record["certified"]
    assert record["risk"] == pytest.approx(risk, abs=1e-12)
    assert record["certifying"] == found.promises[0].certifying
