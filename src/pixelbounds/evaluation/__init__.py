"""What intervals are worth on held-out images: `evaluate`, the room below, puts these parts together.

results.py      what a user keeps: Evaluation, its strata, the coverage of fresh samples
strata.py       two passes over blocks of images: what cuts the strata, then sums per image and stratum
bootstrap.py    ratios of sums over units, with confidence intervals
"""

from .bootstrap import ratios
from .results import Evaluation, SampleCoverage, Strata
from .strata import Cuts, Rows, cuts_of, edge_strength, median_length, merge, survey, tally

__all__ = [
    "Cuts",
    "Evaluation",
    "Rows",
    "SampleCoverage",
    "Strata",
    "cuts_of",
    "edge_strength",
    "median_length",
    "merge",
    "ratios",
    "survey",
    "tally",
]
