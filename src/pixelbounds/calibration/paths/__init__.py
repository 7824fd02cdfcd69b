"""Groups to a monotone path of widenings, fixed before the certifying images are seen.

line.py        [solution of (P_K) + t * direction], at least the start        K-RCPS
frontier.py    groups widen in the order of misses removed per length         ours

The path of one group (RCPS) needs no fitting: `path.scalar_path`.
"""
