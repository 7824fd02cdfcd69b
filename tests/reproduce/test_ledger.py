"""A finished draw is never computed twice, an interrupted run goes on, and other configurations are told apart."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pixelbounds
from reproduce import ledger
from reproduce.draws import compute, schedule
from reproduce.material import load_material
from reproduce.results import load_results, run_experiment


@pytest.fixture
def small(material):
    return load_material({name: material[name] for name in ("truth", "lower", "upper", "qr_lower", "qr_estimate",
                                                            "qr_upper")})  # fmt: skip


@pytest.fixture
def computed(monkeypatch):
    """The parts that are computed, in order, and the function that counts them, which can be stopped."""
    calls = []

    def counted(plan, material, draw, group):
        if len(calls) == counted.stop:
            raise KeyboardInterrupt
        calls.append((draw, group))
        return compute(plan, material, draw, group)

    counted.stop = None
    monkeypatch.setattr(ledger, "compute", counted)
    return calls, counted


def plain(path):
    """Results without what may differ between two runs: times."""
    found = load_results(path)
    for record in found["records"]:
        record.pop("seconds")
    return found


def test_an_interrupted_run_goes_on_and_ends_as_an_uninterrupted_one(plan, small, computed, tmp_path):
    calls, counted = computed
    whole = plain(run_experiment(plan, small, tmp_path / "whole"))
    every = list(calls)
    assert every == schedule(plan, small)
    calls.clear()
    counted.stop = 4
    with pytest.raises(KeyboardInterrupt):
        run_experiment(plan, small, tmp_path / "cut")
    assert not (tmp_path / "cut" / "results.json").exists()
    counted.stop = None
    said = []
    again = plain(run_experiment(plan, small, tmp_path / "cut", tell=said.append))
    assert calls == every
    assert again == whole
    assert any("4 of" in line and "going on" in line for line in said)
    calls.clear()
    assert plain(run_experiment(plan, small, tmp_path / "cut")) == whole
    assert calls == []


def test_processes_give_what_one_gives(plan, small, tmp_path):
    np.savez(tmp_path / "material.npz", **small.arrays)
    stored, one = load_material(tmp_path / "material.npz"), plan.changed(draws={"count": 1})
    alone = plain(run_experiment(one, stored, tmp_path / "alone"))
    assert plain(run_experiment(one, stored, tmp_path / "shared", workers=2)) == alone


def test_another_configuration_or_material_is_told_apart(plan, small, material, computed, tmp_path):
    calls, _ = computed
    one = plan.changed(draws={"count": 1})
    first = plain(run_experiment(one, small, tmp_path))
    calls.clear()
    said = []
    run_experiment(one.changed(task={"risk_level": 0.35}), small, tmp_path, tell=said.append)
    assert len(calls) == len(schedule(one, small))
    assert any("other configurations" in line for line in said)
    changed = load_material({"truth": small.truth, "lower": small["lower"] - 0.01, "upper": small["upper"]})
    run_experiment(one, changed, tmp_path)
    calls.clear()
    assert plain(run_experiment(one, small, tmp_path)) == first  # the first is still there
    assert calls == []
    assert len(list(tmp_path.glob("draws-*"))) == 3


def test_the_digest_is_of_every_module_that_a_draw_needs():
    asked = "import sys, reproduce.draws; print(*(getattr(m, '__file__', 0) for m in sys.modules.values()))"
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    roots = Path(ledger.__file__).parent, Path(pixelbounds.__file__).parent
    loaded = {Path(x) for x in said.split() if any(Path(x).is_relative_to(root) for root in roots)}
    assert loaded - set(ledger.sources()) == {root / "__init__.py" for root in roots}
