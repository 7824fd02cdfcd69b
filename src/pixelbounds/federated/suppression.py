"""Small counts that a site does not report.

A site may set a `least_count` of pixels. Its fitting images report no smaller counts: small ones are reported as 0, or
with those of wider intervals. Groups and path become a little worse, and no promise depends on how good they are. What
its certifying images miss is rounded up to the next multiple: every reported loss is at least the true one, falls as
intervals widen, and is a function of its image fixed before the study began, so whatever is certified of the mean of
reported losses holds for the true mean. It is never rounded down, which could certify too much. Sizes of regions are
rounded down, so that shares of them are never reported too small, but not to 0: an image that has a region counts.
Single values (extremes, places between two points of the path) are not reported at all.
"""

from __future__ import annotations

import numpy as np

from ..images.library import Array


def rounded_up(counts: Array, sizes: Array, least: int) -> Array:
    """Misses (n, T) up to the next multiple of `least`, at most all pixels (n,) of an image.

    >>> rounded_up(np.array([[9, 4, 0]]), np.array([9]), 5)
    array([[9, 5, 0]])
    """
    return np.minimum(-(-counts.astype(np.int64) // least) * least, sizes[:, None])


def reported_sizes(sizes: Array, least: int) -> Array:
    """Pixels of regions down to a multiple of `least`, but one `least` where there are any.

    What is missed of them is rounded up and is at most this: the share that is reported is never below the true one.

    >>> reported_sizes(np.array([0, 3, 14]), 5)
    array([ 0,  5, 10])
    """
    return sizes if least == 1 else np.where(sizes > 0, np.maximum(sizes // least * least, least), 0)


def image_and_region_sizes(sizes: Array, least: int) -> Array:
    """Reported sizes (n, 1 + regions) as whole numbers; pixels of an image, the first column, are no secret."""
    rounded = reported_sizes(sizes.astype(np.int64), least)
    rounded[:, 0] = sizes[:, 0]
    return rounded


def carried(counts: Array, least: int) -> Array:
    """Counts along a row as multiples of `least`: what is too few for one is carried on, at the end left out.

    >>> carried(np.array([[1, 3, 4, 0, 2, 1]]), 5)
    array([[0, 0, 5, 0, 5, 0]])
    """
    return np.diff(np.cumsum(counts, axis=1) // least * least, axis=1, prepend=0)
