"""A calibration refuses bands that it was not made for, and a file that is foreign, cut short or edited is refused."""

import json
import struct

import numpy as np
import pytest
import torch
from flat import flat_calibrate
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import HERE, SIZE, N, data, refuses, refuses_to_calibrate
from safetensors.numpy import save as save_tensors

import pixelbounds as pb
from pixelbounds.calibration.calibration import calibration_from_bytes
from pixelbounds.storage.files import checksum

# ---------------------------------------------------------------- applying to what was not calibrated


def test_apply_refuses_a_band_of_another_shape():
    truth, band = data()
    for how in ({"method": "krcps"}, {"method": "krcps", "groups": np.zeros((SIZE, SIZE), int)}, {"groups": "loss"}):
        cal = flat_calibrate(truth, band, **how, **HERE)
        other = pb.Band(np.zeros((3, 5, 5)), np.ones((3, 5, 5)))
        refuses(lambda cal=cal, other=other: cal.apply(other), "(5, 5)", "(6, 6)", "'band' or 'learned'")


def test_apply_refuses_a_band_of_another_range():
    truth, band = data()
    cal = flat_calibrate(truth, band, method="rcps", **HERE)
    images = band.map(lambda x: np.concatenate([x[:2], 255 * x[2:3]]))
    refuses(lambda: cal.apply(images), "band of image 2", "limits (0, 1)", unchanged=(images.lower, images.upper))


def test_apply_refuses_a_band_of_another_family_or_source():
    truth, band = data()
    centred = pb.Band(band.lower, band.upper, (band.lower + band.upper) / 2)
    plain = flat_calibrate(truth, band, method="rcps", **HERE)
    scaled = flat_calibrate(truth, centred, method="rcps", **HERE)
    refuses(lambda: plain.apply(centred), "additive", "scaled")
    refuses(lambda: scaled.apply(band), "centre", "mean_and_std")
    made = pb.Band(band.lower, band.upper, source=pb.Source("calibrated quantiles", samples=19, miscoverage=0.1))
    cal = flat_calibrate(truth, made, method="rcps", **HERE)
    other = pb.Band(band.lower, band.upper, source=pb.Source("calibrated quantiles", samples=39, miscoverage=0.2))
    refuses(lambda: cal.apply(other), "1/10", "1/5", "samples: 19 at calibration, 39 here", "calibrate again")
    refuses(lambda: cal.apply(band), "samples: 19 at calibration, unknown here", "source=")


def test_apply_refuses_nan_and_names_the_image():
    truth, band = data()
    cal = flat_calibrate(truth, band, method="rcps", **HERE)
    lower = torch.from_numpy(band.lower.copy())
    lower[7, 0, 0] = float("nan")
    refuses(lambda: cal.apply(pb.Band(lower, torch.from_numpy(band.upper))), "band.lower of image 7")


def test_what_would_be_ignored_is_refused():
    truth, band = data()
    refuses_to_calibrate("features are for learned groups", method="rcps", features=np.zeros(truth.shape))
    refuses_to_calibrate("features are for learned groups", groups="band", features=np.zeros(truth.shape))
    cal = flat_calibrate(truth, band, groups="band", **HERE)
    refuses(
        lambda: cal.apply(band, features=np.zeros(truth.shape)), "features belong to learned groups", "leave them out"
    )


def test_apply_needs_the_features_of_the_calibration():
    truth, band = data()
    features = np.random.default_rng(0).normal(size=(N, 2, SIZE, SIZE))
    cal = flat_calibrate(truth, band, features=features, k=4, **HERE)
    refuses(lambda: cal.apply(band), "learned with 2 feature images", "0 were given", "features=")
    refuses(lambda: cal.apply(band, features=features[:, :1]), "learned with 2", "1 were given")
    refuses(lambda: cal.apply(band, features=features[:5]), "features", "(5, 2, 6, 6)")
    features[9] = np.nan
    refuses(lambda: cal.apply(band, features=features), "features of image 9")


def test_labels_belong_to_the_calibration_or_not():
    truth, band = data()
    labels = np.zeros((N, SIZE, SIZE), int)
    labels[:, :, 3:] = 1
    cal = flat_calibrate(truth, band, labels=labels, groups="band", **HERE)
    refuses(lambda: cal.apply(band), "uses labels", "labels=", "--labels")
    refuses(lambda: cal.apply(band, labels=labels[:5]), "labels", "shape")
    refuses(lambda: cal.apply(band[:5], labels=labels), "labels", "shape")
    refuses(lambda: cal.apply(band, labels=labels[:, :2]), "labels", "shape")
    for wrong in ("brain", labels / 2, labels.astype(str)):
        refuses(lambda wrong=wrong: cal.apply(band, labels=wrong), "labels", "whole number", error=TypeError)
    plain = flat_calibrate(truth, band, groups="band", **HERE)
    refuses(lambda: plain.apply(band, labels=labels), "without labels", "leave labels out")
    refuses(lambda: flat_calibrate(truth, band, groups=labels, **HERE), "labels=")


@pytest.mark.parametrize("method", ["krcps", "frontier"])
def test_a_label_that_only_certifying_images_have(method):
    """It has a group, that of all labels together: never a label out of range."""
    labels = np.zeros((N, SIZE, SIZE), int)
    truth, band = data()
    labels[N // 2 :] = 5
    cal = flat_calibrate(truth, band, method=method, labels=labels, n_fit=3, **HERE)
    known = set(cal.grouping.values.tolist())
    strange = np.full_like(labels, 77)
    interval = cal.apply(band, labels=strange)
    assert known <= {0, 5}
    assert (interval.lower <= band.lower).all()
    assert (cal.widening[cal.grouping.table[-1]] > 0).all()


# ---------------------------------------------------------------- calibration files


@pytest.fixture(scope="module")
def content():
    truth, band = data()
    return flat_calibrate(truth, band, method="krcps", **HERE).to_bytes()


def test_a_file_that_is_not_there(tmp_path):
    refuses(lambda: pb.load_calibration(tmp_path / "none.safetensors"), "no calibration file", "none.safetensors")
    refuses(lambda: pb.load_calibration(tmp_path), "no calibration file")
    refuses(lambda: pb.load_calibration("x" * 5000), "no calibration file")


@pytest.mark.parametrize(
    "foreign",
    [b"", b"\0", b"PK\x03\x04" + b"\0" * 60, b"{}", b"\x93NUMPY" + b"\0" * 80, b"\xff" * 100, b"\x80\x04K\x01.",
     struct.pack("<Q", 2) + b"{}", struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 2**63) + b"{}",
     save_tensors({"a": np.zeros(3)}), save_tensors({"a": np.zeros(3)}, {"pixelbounds": "x"}),
     save_tensors({"a": np.zeros(3)}, {"pixelbounds": "x {}"}), save_tensors({}, {"pixelbounds": "x [1]"})],
    ids=range(14),
)  # fmt: skip
def test_a_foreign_file(tmp_path, foreign):
    (tmp_path / "odd.safetensors").write_bytes(foreign)
    refuses(lambda: pb.load_calibration(tmp_path / "odd.safetensors"), "odd.safetensors")


def signed(text, tensors):
    """A file with a fitting checksum, as someone with bad intentions would write it."""
    written = json.dumps(text) if not isinstance(text, str) else text
    return save_tensors(tensors, {"pixelbounds": f"{checksum(written, tensors)} {written}"})


@pytest.mark.parametrize("text", ["[]", "3", "null", "{}", '{"format": 1}', '{"format": 99}', "{", '"text"'])
def test_a_file_that_is_signed_and_says_nothing(text):
    for tensors in ({}, {"widening": np.zeros(3), "curve": np.zeros((0, 3))}):
        refuses(lambda tensors=tensors: calibration_from_bytes(signed(text, tensors), "odd"), "odd")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_file_with_parts_missing_or_of_another_type(content, data):
    size = struct.unpack("<Q", content[:8])[0]
    text = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["pixelbounds"].split(" ", 1)[1])
    tensors = {"widening": np.zeros(8), "curve": np.zeros((0, 3)), "groups.labels": np.zeros((SIZE, SIZE), np.int32)}
    where = data.draw(st.sampled_from([text, text["record"], text["groups"], tensors]))
    key = data.draw(st.sampled_from(sorted(where)))
    if where is tensors or data.draw(st.booleans()):
        del where[key]
    else:
        where[key] = data.draw(st.sampled_from([None, "odd", [], {}, 3.5, [[1]], True]))
    try:
        cal = calibration_from_bytes(signed(text, tensors), "odd")
    except ValueError as error:
        assert "odd" in str(error)  # noqa: PT017
    else:
        assert isinstance(cal, pb.Calibration)


def test_a_truncated_file(content):
    cuts = [*range(0, 300, 7), *range(300, len(content), 97), *range(len(content) - 20, len(content))]
    for cut in cuts:
        refuses(lambda cut=cut: calibration_from_bytes(content[:cut], "short"), "short", "Calibration.save")
    refuses(lambda: calibration_from_bytes(content + b"\0", "long"), "long")


def test_an_edited_file_is_refused_or_says_the_same(content):
    """Flip a byte anywhere: an error, or (white space of the header) exactly the same calibration."""
    rng = np.random.default_rng(0)
    places = {int(p) for p in np.linspace(0, len(content) - 1, 400)} | set(range(0, 120))
    refused = 0
    for place in sorted(places):
        edited = bytearray(content)
        edited[place] ^= int(rng.integers(1, 256))
        try:
            cal = calibration_from_bytes(bytes(edited), "edited")
        except ValueError as error:
            assert "edited" in str(error)  # noqa: PT017
            refused += 1
        else:
            assert cal.to_bytes() == content
    assert refused > 0.95 * len(places)


def test_an_edit_of_the_risk_level_is_noticed(content):
    assert content.count(b'\\"at_most\\": 0.2') == 1
    edited = content.replace(b'\\"at_most\\": 0.2', b'\\"at_most\\": 0.1')
    refuses(lambda: calibration_from_bytes(edited, "edited"), "'edited' was changed", "checksum", "calibrate again")


def test_a_newer_format_says_so(content):
    size = struct.unpack("<Q", content[:8])[0]
    text = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["pixelbounds"].split(" ", 1)[1])
    refuses(lambda: calibration_from_bytes(signed({**text, "format": 4}, {}), "new"), "format 4", "calibrate again")
