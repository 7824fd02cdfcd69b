"""Plans: what the paper says is in them, they tell configurations apart, and mistakes are named."""

import re
from pathlib import Path

import pytest

from reproduce.experiment import EXPERIMENTS, load_experiment, miniature
from reproduce.rows import all_rows
from reproduce.summaries import published

PAPER = Path("/work/shared/paper/krcps.tex")


OWN_SIZES = {  # samples, images that calibrate and that are measured, n_opt, d_opt: made on a GPU in minutes
    "faces128": (79, 384, 128, (64, 128), (100, "all")),
    "chest512": (39, 224, 96, (64,), (100, "all")),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_protocol_is_the_papers(name):
    plan = load_experiment(name)
    faces = plan.published == "celeba"
    samples = {"phantom": 19, "chest128": 39}.get(name, 128)
    validation = {"faces64": 860, "chest128": 256}.get(name, 128)
    sizes = OWN_SIZES.get(name, (samples, 640 if faces else 512, validation, (128, 256), (50, 100, "all")))
    draws, grid = plan.draws, plan.krcps
    assert plan.name == name
    assert plan.task.failure_prob == 0.1
    narrow = faces or name == "chest128"
    assert (plan.task.risk_level, plan.task.miscoverage) == (0.10 if faces else 0.05, 0.10 if narrow else 0.20)
    assert (plan.task.samples, draws.calibration, draws.validation, grid.n_opt, grid.d_opt) == sizes
    assert (draws.count, grid.k) == (20, (4, 8, 32))
    gammas = grid.gamma_values
    assert (len(gammas), gammas[0], gammas[-1]) == (16, 0.3, 0.7)
    assert plan.process["sigma_0"] == (1.0 if faces else {"phantom": 0.2, "chest128": 0.3}.get(name, 0.4))
    assert plan.data.held_out >= draws.calibration + draws.validation
    assert miniature(plan).draws.count == 2
    paper = name in ("phantom", "celeba", "abdomen")
    assert plan.training["score"]["weighting"] == ("paper" if paper else "edm")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"task": {"risk_level": 1}}, "plan.task.risk_level is 1.0, out of range"),
        ({"task": {"samples": 1.5}}, "plan.task.samples is 1.5; it must be int"),
        ({"krcps": {"d_opt": [50, "some"]}}, "plan.krcps.d_opt is 'some'"),
        ({"draws": {"counts": 3}}, "plan.draws lacks [], has unknown ['counts']"),
        ({"frontier": {"n_opt": 9999}}, "[frontier] n_opt is 9999, but there are 512 calibration images"),
    ],
)
def test_a_mistake_is_named(change, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        load_experiment("ct64").changed(**change)


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not on this machine")
def test_the_published_numbers_are_those_of_table_1():
    table = PAPER.read_text().split(r"\label{table:results}")[1].split(r"\end{table*}")[0]
    numbers = re.findall(r"\$(0\.\d+) \\pm (0\.\d+)\$\s*& \$(0\.\d+) \\pm (0\.\d+)\$", table)
    rows = [row for row in all_rows([]) if published(row, "celeba") is not None]
    assert len(numbers) == len(rows) == 9
    assert [row.band for row in rows] == [
        "qr", "dropout", "multiplicative", *["conffusion"] * 2, *["naive"] * 2, *["calibrated"] * 2,
    ]  # fmt: skip
    for row, found in zip(rows, numbers, strict=True):
        faces, ct = published(row, "celeba"), published(row, "abdomen")
        assert [*faces, *ct] == [float(x) for x in found]
