"""Plans: what the paper says is in them, they tell configurations apart, and mistakes are named."""

import re
from pathlib import Path

import pytest

from reproduce.experiment import EXPERIMENTS, load_experiment, miniature
from reproduce.rows import all_rows
from reproduce.summaries import published

PAPER = Path("/work/shared/paper/krcps.tex")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_protocol_is_the_papers(name):
    plan = load_experiment(name)
    faces = plan.published == "celeba"
    assert plan.name == name
    assert (plan.task.failure_prob, plan.task.samples) == (0.1, {"phantom": 19, "chest128": 39}.get(name, 128))
    narrow = faces or name == "chest128"
    assert (plan.task.risk_level, plan.task.miscoverage) == (0.10 if faces else 0.05, 0.10 if narrow else 0.20)
    assert (plan.draws.count, plan.draws.calibration) == (20, 640 if faces else 512)
    assert plan.draws.validation == {"faces64": 860, "chest128": 256}.get(name, 128)
    assert (plan.krcps.n_opt, plan.krcps.d_opt, plan.krcps.k) == ([128, 256], [50, 100, "all"], [4, 8, 32])
    gammas = plan.krcps.gamma_values
    assert (len(gammas), gammas[0], gammas[-1]) == (16, 0.3, 0.7)
    assert plan.process["sigma_0"] == (1.0 if faces else {"phantom": 0.2, "chest128": 0.3}.get(name, 0.4))
    assert plan.data.held_out >= plan.draws.calibration + plan.draws.validation
    assert miniature(plan).draws.count == 2
    assert plan.training["score"]["weighting"] == ("edm" if name in ("faces64", "ct64", "chest128") else "paper")


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
