"""How usual new bands are among those of the certifying images: conformal p-values, without truth.

A calibration keeps what bands of certifying units are like (`calibration/band_statistics.py`). While images come from
the same source, those of certifying and of new images are exchangeable: an image is as likely to be the most extreme as
any other. That is no statement about risk.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calibration.band_statistics import describe
from ..calibration.block import read_block
from ..calibration.calibration import Calibration
from ..images.ends import Band
from ..images.library import Array, alike, block_of, in_threads, sizes_of

_AT_ONCE = 1024  # new images compared at a time
_FINE = 1e-12  # rounding, of distances of which the farthest is near 1


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
    known = reference - centre
    squares = known**2
    found = np.empty(len(rows))
    for start in range(0, len(rows), _AT_ONCE):
        new = rows[start : start + _AT_ONCE] - centre
        mean = new / (n + 1)  # of all; that of the reference is 0
        total = squares.sum(axis=0) + new**2 - (n + 1) * mean**2
        share = 1 / np.where(total > 0, total, 1.0)
        own = ((new - mean) ** 2 * share).sum(axis=1)
        theirs = share @ squares.T - 2 * (mean * share) @ known.T + (mean**2 * share).sum(axis=1)[:, None]
        found[start : start + len(new)] = (1 + (theirs >= own[:, None] - _FINE).sum(axis=1)) / (n + 1)
    return found


def band_statistics(
    calibration: Calibration, band: Band, *, features: Any = None, labels: Any = None, threads: bool = True
) -> Array:
    """What each image's band is like, as the calibration keeps it of certifying images: Band -> (n, 5) float32."""
    reference = calibration.reference
    if not len(reference):
        raise ValueError(
            "this calibration keeps no reference of what its bands are like: its images stayed at their sites; "
            "calibrate again to have it"
        )
    band, features, labels = calibration.check_band(band, features, labels)
    told = calibration.family, calibration.grouping, reference.widening, reference.shares

    def work(start: int, stop: int) -> list[Array]:
        runs = alike(band.lower, range(start, stop))
        blocks = (read_block(band, run[0], run[-1] + 1, calibration.limits, features, labels) for run in runs)
        return [describe(block, *told) for block in blocks]

    if not threads:
        return np.concatenate(work(0, len(band)))
    block = block_of(int(sizes_of(band.lower).mean()), len(band))
    return np.concatenate([row for rows in in_threads(work, len(band), block) for row in rows])


def conformal_p_values(
    calibration: Calibration, band: Band, *, features: Any = None, labels: Any = None, threads: bool = True
) -> Array:
    """How usual each image's band is among those of the certifying images: a p-value each, Band -> (n,).

    Of images from the same source at most a share p has a p-value of at most p; 1 / (n + 1) is that of an image
    farther out than all n of the reference. Units count once: it holds for an image drawn from a new unit. It says
    nothing about risk.
    """
    rows = band_statistics(calibration, band, features=features, labels=labels, threads=threads)
    return p_values(calibration.reference.of_images, rows)
