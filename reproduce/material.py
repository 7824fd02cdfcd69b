"""Ready arrays of one experiment: what networks gave for held-out images, in units of [0, 1], (n, *pixels) each.

truth, observation
lower, upper                          calibrated quantiles of the samples, rounded outward
naive_lower, naive_upper              interpolated quantiles
mean, deviation, fresh                of the samples, and one further sample, to check entrywise coverage with
printed_lower, _upper, _fresh         the same of samples of Algorithm 3 as printed
ours_lower, ours_upper                calibrated quantiles at another miscoverage than the paper's
qr_lower, qr_estimate, qr_upper       heads of the quantile regressor
dropout_mean, dropout_deviation       of the regressor's passes with dropout
conffusion_lower, conffusion_upper    quantiles of the fine-tuned score network
samples, samples_printed              optional, (few, s, *pixels): samples of the first images, for a figure
unit                                  (n,), scan of each image

`truth`, `lower` and `upper` must be there; rows that need an array which is missing are left out, and said so.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pixelbounds.bands import FLOOR, NARROW, conffusion, quantile_regression
from pixelbounds.images.checks import check_values
from pixelbounds.images.ends import Band
from pixelbounds.images.library import Array

IMAGE_ARRAYS = (
    "truth", "observation", "lower", "upper", "naive_lower", "naive_upper", "mean", "deviation", "fresh", "qr_lower",
    "qr_estimate", "qr_upper", "dropout_mean", "dropout_deviation", "conffusion_lower", "conffusion_upper",
    "printed_lower", "printed_upper", "printed_fresh", "ours_lower", "ours_upper",
)  # fmt: skip
SHOWN = ("samples", "samples_printed")
PACKAGED = "packaged"  # phantoms that come with the repository
NEEDED = ("truth", "lower", "upper")


@dataclass(frozen=True, eq=False)
class Material:
    """Arrays by name in float32, the unit of each image, the makers' own figures, and a digest of it all."""

    arrays: Mapping[str, Array]
    unit: Array
    figures: Mapping[str, Any]
    digest: str
    source: str | None = None  # from which another process can load it
    _bands: dict[str, Band] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.unit)

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]

    @property
    def truth(self) -> Array:
        """True images."""
        return self.arrays["truth"]

    @property
    def has_units(self) -> bool:
        """Whether some unit has several images."""
        return len(np.unique(self.unit)) < len(self)

    def missing(self, band: str) -> list[str]:
        """Arrays that a band needs and that are not here."""
        return [name for name in BANDS[band][0] if name not in self.arrays]

    def band(self, name: str) -> Band:
        """A band of BANDS."""
        if name not in self._bands:
            parts, make = BANDS[name]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # crossed quantiles are sorted; the row says what it is
                self._bands[name] = make(*(self.arrays[part] for part in parts))
        return self._bands[name]

    def features(self, names: tuple[str, ...], images: Array) -> Array:
        """Further images known at test time: (images, f, *pixels)."""
        return np.stack([self.arrays[name][images] for name in names], axis=1)


# ---------------------------------------------------------------- bands


def _calibrated(lower: Array, upper: Array) -> Band:
    return Band(lower, upper, source="calibrated quantiles")


def _naive(lower: Array, upper: Array) -> Band:
    return Band(lower, upper, source="naive quantiles")


def _qr_printed(lower: Array, estimate: Array, upper: Array) -> Band:
    """The paper's printed form; negative quantiles would shrink the set, so they count as 0."""
    return quantile_regression(np.maximum(lower, 0), estimate, np.maximum(upper, 0), form="printed")


def _dropout(mean: Array, deviation: Array) -> Band:
    half = np.maximum(deviation, np.float32(FLOOR))
    return Band(mean - half, mean + half, mean, source=f"mean and deviation, floor {FLOOR:g}")


def _nonnegative(lower: Array, upper: Array) -> Band:
    """For the multiplicative family, which needs ends of at least 0."""
    return conffusion(np.maximum(lower, 0), np.maximum(upper, 0))


def _narrow(mean: Array, deviation: Array) -> Band:
    half = np.float32(NARROW) * deviation
    return Band(mean - half, mean + half, source=f"mean and {NARROW:g} deviations, no entrywise coverage")


BANDS: dict[str, tuple[tuple[str, ...], Callable[..., Band]]] = {
    "qr": (("qr_lower", "qr_estimate", "qr_upper"), quantile_regression),
    "qr_printed": (("qr_lower", "qr_estimate", "qr_upper"), _qr_printed),
    "dropout": (("dropout_mean", "dropout_deviation"), _dropout),
    "multiplicative": (("conffusion_lower", "conffusion_upper"), _nonnegative),
    "conffusion": (("conffusion_lower", "conffusion_upper"), conffusion),
    "naive": (("naive_lower", "naive_upper"), _naive),
    "calibrated": (("lower", "upper"), _calibrated),
    "printed": (("printed_lower", "printed_upper"), _calibrated),
    "ours": (("ours_lower", "ours_upper"), _calibrated),
    "narrow": (("mean", "deviation"), _narrow),
}


# ---------------------------------------------------------------- loading


def load_material(source: str | Path | Mapping[str, Any]) -> Material:
    """Material from a folder of .npy files, an .npz, a .zarr group, arrays by name, or PACKAGED."""
    if isinstance(source, Mapping):
        return _checked(dict(source), {}, "material")
    if source == PACKAGED:
        from .phantom_arrays import phantom_arrays

        return replace(_checked(phantom_arrays(), {}, PACKAGED), source=PACKAGED)
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist; give a folder of .npy files, an .npz or a .zarr with the arrays"
        )
    figures: dict[str, Any] = {}
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    elif path.suffix == ".zarr":
        import zarr

        group: Any = zarr.open_group(path, mode="r")
        arrays = {name: np.asarray(group[name][:]) for name in group.array_keys()}
        figures = dict(group.attrs.get("figures", {}))
    elif path.is_dir():
        arrays = {file.stem: np.load(file, allow_pickle=False) for file in sorted(path.glob("*.npy"))}
    else:
        raise ValueError(f"{path} is of no known kind; give a folder of .npy files, an .npz or a .zarr")
    beside = path / "figures.json" if path.is_dir() else path.with_suffix(".json")
    if not figures and beside.is_file():
        figures = json.loads(beside.read_text())
    return replace(_checked(arrays, figures, str(path)), source=str(path.resolve()))


def _checked(arrays: dict[str, Any], figures: dict[str, Any], name: str) -> Material:
    figures = figures or dict(arrays.pop("figures", {}))
    lacking = [x for x in NEEDED if x not in arrays]
    if lacking:
        raise ValueError(f"{name} lacks {', '.join(lacking)}; see reproduce.material for what it holds")
    shape = np.shape(arrays["truth"])
    digest = hashlib.sha256()
    kept: dict[str, Array] = {}
    for key in (*IMAGE_ARRAYS, *SHOWN):
        if key not in arrays:
            continue
        x = np.ascontiguousarray(arrays[key])
        if x.dtype.kind != "f":
            raise ValueError(f"{key} of {name} has dtype {x.dtype}; it must be floating, in units of [0, 1]")
        wanted = shape if key not in SHOWN else (*x.shape[:2], *shape[1:])
        if x.shape != wanted:
            raise ValueError(f"{key} of {name} has shape {x.shape}, but truth has {shape}")
        digest.update(f"{key} {x.dtype.str} {x.shape}".encode())
        digest.update(x.tobytes())
        kept[key] = x.astype(np.float32)
        check_values(key, kept[key], 0, (0.0, 1.0) if key == "truth" else (-np.inf, np.inf))
    unit = np.asarray(arrays.get("unit", np.arange(shape[0])))
    if unit.shape != shape[:1]:
        raise ValueError(f"unit of {name} has shape {unit.shape}; give the scan of each of {shape[0]} images")
    unit = np.unique(unit, return_inverse=True)[1]
    digest.update(unit.astype(np.int64).tobytes())
    return Material(kept, unit, figures, digest.hexdigest())
