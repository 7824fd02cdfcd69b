"""New bands compared with those of the calibration, without truth: statistics of each image and conformal p-values.

A calibration keeps statistics of the bands of its first certifying units (`calibration.provenance`). Nothing that
they depend on knows the certifying images, so while new images come from the same source, statistics of certifying
and of new images are exchangeable: a new one is as likely to be the most extreme as any other. That says nothing about
risk.

With units, images of one unit are not exchangeable with those of others, but one image of a new unit is with one image
of each unit of the calibration: the p-value of an image is valid by itself, and several images of a unit are low
together. The number of images of one patient that are below a level is therefore not a count of independent ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calibration.block import read_block
from ..calibration.calibration import Calibration
from ..calibration.provenance import describe
from ..images.ends import Band
from ..images.library import Array, alike, block_of, in_threads, sizes_of

_AT_ONCE = 1024  # new images compared at a time
_FINE = 1e-12  # rounding, of distances of which the farthest is near 1


def statistics_of(
    calibration: Calibration, band: Band, *, features: Any = None, labels: Any = None, threads: bool = True
) -> Array:
    """Statistics of new images as the reference of a calibration has them: Band (n, *pixels) -> (n, 5) float32."""
    if not isinstance(calibration, Calibration):
        raise TypeError(f"calibration is a {type(calibration).__name__}; give what pixelbounds.calibrate returns")
    reference = calibration.reference
    if not len(reference):
        raise ValueError(
            "this calibration keeps no statistics of its bands, since its images stayed at their sites or it must not "
            "disclose single images: new bands cannot be compared with them"
        )
    band, features, labels = calibration.check_band(band, features, labels)

    def work(start: int, stop: int) -> list[Array]:
        runs = alike(band.lower, range(start, stop))
        blocks = (read_block(band, run[0], run[-1] + 1, calibration.limits, features, labels) for run in runs)
        made = calibration.family, calibration.grouping, reference.widening, reference.shares
        return [describe(block, *made) for block in blocks]

    if not threads:
        return np.concatenate(work(0, len(band)))
    block = block_of(int(sizes_of(band.lower).mean()), len(band))
    return np.concatenate([row for rows in in_threads(work, len(band), block) for row in rows])


def conformal_p_values(
    calibration: Calibration, band: Band, *, features: Any = None, labels: Any = None, threads: bool = True
) -> Array:
    """The p-value of "this image comes from the calibration's source", by its band alone: Band (n, *pixels) -> (n,).

    For one image of a new unit it is at most p with probability at most p. `features` and `labels` as in `apply`.
    """
    rows = statistics_of(calibration, band, features=features, labels=labels, threads=threads)
    return p_values(calibration.reference.of_images, rows)


def p_values(reference: Array, rows: Array) -> Array:
    """Share of images, the reference's and the new one, that lie at least as far out: (n, 5), (m, 5) -> (m,).

    How far out an image lies is the sum of squared distances from the mean of all n + 1, in units of their deviation:
    the same function of all of them, whichever is the new one, so the p-value is at most p with probability at most p.

    >>> at = np.arange(99.0)[:, None]
    >>> p_values(at, np.array([[49.0], [500.0]]))
    array([1.  , 0.01])
    """
    n = len(reference)
    centre = reference.mean(axis=0, dtype=np.float64)
    centred = reference - centre
    squares = centred**2
    values = np.empty(len(rows))
    for start in range(0, len(rows), _AT_ONCE):
        new = rows[start : start + _AT_ONCE] - centre
        mean = new / (n + 1)  # of all; that of the reference is 0
        total = squares.sum(axis=0) + new**2 - (n + 1) * mean**2
        share = 1 / np.where(total > 0, total, 1.0)
        distance = ((new - mean) ** 2 * share).sum(axis=1)
        others = share @ squares.T - 2 * (mean * share) @ centred.T + (mean**2 * share).sum(axis=1)[:, None]
        values[start : start + len(new)] = (1 + (others >= distance[:, None] - _FINE).sum(axis=1)) / (n + 1)
    return values
