"""Small counts that a site does not tell.

A site may set a `least_count` of pixels. What its fitting images count below that is told as 0: groups and path come
out a little worse, and no promise depends on how good they are. What its certifying images miss is rounded up, to the
next multiple: every loss that is told is at least the true one, falls as intervals widen, and is a function of its
image fixed before the study began, so whatever is certified of the mean of what is told holds for the true mean. It is
never rounded down, which could certify too much. Single values (extremes, places between two points of the path) are
not told at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calibration.arrivals import misses
from ..calibration.block import Block, all_entries
from ..calibration.families import Family, additive
from ..calibration.groups.contract import Grouping
from ..calibration.pairs import Pairs, Statistic
from ..images.library import Array
from ..kernels.knots import FIXED_POINT
from .questions import ALL, CERTIFYING, Form

Tables = tuple[Array, ...]


def suppressed(pairs: Pairs, form: Form, fitting: Array, given: dict[str, Any], least: int) -> Tables:
    """The tables of a question, with counts of fewer than `least` pixels suppressed; () where no image is asked."""
    certifying = np.flatnonzero(~fitting)
    if form.scope == ALL:
        rows, prints = pairs.ask(form.statistic, **given)
        return rounded_up(rows, pairs.sizes, least)[certifying], prints
    if form.scope == CERTIFYING:
        return _arriving(pairs, certifying, given, least) if len(certifying) else ()
    images = np.flatnonzero(fitting)
    name = form.statistic.name
    if name == "cells":
        return (_large(pairs.ask(form.statistic, images, **given)[0], 2 * least),) if len(images) else ()
    if name == "occupied":
        return (pairs.ask(_combinations, images, **given)[0] >= 2 * least,) if len(images) else ()
    if name == "spend" and pairs.family is additive:
        return _spend(pairs.ask(form.statistic, images, **given), least) if len(images) else ()
    raise ValueError(
        f"the plan asks for {name} of the {pairs.family.name} family, which tells values of single pixels, and small "
        "counts are suppressed here; announce images with limits and bands of the additive family, use method='rcps', "
        "or leave least_count out"
    )


def rounded_up(counts: Array, sizes: Array, least: int) -> Array:
    """Misses (n, T) up to the next multiple of `least`, at most all pixels (n,) of an image.

    >>> rounded_up(np.array([[9, 4, 0]]), np.array([9]), 5)
    array([[9, 5, 0]])
    """
    wide = counts.astype(np.int64)
    return np.minimum(-(-wide // least) * least, sizes[:, None])


def _large(counts: Array, least: int) -> Array:
    """Counts of at least `least`; 0 for smaller ones."""
    return np.where(counts < least, 0, counts)


def _spend(found: Tables, least: int) -> Tables:
    """Misses by group, and rooms of ends: an additive end counts one, so that slopes tell how many there are."""
    counts, sums = found
    few = sums[0] < 2 * least * int(FIXED_POINT)  # two ends may be of one pixel
    return _large(counts, least), np.where(few, 0, sums)


def _arriving(pairs: Pairs, certifying: Array, given: dict[str, Any], least: int) -> Tables:
    """Ends between two points of the path, as the misses that were told have them, all at the later point."""
    knot = given["knot"]
    rows, _ = pairs.ask(misses, certifying, grouping=given["grouping"], path=given["path"])
    told = rounded_up(rows, pairs.sizes[certifying], least)
    counts = told[:, knot - 1] - told[:, knot]
    return counts, np.ones(int(counts.sum()))


def _count_combinations(truth: Array, block: Block, family: Family, grouping: Grouping) -> Tables:
    return (np.bincount(grouping.at(block, *all_entries(block)), minlength=grouping.count),)


_combinations = Statistic("combinations", _count_combinations, (np.add,))  # ends of each combination of bins
