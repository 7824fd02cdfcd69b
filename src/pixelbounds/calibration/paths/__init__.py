"""Groups to a monotone path of widenings.

A path is a curve t -> widening of each of K groups, nondecreasing in t, fixed before the certifying images are seen.
It is kept as T knots, and is linear between them. Because every group's widening only grows, each end has one arrival
time: the first t at which it is covered. Three paths:

path.py        scalar: one group, widening = t                                RCPS
line.py        [solution of (P_K) + t * direction], at least the start        K-RCPS
frontier.py    groups widen in the order of misses removed per length         ours
"""

from .frontier import Trades, farthest, frontier_path, longest, spend, trades
from .line import GAMMAS, half_and_reach, line_path, solve_program, stratified_pixels, surrogate_points
from .path import Path, scalar_path, widening_grid

__all__ = [
    "GAMMAS",
    "Path",
    "Trades",
    "farthest",
    "frontier_path",
    "half_and_reach",
    "line_path",
    "longest",
    "scalar_path",
    "solve_program",
    "spend",
    "stratified_pixels",
    "surrogate_points",
    "trades",
    "widening_grid",
]
