import numpy as np
import pytest

from pixelbounds.demo import packaged


def outputs(n=3, size=8):
    rng = np.random.default_rng(0)
    middle, half = rng.random((n, size, size)), 0.2 * rng.random((n, size, size))
    arrays = {name: middle + 0.01 * rng.standard_normal(middle.shape) for name in packaged._ARRAYS}
    arrays |= {name: half * 0.5 for name in packaged._ARRAYS if "deviation" in name}
    return arrays | {"lower": middle - half, "upper": middle + half}


def test_what_is_packed_comes_back_in_8_bits_with_ends_rounded_outward():
    given = outputs()
    arrays, about = packaged.unpack_arrays(packaged.pack_arrays(given, {"samples": 19}))
    assert about == {"samples": 19}
    assert set(arrays) == set(given)
    for name, x in given.items():
        step = 1 / packaged._ARRAYS[name]
        within, back = np.clip(x, 0, 1), arrays[name]
        assert back.dtype == np.float32
        assert np.abs(back - within).max() < 1.001 * step
        if name.endswith("lower"):
            assert (back <= within).all()
        elif name.endswith("upper"):
            assert (back >= within).all()
        else:
            assert np.abs(back - within).max() < 0.501 * step


def test_new_bands_are_rounded_as_the_packaged_ones_are():
    given = outputs()
    arrays, _ = packaged.unpack_arrays(packaged.pack_arrays(given, {}))
    lower, upper = packaged.in_8_bits(given["lower"], given["upper"])
    assert np.array_equal(lower, arrays["lower"])
    assert np.array_equal(upper, arrays["upper"])


def test_a_missing_array_is_named():
    given = outputs()
    del given["fresh"]
    with pytest.raises(ValueError, match="lacks fresh"):
        packaged.pack_arrays(given, {})
