"""What `benchmarks.arrays` records: one set of images, and settings by neutral names, whatever the API calls them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import torch
import zarr

import pixelbounds as pb

Array = np.ndarray
Settings = dict[str, Any]

N, NEW, M, SIZE = 160, 30, 19, 12
METHODS, FAMILIES = ("frontier", "krcps", "rcps"), ("additive", "scaled", "multiplicative")
GROUPS = (None, "band", "learned", "loss", "otsu", "partition", "labels")
BOUNDS = ("betting", "hoeffding_bentkus", "hoeffding", "bentkus", "empirical_bernstein", "conformal")
KINDS = ("float64", "float16", "torch", "zarr", "dask", "ragged")
UNITS = np.r_[np.arange(100) // 2, 50 + np.arange(N - 100) // 3]  # 50 patients of two images, 20 of three
NEW_UNITS = np.arange(NEW) // 2
PARTITION = np.add.outer(np.arange(SIZE) // 5, np.arange(SIZE) // 5)
PER_IMAGE = ("features", "labels", "units")  # settings that hold a value for each image, new ones included


def images() -> tuple[Array, Array]:
    """Truth (n, size, size) and samples (n, m, size, size) of a sampler that is too sure of itself."""
    rng = np.random.default_rng(0)
    level = rng.uniform(0.1, 0.9, (N + NEW, SIZE, SIZE))
    deviation = np.exp(rng.normal(-3, 0.6, level.shape)) * (0.5 + PARTITION / 4)
    truth = np.clip(level + deviation * rng.standard_normal(level.shape), 0.02, 1).astype(np.float32)
    draws = rng.standard_normal((N + NEW, M, SIZE, SIZE))
    return truth, (level[:, None] + 0.5 * deviation[:, None] * draws).astype(np.float32)


def band_for(family: str, samples: Array) -> pb.Band:
    if family == "scaled":
        return pb.mean_and_std(samples)
    band = pb.calibrated_quantiles(samples, 0.1)
    return band if family == "additive" else band.map(lambda x: np.maximum(x, np.float32(0.05)))


def segmentation(samples: Array) -> Array:
    return np.digitize(samples.mean(axis=1), [0.3, 0.6]) + 1


def cropped(stack: Array) -> list[Array]:
    """Images of different sizes."""
    return [np.ascontiguousarray(x[..., : 8 + i % 4, : 9 + i % 3]) for i, x in enumerate(stack)]


def as_kind(kind: str, x: Array, folder: Path) -> Any:
    """An array as a user may have it; a zarr array gets the next free name in the folder."""
    if kind == "zarr":
        path = folder / f"array-{len(list(folder.glob('array-*')))}.zarr"
        return zarr.create_array(path, data=x, chunks=(90, *x.shape[1:]))
    if kind == "dask":
        return da.from_array(x, chunks=(90, *x.shape[1:]))
    if kind == "torch":
        return torch.from_numpy(np.ascontiguousarray(x))
    return cropped(x) if kind == "ragged" else x.astype(kind)


def excess(truth: Array, interval: pb.Interval) -> Array:
    """A user's loss: the mean distance from the interval, times 8."""
    far = np.maximum(np.maximum(interval.lower - truth, truth - interval.upper), 0)
    return np.minimum(8 * far.reshape(len(far), -1).mean(axis=1), 1)


def hoeffding_by_hand(losses: Array, failure_prob: float) -> float:
    return float(losses.mean() + np.sqrt(np.log(1 / failure_prob) / (2 * len(losses))))


def by_patient(method: str) -> dict[str, Settings]:
    """Both weightings; where nothing fits, the most images of a unit must be given for the second."""
    given = {"max_images": 3} if method == "rcps" else {}
    return {"units": {"units": UNITS}, "images": {"units": UNITS, "weighting": "images"} | given}


def grid(samples: Array) -> Iterator[tuple[str, str, Settings]]:
    """Name, kind of array and settings: method, family, groups, bound and kind, as far as they can be combined."""
    labels = segmentation(samples)
    for method, family, groups in product(METHODS, FAMILIES, GROUPS):
        learned = method == "frontier" and groups in (None, "band", "learned", "partition", "labels")
        k_rcps = method == "krcps" and groups not in ("band", "learned")
        if not (learned or k_rcps or (method == "rcps" and groups is None)):
            continue
        by_labels = {"labels": labels} if groups == "labels" else {}
        chosen = PARTITION if groups == "partition" else None if groups == "labels" else groups
        settings = {"method": method, "family": family, "groups": chosen} | by_labels
        name = f"{method} {family} {groups}"
        for bound in BOUNDS if groups in (None, "band") and family == "additive" else BOUNDS[:2]:
            yield f"{name} {bound}", "float32", settings | {"bound": bound}
        for weighting, by in by_patient(method).items():
            yield f"{name} by {weighting}", "float32", settings | by
        if groups in (None, "band", "labels"):
            for kind in KINDS if family == "additive" else ("zarr", "ragged"):
                yield f"{name} {kind}", kind, settings
                if kind in ("zarr", "ragged"):
                    yield f"{name} {kind} by units", kind, settings | {"units": UNITS}


def promises(truth: Array, samples: Array) -> dict[str, list[tuple[str, float, Settings]]]:
    """Promises by name: kind, level and arguments of each; regions are those of the calibration images."""
    bright, whole = truth[:N] > 0.6, np.arange(N) % 3 > 0
    weights = np.where(bright, 0.25, 1.0).astype(np.float32)
    few = bright & (np.arange(N) % 2 == 0)[:, None, None]
    share, tail = ("share", 0.1, {}), ("tail", 0.15, {"above": 0.15})
    return {
        "share": [share],
        "named share": [("share", 0.1, {"name": "everything"})],
        "tail": [tail],
        "cap": [("share", 0.1, {"cap": 0.3})],
        "region": [("share", 0.12, {"within": bright, "name": "bright"})],
        "region pixels": [("share", 0.12, {"within": bright, "name": "bright", "weighting": "pixels"})],
        "weights": [("share", 0.1, {"within": weights, "name": "weighted"})],
        "subgroup": [share, ("share", 0.12, {"within": whole, "name": "old"})],
        "few": [share, ("share", 0.15, {"within": few, "name": "few"})],
        "region tail": [("tail", 0.2, {"above": 0.2, "within": bright, "name": "bright"})],
        "three": [share, ("share", 0.12, {"within": bright, "name": "bright", "cap": 0.5}), tail],
        "loss": [("loss", 0.15, {"function": excess, "name": "excess"})],
        "loss of counts": [share, ("loss", 0.05, {"function": squared, "counts": True, "name": "squared"})],
    }


def squared(missed: Array, size: Array) -> Array:
    return (missed / np.maximum(size, 1)) ** 2


def promised(truth: Array, samples: Array) -> Iterator[tuple[str, str, Settings]]:
    """Every kind of promise, by every method, by image and by unit."""
    labels = segmentation(samples)
    for (name, asked), method in product(promises(truth, samples).items(), METHODS):
        settings: Settings = {"method": method, "promises": asked}
        if method == "frontier":
            settings["groups"] = "band"
        yield f"promises {name} {method}", "float32", settings
        yield f"promises {name} {method} exact", "float32", settings | {"bound": "hoeffding_bentkus"}
        for weighting, by in by_patient(method).items():
            yield f"promises {name} {method} by {weighting}", "float32", settings | by
        if method == "frontier" and name in ("three", "share", "loss"):
            yield f"promises {name} {method} learned", "float32", settings | {"groups": "learned"}
            yield f"promises {name} {method} labels", "float32", settings | {"groups": None, "labels": labels}
            yield f"promises {name} {method} zarr", "zarr", settings


def specials(samples: Array) -> Iterator[tuple[str, str, Settings]]:
    """What is tried once."""
    features = np.stack([samples.mean(axis=1), samples[:, 0]], axis=1)
    by_hand = pb.Family(
        "own", lambda b, w: (b.lower - w, b.upper + w), lambda x, b: np.maximum(b.lower - x, x - b.upper)
    )
    fine = partial(pb.groups.fit_band_groups, width=8, level=4)
    krcps: Settings = {"method": "krcps"}
    settings: dict[str, Settings] = {
        "own bound": {"bound": hoeffding_by_hand}, "own family": {"family": by_hand},
        "features": {"features": features}, "features learned": {"features": features, "groups": "learned"},
        "k band": {"groups": "band", "k": 5},
        "k learned": {"groups": "learned", "k": 4}, "own groups": {"groups": fine}, "n_fit": {"n_fit": 50},
        "n_fit band": {"groups": "band", "n_fit": 100}, "seed": {"seed": 5}, "strict": {"failure_prob": 0.02},
        "strict level": {"risk_level": 0.04}, "no limits": {"limits": None}, "limits": {"limits": (-1.0, 2.0)},
        "max_images": {"units": UNITS, "weighting": "images", "max_images": 4},
        "k loss": krcps | {"k": 3}, "k otsu": krcps | {"k": 3, "groups": "otsu"}, "d_opt": krcps | {"d_opt": 40},
        "gammas": krcps | {"gammas": (0.5,)}, "krcps n_fit": krcps | {"n_fit": 30}, "krcps seed": krcps | {"seed": 5},
        "direction": krcps | {"groups": PARTITION, "direction": tuple(range(1, 6))},
        "rcps n_fit": {"method": "rcps", "n_fit": 40}, "rcps no limits": {"method": "rcps", "limits": None},
        "krcps no limits": krcps | {"limits": None},
    }  # fmt: skip
    for name, one in settings.items():
        yield f"special {name}", "float64" if "limits" in name else "float32", one
    for method in METHODS:
        yield f"special loss= {method}", "float32", {"method": method, "loss": excess}
        yield f"special few images {method}", "float32", {"method": method, "first": 32}
