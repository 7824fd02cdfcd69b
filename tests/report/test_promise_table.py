"""Promises on the page: each with its level, what was seen, who certified it, and a verdict that the interval bears."""

from dataclasses import replace

import numpy as np
import pytest
from report_world import promised_world
from test_page import data_of, decode, words_of

import pixelbounds as pb
from pixelbounds.calibration.text import description_of
from pixelbounds.demo.synthetic import flawed_samples, synthetic_images
from pixelbounds.evaluation.guarantee_check import judge
from pixelbounds.report.example import Example, examples_of
from pixelbounds.report.pack import REGIONS
from pixelbounds.report.promise_table import promise_rows
from pixelbounds.workflows.calibrate import calibrate_files
from pixelbounds.workflows.report import report_files
from pixelbounds.workflows.request import HeldOutFiles, ReportOptions, Request


def test_each_promise_has_a_row_with_all_that_is_known(tmp_path):
    this = promised_world()
    page = words_of(this.write(tmp_path / "a.html"))
    assert "All certified rows are promised together" in page
    assert len(description_of(this.calibration).clauses) == len(this.calibration.promises)
    assert this.calibration.guarantee in " ".join(page.split())  # a list on the page, one sentence to read
    for made, seen in zip(this.calibration.promises, this.evaluation.promises, strict=True):
        for words in (made.name, f"{100 * made.risk:.2f}%", f"by {made.certifying} images", f"on {seen.units} images"):
            assert words in page
    assert "images that miss more than 20% of its pixels" in page
    assert this.calibration.promises[2].certifying < this.calibration.record.certifying
    assert "the mean loss was" not in page
    assert "was not compared" not in page


def rows_of(this, evaluation):
    return promise_rows(this.calibration, evaluation, judge(evaluation, this.calibration), this.examples)


def test_a_verdict_is_what_the_interval_bears():
    this = promised_world()
    seen = this.evaluation.promises
    ends = {"kept": (0.0, 0.1), "undecided": (0.05, 0.11), "broken": (0.11, 0.2)}
    for verdict, interval in ends.items():
        changed = replace(seen[0], interval=interval, risk=interval[1], jointly=interval)
        evaluation = replace(this.evaluation, promises=(changed, *seen[1:]))
        assert changed.verdict == verdict
        assert rows_of(this, evaluation)[0]["verdict"].startswith(f"{verdict}: ")
        judged = judge(evaluation, this.calibration)
        assert (judged.broken, judged.verdict == "above the level of all pixels") == ((verdict == "broken"),) * 2
    alone = replace(seen[0], interval=(0.11, 0.2), risk=0.15, jointly=(0.09, 0.21))  # not so for all promises at once
    rows = rows_of(this, replace(this.evaluation, promises=(alone, *seen[1:])))
    assert rows[0]["verdict"].startswith("undecided: above the level, which chance")
    none = replace(seen[2], units=0, risk=np.nan)
    rows = rows_of(this, replace(this.evaluation, promises=(*seen[:2], none)))
    assert rows[2]["verdict"] == "undecided: no such image here"
    expected = replace(this, calibration=replace(this.calibration, bound="conformal"))
    assert {row["verdict"] for row in rows_of(expected, this.evaluation)} == {"not compared: see what is guaranteed"}


def test_regions_are_stored_by_the_bit_and_read_back(tmp_path):
    rng = np.random.default_rng(0)
    masks = {f"region {i}": rng.random((1, 8, 9)) < 0.5 for i in range(REGIONS + 2)}
    ends = np.zeros((1, 8, 9)), np.ones((1, 8, 9))
    promises = [pb.share(0.1, within=mask, name=name) for name, mask in masks.items()]
    promises.append(pb.tail(0.1, above=0.2, within=promises[0].within, name="region 0"))
    (example,) = examples_of(pb.Interval(*ends), [0], promises=promises)
    assert list(example.regions) == list(masks)
    (found,) = data_of(promised_world().write(tmp_path / "a.html", examples=[example]))["examples"]
    assert found["regions"] == list(example.regions)
    layers = [decode(found["layers"][f"regions_{i}"], (8, 9)).astype(int) for i in (0, 1)]
    for k, mask in enumerate(masks.values()):
        assert np.array_equal(layers[k // REGIONS] >> (k % REGIONS) & 1, mask[0])
    with pytest.raises(ValueError, match=r"region 'x' of example 'e' is bool \(3, 3\)"):
        Example("e", np.zeros((4, 4)), np.ones((4, 4)), regions={"x": np.ones((3, 3), bool)})


def test_a_page_of_files_outlines_what_is_promised_in_words(tmp_path):
    rng = np.random.default_rng(2)
    truth = synthetic_images(90, 12, rng).astype(np.float32)
    band = pb.calibrated_quantiles(flawed_samples(truth, 9, rng).astype(np.float32), 0.2)
    for name, images in (("old", slice(0, 60)), ("new", slice(60, None))):
        np.save(tmp_path / f"{name}.npy", truth[images])
        np.savez(tmp_path / f"{name}.npz", lower=band.lower[images], upper=band.upper[images])
    said = ["share:0.3", "share:0.4,within=edges:0.2"]
    cal = tmp_path / "cal.safetensors"
    calibrate_files(tmp_path / "old.npy", tmp_path / "old.npz", cal, Request(promises=said, method="rcps"))
    page = tmp_path / "page.html"
    files = HeldOutFiles(tmp_path / "new.npy", tmp_path / "new.npz", cal, promises=said)
    report_files(files, page, ReportOptions(title="Test", examples=30))
    (found,) = (x for x in data_of(page)["examples"] if x["name"] == "image 3")
    assert found["regions"] == ["edges"]
    outlined = decode(found["layers"]["regions_0"], (12, 12)).astype(bool)
    assert np.array_equal(outlined, pb.regions.edges(truth[63:64], top=0.2)[0])
    assert "Are the promises kept?" in words_of(page)
