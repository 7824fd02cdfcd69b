"""Groups by the widening that an end is likely to need.

A gradient-boosted model predicts an upper quantile of each end's score from features known at test time. The groups
are bins of the prediction, for each side apart, and within each of them bins of the room that the end has to its limit:
two numbers tell more of a tail than one, and near a limit widening costs little. The trees are few and coarse, since
pixels of one image are alike and fitting images are few. Validity never depends on the quality of the fit. LightGBM
fits; what is kept, stored and applied is a `Forest` of checked arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, prod
from typing import Any, ClassVar

import numpy as np

from ...images.checks import check_count, check_generator, check_open_unit
from ...images.library import Array, spatial_axes
from ...kernels.entry_scores import LOWER, UPPER
from ...kernels.features import add_squared_slope, prediction_labels, width_and_level, window_means
from ...kernels.trees import predict_all
from ..block import Block, Grouping, State, all_entries
from ..data import CalibrationData
from ..families import Family
from ..provenance import remembered
from .contract import ascending, real_numbers, refuse, whole_number
from .forest import Forest, forest_of

_ROWS_OF_AN_IMAGE = 750  # ends of a fitting image that teach the model: neighbouring pixels say much the same
_ROWS = 60_000  # of all fitting images
_ENDS = 2**18  # ends used to cut bins
_LARGE = 1e30  # stands for an end that no widening moves
_PIXELS = 2**15  # that are predicted at a time: their maps stay in the cache
_FEATURES = 1000  # further images


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


def feature_maps(block: Block) -> tuple[Array, int]:
    """Images known at test time from which the model predicts, (maps, n * pixels); the first so many say the same of
    both ends, the others point upward.
    """
    if "feature maps" not in block.kept:
        block.kept["feature maps"] = _feature_maps(block)
    maps: tuple[Array, int] = block.kept["feature maps"]
    return maps


def _feature_maps(block: Block) -> tuple[Array, int]:
    shape = block.band.shape
    further = 0 if block.features is None else block.features.shape[1]
    alike = 9 + 2 * further
    maps = np.empty((alike + 2 + further, len(block) * block.image_size), np.float32)
    width, level, near, far, gradient = maps[0], maps[1], maps[4], maps[5], maps[6]
    width_and_level(*block.flat_ends(), *block.limits, width, level)
    along = spatial_axes(block.band.lower)
    axes = [(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])) for axis in along]  # outer, length, inner

    def smooth(x: Array, size: int, out: Array) -> None:
        out[:] = x
        for view in axes:
            window_means(out.reshape(view), size, out.reshape(view))

    gradient[:] = 0
    for view in axes:
        add_squared_slope(level.reshape(view), gradient.reshape(view))
    np.sqrt(gradient, out=gradient)
    for x, size, out in ((width, 3, 2), (width, 9, 3), (level, 3, 4), (level, 9, 5), (gradient, 3, 7)):
        smooth(x, size, maps[out])
    mean = width.reshape(len(block), -1).mean(axis=1, dtype=np.float64)
    maps[8].reshape(len(block), -1)[:] = mean.astype(np.float32)[:, None]
    np.subtract(level, near, out=maps[alike])
    np.subtract(level, far, out=maps[alike + 1])
    if block.features is not None:
        for i in range(further):
            extra = maps[9 + 2 * i]
            extra[:] = block.features[:, i].reshape(-1)
            smooth(extra, 3, maps[10 + 2 * i])
            np.subtract(extra, level, out=maps[alike + 2 + i])
    return maps, alike


def has_rooms(block: Block) -> bool:
    """Whether ends have a room to their limits."""
    return all(isfinite(limit) for limit in block.limits)


def rooms_of(block: Block, entry: Array, side: Array) -> tuple[Array, Array] | None:
    """Room from some ends to their own limit, and from the opposite ends to theirs: (e,) each; None without limits."""
    if not has_rooms(block):
        return None
    lower, upper = block.clipped(entry)
    rooms = lower - block.limits[0], block.limits[1] - upper
    return np.where(side == LOWER, *rooms), np.where(side == LOWER, *rooms[::-1])


def feature_rows(block: Block, entry: Array, side: Array) -> Array:
    """Rows of features for some ends: (e, columns) float32; signed ones point outward: both sides teach alike."""
    maps, alike = feature_maps(block)
    outward = np.where(side == LOWER, np.float32(-1), np.float32(1))
    columns = [x[entry] for x in maps[:alike]] + [x[entry] * outward for x in maps[alike:]]
    columns += [*(rooms_of(block, entry, side) or ()), side]
    return np.stack([c.astype(np.float32) for c in columns], axis=1)


def columns_of(features: int, *, rooms: bool) -> int:
    """Columns of `feature_rows` with so many further images."""
    return 9 + 2 * features + 2 + features + (2 if rooms else 0) + 1


@dataclass(frozen=True, eq=False)
class LearnedGroups(Grouping):
    """Bins of a predicted score, and of the room within each: the trees and the inner edges of the bins.

    `room_edges` has a row for each bin of the prediction, lower ends first, filled up with infinity.
    """

    forest: Forest
    lower_edges: Array
    upper_edges: Array
    room_edges: Array
    features: int = 0
    kind: ClassVar[str] = "learned"
    sided: ClassVar[bool] = True

    @property
    def count(self) -> int:
        """Bins of both sides."""
        return int(self._first[-1])

    @cached_property
    def _first(self) -> Array:
        """Number of the first group of every bin of the prediction, and of all groups: (bins + 1,)."""
        return np.append(0, np.cumsum(np.isfinite(self.room_edges).sum(axis=1) + 1))

    @cached_property
    def _lookup(self) -> tuple[Array, Array, Array, Array]:
        """Edges of both sides, first bin of each side, first group of each bin, room edges: as the kernel takes it."""
        start = np.array([0, len(self.lower_edges) + 1])
        edges = _rows([self.lower_edges, self.upper_edges])
        return edges, start, self._first.astype(np.int32), np.ascontiguousarray(self.room_edges)

    def check(self, block: Block) -> None:
        """As many further images as the model was fitted with, and limits where it knew some."""
        given = 0 if block.features is None else block.features.shape[1]
        if given != self.features:
            raise ValueError(
                f"the groups were learned with {self.features} feature images per image, but {given} were given; "
                "pass the same features= as in calibrate"
            )
        if self.forest.columns != columns_of(self.features, rooms=has_rooms(block)):
            raise ValueError(
                f"the groups were learned {'without' if has_rooms(block) else 'with'} limits, and these images are "
                f"within {block.limits}; give the same limits as in calibrate"
            )

    def predict(self, block: Block, entry: Array, side: Array) -> Array:
        """Predicted quantile of the score of some ends: (e,)."""
        return self._of_ends(block, *block.ends_within(entry, side))[0]

    def at(self, block: Block, entry: Array, side: Array) -> Array:
        """Bin of the prediction, lower ends first, and within it of the room."""
        return self._of_ends(block, *block.ends_within(entry, side))[1]

    def every(self, block: Block) -> Array:
        """Labels of all ends, a few images at a time."""
        step = max(1, _PIXELS // block.image_size)
        parts = (block.rows(start, start + step) for start in range(0, len(block), step))
        return np.concatenate([self._of_sides(x, *feature_maps(x), x.flat_ends())[1] for x in parts], axis=1)

    def _of_ends(self, block: Block, entry: Array, side: Array) -> tuple[Array, Array]:
        maps, alike = feature_maps(block)
        value, label = np.empty(len(entry)), np.empty(len(entry), np.int32)
        for one in (LOWER, UPPER):
            here = np.flatnonzero(side == one)
            at = entry[here]
            ends = block.flat_ends()
            parts = self._of_sides(block, maps.take(at, 1), alike, (ends[0][at], ends[1][at]), (one, one + 1))
            value[here], label[here] = (x[one] for x in parts)
        return value, label

    def _of_sides(
        self, block: Block, maps: Array, alike: int, ends: tuple[Array, Array], sides: tuple[int, int] = (0, 2)
    ) -> tuple[Array, Array]:
        """Predictions and labels of the ends of some pixels, (2, e) each; rows of other sides stay empty."""
        self.check(block)
        here = *ends, *block.limits, has_rooms(block), *sides
        value, label = np.empty((2, len(ends[0]))), np.empty((2, len(ends[0])), np.int32)
        predict_all(maps, alike, *here, *self.forest.program, value)
        prediction_labels(value, *here, *self._lookup, label)
        return value, label

    def state(self) -> State:
        """Trees and edges."""
        arrays = {name: getattr(self, name) for name in ("lower_edges", "upper_edges", "room_edges")}
        return {"features": self.features, "columns": self.forest.columns}, {**self.forest.state(), **arrays}

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> LearnedGroups:
        """From trees and edges."""
        features = whole_number(meta, "features", _FEATURES)
        columns = whole_number(meta, "columns", columns_of(_FEATURES, rooms=True))
        forest = Forest.from_state(columns, arrays)
        lower, upper = (ascending(real_numbers(arrays, name, 1), name) for name in ("lower_edges", "upper_edges"))
        rooms = real_numbers(arrays, "room_edges", 2, infinite=True)
        bins = len(lower) + len(upper) + 2
        if len(rooms) != bins:
            raise refuse("room_edges", f"has {len(rooms)} rows, but must have one for each of {bins} bins")
        before, after = rooms[:, :-1], rooms[:, 1:]
        if ((after <= before) & np.isfinite(before)).any() or (np.isinf(before) & np.isfinite(after)).any():
            raise refuse("room_edges", "must ascend in every row and end with infinity")
        known = [columns_of(features, rooms=with_rooms) for with_rooms in (False, True)]
        if columns not in known:
            raise refuse("trees", f"take {columns} features, but {features} images make {known}")
        return cls(forest, lower, upper, rooms, features)


def _rows(edges: Sequence[Array]) -> Array:
    """Edges as rows, filled up with infinity."""
    rows = np.full((len(edges), max(len(row) for row in edges)), np.inf)
    for row, values in zip(rows, edges, strict=True):
        row[: len(values)] = values
    return rows


def end_scores(family: Family, truth: Array, block: Block) -> Array:
    """Score of every end, lower ends first, negative inside where the family tells: (2 * n * pixels,)."""
    band = block.band_for(family)
    x = np.asarray(truth, np.float64)
    if family.ends is not None:
        at = family.ends(band)
        with np.errstate(divide="ignore", invalid="ignore"):
            below, above = (at.lower - x) / at.lower_slope, (x - at.upper) / at.upper_slope
    else:
        need = np.asarray(family.score(truth, band), np.float64)
        lower, upper = family.widen(band, np.float64(family.start))
        below, above = np.where(x < lower, need, family.start), np.where(x > upper, need, family.start)
    both = np.concatenate([below.reshape(-1), above.reshape(-1)])
    return np.clip(np.where(np.isnan(both), family.start, both), -_LARGE, _LARGE)


@remembered
def fit_learned_groups(
    pairs: CalibrationData,
    images: Array,
    rng: np.random.Generator,
    *,
    bins_per_side: int = 16,
    room: int = 8,
    quantile: float = 0.75,
    trees: int = 50,
) -> LearnedGroups:
    """Fit the model on pixels of the fitting images, and cut predictions and rooms into bins that hold equally many."""
    check_count(bins_per_side, "k", most=2**15)
    check_count(room, "room", most=2**10)
    check_count(trees, "trees", most=10_000)
    if not 0.001 <= check_open_unit(quantile, "quantile") <= 0.999:
        raise ValueError(f"quantile is {quantile}; it must lie in [0.001, 0.999], for example 0.75")
    rng = check_generator(rng, "rng")
    booster_of = lightgbm()
    ends = 2 * int(pairs.sizes[images].sum())
    share = min(1.0, min(_ROWS, _ROWS_OF_AN_IMAGE * len(images)) / ends)
    seeds = rng.integers(2**63, size=len(images))

    def sample(truth: Array, block: Block, seed: int) -> tuple[Array, Array]:
        entry, side = all_entries(block)
        keep = np.random.default_rng(seed).random(len(entry)) < share
        keep[0] = True
        return feature_rows(block, entry[keep], side[keep]), end_scores(pairs.family, truth, block)[keep]

    parts = [sample(*pairs.gather(images[i : i + 1]), int(seed)) for i, seed in enumerate(seeds)]
    rows, target = (np.concatenate(part) for part in zip(*parts, strict=True))
    parameters = {
        "objective": "quantile", "alpha": quantile, "num_leaves": 15, "learning_rate": 0.1, "max_bin": 127,
        "min_data_in_leaf": max(20, min(1000, len(rows) // 300)), "verbose": -1, "deterministic": True,
        "force_row_wise": True, "seed": 0, "num_threads": 1, "bin_construct_sample_cnt": 10_000,
    }  # fmt: skip
    booster = booster_of.train(parameters, booster_of.Dataset(rows, target), num_boost_round=trees)
    features = 0 if pairs.features is None else int(pairs.features.shape[1])
    none = np.empty(0)
    blank = LearnedGroups(forest_of(booster), none, none, np.empty((2, 0)), features)

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
    return LearnedGroups(blank.forest, edges[0], edges[1], _rows(spaces), features)


def _edges(values: Array, count: int) -> Array:
    """Inner edges at quantiles without ties; the last bin is never empty."""
    edges = np.unique(np.quantile(values, np.arange(1, count) / count, method="inverted_cdf"))
    return edges[edges < values.max()]
