"""Arrays of other kinds: they work as plain ones do, or the error says how. Masks: properties/test_masks.py."""

import dask.array as da
import numpy as np
import pytest
from tensors import as_tensor

import pixelbounds as pb

N, SIZE = 40, 6
RNG = np.random.default_rng(0)
TRUTH = RNG.uniform(size=(N, SIZE, SIZE))
BAND = pb.Band(np.clip(TRUTH - 0.2, 0, 1), np.clip(TRUTH + 0.1, 0, 1))
LABELS = RNG.integers(0, 3, TRUTH.shape)
HERE = {"failure_prob": 0.3, "method": "rcps"}


@pytest.mark.parametrize(
    "kind",
    [
        np.matrix,
        lambda x: x.astype(">f8"),
        lambda x: np.array([*x, None], object)[:-1],
        as_tensor,
        lambda x: da.from_array(x, chunks=7),
    ],
    ids=["matrix", "big-endian", "objects", "torch", "dask"],
)
def test_other_arrays_give_the_same_bytes(kind):
    flat = TRUTH.reshape(N, -1)
    band = BAND.map(lambda x: x.reshape(N, -1))
    expected = pb.calibrate(flat, band, risk_level=0.5, **HERE).to_bytes()
    assert pb.calibrate(kind(flat), band, risk_level=0.5, **HERE).to_bytes() == expected
    other = pb.Band(kind(band.lower), kind(band.upper))
    assert pb.calibrate(flat, other, risk_level=0.5, **HERE).to_bytes() == expected


def test_big_endian_labels_masks_and_units():
    expected = pb.calibrate(
        TRUTH,
        BAND,
        promises=[pb.share(0.5, within=LABELS > 0)],
        labels=LABELS,
        units=np.arange(N) // 2,
        failure_prob=0.4,
    )
    weights = (LABELS > 0).astype(">i2")
    found = pb.calibrate(
        TRUTH, BAND, promises=[pb.share(0.5, within=weights)], labels=LABELS.astype(">i4"),
        units=(np.arange(N) // 2).astype(">i8"), failure_prob=0.4,
    )  # fmt: skip
    assert found.to_bytes() == expected.to_bytes()


def test_what_is_read_once_or_has_a_unit_says_how():
    with pytest.raises(TypeError, match=r"truth is a generator, which can be read only once; .* list\(truth\)"):
        pb.calibrate((x for x in TRUTH), BAND, risk_level=0.5)
    expected = pb.bands_from(lambda y, m, seed: np.stack([y] * m), TRUTH, samples=19)
    assert np.array_equal(
        pb.bands_from(lambda y, m, seed: np.stack([y] * m), iter(TRUTH), samples=19).lower, expected.lower
    )

    class Quantity(np.ndarray):
        unit = "HU"

    with pytest.raises(TypeError, match=r"truth has values in 'HU', which would be forgotten; .* truth\.value"):
        pb.calibrate(TRUTH.view(Quantity), BAND, risk_level=0.5)


def test_units_of_pandas():
    pandas = pytest.importorskip("pandas")
    patients = pandas.Series([f"P{i // 2}" for i in range(N)], index=range(100, 100 + N))
    plain = pb.calibrate(TRUTH, BAND, risk_level=0.7, units=patients.to_list(), failure_prob=0.4, method="rcps")
    for units in (patients, patients.astype("category"), patients.astype("string"), pandas.Index(patients)):
        found = pb.calibrate(TRUTH, BAND, risk_level=0.7, units=units, failure_prob=0.4, method="rcps")
        assert found.to_bytes() == plain.to_bytes()
    patients[105] = None
    for units in (patients, patients.astype("string")):
        with pytest.raises(ValueError, match="units of 1 images are missing"):
            pb.calibrate(TRUTH, BAND, risk_level=0.7, units=units, failure_prob=0.4)
