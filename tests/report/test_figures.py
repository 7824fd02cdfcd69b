"""Figures for papers: real files, the same bytes each time, named by what they show."""

import numpy as np
from PIL import Image
from report_world import pictures_of, world

from pixelbounds.report.figures import save_figures


def test_figures_are_vector_charts_and_pictures_and_repeat(tmp_path):
    this = world()
    examples = [this.examples[1], pictures_of((3, 8, 9)), pictures_of((5, 8, 9))]
    parts = {"calibration": this.calibration, "evaluation": this.evaluation}
    first = save_figures(tmp_path / "a", examples=examples, **parts)
    charts = ("path", "units", "by-length", "by-edge", "by-group")
    assert {x.name for x in first} == {f"{name}.{kind}" for name in charts for kind in ("pdf", "svg")} | {
        f"example-0{i}.png" for i in (1, 2, 3)
    }
    assert sorted(first) == sorted((tmp_path / "a").iterdir())
    for path in first:
        assert path.read_bytes().startswith({"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}[path.suffix[1:]])
    picture = np.asarray(Image.open(tmp_path / "a" / "example-01.png").convert("RGB"))
    assert np.ptp(picture) > 200
    few = {**parts, "evaluation": None, "examples": examples[:1]}
    again = [save_figures(tmp_path / name, **few) for name in ("b", "c")]
    assert [x.name for x in again[0]] == ["path.pdf", "path.svg", "example-01.png"]
    assert [x.read_bytes() for x in again[0]] == [x.read_bytes() for x in again[1]]
