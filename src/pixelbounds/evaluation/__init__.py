"""What intervals are worth on images whose truth is known.

held_out.py     `evaluate`: truth and intervals -> Evaluation
kept_promises.py what promises come to on images, with intervals
strata.py       two passes over blocks of images: what cuts the strata, then sums per image and stratum
unit_means.py   means over units, with confidence intervals that are valid
evaluation.py   what a user keeps: Evaluation, its strata, the coverage of fresh samples
guarantee_check.py    `judge`: an Evaluation against what a calibration claims
"""

from .evaluation import Evaluation, SampleCoverage, SeenPromise, Strata
from .guarantee_check import GuaranteeCheck, judge
from .held_out import evaluate

__all__ = [
    "Evaluation",
    "GuaranteeCheck",
    "SampleCoverage",
    "SeenPromise",
    "Strata",
    "evaluate",
    "judge",
]
