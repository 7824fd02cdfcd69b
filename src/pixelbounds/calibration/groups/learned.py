"""Groups by the widening that an end is likely to need.

A gradient-boosted model predicts an upper quantile of each end's shortfall from features known at test time. The groups
are bins of the prediction, for each side apart, and within each of them bins of the room that the end has to its limit:
two numbers tell more of a tail than one, and near a limit widening costs little. The trees are few and coarse, since
pixels of one image are alike and fitting images are few. Validity never depends on the quality of the fit. The model is
stored as LightGBM's text, not pickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from ...images.checks import check_count, check_generator, check_open_unit
from ...images.library import Array, spatial_axes
from ...kernels.knots import LOWER, UPPER
from ..families import Family
from ..pairs import Block, Pairs, all_entries, check_fitting
from .contract import Grouping, State, remembered

_ROWS = 300_000  # ends used to fit the model
_ENDS = 2**21  # ends used to cut bins
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


def feature_maps(block: Block) -> tuple[list[Array], list[Array]]:
    """Images known at test time from which the model predicts, (n * pixels,) each: alike for both sides, and signed."""
    from scipy.ndimage import uniform_filter

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
    alike = [width, level, smooth(width, 3), smooth(width, 9), near, far, gradient, smooth(gradient, 3), image]
    signed = [level - near, level - far]
    for extra in [] if block.features is None else np.moveaxis(block.features.astype(np.float32), 1, 0):
        alike += [extra, smooth(extra, 3)]
        signed.append(extra - level)
    first, second = ([np.ascontiguousarray(x).reshape(-1) for x in maps] for maps in (alike, signed))
    return first, second


def rooms_of(block: Block, entry: Array, side: Array) -> tuple[Array, Array] | None:
    """Room from some ends to their own limit, and from the opposite ends to theirs: (e,) each; None without limits."""
    if not all(isfinite(limit) for limit in block.limits):
        return None
    lower, upper = block.clipped(entry)
    rooms = lower - block.limits[0], block.limits[1] - upper
    return np.where(side == LOWER, *rooms), np.where(side == LOWER, *rooms[::-1])


def feature_rows(block: Block, entry: Array, side: Array) -> Array:
    """Rows of features for some ends: (e, columns) float32; signed ones point outward: both sides teach alike."""
    alike, signed = feature_maps(block)
    outward = np.where(side == LOWER, np.float32(-1), np.float32(1))
    columns = [x[entry] for x in alike] + [x[entry] * outward for x in signed]
    columns += [*(rooms_of(block, entry, side) or ()), side]
    return np.stack([c.astype(np.float32) for c in columns], axis=1)


@dataclass(frozen=True, eq=False)
class LearnedGroups(Grouping):
    """Bins of a predicted shortfall, and of the room within each: the model's text and the inner edges of the bins.

    `room_edges` has a row for each bin of the prediction, lower ends first, filled up with infinity.
    """

    model: str
    lower_edges: Array
    upper_edges: Array
    room_edges: Array
    features: int = 0
    kind: ClassVar[str] = "learned"
    sided: ClassVar[bool] = True
    _booster: list[Any] = field(default_factory=list, repr=False)

    @property
    def count(self) -> int:
        """Bins of both sides."""
        return int(self._first[-1])

    @cached_property
    def _first(self) -> Array:
        """Number of the first group of every bin of the prediction, and of all groups: (bins + 1,)."""
        return np.append(0, np.cumsum(np.isfinite(self.room_edges).sum(axis=1) + 1))

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
        rows = feature_rows(block, entry, side)
        return np.asarray(self._booster[0].predict(rows, num_threads=1), np.float64)

    def at(self, block: Block, entry: Array, side: Array) -> Array:
        """Bin of the prediction, lower ends first, and within it of the room."""
        place = self._bin(self.predict(block, entry, side), side)
        group, rooms = self._first[place], rooms_of(block, entry, side)
        if rooms is not None:
            for edges in self.room_edges.T:
                group = group + (edges[place] < rooms[0])
        return group.astype(np.int32)

    def _bin(self, value: Array, side: Array) -> Array:
        lower, upper = np.searchsorted(self.lower_edges, value), np.searchsorted(self.upper_edges, value)
        return np.where(side == UPPER, len(self.lower_edges) + 1 + upper, lower)

    def state(self) -> State:
        """Model text and edges."""
        arrays = {
            "model": np.frombuffer(self.model.encode(), np.uint8),
            "lower_edges": self.lower_edges,
            "upper_edges": self.upper_edges,
            "room_edges": self.room_edges,
        }
        return {"features": self.features}, arrays

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> LearnedGroups:
        """From model text and edges."""
        model = arrays["model"].tobytes().decode()
        lower, upper, room = (arrays[f"{name}_edges"] for name in ("lower", "upper", "room"))
        return cls(model, lower, upper, room, int(meta["features"]))


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


@remembered
def fit_learned_groups(
    pairs: Pairs,
    images: Array,
    rng: np.random.Generator,
    *,
    bins_per_side: int = 16,
    room: int = 8,
    quantile: float = 0.75,
    trees: int = 50,
) -> LearnedGroups:
    """Fit the model on pixels of the fitting images, and cut predictions and rooms into bins that hold equally many."""
    check_fitting(pairs, images)
    check_count(bins_per_side, "k", most=2**15)
    check_count(room, "room", most=2**10)
    check_count(trees, "trees", most=10_000)
    if not 0.001 <= check_open_unit(quantile, "quantile") <= 0.999:
        raise ValueError(f"quantile is {quantile}; it must lie in [0.001, 0.999], for example 0.75")
    rng = check_generator(rng, "rng")
    booster_of = lightgbm()
    ends = 2 * int(pairs.sizes[images].sum())
    share = min(1.0, _ROWS / ends)
    seeds = rng.integers(2**63, size=len(images))

    def sample(truth: Array, block: Block, seed: int) -> tuple[Array, Array]:
        entry, side = all_entries(block)
        keep = np.random.default_rng(seed).random(len(entry)) < share
        keep[0] = True
        return feature_rows(block, entry[keep], side[keep]), end_shortfalls(pairs.family, truth, block)[keep]

    parts = [sample(*pairs.gather(images[i : i + 1]), int(seed)) for i, seed in enumerate(seeds)]
    rows, target = (np.concatenate(part) for part in zip(*parts, strict=True))
    parameters = {
        "objective": "quantile", "alpha": quantile, "num_leaves": 15, "learning_rate": 0.1, "max_bin": 127,
        "min_data_in_leaf": max(20, min(1000, len(rows) // 300)), "verbose": -1, "deterministic": True,
        "force_row_wise": True, "seed": 0, "num_threads": 1,
    }  # fmt: skip
    booster = booster_of.train(parameters, booster_of.Dataset(rows, target), num_boost_round=trees)
    features = 0 if pairs.features is None else int(pairs.features.shape[1])
    none = np.empty(0)
    blank = LearnedGroups(booster.model_to_string(), none, none, np.empty((2, 0)), features)

    every = -(-ends // _ENDS) | 1  # odd: not always the same columns of an image

    def known(truth: Array, block: Block) -> Array:
        entry, side = all_entries(block)
        kept = entry % block.image_size % every == 0
        chosen = entry[kept], side[kept]
        rooms = rooms_of(block, *chosen)
        value = blank.predict(block, *chosen)
        return np.stack([value, np.zeros(len(value)) if rooms is None else rooms[0]]).reshape(2, 2, -1)

    value, space = np.concatenate(list(pairs.over_blocks(known, images)), axis=2)
    edges = [_edges(of_side, bins_per_side) for of_side in value]
    spaces = []
    for of_side, own, free in zip(value, edges, space, strict=True):
        place = np.searchsorted(own, of_side)
        spaces += [_edges(free[place == b], room) for b in range(len(own) + 1)]
    room_edges = np.full((len(spaces), max(len(row) for row in spaces)), np.inf)
    for row, cuts in zip(room_edges, spaces, strict=True):
        row[: len(cuts)] = cuts
    return LearnedGroups(blank.model, edges[0], edges[1], room_edges, features)


def _edges(values: Array, count: int) -> Array:
    """Inner edges at quantiles without ties; the last bin is never empty."""
    edges = np.unique(np.quantile(values, np.arange(1, count) / count, method="inverted_cdf"))
    return edges[edges < values.max()]
