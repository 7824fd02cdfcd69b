"""What `reproduce phantom --train` leaves can be put into the repository and the package, and other phantoms cannot."""

import numpy as np
import pytest

from pixelbounds.demo import packaged
from reproduce import phantom_arrays
from reproduce.gpu import package


def outputs(n=3, size=8):
    rng = np.random.default_rng(0)
    middle, half = rng.random((n, size, size)), 0.2 * rng.random((n, size, size))
    arrays = {name: middle + 0.01 * rng.standard_normal(middle.shape) for name in phantom_arrays._ARRAYS}
    arrays |= {name: half * 0.5 for name in arrays if "deviation" in name}
    demo = packaged.unpack_bands(package.pack_bands(middle - half, middle + half, arrays["fresh"][1:], {}))[0]
    return arrays, demo


def test_what_is_packed_comes_back_in_8_bits_with_ends_rounded_outward():
    given, demo = outputs()
    arrays, about = phantom_arrays.unpack_arrays(phantom_arrays.pack_arrays(given, {"samples": 19}, demo), demo)
    assert about == {"samples": 19}
    assert set(arrays) == set(given)
    for name, x in given.items():
        step = 1 / phantom_arrays._ARRAYS[name]
        within, back = np.clip(x, 0, 1), arrays[name]
        assert np.abs(back - within).max() < 1.001 * step
        if name.endswith(("lower", "upper")):
            assert ((back <= within) if name.endswith("lower") else (back >= within)).all()
        else:
            assert np.abs(back - within).max() < 0.501 * step
    del given["fresh"]
    with pytest.raises(ValueError, match="lacks fresh"):
        phantom_arrays.pack_arrays(given, {}, demo)
