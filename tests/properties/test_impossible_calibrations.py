"""A calibration that could not be is refused: when it is read, when it is made by hand, and when it is written.

Whoever edits a file can seal it again, so the checksum does not help here: what the file holds is looked at.
"""

import dataclasses

import numpy as np
import pytest
from edits import contents, resealed
from flat import flat_calibrate
from refusals import data, refuses

import pixelbounds as pb
from pixelbounds.calibration.calibration import calibration_from_bytes
from pixelbounds.calibration.losses import l01 as ours
from pixelbounds.images.measure import Measure

RISK = 0.2
HOW = pb.Source("calibrated quantiles", samples=19, miscoverage="1/10")
MADE = {
    "rcps": {"method": "rcps", "bound": "hoeffding_bentkus"},
    "krcps": {"method": "krcps"},
    "band": {"groups": "band"},
    "units": {"method": "rcps", "units": np.arange(60) // 2, "risk_level": 0.3},
}


@pytest.fixture(scope="module")
def made():
    truth, band = data()
    band = pb.Band(band.lower, band.upper, source=HOW)
    measure = Measure.of_window((400, 40))
    return {
        name: flat_calibrate(truth, band, measure=measure, **{"risk_level": RISK, **how}) for name, how in MADE.items()
    }


def edited(calibration, edit):
    """The bytes of a calibration whose text and tensors were edited."""
    text, tensors = contents(calibration.to_bytes())
    edit(text, tensors)
    return resealed(text, tensors)


def said(*keys, value):
    """An edit of the text."""

    def edit(text, tensors):
        for key in keys[:-1]:
            text = text[key]
        text[keys[-1]] = value

    return edit


def counted(**counts):
    """An edit of the record's counts."""

    def edit(text, tensors):
        text["record"].update(counts)

    return edit


def held(name, change):
    """An edit of a tensor."""

    def edit(text, tensors):
        tensors[name] = change(tensors[name].copy())

    return edit


def without(*keys):
    """An edit that takes something away, from the text or the tensors."""

    def edit(text, tensors):
        if keys[0] in tensors:
            del tensors[keys[0]]
            return
        for key in keys[:-1]:
            text = text[key]
        del text[keys[-1]]

    return edit


def at(place, value):
    """An array with one value replaced."""

    def change(x):
        x[place] = value
        return x

    return change


IMPOSSIBLE = {
    "negative widening": ("band", held("widening", lambda x: x * 0 - 1), "widening is below 0"),
    "infinite widening": ("band", held("widening", at(0, np.inf)), "finite"),
    "widening in single precision": ("band", held("widening", lambda x: x.astype("f4")), "float64"),
    "widening of other groups": ("band", held("widening", lambda x: x[:1]), "widening is float64 (1,)"),
    "level -1": ("rcps", said("promises", 0, "at_most", value=-1), "at_most is -1"),
    "level as text": ("rcps", said("promises", 0, "at_most", value="<script>"), "<script>"),
    "failure probability 0": ("band", said("failure_prob", value=0), "failure_prob is 0"),
    "risk that is NaN": ("band", said("promises", 0, "risk", value=float("nan")), ""),
    "no promise": ("band", said("promises", value=[]), "promises are empty"),
    "a bound of many lines": ("rcps", said("bound", value="a\nb"), "it must be a name"),
    "a family that is unknown": ("rcps", said("family", value="evil"), "'evil'"),
    "a family that starts elsewhere": ("rcps", said("family", value="multiplicative"), "below 1"),
    "limits in the wrong order": ("rcps", said("limits", value=[1, 0]), "must be below"),
    "limits that are NaN": ("rcps", said("limits", value=[float("nan"), 1]), ""),
    "three limits": ("rcps", said("limits", value=[0, 1, 2]), "too many"),
    "groups of another kind": ("band", said("groups", "kind", value="evil"), "'evil'"),
    "sizes below 1": ("band", said("record", "pixels", value=[-6, 6]), "at least 1"),
    "a curve with two columns": ("band", held("curve", lambda x: x[:, :2].copy()), "curve is float64"),
    "a point beyond the curve": ("band", said("chosen", value=10**9), "the curve has"),
    "images by the half": ("band", said("record", "images", value=60.5), "whole number"),
    "a unit that is no noun": ("units", said("record", "unit_name", value="x. Nothing"), "unit_name"),
    "a seed of many lines": ("band", said("record", "seed", value="0\n" * 50), "a line of text"),
    "samples of 0": ("band", said("record", "source", "samples", value=0), "samples of a source"),
    "miscoverage without end": ("band", said("record", "source", "miscoverage", value="1e999999999"), "fraction"),
    "a sampler that ends the sentence": ("band", said("record", "source", "sampler", value="x\n\nIgnore"), "a line"),
    "a window of no width": ("band", said("measure", value={"low": 1, "high": 1, "unit": "HU"}), "below high"),
    "no word of the window": ("band", without("measure"), "measure"),
    "no word of skipped images": ("band", without("record", "skipped"), "record is not complete"),
    "no hashes": ("band", without("image_hashes"), "image_hashes"),
    "hashes of other images": ("band", held("image_hashes", lambda x: x[:3]), "one per image"),
    "statistics of other groups": ("band", held("reference.shares", lambda x: x[:1]), "reference.shares"),
    "no word of what shaped the groups": ("band", without("fitted_on"), "fitted_on"),
}  # fmt: skip


@pytest.mark.parametrize("name, edit, words", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_calibration_is_refused_when_it_is_read(made, name, edit, words):
    content = edited(made[name], edit)
    refuses(lambda: calibration_from_bytes(content, "odd"), "'odd'", words)


def test_the_same_edits_of_nothing_are_read(made):
    """The refusals above are of the edits: a file that is taken apart and sealed again is the file."""
    for calibration in made.values():
        assert edited(calibration, lambda text, tensors: None) == calibration.to_bytes()
        assert calibration_from_bytes(calibration.to_bytes(), "same").guarantee == calibration.guarantee


REPLACED = {
    "negative widening": {"widening": np.array([-1.0])},
    "promises": {"promises": ()},
    "bound": {"bound": "a\nb"},
    "curve": {"curve": np.zeros((3, 2))},
}


@pytest.mark.parametrize("change", REPLACED.values(), ids=REPLACED)
def test_an_impossible_calibration_cannot_be_made_by_hand(made, change):
    refuses(lambda: dataclasses.replace(made["rcps"], **change), error=(ValueError, TypeError))


def test_an_impossible_calibration_is_not_written(made, tmp_path):
    """Arrays can be changed in place after the calibration was made."""
    cal = calibration_from_bytes(made["rcps"].to_bytes(), "own")
    cal.widening.flags.writeable = True
    cal.widening[:] = -1
    refuses(lambda: cal.save(tmp_path / "cal.safetensors"), "widening is below 0")
    assert not list(tmp_path.iterdir())


def test_a_file_whose_name_is_in_the_message_is_refused_all_the_same(made, tmp_path, monkeypatch):
    """A KeyError about "chosen" in a file called "chosen" is a file that is refused, not a fault of ours."""
    monkeypatch.chdir(tmp_path)
    content = edited(made["band"], without("chosen"))
    (tmp_path / "chosen").write_bytes(content)
    refuses(lambda: pb.load_calibration("chosen"), "'chosen' holds no calibration that could be")


# ---------------------------------------------------------------- names in the sentence


def test_a_loss_of_the_users_own_is_never_called_pixels():
    """Whatever its name: the sentence about pixels is for our own loss."""

    def l01(truth, interval):
        return np.minimum(1.0, 2 * ours(truth, interval))

    truth, band = data()
    sentence = pb.calibrate(truth, band, promises=[pb.loss(0.4, l01)], method="rcps").guarantee
    assert "pixels" not in sentence
    assert "your loss" in sentence


def test_a_bound_of_the_users_own_does_not_take_the_name_of_ours():
    def conformal(losses, failure_prob):
        return pb.bounds.hoeffding(losses, failure_prob)

    truth, band = data()
    cal = pb.calibrate(truth, band, risk_level=0.4, bound=conformal, method="rcps")
    assert cal.bound == "custom"
    assert "in expectation" not in cal.guarantee


def test_a_function_without_a_proper_name_is_custom():
    def loss(truth, interval):
        return ours(truth, interval)

    loss.__name__ = 'x" of all images is 0. "'
    truth, band = data()
    made = pb.calibrate(truth, band, promises=[pb.loss(0.4, loss)], method="rcps")
    assert made.promises[0].name == "your loss"
