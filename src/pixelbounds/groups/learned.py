"""Groups by the widening that an end is likely to need.

A gradient-boosted model predicts a high quantile of each end's shortfall from features known at test time; the groups
are bins of the prediction, for each side apart. The model is fitted on one half of the fitting images and the bins on
all of them. Validity never depends on the quality of the fit. The model is stored as LightGBM's text, not pickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any, ClassVar

import numpy as np
from scipy.ndimage import uniform_filter

from ..arrays import Array, check_count, check_generator, check_open_unit, spatial_axes
from ..families import Family
from ..kernels import LOWER, UPPER
from ..pairs import Block, Pairs
from .contract import Grouping, State, all_entries, check_fitting

_ROWS = 400_000  # ends used to fit the model
_LARGE = 1e30  # stands for an end that no widening moves


def lightgbm() -> Any:
    """The LightGBM module, or an error that says what to do."""
    try:
        import lightgbm as module
    except (ImportError, OSError) as error:
        raise RuntimeError(
            f"learned groups need LightGBM, which could not be loaded ({error}); install it and the system's OpenMP "
            "library (Debian: apt-get install libgomp1), or use groups='band', which needs neither"
        ) from error
    return module


def feature_maps(block: Block) -> list[Array]:
    """Images known at test time from which the model predicts: each (n * pixels,), the same for both sides."""
    lower, upper = (x.reshape(block.band.shape).astype(np.float32) for x in block.clipped())
    width, level = upper - lower, (upper + lower) / 2
    axes = spatial_axes(width)

    def smooth(x: Array, size: int) -> Array:
        if not axes:
            return x
        return uniform_filter(x, [size if axis in axes else 1 for axis in range(x.ndim)], mode="nearest")

    slopes = [np.gradient(level, axis=axis) for axis in axes]
    gradient = np.sqrt(sum((s**2 for s in slopes), np.zeros_like(level)))
    near, far = smooth(level, 3), smooth(level, 9)
    mean = width.reshape(len(block), -1).mean(axis=1, dtype=np.float64)
    image = np.broadcast_to(mean.astype(np.float32).reshape((-1, *[1] * (width.ndim - 1))), width.shape)
    maps = [width, level, smooth(width, 3), smooth(width, 9), near, far, level - near, level - far, gradient,
            smooth(gradient, 3), image]  # fmt: skip
    for extra in [] if block.features is None else np.moveaxis(block.features.astype(np.float32), 1, 0):
        maps += [extra, smooth(extra, 3), extra - level]
    return [np.ascontiguousarray(x).reshape(-1) for x in maps]


def feature_rows(maps: list[Array], block: Block, entry: Array, side: Array) -> Array:
    """Rows of features for some ends: (e, columns) float32; the last columns are the rooms and the side."""
    columns = [x[entry] for x in maps]
    if all(isfinite(limit) for limit in block.limits):
        lower, upper = block.clipped(entry)
        rooms = lower - block.limits[0], block.limits[1] - upper
        columns += [np.where(side == LOWER, *rooms), np.where(side == LOWER, *rooms[::-1])]
    columns.append(side)
    return np.stack([c.astype(np.float32) for c in columns], axis=1)


@dataclass(frozen=True, eq=False)
class LearnedGroups(Grouping):
    """Bins of a predicted shortfall: the model's text, and the inner edges of the bins of each side."""

    model: str
    lower_edges: Array
    upper_edges: Array
    features: int = 0
    kind: ClassVar[str] = "learned"
    sided: ClassVar[bool] = True
    _booster: list[Any] = field(default_factory=list, repr=False)

    @property
    def count(self) -> int:
        """Bins of both sides."""
        return len(self.lower_edges) + len(self.upper_edges) + 2

    def check(self, block: Block) -> None:
        """As many further images as the model was fitted with."""
        given = 0 if block.features is None else block.features.shape[1]
        if given != self.features:
            raise ValueError(
                f"the groups were learned with {self.features} feature images per image, but {given} were given; "
                "pass the same features= as in calibrate"
            )

    def predict(self, block: Block, entry: Array, side: Array) -> Array:
        """Predicted quantile of the shortfall of some ends: (e,)."""
        if not len(entry):
            return np.zeros(0)
        if not self._booster:
            self._booster.append(lightgbm().Booster(model_str=self.model))
        rows = feature_rows(feature_maps(block), block, entry, side)
        return np.asarray(self._booster[0].predict(rows, num_threads=1), np.float64)

    def at(self, block: Block, entry: Array, side: Array) -> Array:
        """Bin of the prediction, lower ends first."""
        value = self.predict(block, entry, side)
        offset = len(self.lower_edges) + 1
        lower, upper = np.searchsorted(self.lower_edges, value), np.searchsorted(self.upper_edges, value)
        return np.where(side == UPPER, offset + upper, lower).astype(np.int32)

    def state(self) -> State:
        """Model text and edges."""
        arrays = {
            "model": np.frombuffer(self.model.encode(), np.uint8),
            "lower_edges": self.lower_edges,
            "upper_edges": self.upper_edges,
        }
        return {"features": self.features}, arrays

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> LearnedGroups:
        """From model text and edges."""
        model = arrays["model"].tobytes().decode()
        return cls(model, arrays["lower_edges"], arrays["upper_edges"], int(meta["features"]))


def end_shortfalls(family: Family, truth: Array, block: Block) -> Array:
    """Shortfall of every end, lower ends first, negative inside where the family tells: (2 * n * pixels,)."""
    band = block.band_for(family)
    x = np.asarray(truth, np.float64)
    if family.ends is not None:
        at = family.ends(band)
        with np.errstate(divide="ignore", invalid="ignore"):
            below, above = (at.lower - x) / at.lower_slope, (x - at.upper) / at.upper_slope
    else:
        need = np.asarray(family.shortfall(truth, band), np.float64)
        lower, upper = family.widen(band, np.float64(family.start))
        below, above = np.where(x < lower, need, family.start), np.where(x > upper, need, family.start)
    both = np.concatenate([below.reshape(-1), above.reshape(-1)])
    return np.clip(np.where(np.isnan(both), family.start, both), -_LARGE, _LARGE)


def fit_learned_groups(
    pairs: Pairs,
    images: Array,
    rng: np.random.Generator,
    *,
    bins_per_side: int = 32,
    quantile: float = 0.85,
    trees: int = 60,
) -> LearnedGroups:
    """Fit the model on half of the fitting images and cut its predictions into bins on all of them."""
    check_fitting(pairs, images)
    check_count(bins_per_side, "k", most=2**15)
    check_count(trees, "trees", most=10_000)
    if not 0.001 <= check_open_unit(quantile, "quantile") <= 0.999:
        raise ValueError(f"quantile is {quantile}; it must lie in [0.001, 0.999], for example 0.85")
    rng = check_generator(rng, "rng")
    booster_of = lightgbm()
    teaching = np.sort(rng.permutation(images)[: max(1, len(images) // 2)])
    share = min(1.0, _ROWS / (2.0 * len(teaching) * pairs.image_size))
    seeds = {int(i): int(s) for i, s in zip(teaching, rng.integers(2**63, size=len(teaching)), strict=True)}

    def sample(truth: Array, block: Block, at: int) -> tuple[Array, Array]:
        entry, side = all_entries(block)
        keep = np.random.default_rng(seeds[at]).random(len(entry)) < share
        keep[0] = True
        rows = feature_rows(feature_maps(block), block, entry[keep], side[keep])
        return rows, end_shortfalls(pairs.family, truth, block)[keep]

    parts = [sample(*pairs.gather(teaching[i : i + 1]), int(teaching[i])) for i in range(len(teaching))]
    rows, target = (np.concatenate(part) for part in zip(*parts, strict=True))
    parameters = {
        "objective": "quantile", "alpha": quantile, "num_leaves": 31, "learning_rate": 0.1, "min_data_in_leaf": 50,
        "max_bin": 127, "verbose": -1, "deterministic": True, "force_row_wise": True, "seed": 0, "num_threads": 1,
    }  # fmt: skip
    booster = booster_of.train(parameters, booster_of.Dataset(rows, target), num_boost_round=trees)
    features = 0 if pairs.features is None else int(pairs.features.shape[1])
    blank = LearnedGroups(booster.model_to_string(), np.empty(0), np.empty(0), features)
    values = pairs.over_blocks(lambda truth, block: blank.predict(block, *all_entries(block)).reshape(2, -1), images)
    lower, upper = np.concatenate(list(values), axis=1)
    return LearnedGroups(blank.model, _edges(lower, bins_per_side), _edges(upper, bins_per_side), features)


def _edges(values: Array, count: int) -> Array:
    """Inner edges at quantiles without ties; the last bin is never empty."""
    edges = np.unique(np.quantile(values, np.arange(1, count) / count, method="inverted_cdf"))
    return edges[edges < values.max()]
