"""Arrays of other kinds at every door: they work as plain ones do, or the error says how; no mask is ever dropped."""

import dask.array as da
import numpy as np
import pytest
import torch

import pixelbounds as pb
from pixelbounds.calibration.losses import l01
from pixelbounds.images.ragged import write_ragged
from pixelbounds.monitoring import recalibrate
from pixelbounds.problems import denoise

N, SIZE = 40, 6
RNG = np.random.default_rng(0)
TRUTH = RNG.uniform(size=(N, SIZE, SIZE))
BAND = pb.Band(np.clip(TRUTH - 0.2, 0, 1), np.clip(TRUTH + 0.1, 0, 1))
SAMPLES = RNG.uniform(size=(N, 19, SIZE, SIZE))
LABELS = RNG.integers(0, 3, TRUTH.shape)
HERE = {"failure_prob": 0.3, "method": "rcps"}
CAL = pb.calibrate(TRUTH[:, ::-1], BAND[:].map(lambda x: x[:, ::-1]), risk_level=0.5, **HERE)
INTERVAL = CAL.apply(BAND)
SUBGROUP = np.arange(N) > 2


def hidden(x):
    """The same with one entry masked; beneath it lies a number like any other."""
    mask = np.zeros(np.shape(x), bool)
    mask.flat[3] = True
    return np.ma.array(x, mask=mask)


def lazy(x):
    return da.from_array(hidden(x), chunks=2)


def listed(x):
    return list(hidden(x))


DOORS = {
    "truth": (TRUTH, lambda x: pb.calibrate(x, BAND, risk_level=0.5, **HERE)),
    "8-bit truth": ((255 * TRUTH).astype(np.uint8), lambda x: pb.calibrate(x, BAND, risk_level=0.5, **HERE)),
    "truth of evaluate": (TRUTH, lambda x: pb.evaluate(x, INTERVAL)),
    "truth of a monitor": (TRUTH, lambda x: pb.Monitor(CAL).update(x, BAND)),
    "truth of a growing one": (TRUTH, lambda x: pb.GrowingCalibration(x, BAND, risk_level=0.5, method="rcps")),
    "truth of contains": (TRUTH, INTERVAL.contains),
    "truth of a loss": (TRUTH, lambda x: l01(x, INTERVAL)),
    "truth of a picture": (TRUTH, lambda x: pb.plot.misses(x, INTERVAL)),
    "band": (BAND.lower, lambda x: pb.Band(x, BAND.upper)),
    "centre": (BAND.lower, lambda x: pb.Band(BAND.lower, BAND.upper, x)),
    "interval": (BAND.lower, lambda x: pb.Interval(x, BAND.upper)),
    "samples": (SAMPLES, lambda x: pb.calibrated_quantiles(x, 0.2)),
    "moments": (SAMPLES, lambda x: pb.mean_and_std(x)),
    "fresh samples": (SAMPLES, lambda x: pb.evaluate(TRUTH, INTERVAL, samples=x)),
    "samples of a sampler": (SAMPLES, lambda x: pb.bands_from(lambda y, m, seed: x[0][:m], TRUTH, samples=19)),
    "observations": (TRUTH, lambda x: pb.bands_from(lambda y, m, seed: np.stack([y] * m), x, samples=19)),
    "labels": (LABELS, lambda x: pb.calibrate(TRUTH, BAND, risk_level=0.5, labels=x, failure_prob=0.3)),
    "groups": (LABELS[0], lambda x: pb.calibrate(TRUTH, BAND, risk_level=0.5, groups=x, failure_prob=0.3)),
    "groups of evaluate": (LABELS, lambda x: pb.evaluate(TRUTH, INTERVAL, groups=x)),
    "within": (LABELS > 0, lambda x: pb.calibrate(TRUTH, BAND, promises=[pb.share(0.5, within=x)], **HERE)),
    "weights": (TRUTH, lambda x: pb.calibrate(TRUTH, BAND, promises=[pb.share(0.5, within=x)], **HERE)),
    "subgroup": (SUBGROUP, lambda x: pb.calibrate(TRUTH, BAND, promises=[pb.share(0.6, within=x)], **HERE)),
    "within of evaluate": (LABELS > 0, lambda x: pb.evaluate(TRUTH, INTERVAL, promises=[pb.share(0.5, within=x)])),
    "features": (TRUTH, lambda x: pb.calibrate(TRUTH, BAND, risk_level=0.5, features=x, failure_prob=0.3)),
    "units": (np.arange(N), lambda x: pb.calibrate(TRUTH, BAND, risk_level=0.5, units=x, **HERE)),
    "likelihood ratios": (
        np.linspace(0.5, 1.5, N),
        lambda x: recalibrate(TRUTH, BAND, risk_level=0.6, weights=x, most_weight=2, failure_prob=0.4, method="rcps"),
    ),
    "regions": (LABELS > 0, lambda x: pb.regions.dilate(x, 1)),
    "region of labels": (LABELS, lambda x: pb.regions.label(x, 2)),
    "body": (TRUTH, pb.regions.body),
    "losses": (np.full(N, 0.1), lambda x: pb.confidence.betting(x, 0.1)),
    "images of a function": (TRUTH, lambda x: pb.functional_values(x, np.mean)),
    "problem": (TRUTH, lambda x: denoise(0.1)(x, 0)),
}


@pytest.mark.parametrize("door", DOORS)
def test_no_mask_is_dropped_in_silence(door):
    plain, enter = DOORS[door]
    enter(plain)  # it is what is masked that is refused
    nothing = np.ma.array(plain, mask=False)
    enter(nothing)  # as readers of netCDF give arrays where all is there
    for masked in (hidden, lazy, listed):
        if masked is lazy and door in ("losses", "samples of a sampler", "problem"):
            continue  # no Dask array goes there
        with pytest.raises((TypeError, ValueError), match="masked"):
            enter(masked(plain))


def test_masks_of_images_of_different_sizes(tmp_path):
    images = [np.zeros((2, 3)), hidden(np.ones((4, 4)))]
    for enter in (pb.Ragged, lambda x: pb.Band(x, x), lambda x: write_ragged(tmp_path / "x.zarr", {"truth": x})):
        with pytest.raises(TypeError, match=r"\[1\] has 1 masked values"):
            enter(images)


def test_what_a_function_masks_is_not_a_number():
    with pytest.raises(TypeError, match="function gives for image 0 has 1 masked"):
        pb.functional_values(TRUTH, lambda image: np.ma.masked_all(4).mean())


@pytest.mark.parametrize(
    "kind",
    [
        np.matrix,
        lambda x: x.astype(">f8"),
        lambda x: np.array([*x, None], object)[:-1],
        lambda x: torch.from_numpy(x),
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


def test_a_file_that_is_mapped_stays_mapped(tmp_path):
    np.save(tmp_path / "x.npy", TRUTH)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert isinstance(pb.Band(mapped, mapped).lower, np.memmap)


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
