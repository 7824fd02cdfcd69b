"""Groups to a monotone path of widenings, fixed before the certifying images are seen.

line.py        [solution of (P_K) + t * direction], at least the start        K-RCPS; program.py solves (P_K)
frontier.py    groups widen in the order of misses removed per length         ours

The path of one group (RCPS) needs no fitting: `arrivals.scalar_path`.
"""

from ..loss_table import Path, scalar_path, widening_grid
from .frontier import Trades, farthest, frontier_of, frontier_path, longest, spend, trades
from .line import GAMMAS, half_and_reach, line_path, solve_program, stratified_pixels, surrogate_points

__all__ = [
    "GAMMAS",
    "Path",
    "Trades",
    "farthest",
    "frontier_of",
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
