"""What intervals are worth on held-out images.

held_out.py     `evaluate`: held-out truth and intervals -> Evaluation
evaluation.py   what a user keeps: Evaluation, its strata, the coverage of fresh samples
strata.py       two passes over blocks of images: what cuts the strata, then sums per image and stratum
bootstrap.py    ratios of sums over units, with confidence intervals
"""

from .evaluation import Evaluation, SampleCoverage, Strata
from .held_out import evaluate
from .strata import edge_strength

__all__ = ["Evaluation", "SampleCoverage", "Strata", "edge_strength", "evaluate"]
