"""The few compiled loops.

Every kernel works on a block of rows (images), holds no lock and shares nothing, so blocks may run in threads. Numba
caches what it compiled beside the file and compiles again when that file changes: all that a kernel calls, constants
included, therefore lies in its own file. Whatever a kernel uses as an index was checked where it was read.

selection.py     order statistics of samples
values.py        values at the door: finite, in order, within limits; the fingerprint of what was read
entry_scores.py  entry scores along a path, and exact sums over certifying and fitting images
features.py      width, room to the limits and level of the band in cells and bins; window means, slopes
trees.py         sums of small decision trees
intervals.py     ends moved outward by their group's widening
convex.py        the convex program, group by group; lower hulls
bets.py          bets on bounded losses: bounds for known n, e-processes, confidence sequences
"""
