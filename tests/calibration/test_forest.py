"""Trees as arrays predict what LightGBM predicts, to the bit; odd arrays are refused with a remedy."""

import lightgbm
import numpy as np
import pytest
from labelled_world import FITTING, N, world

from pixelbounds import groups
from pixelbounds.calibration.block import all_entries
from pixelbounds.calibration.groups.band_features import columns_of, feature_rows
from pixelbounds.calibration.groups.contract import load_grouping
from pixelbounds.calibration.groups.learned import Forest, forest_of
from pixelbounds.kernels.trees import predict_all

TINY = np.float32(1e-35)  # LightGBM takes values up to this size for 0


def trained(rows, target, trees=12, **more):
    parameters = {
        "objective": "quantile", "alpha": 0.75, "num_leaves": 15, "max_bin": 127, "min_data_in_leaf": 5, "verbose": -1,
        "deterministic": True, "force_row_wise": True, "num_threads": 1, **more,
    }  # fmt: skip
    return lightgbm.train(parameters, lightgbm.Dataset(rows, target), num_boost_round=trees)


def predicted(forest, rows):
    """Predictions of rows (e, columns), of which the last is the side: rows as maps that say the same of both ends."""
    maps = np.ascontiguousarray(rows[:, :-1].T)
    blank = np.zeros(len(rows))
    known = maps, len(maps), blank, blank, -np.inf, np.inf, False, 0, 2, *forest.program
    both = np.empty((2, len(rows)))
    predict_all(*known, both)
    side = rows[:, -1].astype(np.uint8)
    return both[side, np.arange(len(rows))]


def rows_of(seed, e=3000, columns=6):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(e, columns)).astype(np.float32)
    rows[:, 1] = np.round(rows[:, 1])  # ties with thresholds, and zeros of both signs
    rows[::7, 2] = rng.choice(np.array([0, TINY, -TINY, 2 * TINY, -2 * TINY, 1e-38], np.float32), len(rows[::7]))
    rows[:, -1] = rng.integers(0, 2, e)
    target = rows[:, 0] * rows[:, 1] + np.abs(rows[:, 2]) + rows[:, -1] + 0.1 * rng.standard_normal(e)
    return rows, target


@pytest.mark.parametrize("leaves, trees", [(2, 1), (3, 5), (15, 4), (15, 50), (40, 7)])
def test_predictions_are_lightgbms_to_the_bit(leaves, trees):
    rows, target = rows_of(leaves * trees)
    booster = trained(rows, target, trees, num_leaves=leaves)
    forest = forest_of(booster)
    assert len(forest) == trees
    fresh = np.concatenate([rows, rows_of(99)[0], np.nextafter(rows, np.float32(np.inf))])
    np.testing.assert_array_equal(predicted(forest, fresh), booster.predict(fresh, num_threads=1))


@pytest.mark.parametrize("e", [1, 2047, 2048, 2049])
def test_any_number_of_ends(e):
    rows, target = rows_of(1)
    booster = trained(rows, target)
    few = rows[:e]
    np.testing.assert_array_equal(predicted(forest_of(booster), few), booster.predict(few))


def test_a_tree_without_a_split_is_its_leaf():
    rows, _ = rows_of(3, e=100)
    forest = forest_of(trained(rows, np.full(100, 0.25)))
    assert len(forest.feature) == 0
    np.testing.assert_array_equal(predicted(forest, rows), np.full(100, 0.25))


def test_every_kind_of_step_is_walked_as_a_reader_would():
    """Random trees of any shape, some of one leaf, beside a walk from the root, end by end."""
    rng = np.random.default_rng(5)
    parts = [grown(rng, splits) for splits in (0, 1, 7, 0, 14, 30, 3, 0, 12, 12, 2)]
    feature, threshold, left, right, leaf = (np.concatenate(x) for x in zip(*parts, strict=True))
    root = np.cumsum([0, *(len(part[0]) for part in parts)])
    forest = Forest(5, feature, threshold, left, right, root, leaf)
    assert set(forest.program[2][:, 0]) == {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
    rows = rng.normal(size=(300, 5)).astype(np.float32)
    rows[:, -1] = rng.integers(0, 2, len(rows))
    wanted = np.zeros(len(rows))
    for number, row in enumerate(rows):
        for part in parts:
            at = -1 if len(part[0]) == 0 else 0
            while at >= 0:
                at = (part[2] if row[part[0][at]] <= part[1][at] else part[3])[at]
            wanted[number] += part[4][~at]
    np.testing.assert_array_equal(predicted(forest, rows), wanted)


def grown(rng, splits):
    """A random tree: feature, threshold, left, right, leaves."""
    left, right = np.full(splits, -1), np.full(splits, -1)
    open_ends = [(None, 0)]
    for i in range(splits):  # a new split takes the place of a leaf
        child, of = open_ends.pop(rng.integers(len(open_ends)))
        if child is not None:
            child[of] = i
        open_ends += [(left, i), (right, i)]
    for number, (child, of) in enumerate(open_ends):
        if child is not None:
            child[of] = ~number
    return rng.integers(0, 5, splits), np.round(rng.normal(size=splits), 1), left, right, rng.normal(size=splits + 1)


@pytest.mark.parametrize("limits", [(0.0, 1.0), (-np.inf, np.inf)], ids=["limits", "no limits"])
@pytest.mark.parametrize("features", [0, 2])
def test_learned_groups_predict_as_the_fitted_booster(limits, features, monkeypatch):
    """The booster that was fitted is kept aside here, and asked again."""
    boosters = []
    load = groups.learned.forest_of

    def keep(booster):
        boosters.append(booster)
        return load(booster)

    monkeypatch.setattr(groups.learned, "forest_of", keep)
    pairs = world(np.random.default_rng(0), limits=limits, features=features)
    grouping = groups.fit_learned_groups(pairs, FITTING, np.random.default_rng(0), bins_per_side=6, trees=20)
    _, block = pairs.read(0, N)
    ends = all_entries(block)
    rows = feature_rows(block, *ends)
    assert rows.shape[1] == columns_of(features, rooms=np.isfinite(limits[0]))
    np.testing.assert_array_equal(grouping.predict(block, *ends), boosters[0].predict(rows, num_threads=1))
    again = load_grouping("learned", *grouping.state())
    np.testing.assert_array_equal(again.every(block), grouping.every(block))
    np.testing.assert_array_equal(again.every(block).reshape(-1), grouping.at(block, *ends))


# ---------------------------------------------------------------- odd arrays


def stored(**change):
    """Columns and arrays of two trees in a file, 0 -> (1 -> (leaf 0, leaf 1), leaf 2), and one split, with a change."""
    parts = {
        "columns": 3, "feature": np.array([0, 1, 2]), "threshold": np.array([0.5, 0.25, 0.0]),
        "left": np.array([1, -1, -1]), "right": np.array([-3, -2, -2]), "root": np.array([0, 2, 3]),
        "leaf": np.array([1.0, 2.0, 3.0, 10.0, 20.0]),
    }  # fmt: skip
    parts |= change
    return parts.pop("columns"), {f"trees.{name}": x for name, x in parts.items()}


ODD_ARRAYS = {
    "no column": ({"columns": 0}, "columns"),
    "a feature beyond": ({"feature": np.array([0, 3, 2])}, "feature"),
    "a negative feature": ({"feature": np.array([0, -1, 2])}, "feature"),
    "a threshold that is NaN": ({"threshold": np.array([0.5, np.nan, 0])}, "threshold"),
    "too few thresholds": ({"threshold": np.zeros(2)}, "threshold"),
    "a child that is itself": ({"left": np.array([0, -1, -1])}, "left"),
    "a child that is its parent": ({"left": np.array([1, 0, -1])}, "left"),
    "a child beyond the tree": ({"left": np.array([2, -1, -1])}, "left"),
    "a leaf beyond the tree": ({"right": np.array([-3, -2, -3])}, "right"),
    "a leaf of two": ({"right": np.array([-3, -1, -2])}, "once"),
    "a split of nobody": ({"left": np.array([-1, -1, -1])}, "once"),
    "roots that do not end": ({"root": np.array([0, 2, 2])}, "root"),
    "roots that fall": ({"root": np.array([0, 5, 3])}, "root"),
    "a huge root": ({"root": np.array([0, 2**62, 3])}, "root"),
    "a leaf that is NaN": ({"leaf": np.array([1, np.nan, 3, 10, 20])}, "leaf"),
}


@pytest.mark.parametrize("change, named", ODD_ARRAYS.values(), ids=ODD_ARRAYS)
def test_odd_trees_are_refused(change, named):
    with pytest.raises(ValueError, match=rf"{named}.*calibrate again"):
        Forest.from_state(*stored(**change))


def test_trees_of_too_many_leaves_or_cuts_are_refused():
    chain = np.arange(70)
    wide = {"left": ~chain, "right": np.append(chain[1:], -71), "root": np.array([0, 70]), "leaf": np.zeros(71)}
    with pytest.raises(ValueError, match=r"left.*calibrate again"):
        Forest.from_state(*stored(feature=0 * chain, threshold=chain / 7, **wide))
    stumps = np.arange(300)
    many = {"left": -1 + 0 * stumps, "right": -2 + 0 * stumps, "root": np.arange(301), "leaf": np.zeros(600)}
    with pytest.raises(ValueError, match=r"threshold.*300.*calibrate again"):
        Forest.from_state(*stored(feature=0 * stumps, threshold=stumps / 7, **many))
