import numpy as np

from pixelbounds.demo import packaged
from reproduce.gpu.package import pack_bands


def bands(n=3, size=8):
    rng = np.random.default_rng(0)
    middle, half = rng.random((n, size, size)), 0.2 * rng.random((n, size, size))
    return middle - half, middle + half, middle[1:] + 0.01 * rng.standard_normal((n - 1, size, size))


def test_what_is_packed_comes_back_in_8_bits_with_ends_rounded_outward():
    lower, upper, fresh = bands()
    arrays, about = packaged.unpack_bands(pack_bands(lower, upper, fresh, {"samples": 19}))
    assert about == {"samples": 19}
    for name, given, sign in (("lower", lower, -1), ("upper", upper, 1)):
        gap = sign * (arrays[name] - np.clip(given, 0, 1))
        assert arrays[name].dtype == np.float32
        assert gap.min() >= 0
        assert gap.max() < 1.001 / packaged.STEPS
    assert np.abs(arrays["fresh"] - np.clip(fresh, 0, 1)).max() < 0.501 / packaged.COARSE
    new = packaged.in_8_bits(lower, upper)  # bands of new samples are rounded as the packaged ones are
    assert np.array_equal(new, [arrays["lower"], arrays["upper"]])
