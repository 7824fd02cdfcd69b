"""What is refused of plans and answers, each with words that name who and what is wrong.

Everything that a file says is checked before it is used: no hostile value may index memory or reach compiled loops.
"""

import dataclasses

import numpy as np
import pytest
from hospitals import NAMES, announced, answers_of, data, edited, parts_of, said, table
from refusals import refuses

import pixelbounds as pb
from pixelbounds import federated
from pixelbounds.calibration.groups.positions import partition
from pixelbounds.federated.arguments import encode
from pixelbounds.federated.questions import QUESTIONS

HUGE = 2**62
GROUPS = "given.grouping.table"


def test_every_question_is_asked_and_answered_as_it_stands(worlds):
    assert {question for _, studies in worlds.values() for question in studies} == QUESTIONS.keys()
    for _, studies in worlds.values():
        for study, answers in studies.values():
            assert isinstance(federated.merge(study, list(answers.values())), federated.Study | pb.Calibration)


# ---------------------------------------------------------------- answers, at the coordinator


def backwards(x):
    """Misses of each of four regions, from the wide end on."""
    return x.reshape(len(x), 4, -1)[:, :, ::-1].reshape(x.shape).copy()


ANSWERS = {  # world, question, change, words of the refusal
    "misses that rise": ("plain", "misses", table("missed", lambda x: x - x[:, :1] + x[:, ::-1]), "-"),
    "more misses than pixels": ("plain", "misses", table("missed", lambda x: x * 0 + 65), "than it has"),
    "misses of another shape": ("plain", "misses", table("missed", lambda x: x[1:]), "shape"),
    "misses of other images": ("plain", "misses", table("image_hashes", lambda x: x + 1), "was announced"),
    "counts below 0": ("plain", "cells", table("counts", lambda x: x - 1), "-1"),
    "counts that overflow": ("plain", "cells", table("counts", lambda x: x * 0 + (2 * HUGE - 1)), "at most"),
    "a single count": ("plain", "spend", table("missed", lambda x: np.array(5)), "shape"),
    "more ends than listed": ("plain", "arriving", table("shares", lambda x: x[1:]), "lists"),
    "ends beyond the next point": ("plain", "arriving", table("shares", lambda x: x + 1), "at most 1"),
    "a table too many": ("plain", "cells", lambda text, tables: tables.update({"9": np.zeros(3)}), "tables 9, counts"),
    "widths that fall": ("unlimited", "extent", table("extent", lambda x: -x - 1), "above the greatest"),
    "lengths that fall": ("positive", "spend", table("lengths", lambda x: x[:, ::-1].copy()), "falls"),
    "more than a region": ("regions", "misses", table("missed", lambda x: x + 70), "than it has"),
    "regions that rise": ("regions", "misses", table("missed", backwards), "where intervals widen"),
    "other regions": ("regions", "misses", table("region_digests", lambda x: x + 1), "region_digests that"),
    "cells that are not listed": ("regions", "missed_cells", table("cells", lambda x: x[1:]), "lists"),
    "cells out of range": ("regions", "missed_cells", table("cells", lambda x: x + 10**9), "at most"),
    "counts out of range": ("regions", "missed_cells", table("counts", lambda x: x * 0 + HUGE), "at most"),
}  # fmt: skip


@pytest.mark.parametrize("world, question, change, word", ANSWERS.values(), ids=ANSWERS)
def test_an_impossible_answer_is_refused_with_the_name_of_its_site_alone(worlds, world, question, change, word):
    study, answers = worlds[world][1][question]
    bad = {**answers, "south": edited(answers["south"], change)}
    refuses(lambda: federated.merge(study, list(bad.values())), "'south'", word, never=["'north'", "'east'"])


def test_an_answer_must_be_to_this_plan_of_this_round_of_this_study(worlds):
    study, answers = worlds["plain"][1]["cells"]
    later, _ = worlds["plain"][1]["occupied"]

    def merge(name, change):
        given = {**answers, name: edited(answers[name], change)}
        return lambda: federated.merge(study, list(given.values()))

    refuses(
        lambda: federated.merge(later, list(answers.values())), "'north' answers another plan", "round 1", "round 2"
    )
    for field, value in {"round": 2, "study": "0" * 64, "plan": "0" * 64}.items():
        refuses(merge("east", said(**{field: value})), "'east' answers another plan")
    refuses(merge("east", said(site="west")), "north, west, south; give one of each of north, east")
    refuses(merge("east", said(site="north")), "north, north, south; give one of each")
    refuses(merge("east", said(site=["east"])), "site ['east']")
    refuses(
        lambda: federated.merge(study, [answers["north"], answers["south"]]),
        "are of north, south; give one of each of north, east, south",
    )
    refuses(lambda: federated.merge(study, [study.plan]), "plan", "answer that")


def test_a_site_of_which_no_image_is_asked_sends_nothing():
    sites = parts_of(*data())
    study = federated.begin(announced(sites), method=pb.Frontier("band", n_fit=2), risk_level=0.2, seed=1)
    silent = next(NAMES[i] for i in range(3) if not study.plan.tables[f"fitting.{i}"].any())
    answers = answers_of(sites, study.plan)
    assert not answers[silent].tables
    sent = next(answers[name].tables for name in NAMES if answers[name].tables)
    answers[silent] = edited(answers[silent], lambda text, tables: tables.update(sent))
    refuses(lambda: federated.merge(study, list(answers.values())), repr(silent), "must have none")


def test_a_damaged_or_foreign_file_is_refused_by_name(worlds, tmp_path):
    study, answers = worlds["plain"][1]["cells"]
    path = tmp_path / "east.safetensors"
    content = answers["east"].to_bytes()

    def merge():
        return federated.merge(study, [answers["north"], answers["south"], path])

    for wrong, words in (
        (content[:-5] + bytes([content[-5] ^ 1]) + content[-4:], ["checksum"]),
        (content[:100], ["cut short"]),
        (federated.Message("answer", {"site": "east"}).to_bytes(), ["lacks study, plan, round"]),
        (pb.calibrate(*data(), risk_level=0.2, method="rcps").to_bytes(), ["calibration"]),
    ):
        path.write_bytes(wrong)
        refuses(merge, "east.safetensors", *words)
    refuses(lambda: federated.merge(study, [tmp_path / "none"]), "none", error=FileNotFoundError)


# ---------------------------------------------------------------- plans, at a site


def given(name, value):
    return lambda text, tables: text["given"].update({name: value})


PLANS = {  # world, question, change, words of the refusal
    "labels below 0": ("plain", "spend", table(GROUPS, lambda x: x * 0 - 10**6), ["table"]),
    "no table": ("plain", "occupied", lambda text, tables: tables.pop(GROUPS), ["lack table"]),
    "combinations that are groups": ("plain", "occupied", table(GROUPS, lambda x: x * 0), ["combinations"]),
    "edges that fall": ("plain", "spend", table("given.edges", lambda x: x[::-1].copy()), ["edges", "falls"]),
    "edges that are NaN": ("plain", "spend", table("given.edges", lambda x: x * np.nan), ["edges", "NaN"]),
    "too many edges": ("plain", "spend", table("given.edges", lambda x: np.linspace(0, 1, 9000)), ["9000 edges"]),
    "a path of one group": ("plain", "misses", table("given.path.points", lambda x: x[:1]), ["path", "shape"]),
    "a path that is NaN": ("plain", "misses", table("given.path.points", lambda x: x * np.nan), ["path", "NaN"]),
    "a path that falls": ("plain", "misses", table("given.path.points", lambda x: x[:, ::-1].copy()), ["falls"]),
    "a path of too many points": ("plain", "misses", table(
        "given.path.points", lambda x: np.tile(np.linspace(0, 1, 20_000), (len(x), 1))), ["20000 points"]),
    "a point beyond the path": ("plain", "arriving", given("point", 10**9), ["point 1"]),
    "spans that are NaN": ("plain", "cells", table("given.spans", lambda x: x * np.nan), ["spans", "NaN"]),
    "an edge below the start": ("unlimited", "longest", given("edge", -9.0), ["edge"]),
    "too few units that fit": ("plain", "cells", table("fitting.0", lambda x: x[:5]), ["(5,)", "50"]),
    "nothing about who fits": ("plain", "cells", lambda text, tables: tables.pop("fitting.1"), ["fitting.1"]),
    "a question that is none": ("plain", "misses", said(statistic="__import__"), ["'__import__'", "alone"]),
    "another question's arguments": ("plain", "misses", said(statistic="spend"), ["spend"]),
    "an argument that is an object": ("plain", "cells", given("spans", {"is": "object"}), ["given.spans"]),
    "an argument of another kind": ("plain", "cells", given("spans", 1), ["spans", "excess"]),
    "groups of another kind": (
        "plain", "occupied", lambda text, tables: text["given"]["grouping"].update(kind="partition"), ["partition"]),
    "other limits than announced": ("plain", "cells", said(limits=[0.0, 2.0]), ["limits [0.0, 2.0]", "[0.0, 1.0]"]),
    "sites that are a word": ("plain", "cells", said(sites="x"), ["sites 'x'"]),
    "another family": ("plain", "cells", said(family="scaled"), ["family scaled", "additive"]),
    "another source": ("plain", "cells", said(source={"kind": "another"}), ["source", "another"]),
    "another measure": ("plain", "cells", said(measure={"low": 0.0, "high": 1.0, "unit": "HU"}), ["measure", "None"]),
}  # fmt: skip


@pytest.mark.parametrize("world, question, change, words", PLANS.values(), ids=PLANS)
def test_a_hostile_plan_is_refused(worlds, world, question, change, words):
    sites, studies = worlds[world]
    t, b, how = sites["north"]
    refuses(lambda: federated.answer(edited(studies[question][0].plan, change), t, b, **how), *words)


def test_a_path_whose_index_would_fill_memory_is_refused(worlds):
    """An index by leading bits grows with groups and octaves; 2**-1000 to 2**1000 in many groups would take it all."""
    sites, studies = worlds["plain"]
    many = 2**14
    cuts = {f"given.path.cuts.{name}": np.arange(1, n) for name, n in (("width", many // 16), ("room", 8))}
    tables = {
        **cuts,
        "given.path.table": np.arange(many),
        "given.path.points": np.tile([0.0, 1e-300, 1e300], (many, 1)),
    }
    plan = edited(studies["misses"][0].plan, lambda text, old: old.update(tables))
    refuses(lambda: federated.answer(plan, *sites["north"][:2], site="north"), f"{many} groups", "octaves")


def test_counts_by_position_are_refused_by_both_sides(worlds):
    sites, studies = worlds["plain"]
    t, b, how = sites["north"]
    one_each = partition(np.arange(64).reshape(8, 8), (8, 8))
    refuses(
        lambda: federated.begin(announced(sites), risk_level=0.2, method=pb.Frontier(one_each)), "follow the pixel grid"
    )
    plan = studies["spend"][0].plan
    text, tables = encode({"grouping": one_each})
    others = {name: x for name, x in plan.tables.items() if "grouping" not in name}
    curious = dataclasses.replace(
        plan, text={**plan.text, "given": {**plan.text["given"], **text}},
        tables={**others, **{f"given.{name}": x for name, x in tables.items()}},
    )  # fmt: skip
    refuses(lambda: federated.answer(curious, t, b, **how), "follow the pixel grid")


def test_a_site_answers_with_the_images_that_it_announced(worlds):
    sites, studies = worlds["plain"]
    study = studies["cells"][0]
    t, b, how = sites["east"]
    refuses(lambda: federated.answer(study.plan, t[1:], b[1:], **how), "images 7", "'east'", "has 6")
    refuses(lambda: federated.answer(study.plan, t, b, site="east", units=np.arange(7)), "units None", "has 7")
    refuses(lambda: federated.answer(study.plan, t, b, site="east", least_count=2), "least_count 1", "has 2")
    refuses(lambda: federated.answer(study.plan, t, b, site="west"), "'west'", "north, east, south")
    sites, studies = worlds["regions"]
    study = studies["misses"][0]
    t, b, how = sites["east"]
    regions = how["regions"]
    refuses(lambda: federated.answer(study.plan, t, b, site="east"), "'edges' (region)", "has none", "'east'")
    ones = {**regions, "rare": np.ones(t.shape)}
    refuses(lambda: federated.answer(study.plan, t, b, site="east", regions=ones), "'rare' (region)", "has weights")
