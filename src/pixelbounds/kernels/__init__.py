"""The few compiled loops.

Every kernel works on a block of rows (images), holds no lock and shares nothing, so blocks may run in threads. Numba
caches what it compiled beside the file and compiles again when that file changes: all that a kernel calls, constants
included, therefore lies in its own file.

selection.py   order statistics of samples
values.py      values at the door: finite, in order, within limits; the fingerprint of what was read
knots.py       arrival times along knots, and exact sums over certifying and fitting images
bins.py        width, room to the limits and level of the band in cells and bins
convex.py      the convex program, group by group; lower hulls
wealth.py      the wealth of a bettor against "the mean is at least this level"
"""

from .bins import band_cells, band_labels
from .convex import lower_hull, minimise_groups, surrogate
from .knots import (
    FIXED_POINT,
    KEY,
    LOWER,
    UPPER,
    add_counts,
    add_lengths,
    add_points,
    arrivals,
    collect_missed,
    count_arrivals,
    knots_below,
)
from .selection import tails
from .values import count_above, extremes, fingerprint, survey
from .wealth import betting_wealth

__all__ = [
    "FIXED_POINT",
    "KEY",
    "LOWER",
    "UPPER",
    "add_counts",
    "add_lengths",
    "add_points",
    "arrivals",
    "band_cells",
    "band_labels",
    "betting_wealth",
    "collect_missed",
    "count_above",
    "count_arrivals",
    "extremes",
    "fingerprint",
    "knots_below",
    "lower_hull",
    "minimise_groups",
    "surrogate",
    "survey",
    "tails",
]
