"""The few compiled loops, and how blocks of rows run in threads.

Every kernel works on a block of rows (images), holds no lock and shares nothing, so `over_rows` may run blocks in
threads. Numba caches what it compiled beside the file and compiles again when that file changes: all that a kernel
calls, constants included, therefore lies in its own file.

threads.py     blocks of rows in threads, or by the runner that `execution` sets
values.py      values at the door: finite, in order, within limits; the fingerprint of what was read
arriving.py    arrival times along knots, and exact sums over certifying and fitting images
features.py    width, room and level of the band in cells and bins
solving.py     the convex program, group by group; lower hulls
betting.py     the wealth of a bettor against "the mean is at least this level"
"""

from .bins import band_cells, band_labels
from .convex import lower_hull, minimise_groups, surrogate
from .knots import (
    FIXED_POINT,
    LOWER,
    UPPER,
    add_counts,
    add_lengths,
    add_points,
    arrivals,
    collect_missed,
    count_arrivals,
    index_knots,
)
from .threads import RUNNER, block_of, cut_rows, in_this_thread, in_threads, over_rows
from .values import count_above, extremes, fingerprint, survey
from .wealth import betting_wealth

__all__ = [
    "FIXED_POINT",
    "LOWER",
    "RUNNER",
    "UPPER",
    "add_counts",
    "add_lengths",
    "add_points",
    "arrivals",
    "band_cells",
    "band_labels",
    "betting_wealth",
    "block_of",
    "collect_missed",
    "count_above",
    "count_arrivals",
    "cut_rows",
    "extremes",
    "fingerprint",
    "in_this_thread",
    "in_threads",
    "index_knots",
    "lower_hull",
    "minimise_groups",
    "over_rows",
    "surrogate",
    "survey",
]
