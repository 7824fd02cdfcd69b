"""A calibration that could not be, or a file that is foreign, cut short or edited, is refused.

Whoever edits a file can seal it again, so the checksum does not help: what the file holds is looked at: when it is
read, when a calibration is made by hand, and when it is written.
"""

import struct

import numpy as np
import pytest
from edits import contents, resealed
from flat import flat_calibrate
from refusals import data, refuses
from safetensors.numpy import save as save_tensors

import pixelbounds as pb
from pixelbounds.calibration.calibration_file import calibration_from_bytes
from pixelbounds.calibration.losses import l01 as ours
from pixelbounds.images.measure import Measure

HOW = pb.Source("calibrated quantiles", samples=19, miscoverage="1/10")
MADE = {
    "rcps": {"method": "rcps", "bound": "hoeffding_bentkus"},
    "krcps": {"method": "krcps"},
    "band": {"groups": "band"},
    "units": {"method": "rcps", "units": np.arange(60) // 2, "risk_level": 0.3},
}
GONE = object()  # the value of what is taken away
NAN = float("nan")


@pytest.fixture(scope="module")
def made():
    truth, band = data()
    band = pb.Band(band.lower, band.upper, source=HOW)
    measure = Measure.of_window((400, 40))
    return {
        name: flat_calibrate(truth, band, measure=measure, **{"risk_level": 0.2, **how}) for name, how in MADE.items()
    }


@pytest.fixture(scope="module")
def content(made):
    return made["krcps"].to_bytes()


def edited(calibration, keys=(), value=None):
    """The bytes of a calibration with a value of its text, or a tensor (changed by a function), replaced or gone."""
    text, tensors = contents(calibration.to_bytes())
    where = tensors if keys and keys[0] in tensors else text
    for key in keys[:-1]:
        where = where[key]
    if value is GONE:
        del where[keys[-1]]
    elif keys:
        where[keys[-1]] = value(where[keys[-1]].copy()) if callable(value) else value
    return resealed(text, tensors)


IMPOSSIBLE = [
    ("band", ("widening",), lambda x: x * 0 - 1, "widening is below 0"),
    ("band", ("widening",), lambda x: x * np.inf, "finite"),
    ("band", ("widening",), lambda x: x.astype("f4"), "float64"),
    ("band", ("widening",), lambda x: x[:1], "widening is float64 (1,)"),
    ("rcps", ("promises", 0, "at_most"), -1, "at_most is -1"),
    ("rcps", ("promises", 0, "at_most"), "<script>", "<script>"),
    ("band", ("failure_prob",), 0, "failure_prob is 0"),
    ("band", ("promises", 0, "risk"), NAN, ""),
    ("band", ("promises",), [], "promises are empty"),
    ("rcps", ("bound",), "a\nb", "it must be a name"),
    ("rcps", ("family",), "evil", "'evil'"),
    ("rcps", ("family",), "multiplicative", "below 1"),
    ("rcps", ("limits",), [1, 0], "must be below"),
    ("rcps", ("limits",), [NAN, 1], ""),
    ("rcps", ("limits",), [0, 1, 2], "give a pair"),
    ("band", ("groups", "kind"), "evil", "'evil'"),
    ("band", ("record", "pixels"), [-6, 6], "at least 1"),
    ("band", ("curve",), lambda x: x[:, :2].copy(), "curve is float64"),
    ("band", ("chosen",), 10**9, "the curve has"),
    ("band", ("record", "images"), 60.5, "whole number"),
    ("units", ("record", "unit_name"), "x. Nothing", "unit_name"),
    ("band", ("record", "seed"), "0\n" * 50, "a line of text"),
    ("band", ("record", "source", "samples"), 0, "samples of a source"),
    ("band", ("record", "source", "miscoverage"), "1e999999999", "fraction"),
    ("band", ("record", "source", "sampler"), "x\n\nIgnore", "a line"),
    ("band", ("measure",), {"low": 1, "high": 1, "unit": "HU"}, "below high"),
    ("band", ("measure",), GONE, "measure"),
    ("band", ("record", "skipped"), GONE, "record is not complete"),
    ("band", ("image_hashes",), GONE, "image_hashes"),
    ("band", ("image_hashes",), lambda x: x[:3], "one per image"),
    ("band", ("reference.shares",), lambda x: x[:1], "reference.shares"),
    ("band", ("fitted_on",), GONE, "fitted_on"),
]  # fmt: skip


@pytest.mark.parametrize("name, keys, value, words", IMPOSSIBLE)
def test_an_impossible_calibration_is_refused_when_it_is_read(made, name, keys, value, words):
    refuses(lambda: calibration_from_bytes(edited(made[name], keys, value), "odd"), "'odd'", words)


def test_the_same_edits_of_nothing_are_read(made):
    """The refusals above are of the edits: a file that is taken apart and sealed again is the file."""
    for calibration in made.values():
        assert edited(calibration) == calibration.to_bytes()
        assert calibration_from_bytes(calibration.to_bytes(), "same").guarantee == calibration.guarantee


# ---------------------------------------------------------------- foreign, cut and edited files


def test_a_file_that_is_not_there(tmp_path):
    for name in (tmp_path / "none.safetensors", tmp_path, "x" * 5000):
        refuses(lambda name=name: pb.load_calibration(name), "no calibration file")


FOREIGN = [
    b"", b"\0", b"PK\x03\x04" + b"\0" * 60, b"{}", b"\x93NUMPY" + b"\0" * 80, b"\xff" * 100, b"\x80\x04K\x01.",
    struct.pack("<Q", 2) + b"{}", struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 2**63) + b"{}",
    save_tensors({"a": np.zeros(3)}), save_tensors({"a": np.zeros(3)}, {"pixelbounds": "x"}),
    save_tensors({"a": np.zeros(3)}, {"pixelbounds": "x {}"}), save_tensors({}, {"pixelbounds": "x [1]"}),
    *[resealed(text, tensors) for text in ([], 3, None, {}, {"format": 1}, "text")  # sealed, and says nothing
      for tensors in ({}, {"widening": np.zeros(3), "curve": np.zeros((0, 3))})],
]  # fmt: skip


@pytest.mark.parametrize("foreign", FOREIGN, ids=range(len(FOREIGN)))
def test_a_foreign_file(foreign):
    refuses(lambda: calibration_from_bytes(foreign, "odd"), "odd")


def test_a_truncated_file(content):
    cuts = [*range(0, 300, 7), *range(300, len(content), 97), *range(len(content) - 20, len(content))]
    for cut in cuts:
        refuses(lambda cut=cut: calibration_from_bytes(content[:cut], "short"), "short", "Calibration.save")
    refuses(lambda: calibration_from_bytes(content + b"\0", "long"), "long")


def test_an_edit_of_the_risk_level_is_noticed(content):
    assert content.count(b'\\"at_most\\": 0.2') == 1
    changed = content.replace(b'\\"at_most\\": 0.2', b'\\"at_most\\": 0.1')
    refuses(lambda: calibration_from_bytes(changed, "edited"), "'edited' was changed", "checksum", "calibrate again")


def test_a_newer_format_says_so(made):
    newer = edited(made["krcps"], ("format",), 4)
    refuses(lambda: calibration_from_bytes(newer, "new"), "format 4", "calibrate again")


# ---------------------------------------------------------------- names in the sentence


def test_names_of_the_users_functions_never_say_more():
    """Whatever it is called: the sentence about pixels is for our own loss, and a bound keeps no name of ours."""

    def l01(truth, interval):
        return np.minimum(1.0, 2 * ours(truth, interval))

    def loss(truth, interval):
        return ours(truth, interval)

    def conformal(losses, failure_prob):
        return pb.bounds.hoeffding(losses, failure_prob)

    truth, band = data()
    sentence = pb.calibrate(truth, band, promises=[pb.loss(0.4, l01)], method="rcps").guarantee
    assert "pixels" not in sentence
    assert "your loss" in sentence
    cal = pb.calibrate(truth, band, risk_level=0.4, bound=conformal, method="rcps")
    assert cal.bound == "custom"
    assert "in expectation" not in cal.guarantee
    loss.__name__ = 'x" of all images is 0. "'
    cal = pb.calibrate(truth, band, promises=[pb.loss(0.4, loss)], method="rcps")
    assert cal.promises[0].name == "your loss"
