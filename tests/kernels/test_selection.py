"""The compiled selection against sorting: every rank, both precisions, all remainders of samples and pixels."""

import numpy as np
import pytest

from pixelbounds.kernels.selection import tails


def selected(samples, rank, start=0, stop=None):
    """What `tails` says of its samples, and the two rows."""
    p = samples.shape[1]
    low, high = np.full(p, 7, samples.dtype), np.full(p, 7, samples.dtype)
    return tails(samples, start, p if stop is None else stop, rank, low, high), low, high


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [1, 2, 7, 8, 9, 15, 16, 19, 64, 67, 128, 1000])
def test_every_rank_is_that_of_sorting(m, dtype):
    samples = np.random.default_rng(m).normal(size=(m, 281)).astype(dtype)
    samples[:, ::5] = np.round(samples[:, ::5])  # ties, and zeros of both signs
    ranked = np.sort(samples, axis=0)
    for rank in {*range(1, min(m, 26) + 1), min(m, 48)}:
        good, low, high = selected(samples, rank)
        assert good
        np.testing.assert_array_equal(low, ranked[rank - 1])
        np.testing.assert_array_equal(high, ranked[m - rank])


@pytest.mark.parametrize("start, stop", [(0, 1), (3, 258), (5, 261), (0, 256), (255, 257), (40, 40), (0, 700)])
def test_only_the_columns_asked_for_are_written(start, stop):
    samples = np.random.default_rng(0).normal(size=(27, 700)).astype(np.float32)
    good, low, high = selected(samples, 2, start, stop)
    assert good
    ranked, inside = np.sort(samples, axis=0), np.zeros(700, bool)
    inside[start:stop] = True
    np.testing.assert_array_equal(low, np.where(inside, ranked[1], 7))
    np.testing.assert_array_equal(high, np.where(inside, ranked[-2], 7))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rank", [1, 6, 12])
def test_a_bad_sample_anywhere_is_noticed(rank, bad, dtype):
    """In sorted groups of eight and among the samples that remain, in the first and last lane of a row of pixels."""
    for sample in range(29):
        for pixel in (0, 15, 255, 256, 299):
            samples = np.random.default_rng(1).normal(size=(29, 300)).astype(dtype)
            samples[sample, pixel] = bad
            assert not selected(samples, rank)[0], (sample, pixel)
            assert selected(samples, rank, pixel + 1)[0]


def test_great_values_are_no_infinite_ones():
    huge = np.finfo(np.float32).max
    samples = np.tile(np.array([[huge], [-huge]], np.float32), (12, 5))
    good, low, high = selected(samples, 3)
    assert good
    assert (low == -huge).all()
    assert (high == huge).all()


def test_rows_that_are_not_contiguous():
    samples = np.random.default_rng(2).normal(size=(300, 40)).astype(np.float32).T
    good, low, high = selected(samples, 5)
    assert good
    np.testing.assert_array_equal(low, np.sort(samples, axis=0)[4])
    np.testing.assert_array_equal(high, np.sort(samples, axis=0)[-5])
