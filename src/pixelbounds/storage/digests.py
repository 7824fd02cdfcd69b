"""Digests of what was read, by which a run that goes on knows its inputs again.

They tell content that was drawn anew, edited or damaged from content that is the same, whatever its file is called.
They are fast (several GB/s, so that they hide behind reading) and no defence against somebody who seeks a collision:
who may write the inputs of a run decides what it is about anyway.
"""

from __future__ import annotations

from math import prod

import google_crc32c
import numpy as np

Array = np.ndarray
_ODD = np.uint64(0x9E3779B97F4A7C15)
_WORD = 8  # bytes


def row_digests(rows: Array) -> Array:
    """A digest of each image of an array, of its shape and its type: (n, ...) -> (n,) uint64, never 0.

    >>> a, b, c = row_digests(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]))
    >>> bool(a == c), bool(a == b)
    (True, False)
    """
    rows = np.ascontiguousarray(rows)
    n = len(rows)
    kind = google_crc32c.value(f"{rows.dtype.str} {rows.shape[1:]}".encode())
    size = prod(rows.shape[1:]) * rows.dtype.itemsize
    flat = rows.reshape(n, -1).view(np.uint8).reshape(n, size)
    checks = np.array([google_crc32c.extend(kind, row) for row in flat], np.uint64)
    words = size // _WORD * _WORD
    sums = np.zeros(n, np.uint64)
    if words:  # a checksum of 32 bits and a sum of words of 64: what is drawn anew has neither by chance
        sums = np.ascontiguousarray(flat[:, :words]).view(np.uint64).sum(axis=1, dtype=np.uint64)
    return joined_digests(checks, sums)


def joined_digests(*parts: Array) -> Array:
    """One digest of several of each image, in this order: (n,) uint64 each -> (n,) uint64, never 0."""
    total = np.zeros_like(parts[0])
    with np.errstate(over="ignore"):
        for part in parts:
            total = (total ^ part) * _ODD
            total ^= total >> np.uint64(29)
    return np.where(total == 0, _ODD, total)
