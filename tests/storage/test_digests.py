"""Digests tell content apart, and nothing else: not names, not how images are cut."""

import numpy as np
import pytest

from pixelbounds.storage.store import joined_digests, row_digests


@pytest.mark.parametrize("shape", [(7,), (1, 1), (3, 5), (20, 16, 16)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "uint8"])
def test_any_changed_value_is_told(shape, dtype):
    rng = np.random.default_rng(0)
    x = (200 * rng.random((6, *shape))).astype(dtype)
    found = row_digests(x)
    assert found.dtype == np.uint64
    assert len(np.unique(found)) == (6 if x[0].size > 1 else len(np.unique(x)))
    np.testing.assert_array_equal(np.concatenate([row_digests(x[:4]), row_digests(x[4:])]), found)
    np.testing.assert_array_equal(row_digests(np.asfortranarray(x)), found)
    for _ in range(20):
        other = x.copy()
        image = rng.integers(6)
        flat = other[image].reshape(-1).view(np.uint8)
        flat[rng.integers(flat.size)] ^= np.uint8(1 << rng.integers(8))
        changed = row_digests(other) != found
        assert changed.tolist() == [i == image for i in range(6)]


def test_shape_and_type_count_too():
    x = np.arange(24, dtype=np.float32).reshape(1, 4, 6)
    others = [x, x.reshape(1, 6, 4), x.view(np.int32), x.astype(np.float64), x[:, ::-1], np.zeros_like(x)]
    assert len({int(row_digests(y)[0]) for y in others}) == len(others)
    assert row_digests(np.zeros((3, 0), np.float32)).all()


def test_order_counts_where_digests_are_joined():
    a, b = row_digests(np.arange(4.0)), row_digests(np.arange(4.0) + 9)
    assert (joined_digests(a, b) != joined_digests(b, a)).all()
    assert (joined_digests(a) != joined_digests(a, b)).all()
