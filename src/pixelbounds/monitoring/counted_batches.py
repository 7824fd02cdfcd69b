"""Which calls were counted: by the name that a user gives to a batch, else by the content of the call as a whole.

Images repeat honestly: slices of air, counts of a few lesions. Whoever leaves out an image because it is like an
earlier one changes the law of what is counted, and every promise is about that law. So images are never compared one by
one. A call without a name is questioned only where it begins with all images of an earlier call, in the same order, and
these are not all alike.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..images.library import Array, Runner, over_images, rows_of
from ..storage.digests import joined_digests, row_digests

MAX_BATCHES = 4096  # that are remembered, the latest ones
_MAX_NAME = 200
_ODD = 0x9E3779B97F4A7C15


class RepeatedBatch(ValueError):
    """A call begins with the images of an earlier one."""

    def __init__(self, images: int) -> None:
        super().__init__(
            f"the first {images} of these images are those of an earlier call, in the same order: leave out what was "
            "counted, or name the call, batch='2026-11-18', if they are new"
        )
        self.images = images


@dataclass(frozen=True, eq=False)
class Batches:
    """Digests of the name and of the content of the latest calls, (b, 2) uint64; 0 for none."""

    digests: Array

    def find(self, name: str | None, prefixes: Array) -> bool:
        """Whether the batch of that name was counted with this content; `RepeatedBatch` for a content without a name.

        `prefixes` are digests of the first images, of the first two, and so on: (n,).
        """
        names, contents = self.digests.T
        if name is not None:
            earlier = np.flatnonzero(names == digest_of_name(name))
            if len(earlier) and contents[earlier[-1]] != prefixes[-1]:
                raise ValueError(f"batch {name!r} was counted with other images; give this one a name of its own")
            return bool(len(earlier))
        earlier = np.flatnonzero(np.isin(prefixes, contents[contents != 0]))
        if len(earlier):
            raise RepeatedBatch(int(earlier[-1]) + 1)
        return False

    def add(self, name: str | None, prefixes: Array) -> Batches:
        """With another call."""
        row = np.array([[digest_of_name(name), prefixes[-1]]], np.uint64)
        return Batches(np.concatenate([self.digests, row])[-MAX_BATCHES:])


def digest_of_name(name: str | None) -> int:
    """A digest of the name of a batch, 0 for none."""
    if name is None:
        return 0
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise ValueError(f"batch is {name!r:.60}; give a name of 1 to {_MAX_NAME} characters, or leave it out")
    return digest_of_unit(name)


def digest_of_unit(name: str) -> int:
    """A digest of the name of a unit."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8, person=b"unit").digest(), "little")


def unit_digests(names: Array) -> Array:
    """A digest of the name of each unit: (n,) text -> (n,) uint64."""
    return np.array([digest_of_unit(str(name)) for name in names], np.uint64)


def prefix_digests(*images: Any, runner: Runner) -> Array:
    """Digests of the first images of several arrays, the first two, ...: (n, *pixels) each -> (n,) uint64.

    0 as long as all images are alike: that tells nothing.
    """

    def work(start: int, stop: int) -> Array:
        return joined_digests(*(row_digests(rows_of(x, start, stop)) for x in images))

    rows = np.concatenate(list(over_images(work, images[0], runner, list(images))))
    prefixes = np.empty(len(rows), np.uint64)
    total = 0
    for i, row in enumerate(rows.tolist()):
        total = ((total ^ row) * _ODD) % 2**64
        prefixes[i] = total ^ (total >> 29)
    prefixes[np.logical_and.accumulate(rows == rows[0])] = 0
    return prefixes


NO_BATCHES = Batches(np.empty((0, 2), np.uint64))


def all_known(hashes: Array, others: Array) -> bool:
    """Whether all images of a call, at least two different ones, are among others; a few may repeat honestly."""
    compared = hashes[hashes != 0]
    return len(np.unique(compared)) > 1 and bool(np.isin(compared, others).all())
