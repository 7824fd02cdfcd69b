"""Guaranteed error bars for every pixel of a restored image.

Names are loaded when they are first used, so that `import pixelbounds` costs nothing and a bare GPU worker, which has
torch but not numba, can use `pixelbounds.diffusion`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import federated
    from .bands import (
        calibrated_quantiles,
        calibrated_ranks,
        conffusion,
        functional_band,
        least_samples,
        mean_and_std,
        naive_quantiles,
        narrow,
        quantile_regression,
    )
    from .calibration import bounds, families, groups, losses
    from .calibration.bounds import least_images
    from .calibration.calibration import Calibration, calibrate
    from .calibration.calibration_file import load_calibration
    from .calibration.certify import CertifiedPoint, certify, fixed_sequence_test, loss_table
    from .calibration.data import CalibrationData
    from .calibration.families import Family
    from .calibration.masks import (
        calibrate_masks,
        class_masks,
        margin_band,
        segmentation_band,
        segmentation_promises,
        volume_outside,
        volumes,
    )
    from .calibration.methods import KRCPS, RCPS, Frontier, Method, split, split_at
    from .calibration.paths.path import Path
    from .calibration.promises import Promise, loss, share, tail
    from .calibration.sample_size import plan
    from .calibration.target import Target, Units
    from .calibration.trust import TrustMask, load_trust, trust
    from .evaluation import Evaluation, evaluate
    from .images import regions
    from .images.checks import NoGuarantee
    from .images.ends import Band, Interval
    from .images.functional import functional_values
    from .images.measure import Measure
    from .images.ragged import Ragged
    from .images.source import Source
    from .monitoring import (
        AnytimeCalibration,
        Monitor,
        conformal_p_values,
        load_monitor,
        recalibrate,
        save_monitor,
    )
    from .report import plot
    from .samplers.function import bands_from
    from .storage.version import VERSION as __version__

_HOMES = {  # where each name is defined
    "bands": (
        "calibrated_quantiles calibrated_ranks conffusion functional_band least_samples mean_and_std naive_quantiles "
        "narrow quantile_regression"
    ),
    "calibration.bounds": "least_images",
    "calibration.calibration": "Calibration calibrate",
    "calibration.calibration_file": "load_calibration",
    "calibration.certify": "CertifiedPoint certify fixed_sequence_test loss_table",
    "calibration.data": "CalibrationData",
    "calibration.families": "Family",
    "calibration.masks": (
        "calibrate_masks class_masks margin_band segmentation_band segmentation_promises volume_outside volumes"
    ),
    "calibration.methods": "Frontier KRCPS Method RCPS split split_at",
    "calibration.paths.path": "Path",
    "calibration.promises": "Promise loss share tail",
    "calibration.sample_size": "plan",
    "calibration.target": "Target Units",
    "calibration.trust": "TrustMask load_trust trust",
    "evaluation": "Evaluation evaluate",
    "images.checks": "NoGuarantee",
    "images.ends": "Band Interval",
    "images.functional": "functional_values",
    "images.measure": "Measure",
    "images.ragged": "Ragged",
    "images.source": "Source",
    "monitoring": "AnytimeCalibration Monitor conformal_p_values load_monitor recalibrate save_monitor",
    "samplers.function": "bands_from",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}
_ROOMS = {name: f"calibration.{name}" for name in ("bounds", "families", "groups", "losses")}
_ROOMS |= {"federated": "federated", "regions": "images.regions", "plot": "report.plot"}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module(f"{__name__}.storage.version").VERSION
    if name in _ROOMS:
        return import_module(f"{__name__}.{_ROOMS[name]}")
    if name in _HOME_OF:
        return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "KRCPS", "RCPS", "AnytimeCalibration", "Band", "Calibration", "CalibrationData", "CertifiedPoint",
    "Evaluation", "Family", "Frontier", "Interval", "Measure", "Method", "Monitor", "NoGuarantee", "Path",
    "Promise", "Ragged", "Source", "Target", "TrustMask", "Units", "__version__", "bands_from", "bounds",
    "calibrate", "calibrate_masks", "calibrated_quantiles", "calibrated_ranks", "certify", "class_masks",
    "conffusion", "conformal_p_values", "evaluate", "families", "federated", "fixed_sequence_test",
    "functional_band", "functional_values", "groups", "least_images", "least_samples", "load_calibration",
    "load_monitor", "load_trust", "loss", "loss_table", "losses", "margin_band", "mean_and_std",
    "naive_quantiles", "narrow", "plan", "plot", "quantile_regression", "recalibrate", "regions",
    "save_monitor", "segmentation_band", "segmentation_promises", "share", "split", "split_at", "tail", "trust",
    "volume_outside", "volumes",
]  # fmt: skip
