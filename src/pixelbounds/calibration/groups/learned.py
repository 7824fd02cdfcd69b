"""Groups by the widening that an end is likely to need.

A gradient-boosted model predicts an upper quantile of each end's score from features known at test time. The groups
are bins of the prediction, for each side apart, and within each of them bins of the room that the end has to its limit:
two numbers tell more of a tail than one, and near a limit widening costs little. The trees are few and coarse, since
pixels of one image are alike and fitting images are few. Validity never depends on the quality of the fit.

LightGBM fits the trees, and `forest_of` takes them over as arrays (`Forest`; what they must be is said in
`contract.py`). A file holds these arrays alone, so that LightGBM never reads anything that comes from a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...images.checks import check_count, check_generator, check_open_unit
from ...images.library import Array
from ...kernels.entry_scores import LOWER, UPPER
from ...kernels.features import prediction_labels
from ...kernels.trees import ALONE, LEAF, PAIR, ROW, predict_all
from ..block import Block, Grouping, State, all_entries
from ..data import CalibrationData, remembered
from ..families import Family, additive
from .band_features import columns_of, feature_maps, feature_rows, has_rooms, rooms_of
from .contract import PARTS, ascending, forest_arrays, real_numbers, refuse, whole_number

_CUTS = 254  # different thresholds of a feature: codes are bytes
_ZERO = np.float32(1e-35)  # LightGBM takes values up to this size for 0
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
    if family is additive:
        below, above = band.lower - x, x - band.upper
    elif family.ends is not None:
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
    pairs: CalibrationData, images: Array, rng: np.random.Generator, *, bins_per_side: int = 16, room: int = 8,
    quantile: float = 0.75, trees: int = 50,
) -> LearnedGroups:  # fmt: skip
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


# ---------------------------------------------------------------- the trees


@dataclass(frozen=True, eq=False)
class Forest:
    """Trees over rows of so many `columns`.

    feature, threshold, left, right    of every split (s,)
    root                               number of the first split of every tree, and s: (t + 1,)
    leaf                               values, tree by tree; a tree has one more than splits: (s + t,)
    """

    columns: int
    feature: Array
    threshold: Array
    left: Array
    right: Array
    root: Array
    leaf: Array

    def __len__(self) -> int:
        return len(self.root) - 1

    @cached_property
    def _single(self) -> Array:
        """Thresholds in single precision, such that x <= threshold stays the same for every x of that precision."""
        with np.errstate(over="ignore"):
            rounded = self.threshold.astype(np.float32)
        rounded = np.where(rounded > self.threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)
        below = (self.threshold >= -_ZERO) & (self.threshold < 0)
        above = (self.threshold >= 0) & (self.threshold < _ZERO)
        rounded = np.where(below, np.nextafter(-_ZERO, np.float32(-np.inf)), rounded)
        return np.where(above, _ZERO, rounded).astype(np.float32)

    @cached_property
    def _coded(self) -> tuple[Array, Array, Array]:
        """Different thresholds, column by column and ascending; how many a column has; each split's place in them."""
        order = np.lexsort((self._single, self.feature))
        feature, threshold = self.feature[order], self._single[order]
        fresh = np.ones(len(order), bool)
        fresh[1:] = (feature[1:] != feature[:-1]) | (threshold[1:] != threshold[:-1])
        counts = np.bincount(feature[fresh], minlength=self.columns)
        start = np.cumsum(counts) - counts
        place = np.empty(len(order), np.int64)
        place[order] = np.cumsum(fresh) - 1 - start[feature]
        return threshold[fresh], counts, place

    @cached_property
    def program(self) -> tuple[Array, ...]:
        """What `kernels.trees` takes: cuts and where each column's begin, steps and where each tree's begin, leaves."""
        thresholds, counts, _ = self._coded
        start = np.concatenate([[0], np.cumsum(-(-counts // 8) * 8)])  # eight are compared at a time
        cuts = np.full(start[-1], np.inf, np.float32)
        cuts[np.repeat(start[:-1] - (np.cumsum(counts) - counts), counts) + np.arange(len(thresholds))] = thresholds
        leaves = np.diff(self.root) + 1
        table = np.zeros((len(self), int(leaves.max())))
        table[np.arange(table.shape[1]) < leaves[:, None]] = self.leaf
        return cuts, start, *self._steps, table

    @property
    def _steps(self) -> tuple[Array, Array]:
        """Every split as a step of the kernel, a tree's last one first, but for pairs of leaves that the split above
        takes along; and the number of each tree's first step: (steps, 12), (t + 1,).
        """
        own = np.diff(self.root)
        tree = np.repeat(np.arange(len(self)), own)
        number = np.arange(len(tree)) - self.root[tree]
        code = self._coded[2] - 128
        pair = (self.left < 0) & (self.right < 0) & (number > 0)

        def side(child: Array) -> tuple[Array, list[Array]]:
            at = np.where(child < 0, 0, self.root[tree] + child)  # among all splits
            kind = np.where(child < 0, LEAF, np.where(pair[at], PAIR, ROW))
            leaves = [np.where(child < 0, ~child, ~self.left[at]), ~self.right[at]]
            rows = [np.where(kind == ROW, 3 + child, self.feature[at]), code[at]]
            held = [kind != LEAF, kind == PAIR, kind != ROW, kind == PAIR]
            return kind, [np.where(there, x, 0) for there, x in zip(held, [*rows, *leaves], strict=True)]

        kinds, parts = zip(*(side(x.astype(np.int64)) for x in (self.left, self.right)), strict=True)
        row = np.where(number > 0, 3 + number, tree % 4)
        steps = np.stack([3 * kinds[0] + kinds[1], row, self.feature, code, *parts[0], *parts[1]], axis=1)
        single = np.flatnonzero(own == 0)
        alone = np.zeros((len(single), steps.shape[1]), np.int64)
        alone[:, 0], alone[:, 1] = ALONE, single % 4
        whose = np.concatenate([tree[~pair], single])
        order = np.lexsort((np.concatenate([-number[~pair], 0 * single]), whose))
        first = np.concatenate([[0], np.cumsum(np.bincount(whose, minlength=len(self)))])
        return np.concatenate([steps[~pair], alone])[order].astype(np.int16), first

    def state(self) -> dict[str, Array]:
        """What a file must hold, beside the number of columns."""
        return {f"trees.{name}": getattr(self, name) for name in PARTS}

    @classmethod
    def from_state(cls, columns: int, arrays: dict[str, Array]) -> Forest:
        """From what a file holds, checked."""
        forest = cls(columns, **forest_arrays(columns, arrays))
        most = int(forest._coded[1].max())
        if most > _CUTS:
            raise refuse("threshold", f"has {most} values for one feature, but at most {_CUTS} are possible")
        return forest


def forest_of(booster: Any) -> Forest:
    """The trees of a LightGBM booster that was fitted here: plain splits x <= threshold."""
    model = booster.dump_model()
    parts = [_arrays_of(tree["tree_structure"]) for tree in model["tree_info"]]
    feature, threshold, left, right, leaf = (np.concatenate(part) for part in zip(*parts, strict=True))
    root = np.cumsum([0, *(len(part[0]) for part in parts)], dtype=np.int32)
    return Forest(model["max_feature_idx"] + 1, feature, threshold, left, right, root, leaf)


def _arrays_of(top: dict[str, Any]) -> tuple[Array, ...]:
    """Feature, threshold, left, right and leaves of a tree, from its nested nodes."""
    splits: dict[int, dict[str, Any]] = {}
    leaves: dict[int, float] = {}
    waiting = [top]
    while waiting:
        node = waiting.pop()
        if "split_index" in node:
            splits[node["split_index"]] = node
            waiting += [node["left_child"], node["right_child"]]
        else:
            leaves[node.get("leaf_index", 0)] = node["leaf_value"]

    nodes = [splits[i] for i in range(len(splits))]
    children = [[node[name] for node in nodes] for name in ("left_child", "right_child")]
    return (
        np.array([node["split_feature"] for node in nodes], np.int32),
        np.array([node["threshold"] for node in nodes], np.float64),
        *(np.array([x.get("split_index", ~x.get("leaf_index", 0)) for x in x_of], np.int32) for x_of in children),
        np.array([leaves[i] for i in range(len(leaves))], np.float64),
    )
