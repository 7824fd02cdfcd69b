"""What to cite for a calibration: works exist, every bound and method has its own, and only what was used is named."""

import re
from dataclasses import replace
from importlib.resources import files

import pytest

import pixelbounds as pb
from pixelbounds.calibration.bounds import BOUNDS
from pixelbounds.calibration.words import _WORKS
from pixelbounds.demo.synthetic import synthetic_pairs


@pytest.fixture(scope="module")
def calibration():
    truth, band, _ = synthetic_pairs(60, 8, 0)
    return pb.calibrate(truth, band, risk_level=0.2, method="rcps")


def keys(text):
    return set(re.findall(r"^@\w+\{(\w+),$", text, re.MULTILINE))


def test_what_was_used_is_cited_and_nothing_else(calibration):
    assert keys(calibration.citation()) == {
        "teneggi2023trust",
        "bates2021distribution",
        "waudbysmith2024estimating",
    }
    source = replace(calibration.record.source, sampler="mmps of ct, heun 12 steps")
    other = replace(
        calibration,
        method="krcps",
        bound="bentkus",
        promises=calibration.promises * 2,
        record=replace(calibration.record, source=source),
    )
    assert keys(other.citation()) == {
        "teneggi2023trust", "bentkus2004hoeffding", "angelopoulos2021learn", "rozet2024learning", "song2021score",
        "karras2022elucidating",
    }  # fmt: skip


def test_every_bound_has_a_work_and_every_work_is_whole():
    text = files("pixelbounds.calibration").joinpath("works.bib").read_text("utf-8")
    assert set(BOUNDS) <= set(_WORKS)
    assert {key for works in _WORKS.values() for key in works} <= keys(text)
    for work in text.split("\n\n"):
        assert all(f"  {field} " in work for field in ("title", "author", "year")), work
        assert work.count("{") == work.count("}")
