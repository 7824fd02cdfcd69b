"""A calibration in words: each kind of promise, why one stands of which more was seen, what nobody can check."""

from types import SimpleNamespace

import numpy as np
import pytest

import pixelbounds as pb
from pixelbounds.calibration.promises import CertifiedPromise
from pixelbounds.calibration.text import description_of

LUCKY = 14  # of 60 seeds one of two in which early bets win and later images lose
LEVEL = 0.2


def coin_tosses(seed, n=100):
    """All pixels of an image are missed together, at a widening of a uniform law."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(0.5 + 0.4 * rng.random((n, 1)), 4, axis=1).reshape(n, 2, 2)
    return truth, pb.Band(np.full(truth.shape, 0.25), np.full(truth.shape, 0.5))


def calibrated(seed, **how):
    return pb.calibrate(*coin_tosses(seed), **{"risk_level": LEVEL, "method": "rcps", **how})


def test_more_was_seen_than_the_level_and_it_is_said_why():
    cal = calibrated(LUCKY)
    assert cal.risk > LEVEL
    assert cal.note.startswith("More was seen than the level (all pixels: 26% where 20% is promised)")
    assert "Seen above the level" in cal.note
    assert cal.note.split(":")[0] in cal._repr_html_()


@pytest.mark.parametrize("how", [{}, {"bound": "hoeffding_bentkus"}])
def test_nothing_is_said_where_less_was_seen(how):
    cal = calibrated(LUCKY + 1, **how)
    assert cal.risk <= LEVEL
    assert cal.note == ""


# ---------------------------------------------------------------- the clause of each kind of promise

OUTSIDE = "lie outside their intervals"
SAME = "each scan counts the same, however many images it has"
CAPPED = "each image counts the same, a scan of more than 7 images as one of 7"
SCANS = {"units": 60, "unit_name": "scan", "certifying": 60}
CLAUSES = [  # kind, place, weighting, what else the promise says, what the record says, the clause
    ("share", "all", "units", {}, {}, f"on average at most 5% of the pixels of a future image {OUTSIDE}"),
    ("share", "all", "units", {}, {"pixels": (3, 8, 8)},
     f"on average at most 5% of the values (each channel of a pixel is one) of a future image {OUTSIDE}"),
    ("share", "all", "units", {}, {"pixels": ()},
     "on average at most 5% of the values (each voxel, or channel of a pixel, is one) of a future image lie outside "
     "their intervals"),
    ("share", "all", "units", {}, {"pixels": (1,)},
     "on average at most 5% of future images have their value outside its interval"),
    ("share", "all", "units", {}, {"pixels": (1,), **SCANS},
     f"on average at most 5% of the images of a future scan have their value outside its interval ({SAME})"),
    ("share", "all", "units", {}, SCANS,
     "on average at most 5% of the pixels of a future scan, averaged over its images, lie outside their intervals "
     f"({SAME})"),
    ("share", "all", "images", {"most": 7.0}, SCANS,
     f"on average at most 5% of the pixels of a future image lie outside their intervals ({CAPPED})"),
    ("share", "region", "units", {"cap": 0.25}, {},
     f'on average at most 5% of the pixels of "heart" of a future image that has "heart" {OUTSIDE} (an '
     "image that misses more than 25% counts as one that misses 25%)"),
    ("share", "weights", "images", {"most": 7.0}, SCANS,
     'on average at most 5% of the weights of "heart" of a future image that has "heart" lie outside their intervals '
     f"({CAPPED.replace(' images as', ' such images as')})"),
    ("share", "region", "pixels", {"most": 900.0}, SCANS,
     'at most 5% of the pixels of "heart" of all future images, pooled, lie outside their intervals (a scan of more '
     "than 900 such pixels counts as one of 900)"),
    ("share", "subgroup", "units", {"certifying": 20}, SCANS,
     'on average at most 5% of the pixels of a future scan, averaged over its images in "heart", lie outside their '
     f"intervals ({SAME}, certified by 20 of them)"),
    ("tail", "all", "units", {"above": 0.1}, {}, "at most 5% of future images miss more than 10% of their pixels"),
    ("tail", "region", "units", {}, SCANS,
     'on average at most 5% of the images of a future scan that have "heart" miss any of the pixels of "heart" '
     f"({SAME})"),
    ("tail", "subgroup", "units", {"above": 0.1}, {},
     'at most 5% of future images in "heart" miss more than 10% of their pixels'),
    ("loss", "all", "units", {"at_most": 1 / 3}, {},
     'the loss "heart" of a future image is on average at most 0.333334'),
    ("loss", "region", "units", {"cap": 0.5}, SCANS,
     'the loss "heart" of a future scan, averaged over its images with its region, is on average at most 0.05 (an '
     f"image that loses more than 50% counts as one of 50%, {SAME})"),
]  # fmt: skip


@pytest.mark.parametrize("kind, place, weighting, more, known, clause", CLAUSES)
def test_what_a_promise_says(kind, place, weighting, more, known, clause):
    fields = {"name": "heart", "at_most": 0.05, "above": 0.0, "cap": 1.0, "most": 0.0, "risk": 0.01, "certifying": 60}
    promise = CertifiedPromise(**{"kind": kind, "place": place, "weighting": weighting, **fields, **more})
    cal = calibrated(0)
    record = SimpleNamespace(**{**vars(cal.record), "units": 0, "certifying": 60, "pixels": (8, 8), **known})
    words = description_of(FakeCalibration(cal, promises=(promise,), record=record))
    assert words.clauses == (f"{clause},",)
    assert clause in words.guarantee
    two = description_of(FakeCalibration(cal, promises=(promise, promise), record=record))
    assert two.clauses == (f"(1) {clause};", f"(2) {clause};")
    assert "all of these hold jointly:" in two.opening


class FakeCalibration:
    """A calibration with some attributes changed, also to what no method makes."""

    def __init__(self, calibration, **changes):
        self._calibration = calibration
        vars(self).update(changes)

    def __getattr__(self, name):
        return getattr(self._calibration, name)
