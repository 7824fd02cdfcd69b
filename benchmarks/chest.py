"""Promises for organs of the chest, jointly, beside other ways to make them: risks and lengths over many draws.

    python -m benchmarks.chest ARRAYS [slices | patients | more | few] [--draws 20]

ARRAYS, a folder of .npy or an .npz, holds truth, lower and upper (n, *pixels) of slices, `organs` (the true labels: 1
trachea, 2 heart, 3 lung), `labels` (those known at test time) and `unit` (n,), the patients: what `material` of
`reproduce.gpu.end_to_end` writes. Where there are bands at another miscoverage than the paper's, they are taken. A draw
takes some slices at random to calibrate on. By patient, a draw takes
patients. Rows that benchmarks/results has already are not made again, so that a run resumes where it stopped.

What a promise is about, the source that the certifying slices are drawn from, is known here whole: all slices that do
not fit. So `risks` are true risks, without an error of their own, and a promise is kept or broken by them. Those of the
other slices alone, which did not calibrate, are `judged`: what a user would measure, with the error of so few, and
the luck of the draw turned about (slices that certify easily leave hard ones).

ours               all promises jointly; with labels, groups lie within labels
unweighted         the frontier of all pixels, walked until all promises hold
per promise        a frontier for each promise, Hoeffding-Bentkus, delta / 7 each; the widest end of all is taken
semantic RCPS      one widening per label, as its authors release it (tests/support/literal.py): no joint promise
plain 5%           5% of all pixels, nothing else

The seeds of draws are 0, 1, ...; whatever is tuned is tuned with other seeds (`--first 100 --out elsewhere.json`).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import pixelbounds as pb
from benchmarks.__main__ import RESULTS, machine, show
from pixelbounds.calibration.promises import RiskTarget, risk_targets_of
from pixelbounds.images.library import Array
from pixelbounds.storage.files import replace_file

DELTA = 0.1
ORGANS = {"trachea": 1, "heart": 2, "lung": 3}
SHARES = {"all": 0.05, "body": 0.05, "lung": 0.05, "heart": 0.05, "trachea": 0.10, "edges": 0.10}
LEVELS = {**SHARES, "tail": 0.10}
ABOVE = 0.10  # of its pixels a slice of the tail misses
EDGES = 0.05  # of the pixels of a slice are edges


@dataclass(frozen=True, eq=False)
class Chest:
    """Slices with their bands, regions from the truth (bool), labels at test time, and patients."""

    truth: Array
    band: pb.Band
    regions: dict[str, Array]
    labels: Array
    patients: Array

    def take(self, some: Array) -> Chest:
        """Some slices."""
        regions = {name: x[some] for name, x in self.regions.items()}
        return Chest(self.truth[some], self.band[some], regions, self.labels[some], self.patients[some])

    def promises(self, cap: float | None) -> list[pb.Promise]:
        """All promises about these slices, of the regions that are there."""
        there = [name for name in SHARES if name == "all" or name in self.regions]
        made = [pb.share(SHARES[name], within=self.regions.get(name), name=name, cap=cap) for name in there]
        return [*made, pb.tail(LEVELS["tail"], above=ABOVE, name="tail")]


def read(path: Path, body: bool = True) -> Chest:
    """The slices of a folder or a file; regions are found in the truth, that of the body by SciPy."""
    held = {x.stem: np.load(x) for x in path.glob("*.npy")} if path.is_dir() else dict(np.load(path))
    truth, organs = held["truth"].astype(np.float32), held["organs"]
    ends = [held.get(f"ours_{end}", held[end]).astype(np.float32) for end in ("lower", "upper")]
    regions = {name: organs == value for name, value in ORGANS.items()}
    regions |= {"edges": pb.regions.edges(truth, top=EDGES)} | ({"body": pb.regions.body(truth)} if body else {})
    return Chest(truth, pb.Band(*ends), regions, held["labels"], held["unit"])


@dataclass(frozen=True)
class Study:
    """What is drawn: slices or patients, how many calibrate and how many of these fit, and which cap a slice has."""

    unit: str
    count: int
    fitting: int
    cap: float | None = None

    @property
    def key(self) -> dict[str, Any]:
        """What tells its rows from those of other studies."""
        return {"unit": self.unit, "count": self.count, "cap": self.cap}

    @property
    def by_patient(self) -> bool:
        """Whether patients are drawn."""
        return self.unit == "patients"


STUDIES: dict[str, list[Study]] = {
    "slices": [Study("slices", 800, 200)],
    "patients": [Study("patients", 30, 5, 0.25)],
    "more": [Study("slices", n, n // 4, cap) for n in (300, 600, 1000) for cap in (None, 0.25)],
    "few": [Study("slices", 240, 60)],  # of 320 slices of 512 x 512
    "toy": [Study("slices", 30, 8)],
}


# ---------------------------------------------------------------- ways to make the promises

Row = dict[str, Any]
Ends = tuple[Array, Array]
Way = Callable[[Chest, Chest, Study, dict[str, Any]], Ends]  # calibration, source, study, settings -> both ends


def jointly(here: Chest, new: Chest, study: Study, settings: dict[str, Any], *, labels: bool = False) -> Ends:
    """Ours."""
    return _calibrated(here, new, here.promises(study.cap), labels, **settings)


def plain(here: Chest, new: Chest, study: Study, settings: dict[str, Any]) -> Ends:
    """All pixels alone."""
    return _calibrated(here, new, [pb.share(LEVELS["all"], cap=study.cap)], False, **settings)


def per_promise(here: Chest, new: Chest, study: Study, settings: dict[str, Any], *, labels: bool = False) -> Ends:
    """A calibration for each promise, with Bonferroni; an interval holds those of all of them."""
    promises = here.promises(study.cap)
    how = {**settings, "bound": "hoeffding_bentkus", "failure_prob": DELTA / len(promises)}
    ends = [_calibrated(here, new, [promise], labels, **how) for promise in promises]
    return np.min([lower for lower, _ in ends], axis=0), np.max([upper for _, upper in ends], axis=0)


def unweighted(here: Chest, new: Chest, study: Study, settings: dict[str, Any], *, labels: bool = False) -> Ends:
    """The frontier that knows of all pixels alone, followed until all promises hold."""
    data = pb.CalibrationData(here.truth, here.band, settings.get("units"), here.labels if labels else None)
    target, method = pb.Target(here.promises(study.cap), DELTA), settings["method"]
    rng = np.random.default_rng(settings["seed"])
    fitting, certifying = pb.split(data, target, method, rng)
    path = method.fit(fitting, pb.Target([pb.share(LEVELS["all"])], DELTA), rng)
    table = pb.loss_table(certifying, path, target)
    cal = pb.Calibration.of(table, pb.certify(table, target), target)
    return _applied(cal, new, labels)


def semantic(here: Chest, new: Chest, study: Study, settings: dict[str, Any]) -> Ends:
    """Semantic RCPS, by the labels at test time: coarse steps, and fine ones from the last of these."""
    from tests.support.literal import literal_semantic_rcps

    levels = {0: LEVELS["all"], **{value: LEVELS[name] for name, value in ORGANS.items()}}
    widening = np.zeros(new.truth.shape)
    for label, level in levels.items():
        fixed_sequence_test = partial(
            literal_semantic_rcps, here.truth, here.band.lower, here.band.upper, here.labels,
            risk_levels={label: level}, failure_prob=DELTA,
        )  # fmt: skip
        coarse = fixed_sequence_test(step=0.05)[label]
        widening[new.labels == label] = fixed_sequence_test(step=0.002, largest=coarse)[label]
    return np.clip(new.band.lower - widening, 0, 1), np.clip(new.band.upper + widening, 0, 1)


WAYS: dict[str, Way] = {
    "plain 5%": plain,
    "semantic RCPS": semantic,
    "per promise": per_promise,
    "per promise, labels": partial(per_promise, labels=True),
    "unweighted": unweighted,
    "unweighted, labels": partial(unweighted, labels=True),
    "ours": jointly,
    "ours, labels": partial(jointly, labels=True),
}
TAKEN = {
    "slices": list(WAYS),
    "patients": [way for way in WAYS if way != "semantic RCPS"],
    "more": ["ours", "ours, labels"],
    "few": ["plain 5%", "unweighted", "ours", "ours, labels"],
    "toy": ["plain 5%", "ours, labels"],
}


def _calibrated(here: Chest, new: Chest, promises: list[pb.Promise], labels: bool, **how: Any) -> Ends:
    known = {"labels": here.labels} if labels else {}
    cal = pb.calibrate(here.truth, here.band, promises=promises, **{"failure_prob": DELTA, **known, **how})
    return _applied(cal, new, labels)


def _applied(cal: pb.Calibration, new: Chest, labels: bool) -> Ends:
    interval = cal.apply(new.band, labels=new.labels if labels else None)
    return interval.lower, interval.upper


# ---------------------------------------------------------------- what they come to


def judged(new: Chest, ends: Ends, study: Study) -> Row:
    """Risk of every promise on some slices (patients), and mean lengths."""
    lower, upper = ends
    missed = ((new.truth < lower) | (new.truth > upper)).reshape(len(new.truth), -1)
    length = (upper - lower).astype(np.float64).reshape(missed.shape)
    targets, regions = risk_targets_of(new.promises(study.cap), new.band.lower, "units", study.by_patient)
    masks = [np.ones(missed.shape, bool), *(mask.reshape(missed.shape) for _, mask in regions)]
    found: Row = {"risks": {}, "lengths": {}}
    for target in targets:
        mask = masks[target.region]
        risk = _risk(target, (missed & mask).sum(axis=1), mask.sum(axis=1), new, study.by_patient)
        found["risks"][target.name] = round(risk, 6)
        if target.kind != "tail":
            found["lengths"][target.name] = round(float(length[mask].mean()), 6)
    return found


def _risk(target: RiskTarget, missed: Array, size: Array, new: Chest, by_patient: bool) -> float:
    there = size > 0
    losses = target.cap * target.losses(missed[there], size[there])
    if by_patient:
        who = np.unique(new.patients[there], return_inverse=True)[1]
        losses = np.bincount(who, losses) / np.bincount(who)
    return float(losses.mean())


@dataclass(frozen=True, eq=False)
class Drawn:
    """Slices that calibrate, those of the source, which of these did not calibrate, and settings of the calibration."""

    here: Chest
    source: Chest
    other: Array
    settings: dict[str, Any]


def drawn(chest: Chest, study: Study, seed: int) -> Drawn:
    """A draw."""
    everyone = chest.patients if study.by_patient else np.arange(len(chest.truth))
    units = np.unique(everyone)
    if study.count >= len(units):
        raise ValueError(f"{study.count} of {len(units)} {study.unit} cannot calibrate and leave others to judge")
    rng = np.random.default_rng([seed, study.by_patient])
    first = np.isin(everyone, rng.permutation(units)[: study.count])
    here = chest.take(first)
    settings: dict[str, Any] = {"seed": seed, "method": pb.Frontier(n_fit=study.fitting)}
    settings |= {"units": pb.Units(here.patients, "patient")} if study.by_patient else {}
    data = pb.CalibrationData(here.truth, here.band, settings.get("units"))
    parts = pb.split(data, pb.Target([pb.share(LEVELS["all"])], DELTA), settings["method"], seed)
    fits = np.zeros(len(first), bool)
    fits[first] = ~parts.certifying.images
    return Drawn(here, chest.take(~fits), ~first[~fits], settings)


def came_to(way: str, draw: Drawn, study: Study) -> Row:
    """True risks, risks that slices which did not calibrate judge, and lengths of one way; or why it has none."""
    try:
        lower, upper = WAYS[way](draw.here, draw.source, study, draw.settings)
    except pb.NoGuarantee as error:
        return {"no guarantee": str(error).split(": with ")[0].split("; ")[0]}
    whole = judged(draw.source, (lower, upper), study)
    part = judged(draw.source.take(draw.other), (lower[draw.other], upper[draw.other]), study)
    return {"risks": whole["risks"], "judged": part["risks"], "lengths": part["lengths"]}


def draws(chest: Chest, name: str, seeds: range, ways: list[str], kept: Callable[[], list[Row]]) -> Iterator[Row]:
    """A row for every way in every draw of a study, but for those that are kept already."""
    for seed in seeds:
        for study in STUDIES[name]:
            keys = [{"study": name, **study.key, "draw": seed, "way": way} for way in ways]
            left = [key for key in keys if not any(key.items() <= row.items() for row in kept())]
            if not left:
                continue
            draw = drawn(chest, study, seed)
            for key in left:
                began = time.process_time()
                found = came_to(key["way"], draw, study)
                yield {**key, **found, "CPU seconds": round(time.process_time() - began, 1)}


def summary(rows: list[Row]) -> list[Row]:
    """Means over draws by way: draws, in how many all promises were kept, risks and lengths; ways in their order."""
    out = []
    for way in WAYS:
        own = [row for row in rows if row["way"] == way]
        made = [row for row in own if "risks" in row]
        if not own:
            continue
        told: Row = {"way": way, "draws": len(own), "certified": len(made)}
        if made:
            for name, risks in (("kept", "risks"), ("kept by others", "judged")):
                told[name] = sum(all(risk <= LEVELS[promise] for promise, risk in row[risks].items()) for row in made)
            for what, names in (("risks", LEVELS), ("lengths", SHARES)):
                there = [name for name in names if name in made[0][what]]
                told[what] = {name: float(np.mean([row[what][name] for row in made])) for name in there}
        out.append(told)
    return out


def tables(rows: list[Row]) -> None:
    """Print risks and lengths."""
    told = [x for x in summary(rows) if "risks" in x]
    heads = [{name: x[name] for name in ("way", "draws", "certified", "kept", "kept by others")} for x in told]
    for what, form in (("risks", ".1%"), ("lengths", ".4f")):
        show(
            what, [{**a, **{k: format(v, form) for k, v in x[what].items()}} for a, x in zip(heads, told, strict=True)]
        )


def commits(out: Path) -> str:
    """The commits at which rows were made: those of the file, and the one that is checked out."""
    before = json.loads(out.read_text())["machine"]["commit"].split(", ") if out.exists() else []
    return ", ".join(dict.fromkeys([*before, machine()["commit"]]))


def main() -> None:
    """Run all ways, print tables, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), help="by default those of the study")
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--out", type=Path, default=RESULTS / "chest.json")
    given = parser.parse_args()
    chest = read(given.file)
    about = {
        "machine": {**machine(), "commit": commits(given.out)},
        "slices": len(chest.truth), "patients": len(np.unique(chest.patients)),
        "size": list(chest.truth.shape[1:]),
        "having": {name: int(x.reshape(len(x), -1).any(axis=1).sum()) for name, x in chest.regions.items()},
    }  # fmt: skip

    def kept() -> list[Row]:
        """Rows that there are by now; another process may make other ways meanwhile."""
        return list(json.loads(given.out.read_text())["rows"]) if given.out.exists() else []

    seeds = range(given.first, given.first + given.draws)
    for row in draws(chest, given.study, seeds, given.ways or TAKEN[given.study], kept):
        replace_file(given.out, (json.dumps({**about, "rows": [*kept(), row]}, indent=1) + "\n").encode())
        told = f"{row['lengths']['all']:.4f}" if "lengths" in row else row["no guarantee"]
        print(f"draw {row['draw']}, {row['way']}: {told} ({row['CPU seconds']} s)", flush=True)
    for study in STUDIES[given.study]:
        own = [row for row in kept() if {"study": given.study, **study.key}.items() <= row.items()]
        print(study)
        tables(own)


if __name__ == "__main__":
    main()
