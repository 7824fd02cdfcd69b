"""Nothing is counted twice: digests of what was seen, the most recent ones, in order of arrival.

A digest takes 8 bytes, and `MOST` of them are kept, so what a monitor holds does not grow without end. What is older
than that is forgotten: an image that is handed in again so late would be counted again.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ..images.library import Array, over_images, rows_of
from ..images.library import Runner as _Runner
from ..storage.digests import joined_digests, row_digests

MOST = 2**17


def image_digests(*images: Any, runner: _Runner) -> Array:
    """A digest of each image of several arrays, (n, *pixels) each -> (n,) uint64, never 0."""

    def work(start: int, stop: int) -> Array:
        return joined_digests(*(row_digests(rows_of(x, start, stop)) for x in images))

    return np.concatenate(list(over_images(work, images[0], runner, list(images))))


def name_digests(names: Array) -> Array:
    """A digest of each name, (n,) of text -> (n,) uint64."""
    found = [hashlib.blake2b(str(name).encode(), digest_size=8, person=b"unit").digest() for name in names]
    return np.frombuffer(b"".join(found), "<u8").astype(np.uint64)


def first_seen(digests: Array, seen: Array) -> Array:
    """Which of some digests, (n,), are not among those seen, each the first of its kind: (n,) bool."""
    fresh = ~np.isin(digests, seen)
    once = np.zeros(len(digests), bool)
    once[np.unique(digests, return_index=True)[1]] = True
    return fresh & once


def remembered_with(seen: Array, digests: Array) -> Array:
    """The digests seen and further ones, the oldest forgotten where they are too many."""
    return np.concatenate([seen, digests])[-MOST:]
