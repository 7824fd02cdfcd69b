"""Which images of a call count: all of those of a batch that was not counted before, or of units that were not.

Images repeat honestly: slices of air, counts of a few lesions. Whoever leaves out an image because it is like an
earlier one changes the law of what is counted, and every promise is about that law. So images are never compared one by
one. A call without a name is questioned only where it begins with all images of an earlier call, in the same order, and
these are not all alike.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..images.checks import check_units, distinct_in_order
from ..images.library import Array, Runner, over_images, rows_of
from ..storage.store import joined_digests, row_digests

MAX_BATCHES = 4096  # that are remembered, the latest ones
_MAX_NAME = 200
_ODD = 0x9E3779B97F4A7C15


class RepeatedBatch(ValueError):
    """A call begins with the images of an earlier one."""

    def __init__(self, images: int) -> None:
        remedy = "leave out what was counted, or name the call, batch='2026-11-18', if they are new"
        super().__init__(f"the first {images} of these images are those of an earlier call: {remedy}")
        self.images = images


@dataclass(frozen=True)
class NewImages:
    """The images of a call that count, ascending, the unit of each, in the order of arrival, and digests of units.

    `repeated` and `late` images do not count, since their batch or their unit was counted before; `batches` are those
    that are counted after it.
    """

    images: Array
    unit_of: Array
    units: Array
    batches: Array
    repeated: int = 0
    late: int = 0


@dataclass(frozen=True, eq=False)
class Counted:
    """What was counted: images, digests of the names of units (u,), and of names and contents of calls (b, 2)."""

    images: int = 0
    units: Array = field(default_factory=lambda: np.empty(0, np.uint64))
    batches: Array = field(default_factory=lambda: np.empty((0, 2), np.uint64))

    def arrivals(self, names: Any, batch: str | None, *arrays: Any, runner: Runner) -> NewImages:
        """Which images of a call count, from the names of their units, if any, that of the batch, and the images."""
        n, batches = int(arrays[0].shape[0]), self.batches
        if names is None or batch is not None:
            prefixes = prefix_digests(*arrays, runner=runner)
            if self._counted_before(batch, prefixes):
                none = np.empty(0, np.int64)
                return NewImages(none, none, np.empty(0, np.uint64), batches, repeated=n)
            row = np.array([[_digest_of_batch(batch), prefixes[-1]]], np.uint64)
            batches = np.concatenate([batches, row])[-MAX_BATCHES:]
        if names is None:
            return NewImages(np.arange(n), np.arange(n), np.empty(0, np.uint64), batches)
        digests = unit_digests(check_units(names, n))
        images = np.flatnonzero(~np.isin(digests, self.units))
        units, unit_of = distinct_in_order(digests[images])
        return NewImages(images, unit_of, units, batches, late=n - len(images))

    def _counted_before(self, batch: str | None, prefixes: Array) -> bool:
        """Whether the batch of that name was counted with this content; `RepeatedBatch` for a content without a name.

        `prefixes` are digests of the first images, of the first two, and so on: (n,).
        """
        names, contents = self.batches.T
        if batch is None:
            earlier = np.flatnonzero(np.isin(prefixes, contents[contents != 0]))
            if len(earlier):
                raise RepeatedBatch(int(earlier[-1]) + 1)
            return False
        earlier = np.flatnonzero(names == _digest_of_batch(batch))
        if len(earlier) and contents[earlier[-1]] != prefixes[-1]:
            raise ValueError(f"batch {batch!r} was counted with other images; give this one a name of its own")
        return bool(len(earlier))

    def add(self, arrivals: NewImages, most_units: int = 0) -> Counted:
        """With the images of another call; the latest units are remembered, or all of them."""
        units = np.append(self.units, arrivals.units)[-most_units:]
        return Counted(self.images + len(arrivals.images), units, arrivals.batches)


def _digest_of_batch(name: str | None) -> int:
    if name is None:
        return 0
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        raise ValueError(f"batch is {name!r:.60}; give a name of 1 to {_MAX_NAME} characters, or leave it out")
    return int(unit_digests([name])[0])


def unit_digests(names: Any) -> Array:
    """A digest of the name of each unit: (n,) text -> (n,) uint64."""
    sums = (hashlib.blake2b(str(name).encode(), digest_size=8, person=b"unit").digest() for name in names)
    return np.array([int.from_bytes(x, "little") for x in sums], np.uint64)


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
