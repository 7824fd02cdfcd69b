"""How a test says that bad input is refused: a ValueError (a TypeError for a wrong type) that names value and remedy.

Nothing that is given is ever changed.
"""

import numpy as np
import pytest
from flat import flat_calibrate
from worlds import heteroscedastic

N, SIZE = 60, 6
HERE = {"risk_level": 0.2}


def data(dtype=np.float64, n=N):
    """Truth and band, the same at every call."""
    return heteroscedastic(n, np.random.default_rng(0), size=SIZE, dtype=dtype)


def refuses(call, *words, error=ValueError, never=(), unchanged=()):
    """The call raises an error whose message holds all words, none of others, and leaves some arrays as they were."""
    before = [np.array(x, copy=True) for x in unchanged]
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value), f"{word!r} is not said by: {caught.value}"
    assert not [word for word in never if word in str(caught.value)], str(caught.value)
    for x, kept in zip(unchanged, before, strict=True):
        np.testing.assert_array_equal(np.asarray(x), kept)
    return str(caught.value)


def refuses_to_calibrate(*words, truth=None, band=None, error=ValueError, **kwargs):
    """`calibrate` on good data, save what is given, raises such an error."""
    good_truth, good_band = data()
    truth, band = good_truth if truth is None else truth, good_band if band is None else band
    given_arrays = (truth, getattr(band, "lower", None), getattr(band, "upper", None))
    watched = [x for x in given_arrays if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    refuses(lambda: flat_calibrate(truth, band, **{**HERE, **kwargs}), *words, error=error, unchanged=watched)


METHODS = [("rcps", None), ("krcps", "loss"), ("frontier", "band"), ("frontier", "learned")]
every_method = pytest.mark.parametrize("method, groups", METHODS)
