"""A calibration survives its file: same intervals, same bytes, nothing half-written, and it says what it promises."""

import dataclasses
import json
import struct

import numpy as np
import pytest
from flat import flat_calibrate
from worlds import heteroscedastic

import pixelbounds as pb
from pixelbounds.calibration.families import Family, additive
from pixelbounds.calibration.losses import l01

SIZE, N = 8, 100
RISK = 0.2


def data(kind="plain"):
    """Truth and a band of some kind, the same at every call."""
    truth, band = heteroscedastic(N, np.random.default_rng(0), size=SIZE)
    if kind == "centred":
        middle = (band.lower + band.upper) / 2
        return truth, pb.Band(band.lower, band.upper, middle, "test")
    if kind == "positive":
        return truth, pb.Band(np.maximum(band.lower, 0.05), np.maximum(band.upper, 0.06), source="test")
    return truth, band


SEGMENTATION = np.broadcast_to(np.arange(SIZE) // 3, (N, SIZE, SIZE)).astype(np.uint8)
PARTITION = np.arange(SIZE * SIZE).reshape(SIZE, SIZE) % 5
EXTRA = np.random.default_rng(1).normal(size=(N, SIZE, SIZE)).astype(np.float32)
OWN = Family("own", lambda b, w: additive.widen(b, w), lambda x, b: additive.score(x, b))

CASES = {
    "rcps": ("plain", {"method": "rcps"}, {}),
    "rcps conformal": ("plain", {"method": "rcps", "bound": "conformal"}, {}),
    "rcps bentkus, no limits": ("plain", {"method": "rcps", "bound": "bentkus", "limits": None}, {}),
    "krcps loss": ("plain", {"method": "krcps"}, {}),
    "krcps otsu": ("plain", {"method": "krcps", "groups": "otsu", "bound": "hoeffding_bentkus"}, {}),
    "krcps partition": ("plain", {"method": "krcps", "groups": PARTITION}, {}),
    "krcps labels": ("plain", {"method": "krcps", "labels": SEGMENTATION}, {"labels": SEGMENTATION}),
    "krcps scaled": ("centred", {"method": "krcps"}, {}),
    "frontier band": ("plain", {"groups": "band"}, {}),
    "frontier loss": ("plain", {"groups": "loss"}, {}),
    "frontier labels": ("plain", {"groups": "band", "labels": SEGMENTATION}, {"labels": SEGMENTATION}),
    "frontier learned": ("plain", {"k": 4}, {}),
    "frontier learned, features": ("plain", {"k": 4, "features": EXTRA}, {"features": EXTRA}),
    "frontier scaled": ("centred", {"groups": "band"}, {}),
    "frontier multiplicative": ("positive", {"groups": "band", "family": "multiplicative"}, {}),
    "frontier, half a limit": ("plain", {"groups": "band", "limits": (0.0, np.inf)}, {}),
    "units": ("plain", {"groups": "band", "units": np.arange(N) // 2, "risk_level": 0.3}, {}),
    "own loss": ("plain", {"method": "rcps", "loss": lambda x, i: l01(x, i)}, {}),
    "own family": ("plain", {"groups": "band", "family": OWN}, {}),
}
every_case = pytest.mark.parametrize("kind, how, apply", CASES.values(), ids=CASES)
_made = {}


def calibrated(kind, how):
    key = kind, id(how)
    if key not in _made:
        _made[key] = flat_calibrate(*data(kind), **{"risk_level": RISK, **how})
    return _made[key]


# ---------------------------------------------------------------- round trip


@every_case
def test_a_calibration_comes_back_as_it_was(tmp_path, kind, how, apply):
    cal, (_, band) = calibrated(kind, how), data(kind)
    cal.save(tmp_path / "cal.safetensors")
    family = cal.family if cal.family is OWN else None
    again = pb.load_calibration(str(tmp_path / "cal.safetensors"), family=family)
    for field in dataclasses.fields(cal):
        ours, theirs = getattr(again, field.name), getattr(cal, field.name)
        if field.name == "grouping":
            assert type(ours) is type(theirs)
            assert ours.count == theirs.count
        elif field.name == "record":
            assert ours.state() == theirs.state()
            np.testing.assert_array_equal(ours.image_hashes, theirs.image_hashes)
        elif field.name == "reference":
            for name in ("of_units", "of_images", "widening", "shares"):
                np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        else:
            np.testing.assert_array_equal(ours, theirs)
    first, second = cal.apply(band, **apply), again.apply(band, **apply)
    np.testing.assert_array_equal(first.lower, second.lower)
    np.testing.assert_array_equal(first.upper, second.upper)
    assert again.guarantee == cal.guarantee
    assert again.to_bytes() == cal.to_bytes()


# ---------------------------------------------------------------- what the file says


def test_no_code_is_stored(tmp_path):
    """Neither a pickle nor anything that starts one: the file is numbers and text."""
    for kind, how, _ in CASES.values():
        content = calibrated(kind, how).to_bytes()
        size = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8 : 8 + size])
        dtypes = {value["dtype"] for name, value in header.items() if name != "__metadata__"}
        assert dtypes <= {"F64", "F32", "I64", "I32", "I8", "U8", "U64"}
        assert not content[8 + size :].startswith(b"\x80\x04")
