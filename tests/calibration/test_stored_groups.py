"""A stored grouping that could make a compiled loop leave its arrays is refused, rule by rule, with a remedy."""

import json

import numpy as np
import pytest
from labelled_world import FITTING, N, world

from pixelbounds import groups
from pixelbounds.calibration.block import Grouping
from pixelbounds.calibration.families import additive
from pixelbounds.calibration.groups.contract import load_grouping
from pixelbounds.calibration.groups.positions import ClassSides
from pixelbounds.calibration.paths.frontier import spend
from pixelbounds.calibration.paths.path import Path

MADE = {
    "band": lambda pairs: groups.fit_band_groups(pairs, FITTING, width=4, room=3, level=2),
    "learned": lambda pairs: groups.fit_learned_groups(
        pairs, FITTING, np.random.default_rng(0), bins_per_side=4, trees=4
    ),
    "partition": lambda pairs: groups.by_loss(pairs, FITTING, 4),
    "classes": lambda pairs: ClassSides(1),
    "labels": lambda pairs: groups.fit_labelled_groups(
        pairs, FITTING, groups.fit_band_groups(pairs, FITTING, width=4, room=1), least=20
    ),
}
_states = {}


def state_of(kind):
    """Meta and arrays of a fitted grouping, as a file gives them."""
    if kind not in _states:
        _states[kind] = MADE[kind](world(np.random.default_rng(0))).state()
    meta, arrays = _states[kind]
    return json.loads(json.dumps(meta)), {name: x.copy() for name, x in arrays.items()}


def array(name, edit):
    def change(meta, arrays):
        arrays[name] = edit(arrays[name])

    return change


def meta(name, value):
    def change(meta, arrays):
        meta[name] = value

    return change


def without(name):
    def change(meta, arrays):
        (meta if name in meta else arrays).pop(name)

    return change


def many_cuts(meta, arrays):
    """As in the file that ended the interpreter: 4000 bins of each feature, and one entry for all of them."""
    for name in ("width", "room", "level"):
        arrays[f"cuts.{name}"] = np.arange(1, 4000)
    arrays["table"] = arrays["table"][:1]


RULES = [
    ("band", "a short table", array("table", lambda x: x[:1]), "table"),
    ("band", "a negative group", array("table", lambda x: x * 0 - 5), "table"),
    ("band", "spans that are NaN", array("spans", lambda x: x * np.nan), "spans"),
    ("band", "spans turned over", array("spans", lambda x: x[:, ::-1].copy()), "spans"),
    ("band", "many cuts", many_cuts, "table"),
    ("band", "cuts beyond the cells", array("cuts.width", lambda x: x + 5000), "cuts.width"),
    ("band", "negative cuts", array("cuts.width", lambda x: -x), "cuts.width"),
    ("band", "cuts that fall", array("cuts.width", lambda x: x[::-1].copy()), "cuts.width"),
    ("band", "one cut more", array("cuts.level", lambda x: np.append(x, 4095)), "table"),
    ("band", "other sides", meta("by_side", False), "table"),
    ("learned", "edges that fall", array("lower_edges", lambda x: x[::-1].copy()), "lower_edges"),
    ("learned", "edges that are NaN", array("upper_edges", lambda x: x * np.nan), "upper_edges"),
    ("learned", "one edge less", array("lower_edges", lambda x: x[1:]), "room_edges"),
    ("learned", "few rooms", array("room_edges", lambda x: x[:1]), "room_edges"),
    ("learned", "rooms that are NaN", array("room_edges", lambda x: x * np.nan), "room_edges"),
    ("learned", "rooms that fall", array("room_edges", lambda x: x[:, ::-1].copy()), "room_edges"),
    ("learned", "negative features", meta("features", -1), "features"),
    ("learned", "another number of features", meta("features", 2), "trees"),
    ("learned", "other columns", meta("columns", 18), "trees"),
    ("learned", "few columns", meta("columns", 1), "feature"),
    ("learned", "trees that loop", array("trees.left", lambda x: x * 0), "left"),
    ("learned", "trees that leave", array("trees.feature", lambda x: x + 99), "feature"),
    ("partition", "a label left out", array("labels", lambda x: x + (x > 0)), "labels"),
    ("partition", "a negative label", array("labels", lambda x: x - 1), "labels"),
    ("partition", "no pixels", array("labels", lambda x: x[:0]), "labels"),
    ("labels", "no values at all", array("values", lambda x: x[:0]), "values"),
    ("labels", "values that fall", array("values", lambda x: x[::-1].copy()), "values"),
    ("labels", "a row too few", array("table", lambda x: x[1:]), "table"),
    ("labels", "a column too many", array("table", lambda x: np.append(x, x[:, :1], axis=1)), "table"),
    ("labels", "an end without a group", array("table", lambda x: np.where(x == 0, -1, x)), "table"),
    ("labels", "a group left out", array("table", lambda x: x + (x > 0)), "table"),
    ("labels", "a group of both sides", array("table", lambda x: np.where(x == x[0, -1], x[0, 0], x)), "table"),
    ("labels", "inner bins that fall", array("inner.cuts.width", lambda x: x[::-1].copy()), "width"),
    ("classes", "a negative number of classes", meta("classes", -1), "classes"),
    ("classes", "half a class", meta("classes", 0.5), "classes"),
    ("labels", "labels within labels", meta("inner", {"kind": "labels"}), "inner"),
]


@pytest.mark.parametrize(
    "kind, change, named",
    [(kind, change, named) for kind, _, change, named in RULES],
    ids=[f"{r[0]}: {r[1]}" for r in RULES],
)
def test_a_state_that_breaks_a_rule_is_refused(kind, change, named):
    about, arrays = state_of(kind)
    load_grouping(kind, about, arrays)  # as it was it is good
    change(about, arrays)
    with pytest.raises(ValueError, match=rf"{named}.*(calibrate again|missing)"):
        load_grouping(kind, about, arrays)


@pytest.mark.parametrize("kind", [None, 1, ["band"], {"a": 1}, "", "evil"])
def test_kinds_that_are_none_are_refused(kind):
    with pytest.raises(ValueError, match="unknown"):
        load_grouping(kind, {}, {})


@pytest.mark.parametrize("kind", sorted(MADE.keys() - {"classes"}))  # these have no arrays
def test_random_edits_are_refused_or_stay_within_bounds(kind):
    """Whatever a state holds, labels are within 0..K-1 or the state is refused; nothing else happens."""
    rng = np.random.default_rng(1)
    block = world(np.random.default_rng(0)).read(0, 4)[1]
    passed = 0
    for _ in range(150):
        about, arrays = state_of(kind)
        name = str(rng.choice(sorted(arrays)))
        flat = arrays[name].reshape(-1)
        with np.errstate(all="ignore"):
            for place in rng.integers(0, max(1, flat.size), 2):
                if flat.size:
                    flat[place] = rng.choice([0, 1, -1, 2, 3, 7, 100, 2**31 - 1, -(2**31)]).astype(flat.dtype)
        try:
            grouping = load_grouping(kind, about, arrays)
            grouping.check(block)
        except ValueError:
            continue
        label = grouping.every(block)
        assert 0 <= label.min() <= label.max() < grouping.count
        passed += 1
    assert passed < 150


# ---------------------------------------------------------------- groups that are not from a file


class Wild(Grouping):
    """A user's grouping whose labels are wrong."""

    kind = "wild, for a test"
    sided = False

    @property
    def count(self):
        return 3

    def at(self, block, entry, side):
        return np.full(len(entry), 7, np.int32)

    def state(self):
        return {}, {}

    @classmethod
    def from_state(cls, meta, arrays):
        return cls()


def test_wrong_labels_of_a_users_grouping_reach_no_compiled_loop():
    pairs = world(np.random.default_rng(0))
    truth, block = pairs.read(0, N)
    with pytest.raises(IndexError, match="without a widening; there are 3"):
        block.widen(additive, Wild(), np.zeros(3))
    with pytest.raises(IndexError, match="from 7 to 7, but the path has 3"):
        Path(np.zeros((3, 4)), Wild()).entry_scores(np.array([7]), np.array([0.1]))
    with pytest.raises(IndexError, match="from 7 to 7, but there are 3"):
        spend.count(truth, block, additive, grouping=Wild(), edges=np.arange(5.0), units=np.ones(2))


def test_paths_of_odd_points_are_refused():
    shapes = (3,), (0, 3), (2, 0)
    for points in (*map(np.zeros, shapes), np.full((1, 2), np.nan), np.array([[0, np.inf]]), np.zeros((1, 2), int)):
        with pytest.raises(ValueError, match="points of a path"):
            Path(points, Wild())
