"""A site answers the eight questions of FORMS and nothing else; a plan is checked before a kernel sees it."""

import numpy as np
import pytest
from hospitals import announced, data, edited, parts_of, refuses, said, studies_of, table

from pixelbounds import federated
from pixelbounds.federated.questions import FORMS


@pytest.fixture(scope="module")
def world():
    """Sites, and a plan for each question that limits call for."""
    sites = parts_of(*data())
    begun = federated.begin(announced(sites), groups="band", risk_level=0.2, confidence="hoeffding_bentkus")
    plans = {name: study.plan for name, study in studies_of(sites, begun).items()}
    return sites, plans


@pytest.fixture(scope="module")
def unlimited():
    """The same without limits and with a centre, where extremes are asked for, too."""
    sites = parts_of(*data("centred"), limits=None)
    begun = federated.begin(announced(sites), groups="band", risk_level=0.2)
    return sites, {name: study.plan for name, study in studies_of(sites, begun).items()}


def aggregate(sites, plan, change):
    t, b, how = sites["north"]
    return lambda: federated.answer(edited(plan, change), t, b, **how)


def given(name, **about):
    return lambda text, tables: text["given"].update({name: about})


def both(*changes):
    def change(text, tables):
        for each in changes:
            each(text, tables)

    return change


GROUPS = "given.grouping.table"
HOSTILE = {  # question, change, words of the refusal
    "labels below 0, written out of bounds": ("spend", table(GROUPS, lambda x: x * 0 - 10**6), ("table",)),
    "one label below 0": ("spend", table(GROUPS, lambda x: np.where(np.arange(len(x)) == 0, 191, -500)), ("table",)),
    "labels as large as memory": ("spend", table(GROUPS, lambda x: x * 0 + 10**9), ()),
    "a short table of labels": ("spend", table(GROUPS, lambda x: x[:1]), ()),
    "groups without a table": ("occupied", lambda text, tables: tables.pop(GROUPS), ("lacks", "grouping.table")),
    "combinations that are groups": ("occupied", table(GROUPS, lambda x: x * 0), ("combinations",)),
    "a short table of combinations": ("occupied", table(GROUPS, lambda x: x[:1]), ()),
    "edges that fall": ("spend", table("given.edges", lambda x: x[::-1].copy()), ("edges", "ascend")),
    "no edges": ("spend", table("given.edges", lambda x: x[:0]), ("0 edges",)),
    "edges that are NaN": ("spend", table("given.edges", lambda x: x * np.nan), ("edges", "NaN")),
    "edges in single precision": ("spend", table("given.edges", lambda x: x.astype(np.float32)), ("edges", "float64")),
    "too many edges": ("spend", table("given.edges", lambda x: np.linspace(0, 1, 9000)), ("9000 edges",)),
    "units of 0": ("spend", table("given.units", lambda x: x * 0), ("units of length", "above 0")),
    "a path of one group": ("misses", table("given.path", lambda x: x[:1]), ("path of 1 groups", "grouping of")),
    "a path without points": ("misses", table("given.path", lambda x: x[:, :0]), ("path of 0 points",)),
    "a path that is NaN": ("misses", table("given.path", lambda x: x * np.nan), ("path", "NaN")),
    "a path that falls": ("misses", table("given.path", lambda x: x[:, ::-1].copy()), ("path", "ascend")),
    "a path below the start": ("misses", table("given.path", lambda x: x - 1), ("path", "ascend from 0")),
    "a path in one row": ("misses", table("given.path", lambda x: x[0]), ("path", "2 axes")),
    "a path of too many points": (
        "misses", table("given.path", lambda x: np.tile(np.linspace(0, 1, 20_000), (len(x), 1))), ("20000 points",)),
    "a knot beyond the path": ("arriving", given("knot", **{"is": "number", "value": 10**9}), ("knot 1000000000",)),
    "a knot before the path": ("arriving", given("knot", **{"is": "number", "value": 0}), ("knot 0",)),
    "a knot that is no whole number": ("arriving", given("knot", **{"is": "number", "value": 1.5}), ("knot 1.5",)),
    "spans that are NaN": ("cells", table("given.spans", lambda x: x * np.nan), ("spans", "NaN")),
    "spans of one feature": ("cells", table("given.spans", lambda x: x[:1]), ("spans", "shape (1, 2)")),
    "spans that fall": ("cells", table("given.spans", lambda x: x[:, ::-1].copy()), ("spans", "ascend")),
    "whether too few units fit": ("cells", table("fitting.0", lambda x: x[:5]), ("(5,)", "50")),
    "units that fit by number": ("cells", table("fitting.0", lambda x: x.astype(np.int64)), ("int64", "'north'")),
    "nothing about who fits": ("cells", lambda text, tables: tables.pop("fitting.1"), ("which of its units fit",)),
    "a table of its own": ("cells", lambda text, tables: tables.update({"given.more": np.zeros(3)}), ("'more'",)),
    "a question that is none": ("misses", said(statistic="__import__"), ("'__import__'", "does not tell")),
    "a scope that is none": ("cells", said(scope="everything"), ("'everything'", "'fitting'")),
    "fitting counts of certifying images": ("cells", said(scope="certifying"), ("'certifying'", "'fitting'")),
    "losses of the fitting images": ("misses", said(scope="fitting"), ("'fitting'", "'all'")),
    "another question's arguments": ("misses", said(statistic="spend", scope="fitting"), ("spend",)),
    "one argument too many": ("cells", given("more", **{"is": "number", "value": 1}), ("more",)),
    "an argument that is an object": ("cells", given("spans", **{"is": "object"}), ("given.spans.is", "'object'")),
    "an argument of another kind": ("cells", given("spans", **{"is": "number", "value": 1}), ("spans (array)",)),
    "groups of objects": (
        "occupied", lambda text, tables: text["given"]["grouping"]["dtypes"].update(table="O"), ("dtypes.table",)),
    "groups in another precision": (
        "occupied", lambda text, tables: text["given"]["grouping"]["dtypes"].update(table="<f4"), ("float32",)),
    "labels that do not fit their type": (
        "occupied", both(table(GROUPS, lambda x: x + 300), lambda text, tables: text["given"]["grouping"]["dtypes"]
                         .update(table="|u1")), ("uint8",)),
    "groups of another kind": (
        "occupied", lambda text, tables: text["given"]["grouping"].update(kind="partition"), ("partition",)),
    "other limits than announced": ("cells", said(limits=[None, None]), ("limits [None, None]", "[0.0, 1.0]")),
    "wider limits than announced": ("cells", said(limits=[0.0, 2.0]), ("limits [0.0, 2.0]", "[0.0, 1.0]")),
    "limits that are words": ("cells", said(limits=["a", "b"]), ("limits",)),
    "limits that fall": ("cells", said(limits=[1.0, 0.0]), ("limits", "below the second")),
    "sites that are a word": ("cells", said(sites="x"), ("sites 'x'",)),
    "a round that is none": ("cells", said(round=0), ("round 0",)),
    "a round that is yes": ("cells", said(round=True), ("round True",)),
    "a study that is none": ("cells", said(study="1"), ("study '1'",)),
    "a family that is none": ("cells", said(family="convex"), ("family 'convex'", "additive")),
    "another family": ("cells", said(family="scaled"), ("centre",)),
    "another source": ("cells", said(source={"kind": "another"}), ("source of the bands", "another")),
    "a source that is none": ("cells", said(source={"samples": -1}), ("source", "samples")),
    "a source in words": ("cells", said(source="calibrated"), ("source 'calibrated'",)),
    "another measure": ("cells", said(measure={"low": 0.0, "high": 1.0, "unit": "HU"}), ("measure", "None")),
    "a measure that is none": ("cells", said(measure={"low": 1.0, "high": 0.0, "unit": "HU"}), ("measure", "low")),
    "a field that nobody knows": ("cells", said(more=1), ("more",)),
}  # fmt: skip


@pytest.mark.parametrize("question, change, words", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_plan_is_refused(world, question, change, words):
    sites, plans = world
    refuses(aggregate(sites, plans[question], change), *words)


def test_every_question_is_asked_somewhere_and_answered_as_it_stands(world, unlimited):
    asked = set()
    for sites, plans in (world, unlimited):
        asked |= plans.keys()
        for plan in plans.values():
            assert aggregate(sites, plan, lambda text, tables: None)().tables
    assert asked == {name for name, form in FORMS.items() if not form.regional}  # those: test_promises_of_sites


def test_extremes_are_asked_for_a_real_widening(unlimited):
    sites, plans = unlimited
    for edge in (-1.0, 10**400, True, None, "1"):
        refuses(aggregate(sites, plans["longest"], given("edge", **{"is": "number", "value": edge})), "edge")


def test_a_path_whose_index_would_fill_memory_is_refused(world):
    """An index by leading bits grows with groups and octaves; 2**-1000 to 2**1000 in many groups would take it all."""
    sites, plans = world
    many = 2**14
    cuts = [np.arange(1, n, dtype=np.int64) for n in (many // 16, 8)]

    def change(text, tables):
        tables.update({"given.grouping.cuts.width": cuts[0], "given.grouping.cuts.room": cuts[1]})
        tables.update({GROUPS: np.arange(many), "given.path": np.tile([0.0, 1e-300, 1e300], (many, 1))})
        text["given"]["grouping"]["dtypes"].update({"cuts.width": "<i8", "cuts.room": "<i8", "table": "<i4"})

    refuses(aggregate(sites, plans["misses"], change), f"{many} groups", "octaves")
