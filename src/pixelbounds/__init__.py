"""Guaranteed error bars for every pixel of a restored image."""

from . import confidence, families, groups, losses
from .arrays import Band, Interval
from .bands import (
    calibrated_quantiles,
    calibrated_ranks,
    conffusion,
    least_samples,
    mean_and_std,
    naive_quantiles,
    narrow,
    quantile_regression,
)
from .calibrate import calibrate
from .calibration import Calibration, load_calibration
from .confidence import least_images
from .evaluate import evaluate
from .evaluation import Evaluation
from .families import Family
from .version import VERSION as __version__

__all__ = [
    "Band",
    "Calibration",
    "Evaluation",
    "Family",
    "Interval",
    "__version__",
    "calibrate",
    "calibrated_quantiles",
    "calibrated_ranks",
    "conffusion",
    "confidence",
    "evaluate",
    "families",
    "groups",
    "least_images",
    "least_samples",
    "load_calibration",
    "losses",
    "mean_and_std",
    "naive_quantiles",
    "narrow",
    "quantile_regression",
]
