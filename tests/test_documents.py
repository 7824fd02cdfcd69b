"""Figures in documents are those of benchmarks/results, as the commands wrote them: none by hand, none left behind."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from pixelbounds.experiments.results_page import write_page

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["readme", "scale_page", "gpu.page", "tried"])
def test_a_page_shows_the_measured_figures(name, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    made = import_module(f"benchmarks.{name}")
    readme = import_module("benchmarks.readme")
    assert (ROOT / made.PAGE).read_text() == readme.with_figures(made.PAGE, made.BEGIN, made.text())


def test_the_page_of_results_is_that_of_the_kept_results(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    kept = import_module("benchmarks.readme").RESULTS
    assert write_page(kept, tmp_path / "results.md").read_text() == (ROOT / "docs/results.md").read_text()
