"""One name, one thing: promises that are called alike are about the same, or the sentence would say two things of one.

Several promises about one region may share its name: a share of it, a tail, a loss. Regions of further images are told
by these names, too. Names that differ in case or blanks alone are the same for a reader, so they are here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..images.library import differ_in_size, to_numpy

ALL_PIXELS = "all pixels"
PROMISE_KEY = ("kind", "name", "place", "at_most", "above", "cap", "weighting")
YOUR_LOSS = "your loss"  # that has no name of its own
_ROWS = 64  # images of two regions that are compared at a time


def spoken(name: str) -> str:
    """A name as a reader hears it.

    >>> spoken("Left  lung") == spoken("left lung")
    True
    """
    return " ".join(name.split()).casefold()


def promise_key(promise: Any) -> tuple[Any, ...]:
    """All that a promise is, certified or seen on other images: two with the same key are the same promise."""
    return tuple(getattr(promise, name) for name in PROMISE_KEY)


def check_free(name: str, number: int) -> None:
    """A region is not called as if it were everything."""
    if spoken(name) == ALL_PIXELS:
        raise ValueError(
            f"promise {number} is about a part and called {name!r}, which is the name of everything; give another: "
            "name='body'"
        )


def first_difference(one: Any, other: Any) -> int | None:
    """The first image in which two regions of the same images differ; None where they are the same."""
    for start in range(0, int(one.shape[0]), 1 if differ_in_size(one) else _ROWS):
        if differ_in_size(one):
            same = [np.array_equal(to_numpy(one[start]), to_numpy(other[start]))]
        else:
            a, b = (to_numpy(x[start : start + _ROWS]) for x in (one, other))
            same = (a == b).reshape(len(a), -1).all(axis=1)
        if not np.all(same):
            return start + int(np.argmin(same))
    return None


class Called:
    """The first promise (`promises.Promise`) of each name."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[int, Any, str, Any]] = {}

    def check(self, number: int, promise: Any, place: str, region: Any) -> Any:
        """The first promise of this name, which may be this one; another must be about the same."""
        own = number, promise, place, region
        first, one, kind, other = self._first.setdefault(spoken(promise.name), own)
        losses = one.kind == promise.kind == "loss"
        if losses and (one.function is not promise.function or one.counts != promise.counts):
            raise _alike(first, number, promise.name, "are different losses")
        if kind != place:
            raise _alike(first, number, promise.name, f"are about different things ({kind} and {place})")
        image = None if other is region else first_difference(other, region)
        if image is not None:
            raise _alike(first, number, promise.name, f"are about different regions (see image {image})")
        return one


def _alike(first: int, number: int, name: str, why: str) -> ValueError:
    return ValueError(
        f"promises {first} and {number} are both called {name!r}, but {why}; give each a name of its own (name=)"
    )
