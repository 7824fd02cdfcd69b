"""Window means and slopes against SciPy and NumPy, to the bit, along any axis."""

import numpy as np
import pytest
from scipy.ndimage import uniform_filter1d

from pixelbounds.kernels.features import add_squared_slope, width_and_level, window_means


@pytest.mark.parametrize("size", [3, 9])
@pytest.mark.parametrize(
    "shape, axis", [((1, 5, 1), 1), ((13, 40, 1), 1), ((2, 128, 7), 1), ((3, 6, 5), 1), ((8, 2000, 1), 1)]
)
def test_window_means_are_scipys(shape, axis, size):
    rng = np.random.default_rng(size)
    x = (rng.normal(size=shape) * np.exp(3 * rng.normal(size=shape))).astype(np.float32)
    wanted = uniform_filter1d(x, size, axis=axis, mode="nearest")
    out = np.empty_like(x)
    window_means(x, size, out)
    np.testing.assert_array_equal(out, wanted)
    window_means(x, size, x)  # in place
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize("shape", [(1, 5, 1), (3, 9, 4), (2, 2, 3), (7, 64, 1)])
def test_slopes_are_numpys(shape):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    out = np.full(shape, 0.25, np.float32)
    add_squared_slope(x, out)
    np.testing.assert_array_equal(out, np.float32(0.25) + np.gradient(x, axis=1) ** 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_width_and_level_of_the_clipped_band(dtype):
    lower, upper = np.sort(np.random.default_rng(0).normal(size=(2, 300)).astype(dtype), axis=0)
    width, level = np.empty((2, 300), np.float32)
    width_and_level(lower, upper, -0.3, 0.7, width, level)
    a, b = (np.clip(x.astype(np.float64), -0.3, 0.7).astype(np.float32) for x in (lower, upper))
    np.testing.assert_array_equal(width, b - a)
    np.testing.assert_array_equal(level, (b + a) / 2)
