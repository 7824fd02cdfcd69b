"""Small counts that a site does not tell.

A site may set a `least_count` of pixels. Its fitting images tell no smaller counts: small ones are told as 0, or with
those of wider intervals. Groups and path come out a little worse, and no promise depends on how good they are. What
its certifying images miss is rounded up, to the next multiple: every loss that is told is at least the true one, falls
as intervals widen, and is a function of its image fixed before the study began, so whatever is certified of the mean of
what is told holds for the true mean. It is never rounded down, which could certify too much. Sizes of regions are
rounded down, so that shares of them are never told too small, but not to 0: an image that has a region counts. Single
values (extremes, places between two points of the path) are not told at all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calibration.block import Block, all_entries
from ..calibration.data import LocalData, Statistic
from ..calibration.families import Family, additive
from ..calibration.groups.contract import Grouping
from ..calibration.loss_table import misses
from ..images.library import Array
from ..kernels.entry_scores import FIXED_POINT
from .questions import ALL, CERTIFYING, Form

Tables = tuple[Array, ...]


def suppressed(pairs: LocalData, form: Form, fitting: Array, given: dict[str, Any], least: int) -> Tables:
    """The tables of a question, with counts of fewer than `least` pixels suppressed; () where no image is asked."""
    certifying = np.flatnonzero(~fitting)
    if form.scope == ALL:
        rows, *more = pairs.aggregate(form.statistic, **given)
        if not form.regional:
            return rounded_up(rows, pairs.sizes, least)[certifying], *more
        sizes = _with_pixels(more[0], least)
        told = rounded_up(rows.reshape(sizes.size, -1), sizes.reshape(-1), least).reshape(rows.shape)
        return told[certifying], sizes[certifying], *more[1:]
    if form.scope == CERTIFYING:
        return _arriving(pairs, certifying, given, least) if len(certifying) else ()
    images = np.flatnonzero(fitting)
    name = form.statistic.name
    if name == "cells":
        return (_large(pairs.aggregate(form.statistic, images, **given)[0], 2 * least),) if len(images) else ()
    if name == "occupied":
        return (pairs.aggregate(_combinations, images, **given)[0] >= 2 * least,) if len(images) else ()
    if name == "spend" and pairs.family is additive:
        return _spend(pairs.aggregate(form.statistic, images, **given), given, least) if len(images) else ()
    if name == "missed_cells":
        return _pooled(pairs.aggregate(form.statistic, images, **given), given, least) if len(images) else ()
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


def told_sizes(sizes: Array, least: int) -> Array:
    """Pixels of regions down to a multiple of `least`, but one `least` where there are any.

    What is missed of them is rounded up and is at most this: the share that is told is never below the true one.

    >>> told_sizes(np.array([0, 3, 14]), 5)
    array([ 0,  5, 10])
    """
    return sizes if least == 1 else np.where(sizes > 0, np.maximum(sizes // least * least, least), 0)


def _with_pixels(sizes: Array, least: int) -> Array:
    """Sizes of all regions (n, 1 + regions) as whole numbers; pixels of an image, the first, are no secret."""
    told = told_sizes(sizes.astype(np.int64), least)
    told[:, 0] = sizes[:, 0]
    return told


def _pooled(found: Tables, given: dict[str, Any], least: int) -> Tables:
    """What fitting images miss by cell, counted over all of them, as if each had its share: none is told by itself."""
    counts, key, weights, exact = found
    sizes = _with_pixels(exact, least)
    shape = given["grouping"].count, len(given["edges"]) + 1
    sums = [np.bincount(key, column, minlength=shape[0] * shape[1]).astype(np.int64) for column in weights.T]
    told = np.stack([carried(x.reshape(shape), least).reshape(-1) for x in sums], axis=1)
    cells = np.flatnonzero(told.any(axis=1))
    part = sizes / np.maximum(sizes.sum(axis=0), 1)
    spread = part[:, None] * told[cells]
    return (
        np.full(len(counts), len(cells)),
        np.tile(cells, len(counts)),
        spread.reshape(-1, spread.shape[2]),
        sizes,
    )


def carried(counts: Array, least: int) -> Array:
    """Counts along a row as multiples of `least`: what is too few for one is carried on, at the end left out.

    >>> carried(np.array([[1, 3, 4, 0, 2, 1]]), 5)
    array([[0, 0, 5, 0, 5, 0]])
    """
    return np.diff(np.cumsum(counts, axis=1) // least * least, axis=1, prepend=0)


def _large(counts: Array, least: int) -> Array:
    """Counts of at least `least`; 0 for smaller ones."""
    return np.where(counts < least, 0, counts)


def _spend(found: Tables, given: dict[str, Any], least: int) -> Tables:
    """Misses by group, and rooms of ends: an additive end counts one, so that slopes tell how many there are."""
    counts, sums = found
    ends = carried(sums[0] // int(FIXED_POINT), 2 * least)  # two ends may be of one pixel
    edges = np.floor(given["edges"] * (FIXED_POINT / given["units"][1])).astype(np.int64)
    rooms = ends * np.append(edges, 0)  # as if all of them had the room of their edge
    return carried(counts, least), np.stack([ends * int(FIXED_POINT), rooms])


def _arriving(pairs: LocalData, certifying: Array, given: dict[str, Any], least: int) -> Tables:
    """Ends between two points of the path, as the misses that were told have them, all at the later point."""
    knot = given["knot"]
    rows, _ = pairs.aggregate(misses, certifying, grouping=given["grouping"], path=given["path"])
    told = rounded_up(rows, pairs.sizes[certifying], least)
    counts = told[:, knot - 1] - told[:, knot]
    return counts, np.ones(int(counts.sum()))


def _count_combinations(truth: Array, block: Block, family: Family, grouping: Grouping) -> Tables:
    return (np.bincount(grouping.at(block, *all_entries(block)), minlength=grouping.count),)


_combinations = Statistic("combinations", _count_combinations, (np.add,))  # ends of each combination of bins
