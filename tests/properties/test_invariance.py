"""A calibration is the same bits however its images are cut, stored or typed, from the same seed, and from its file."""

import sys

import dask.array as da
import numpy as np
import pytest
import zarr
from flat import flat_calibrate
from tensors import as_tensor
from worlds import heteroscedastic

from pixelbounds.calibration.calibration_file import calibration_from_bytes
from pixelbounds.images import library


def recut(monkeypatch, rows, threads):
    """Blocks of another size and another number of threads, in every room."""
    ours = [module for name, module in sys.modules.items() if name.startswith("pixelbounds")]
    cutting = [module for module in ours if hasattr(module, "block_of")]
    assert library in cutting
    for module in cutting:
        monkeypatch.setattr(module, "block_of", lambda size, n: rows)
    monkeypatch.setattr(library, "_THREADS", threads)


LEVELS = {"risk_level": 0.2, "failure_prob": 0.2}
METHODS = {
    "rcps": {"method": "rcps", "bound": "hoeffding_bentkus"},
    "krcps": {"method": "krcps", "bound": "hoeffding_bentkus", "n_fit": 45},
    "krcps, otsu": {"method": "krcps", "groups": "otsu", "n_fit": 20},
    "krcps, d_opt": {"method": "krcps", "d_opt": 100, "n_fit": 20},
    "frontier, band": {"groups": "band", "n_fit": 20},
    "frontier, band, mean": {"groups": "band", "n_fit": 20, "bound": "hoeffding_bentkus"},
    "frontier, learned": {"k": 8, "n_fit": 4},
}


@pytest.fixture(scope="module")
def images():
    """Small images, and for krcps so many pixels (45 fitting images, more than 2**17) that (P_K) sums up cells."""
    small, large = (heteroscedastic(70, np.random.default_rng(11), size=size) for size in (12, 56))
    return {name: large if name == "krcps" else small for name in METHODS}


@pytest.fixture(scope="module")
def whole(images):
    """Bytes of every method's calibration, computed once with the blocks of this machine."""
    return {name: flat_calibrate(*images[name], **LEVELS, **words).to_bytes() for name, words in METHODS.items()}


@pytest.mark.parametrize("rows, threads", [(7, 2), (1000, 1)])
@pytest.mark.parametrize("name", METHODS)
def test_chunked_equals_whole_bit_for_bit(name, rows, threads, images, whole, monkeypatch):
    truth, band = images[name]
    recut(monkeypatch, rows, threads)
    cal = flat_calibrate(truth, band, **LEVELS, **METHODS[name])
    np.testing.assert_array_equal(cal.widening, calibration_from_bytes(whole[name]).widening)
    assert cal.to_bytes() == whole[name]
    cut = cal.apply(band[:12])
    recut(monkeypatch, 12, 1)
    together = cal.apply(band[:12])
    np.testing.assert_array_equal(cut.lower, together.lower)
    np.testing.assert_array_equal(cut.upper, together.upper)


STORES = {
    "zarr": lambda x: zarr.array(x, chunks=(3, *x.shape[1:])),
    "dask": lambda x: da.from_array(x, chunks=(4, *x.shape[1:])),
    "torch": as_tensor,
    "numpy, strided": lambda x: np.asfortranarray(x),
}


@pytest.mark.parametrize("name", ["rcps", "krcps, otsu", "frontier, band", "frontier, learned"])
@pytest.mark.parametrize("store", STORES)
def test_every_kind_of_array_gives_the_same_bits(name, store):
    truth, band = heteroscedastic(60, np.random.default_rng(12), size=10)
    feature = band.upper - band.lower**2
    words = METHODS[name] | LEVELS
    if name == "frontier, learned":
        words["features"] = feature
    reference = flat_calibrate(truth, band, **words)
    put = STORES[store]
    if "features" in words:
        words["features"] = put(feature)
    cal = flat_calibrate(put(truth), band.map(put), **words)
    assert cal.to_bytes() == reference.to_bytes()
    known = {"features": words["features"][:9]} if "features" in words else {}
    kept = reference.apply(band[:9], **({"features": feature[:9]} if known else {}))
    interval = cal.apply(band.map(lambda x: put(x[:9])), **known)
    np.testing.assert_array_equal(np.asarray(interval.lower), kept.lower)
    np.testing.assert_array_equal(np.asarray(interval.upper), kept.upper)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_bits_and_another_seed_another_split(name):
    truth, band = heteroscedastic(60, np.random.default_rng(13), size=10)

    def run(seed):
        return flat_calibrate(truth, band, seed=seed, **LEVELS, **METHODS[name])

    first, second, other = run(4), run(4), run(5)
    assert first.to_bytes() == second.to_bytes()
    if name == "rcps":  # nothing is fitted and every image certifies
        np.testing.assert_array_equal(first.widening, other.widening)
    else:
        assert first.widening.shape != other.widening.shape or (first.widening != other.widening).any()


@pytest.mark.parametrize("name", ["rcps", "krcps, otsu", "frontier, band", "frontier, learned"])
def test_a_value_is_the_same_value_in_every_dtype(name):
    """Half-precision data are read as single, bit for bit; in double the widenings are the same numbers."""
    truth, band = heteroscedastic(60, np.random.default_rng(14), size=10, dtype=np.float16)
    words = METHODS[name] | LEVELS
    half, single, double = (
        flat_calibrate(truth.astype(t), band.map(lambda x, t=t: x.astype(t)), **words)
        for t in (np.float16, np.float32, np.float64)
    )
    assert half.to_bytes() == single.to_bytes()
    np.testing.assert_array_equal(half.widening, double.widening)
