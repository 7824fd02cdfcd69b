"""What a coordinator takes of a site: the site that is at fault is named, never an honest one that comes after it."""

import numpy as np
import pytest
from hospitals import NAMES, announced, answers_of, data, edited, parts_of, refuses, studies_of, table

import pixelbounds as pb
from pixelbounds import federated

SAFE = 2**62


@pytest.fixture(scope="module")
def worlds():
    """The study at every question, and what sites answer: with limits, without, and where lengths are tabulated."""
    out = {}
    for kind, limits, how in (
        ("plain", (0.0, 1.0), {"confidence": "hoeffding_bentkus"}),
        ("centred", None, {}),
        ("positive", (0.0, 1.0), {"family": "multiplicative"}),
    ):
        sites = parts_of(*data(kind), limits=limits)
        studies = studies_of(sites, federated.begin(announced(sites), groups="band", risk_level=0.2, **how))
        out[kind] = {name: (study, answers_of(sites, study.plan)) for name, study in studies.items()}
    return out


def swap(x):
    """Two columns of which the first is greater, exchanged."""
    out = x.copy()
    row, at = np.argwhere(np.diff(x, axis=1) < 0)[0]
    out[row, [at, at + 1]] = out[row, [at + 1, at]]
    return out


IMPOSSIBLE = {  # kind of world, question, change, words of the refusal
    "more misses where intervals widen": ("plain", "misses", table("0", swap), "row"),
    "misses in reverse": ("plain", "misses", table("0", lambda x: x[:, ::-1].copy()), "widen"),
    "more misses than pixels": ("plain", "misses", table("0", lambda x: x * 0 + 65), "pixels"),
    "misses as parts": ("plain", "misses", table("0", lambda x: x.astype(float)), "float64"),
    "misses as yes and no": ("plain", "misses", table("0", lambda x: x > 0), "bool"),
    "misses at some points": ("plain", "misses", table("0", lambda x: x[:, :5]), "shape"),
    "misses at twice the points": ("plain", "misses", table("0", lambda x: np.concatenate([x, x], 1)), "shape"),
    "misses of fewer images": ("plain", "misses", table("0", lambda x: x[1:]), "images certify"),
    "misses with another axis": ("plain", "misses", table("0", lambda x: x[:, :, None]), "shape"),
    "misses of other images": ("plain", "misses", table("1", lambda x: x + 1), "other images"),
    "counts below 0": ("plain", "cells", table("0", lambda x: x - 1), "-1"),
    "cells of one feature": ("plain", "cells", table("0", lambda x: x[:1]), "shape"),
    "cells that overflow": ("plain", "cells", table("0", lambda x: x * 0 + SAFE), "ends by width"),
    "cells that lack an end": ("plain", "cells", table("0", lambda x: x - (x == x.max())), "ends by "),
    "combinations that never occur": ("plain", "occupied", table("0", lambda x: x & False), "no combination"),
    "one combination more": ("plain", "occupied", table("0", lambda x: np.append(x, True)), "shape"),
    "combinations by number": ("plain", "occupied", table("0", lambda x: x.astype(int) * 7), "yes or no"),
    "misses by group that overflow": ("plain", "spend", table("0", lambda x: x * 0 + SAFE), "missed pixels"),
    "lengths that overflow": ("plain", "spend", table("1", lambda x: x * 0 + SAFE), "more than a whole number"),
    "misses of some groups": ("plain", "spend", table("0", lambda x: x[:3]), "shape"),
    "a single count": ("plain", "spend", table("0", lambda x: np.array(5)), "shape"),
    "half of the ends": ("plain", "spend", table("1", lambda x: x // 2), "ends by group"),
    "ends with too much room": ("plain", "spend", table("1", lambda x: x * np.array([1, 2])[:, None, None]), "room"),
    "ends without room": ("plain", "spend", table("1", lambda x: x * np.array([1, 0])[:, None, None]), "room"),
    "ends that did not miss": ("plain", "arriving", table("0", lambda x: x[::-1].copy()), "round before"),
    "ends that are not listed": ("plain", "arriving", table("1", lambda x: x[1:]), "lists"),
    "ends beyond the next point": ("plain", "arriving", table("1", lambda x: x + 1), "0 to 1"),
    "ends that are NaN": ("plain", "arriving", table("1", lambda x: x * np.nan), "NaN"),
    "a table too many": ("plain", "cells", lambda text, tables: tables.update({"9": np.zeros(3)}), "2 tables"),
    "no tables": ("plain", "cells", lambda text, tables: tables.clear(), "0 tables"),
    "widths below 0": ("centred", "extent", table("0", lambda x: -x - 1), "widths"),
    "an infinite score": ("centred", "farthest", table("0", lambda x: x * np.inf), "infinite"),
    "a score before the start": ("centred", "farthest", table("0", lambda x: x * 0 - 1), "-1"),
    "a width below 0": ("centred", "longest", table("0", lambda x: -x), "below 0"),
    "lengths that fall": ("positive", "spend", table("1", lambda x: x[:, ::-1].copy()), "fall"),
}


@pytest.mark.parametrize("kind, question, change, word", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_the_site_at_fault_is_named_wherever_it_stands(worlds, kind, question, change, word):
    study, answers = worlds[kind][question]
    for name in ("north", "south"):
        bad = {**answers, name: edited(answers[name], change)}
        others = [repr(other) for other in NAMES if other != name]
        refuses(lambda given=bad: federated.merge(study, list(given.values())), repr(name), word, never=others)
    assert isinstance(federated.merge(study, list(answers.values())), federated.Study | pb.Calibration)


def test_a_count_that_no_whole_number_of_ours_holds_is_refused(worlds):
    _, answers = worlds["plain"]["cells"]
    refuses(
        lambda: edited(answers["east"], table("0", lambda x: x.astype(np.uint64) + np.uint64(2**63))), str(2**63)[:6]
    )


def test_an_answer_must_be_to_this_plan_of_this_round_of_this_study(worlds):
    study, answers = worlds["plain"]["cells"]
    later, _ = worlds["plain"]["occupied"]
    refuses(lambda: federated.merge(later, list(answers.values())), "another plan", "round 1", "round 2")
    for field, value in {"round": 2, "study": "0" * 64, "plan": "0" * 64}.items():
        wrong = edited(answers["east"], lambda text, tables, f=field, v=value: text.update({f: v}))
        given = {**answers, "east": wrong}
        refuses(lambda given=given: federated.merge(study, list(given.values())), "'east' answers another plan")
    strange = edited(answers["east"], lambda text, tables: text.update(site=["east"]))
    refuses(lambda: federated.merge(study, [strange]), "site ['east']")


def test_a_site_of_which_no_image_is_asked_tells_nothing():
    truth, band = data()
    sites = parts_of(truth, band)
    study = federated.begin(announced(sites), groups="band", risk_level=0.2, n_opt=2, seed=1)
    silent = next(NAMES[i] for i in range(3) if not study.plan.tables[f"fitting.{i}"].any())
    answers = answers_of(sites, study.plan)
    assert not answers[silent].tables
    talks = next(answers[name].tables for name in NAMES if answers[name].tables)
    answers[silent] = edited(answers[silent], lambda text, tables: tables.update(talks))
    refuses(lambda: federated.merge(study, list(answers.values())), repr(silent), "none of its images is asked")


def test_sums_kept_by_the_coordinator_are_checked_when_they_are_read_again(worlds, tmp_path):
    study, answers = worlds["plain"]["misses"]
    after = federated.merge(study, list(answers.values()))
    after.save(tmp_path / "study.safetensors")
    kept = federated.load(tmp_path / "study.safetensors")
    last = max(name for name in kept.tables if name.startswith("round.") and name.endswith(".0"))
    for change, word in (
        (table(last, lambda x: x[:, ::-1].copy()), "widen"),
        (table(last, lambda x: x[:, :3]), "shape"),
        (lambda text, tables: tables.pop(last), "lacks the table"),
        (lambda text, tables: text["settings"].update(risk_level=2.0), "settings.risk_level 2.0"),
        (lambda text, tables: text["settings"].update(confidence="none"), "settings.confidence 'none'"),
        (lambda text, tables: text["sites"][0]["text"].update(images=0), "images 0"),
        (lambda text, tables: text["answered"][0].update(question="0" * 64), "other questions"),
    ):
        edited(kept, change).save(tmp_path / "study.safetensors")
        refuses(lambda: federated.load_study(tmp_path / "study.safetensors").plan, word)
