"""Order statistics with exact ranks, the same from every kind of array, on every axis, in every precision."""

from fractions import Fraction
from math import ceil, floor

import dask.array as da
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import as_tensor, needs_torch, torch

import pixelbounds as pb
from pixelbounds import bands

MAKERS = {
    "calibrated": lambda x, axis: pb.calibrated_quantiles(x, 0.2, axis=axis),
    "naive": lambda x, axis: pb.naive_quantiles(x, 0.2, axis=axis),
    "mean_and_std": lambda x, axis: pb.mean_and_std(x, axis=axis),
    "narrow": lambda x, axis: pb.narrow(x, axis=axis),
}
SHAPES = [(), (7,), (5, 6), (5, 6, 3), (3, 5, 6), (4, 5, 6)]
EPSILON = {"float16": 2**-9, "bfloat16": 2**-6, "float32": 1e-6, "float64": 1e-14}

every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
every_shape = pytest.mark.parametrize("pixels", SHAPES, ids=str)


def samples_of(rng, n=3, m=20, pixels=(5, 6), dtype=np.float64):
    return rng.normal(0.5, 0.2, (n, m, *pixels)).astype(dtype)


def exact_ranks(m, miscoverage):
    """The ranks of the paper in rational arithmetic, the miscoverage read as a decimal."""
    a = Fraction(str(miscoverage))
    return floor((m + 1) * a / 2), ceil((m + 1) * (1 - a / 2))


def parts(band):
    return [x for x in (band.lower, band.upper, band.centre) if x is not None]


# ---------------------------------------------------------------- ranks


@settings(max_examples=300, deadline=None, derandomize=True)
@given(m=st.integers(1, 2000), thousandths=st.integers(1, 999))
def test_ranks_are_those_of_exact_arithmetic(m, thousandths):
    a = thousandths / 1000
    low, high = exact_ranks(m, a)
    if low >= 1 and high <= m:
        assert pb.calibrated_ranks(m, a) == (low, high)
        assert pb.calibrated_ranks(m, Fraction(thousandths, 1000)) == (low, high)
        assert m >= pb.least_samples(a)
    else:
        assert m < pb.least_samples(a)
        with pytest.raises(ValueError, match=f"at least {pb.least_samples(a)}"):
            pb.calibrated_ranks(m, a)


RANKS = [(19, 0.1, (1, 19)), (39, 0.1, (2, 38)), (128, 0.1, (6, 123)), (113, 0.5, (28, 86)), (199, 0.07, (7, 193)),
         (99, 0.58, (29, 71)), (400, 0.9, (180, 221))]  # fmt: skip


@pytest.mark.parametrize("m, a, ranks", RANKS)
def test_ranks_where_floats_would_round_the_wrong_way(m, a, ranks):
    assert pb.calibrated_ranks(m, a) == ranks


@settings(max_examples=100, deadline=None, derandomize=True)
@given(m=st.integers(1, 300), thousandths=st.integers(1, 999))
def test_ranks_give_the_coverage_they_promise(m, thousandths):
    """A further exchangeable draw falls between ranks low and high with probability (high - low) / (m + 1)."""
    a = Fraction(thousandths, 1000)
    if m >= pb.least_samples(a):
        low, high = pb.calibrated_ranks(m, a)
        assert Fraction(high - low, m + 1) >= 1 - a
        assert Fraction(high - low - 2, m + 1) < 1 - a  # and no narrower symmetric pair would


@pytest.mark.parametrize("a", [0.5, 0.1, 0.05, 0.01, Fraction(1, 3), 0.999])
def test_least_samples_is_the_least(a):
    least = pb.least_samples(a)
    assert least == ceil(2 / Fraction(str(a))) - 1
    pb.calibrated_ranks(least, a)
    if least > 1:
        with pytest.raises(ValueError, match=f"at least {least}"):
            pb.calibrated_ranks(least - 1, a)


# ---------------------------------------------------------------- order statistics


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(
    "m, a", [(19, 0.1), (20, 0.1), (39, 0.1), (128, 0.1), (5, 0.5), (1, 0.999), (199, 0.07), (97, 0.98), (400, 0.9)]
)
def test_calibrated_quantiles_are_order_statistics(rng, m, a, dtype):
    if m < pb.least_samples(a):
        with pytest.raises(ValueError, match="draw at least"):
            pb.calibrated_quantiles(np.zeros((1, m, 2), dtype), a)
        return
    samples = samples_of(rng, 2, m, (4, 5), dtype)
    low, high = exact_ranks(m, a)
    ranked = np.sort(samples, axis=1)
    band = pb.calibrated_quantiles(samples, a)
    assert band.lower.dtype == samples.dtype
    np.testing.assert_array_equal(band.lower, ranked[:, low - 1])
    np.testing.assert_array_equal(band.upper, ranked[:, high - 1])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(m=st.integers(1, 260), p=st.integers(1, 600), seed=st.integers(0, 2**32), data=st.data())
def test_any_rank_of_any_size_with_ties_and_signed_zeros(m, p, seed, data):
    rank = data.draw(st.integers(1, m))
    samples = np.random.default_rng(seed).integers(-3, 4, (2, m, p)) / np.float32(4)
    ranked = np.sort(samples, axis=1)
    device = [] if torch is None else [lambda x, r: bands._order_statistics_torch(as_tensor(x), r)]
    for route in (bands.order_statistics, *device):
        low, high = route(samples, rank)
        np.testing.assert_array_equal(low, ranked[:, rank - 1])
        np.testing.assert_array_equal(high, ranked[:, m - rank])


@needs_torch
def test_the_whole_device_route_equals_numpy(rng, monkeypatch):
    samples = samples_of(rng, 2, 30, (3, 4))
    expected = {name: make(samples, 1) for name, make in MAKERS.items()}
    monkeypatch.setattr(bands, "_reduce", lambda x, axis, reduction: bands._reduce_block(x, axis, reduction))
    for name, make in MAKERS.items():
        for axis in (0, 1, -1):
            band = make(torch.from_numpy(np.moveaxis(samples, 1, axis).copy()), axis)
            for ours, theirs in zip(parts(band), parts(expected[name]), strict=True):
                assert isinstance(ours, torch.Tensor)
                np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-12)


# ---------------------------------------------------------------- other bands against their definitions


@pytest.mark.parametrize("m, a", [(2, 0.1), (19, 0.1), (20, 0.25), (128, 0.1), (300, 0.7), (1, 0.5)])
def test_naive_quantiles_are_numpys(rng, m, a):
    samples = samples_of(rng, 2, m, (4, 5))
    band = pb.naive_quantiles(samples, a)
    np.testing.assert_allclose(band.lower, np.quantile(samples, a / 2, axis=1), rtol=1e-12)
    np.testing.assert_allclose(band.upper, np.quantile(samples, 1 - a / 2, axis=1), rtol=1e-12)


def test_mean_and_std_and_narrow_are_numpys(rng):
    samples = samples_of(rng, 2, 11)
    mean, deviation = samples.mean(axis=1), samples.std(axis=1, ddof=1)
    band = pb.mean_and_std(samples)
    np.testing.assert_allclose(band.centre, mean)
    np.testing.assert_allclose(band.upper, mean + deviation)
    band = pb.narrow(samples, deviations=0.5)
    assert band.centre is None
    np.testing.assert_allclose(band.lower, mean - 0.5 * deviation)
    assert "no entrywise coverage" in band.source.kind


# ---------------------------------------------------------------- every kind of array agrees


@every_shape
@every_maker
def test_numpy_torch_zarr_and_dask_agree(rng, make, pixels):
    samples = samples_of(rng, 4, 24, pixels, np.float32)
    expected = make(samples, 1)
    assert expected.shape == (4, *pixels)
    as_torch = make(as_tensor(samples), 1)
    as_zarr = make(zarr.array(samples, chunks=(2, 5, *pixels)), 1)
    lazy = make(da.from_array(samples, chunks=(2, 5, *[3] * len(pixels))), 1)
    others = (make(np.asfortranarray(samples), 1), make(samples.astype(np.float64), 1))
    exact = make is MAKERS["calibrated"]  # order statistics agree to the bit
    assert all(isinstance(x, type(as_tensor(samples))) and x.dtype == as_tensor(samples).dtype for x in parts(as_torch))
    assert all(isinstance(x, da.Array) and x.dtype == np.float32 for x in parts(lazy))
    for band in (as_torch, as_zarr, lazy, *others):
        assert band.source == expected.source
        assert band.shape == expected.shape
        for ours, theirs in zip(parts(band), parts(expected), strict=True):
            np.testing.assert_allclose(
                np.asarray(ours), theirs, **({"rtol": 0} if exact else {"rtol": 2e-6, "atol": 1e-7})
            )


@every_maker
def test_zarr_is_read_in_blocks_with_the_same_result(rng, make, monkeypatch):
    samples = samples_of(rng, 7, 24, (4, 4))
    monkeypatch.setattr(bands, "_BLOCK_BYTES", 2 * samples[0].nbytes)
    for ours, theirs in zip(parts(make(zarr.array(samples), 1)), parts(make(samples, 1)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("pixels", [(), (7,), (5, 6, 3)], ids=str)
@every_maker
def test_samples_may_lie_on_any_axis(rng, make, pixels):
    samples = samples_of(rng, 3, 24, pixels)
    expected = parts(make(samples, 1))
    for axis in range(-samples.ndim, samples.ndim):
        moved = np.moveaxis(samples, 1, axis)
        for array in (moved, np.ascontiguousarray(moved), as_tensor(moved.copy()), zarr.array(moved)):
            for ours, theirs in zip(parts(make(array, axis)), expected, strict=True):
                np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-12)
    lazy = make(da.from_array(np.moveaxis(samples, 1, -1), chunks=2), -1)
    for ours, theirs in zip(parts(lazy), expected, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-12)


@needs_torch
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@every_maker
def test_any_floating_precision(rng, make, dtype):
    exact = samples_of(rng, 2, 30, (4, 5))
    tensor = torch.from_numpy(exact).to(getattr(torch, dtype))
    expected = parts(make(tensor.double().numpy(), 1))
    band = make(tensor, 1)
    assert all(x.dtype == tensor.dtype for x in parts(band))
    for ours, theirs in zip(parts(band), expected, strict=True):
        np.testing.assert_allclose(ours.double().numpy(), theirs, atol=2 * EPSILON[dtype])
    if dtype != "bfloat16":  # NumPy has none
        band = make(tensor.numpy(), 1)
        assert all(x.dtype == np.dtype(dtype) for x in parts(band))
        for ours, theirs in zip(parts(band), expected, strict=True):
            np.testing.assert_allclose(ours.astype(np.float64), theirs, atol=2 * EPSILON[dtype])


# ---------------------------------------------------------------- what is refused


@pytest.mark.filterwarnings("ignore:invalid value")
@every_maker
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite_name_their_image(rng, make, value, monkeypatch):
    samples = samples_of(rng, 6, 24, (4, 4))
    samples[4, 7, 2, 1] = value
    monkeypatch.setattr(bands, "_BLOCK_BYTES", 2 * samples[0].nbytes)  # zarr is read in several blocks
    for array in (samples, as_tensor(samples), zarr.array(samples), samples.astype(np.float16)):
        with pytest.raises(ValueError, match=r"image 4 .*NaN or infinite.*drop the image or draw again"):
            make(array, 1)
    for array in (np.moveaxis(samples, 1, 0), as_tensor(np.moveaxis(samples, 1, 0))):
        with pytest.raises(ValueError, match=r"image 4 .*NaN or infinite"):
            make(array, 0)
    lazy = make(da.from_array(samples, chunks=(2, 24, 4, 4)), 1)
    with pytest.raises(ValueError, match="NaN or infinite"):
        lazy.lower.compute()
