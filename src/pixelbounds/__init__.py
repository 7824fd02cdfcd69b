"""Guaranteed error bars for every pixel of a restored image.

On a machine that has torch but not numba, such as a bare GPU worker, `pixelbounds.diffusion` alone can be used.
"""

from importlib.util import find_spec

if find_spec("numba") is not None:
    from . import confidence, families, federated, groups, losses
    from .arrays import Band, Interval, NoGuarantee
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
    from .ragged import Ragged
    from .version import VERSION as __version__
else:

    def __getattr__(name: str) -> object:
        if name in __all__:
            raise ImportError(f"pixelbounds.{name} needs numba, which is not installed: pip install pixelbounds")
        raise AttributeError(f"module 'pixelbounds' has no attribute {name!r}")


__all__ = [
    "Band",
    "Calibration",
    "Evaluation",
    "Family",
    "Interval",
    "NoGuarantee",
    "Ragged",
    "__version__",
    "calibrate",
    "calibrated_quantiles",
    "calibrated_ranks",
    "conffusion",
    "confidence",
    "evaluate",
    "families",
    "federated",
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
