"""Tables, figures and the page say what the JSON says."""

import json

import pytest
from typer.testing import CliRunner

from reproduce.__main__ import app
from reproduce.experiment import load_experiment
from reproduce.image_figures import draw_pictures
from reproduce.result_figures import draw_charts, losses
from reproduce.results import load_results, run_experiment
from reproduce.results_page import write_pages
from reproduce.summaries import difference_markdown, latex, markdown, summaries

CELLS = [{"n_opt": n, "d_opt": "all", "k": k} for n in (128, 256) for k in (4, 8)]


def record(draw, row, length, risk=0.04, **more):
    return {"draw": draw, "row": row, "length": length, "risk": risk, "fresh": 0.9, "certified": True, "moved": True,
            "certifying": 9, "groups": "24 band", "seconds": 0.5, **more}  # fmt: skip


@pytest.fixture
def made():
    """Ten draws in which all numbers are known: one cell is best, frontier is 20% shorter in every draw."""
    records = []
    for draw in range(10):
        base = 0.2 + 0.001 * draw
        for i, cell in enumerate(CELLS):
            length = base + 0.01 * (i - 2) ** 2
            records.append(record(draw, "calibrated/krcps/hoeffding_bentkus", length, cell=cell))
        records.append(record(draw, "calibrated/krcps_chosen/hoeffding_bentkus", base + 0.01, cell=CELLS[0]))
        risk = 0.06 if draw == 3 else 0.05 if draw == 4 else 0.04
        records.append(record(draw, "calibrated/frontier/betting", 0.8 * base, risk))
        records.append(record(draw, "calibrated/frontier/hoeffding", 1.0, 0.0, certified=draw > 2))
        records.append(record(draw, "calibrated/oracle_bound/none", 0.79 * base))
        records.append(record(draw, "calibrated/oracle_cut/none", 0.78 * base))
        records.append(record(draw, "calibrated/oracle/none", 0.75 * base))
    configuration = load_experiment("ct64").as_dict()
    material = {"digest": "0" * 64, "images": 768, "units": 72, "pixels": [64, 64], "arrays": [], "figures": {}}
    return {
        "format": 2, "experiment": "ct64", "configuration": configuration, "seed": 0, "material": material,
        "made": {"commits": ["abc"], "versions": {"numpy": ["2"]}}, "machine": {"cpu": "x", "cores": 2},
        "records": records, "curves": [],
    }  # fmt: skip


def by_key(made):
    return {s.row.key: s for s in summaries(made)}


def test_draws_above_counts_risks_beyond_the_level_only(made):
    assert by_key(made)["calibrated/frontier/betting"].above == 0.1  # 0.06 is above 0.05, 0.05 is not
    assert by_key(made)["calibrated/frontier/hoeffding"].uncertified == 3


def test_tables_hold_every_row_and_the_papers_numbers(made):
    text, tex = markdown(made), latex(made)
    columns = {line.count("|") for line in text.splitlines()}
    assert columns == {13}
    assert "**0.2045 ± 0.0030** | 0.0400 | 0% | 90.0% | 2 | 0.1369 ± 0.0016 |" in text
    assert "(3 not certified)" in text
    assert tex.count(r"\\") == len(summaries(made)) + len({s.row.section for s in summaries(made)}) + 1
    assert tex.count(" & ") == 11 * (len(summaries(made)) + 1)
    assert r"$0.1" not in tex
    assert r"\checkmark" in tex
    assert "| -20.0% |" in difference_markdown(made)


def test_the_page_states_gain_control_and_limit(made, tmp_path):
    (tmp_path / "results.json").write_text(json.dumps(made))
    head, page, details = (path.read_text() for path in write_pages([tmp_path], tmp_path / "docs"))
    text = page
    assert "**Frontier with betting is 20.0% shorter (95% interval 20.0% to 20.0%) than K-RCPS with Hoeffding" in text
    assert "the best of its grid** (n_opt 128 or 256): 0.1636 against 0.2045, shorter in 10 of 10 draws." in text
    assert "in 90% of the draws" in text
    assert "at least 14% shorter: met; at least 90% of the draws with their risk controlled: met" in details
    assert "would give 0.1595 (-2.5%)" in text
    assert "33.3% above that limit" in text
    for reason in load_experiment("ct64").differences.values():
        assert reason in details
    assert "overlap" in head
    assert "| -20.0% |" in details
    ran = CliRunner().invoke(app, ["page", str(tmp_path), "--out", str(tmp_path / "again")])
    assert ran.exit_code == 0
    assert (tmp_path / "again/results/ct64.md").read_text() == page
    with pytest.raises(ValueError, match="no results"):
        write_pages([], tmp_path / "none")


def test_figures_are_drawn_from_results_and_material(plan, material, tmp_path):
    results = load_results(run_experiment(plan, material, tmp_path))
    charts = draw_charts(results, tmp_path / "figures")
    shown = draw_pictures(plan, material, tmp_path / "figures")
    names = {path.stem for path in charts + shown}
    assert names == {
        "motivation", "losses", "risk", "length", "length_by_calibration", "length_by_groups", "calibrated_quantiles",
        "quantile_regression", "samples", "forward_sde", "widening_maps",
    }  # fmt: skip
    for path in charts + shown:
        start = path.read_bytes()[:4]
        assert start == (b"%PDF" if path.suffix == ".pdf" else b"\x89PNG")
    before = [path.read_bytes() for path in charts if path.stem == "losses"]
    assert [path.read_bytes() for path in losses(tmp_path / "figures")] == before
