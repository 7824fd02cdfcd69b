"""Promises for organs of the chest, jointly, beside other ways to make them: risks and lengths over many draws.

    python -m benchmarks.chest bands.npz --out benchmarks/results/chest.json

The file, .npz or .zarr, holds truth, lower and upper (n, *pixels) of slices, `organs` (the true labels: 1 trachea, 2
heart, 3 lung), `labels` (those known at test time) and `patients` (n,); where the bands come from does not matter
(`benchmarks.chest_bands` makes some). A draw takes some slices at random to calibrate on, all others judge: the
promises are about further slices of these patients. By patient, a draw takes patients.

ours, labels       all promises jointly, groups within labels
ours               the same without labels
unweighted         the frontier of all pixels, walked until all promises hold
per promise        a frontier for each promise, Hoeffding-Bentkus, delta / 7 each; the widest end of all is taken
semantic RCPS      one widening per label, as its authors release it (tests/support/literal.py): no joint promise
plain 5%           5% of all pixels, nothing else
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import pixelbounds as pb
from benchmarks.__main__ import machine, show
from pixelbounds.calibration.confidence import betting
from pixelbounds.calibration.front_door import calibrate_archive
from pixelbounds.calibration.pairs import pairs_of
from pixelbounds.calibration.procedures import frontier
from pixelbounds.calibration.promises import Aim, aims_of
from pixelbounds.calibration.split import Split
from pixelbounds.images.library import Array
from pixelbounds.storage.files import replace_file
from tests.support.literal import literal_semantic_rcps

DELTA = 0.1
ORGANS = {"trachea": 1, "heart": 2, "lung": 3}
LEVELS = {"all": 0.05, "body": 0.05, "lung": 0.05, "heart": 0.05, "trachea": 0.10, "edges": 0.10}
FITTING = 0.25  # of the calibration slices fit, in every way


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

    def promises(self, cap: Callable[[float], float | None]) -> list[pb.Promise]:
        """All promises about these slices."""
        made = [
            pb.share(level, within=self.regions.get(name), name=name, cap=cap(level)) for name, level in LEVELS.items()
        ]
        return [*made, pb.tail(0.10, above=0.10, name="tail")]


def read(path: Path) -> Chest:
    """The file's slices; slices of one value are left out, and regions are found in the truth."""
    held = np.load(path) if path.suffix == ".npz" else zarr.open_group(str(path), mode="r")
    parts = {name: np.asarray(held[name]) for name in ("truth", "lower", "upper", "organs", "labels", "patients")}
    truth, organs = parts["truth"], parts["organs"]
    regions = {name: organs == value for name, value in ORGANS.items()}
    regions |= {"body": pb.regions.body(truth), "edges": pb.regions.edges(truth, top=0.05)}
    return Chest(truth, pb.Band(parts["lower"], parts["upper"]), regions, parts["labels"], parts["patients"])


# ---------------------------------------------------------------- ways to make the promises

Row = dict[str, Any]
Way = Callable[[Chest, Chest, dict[str, Any]], tuple[Array, Array]]  # calibration, others, settings -> both ends


def jointly(here: Chest, new: Chest, how: dict[str, Any], *, labels: bool) -> tuple[Array, Array]:
    """Ours."""
    promises = here.promises(how["cap"])
    known: dict[str, Any] = {"labels": here.labels} if labels else {}
    cal = pb.calibrate(here.truth, here.band, promises=promises, failure_prob=DELTA, **known, **how["settings"])
    return _ends(cal.apply(new.band, labels=new.labels if labels else None))


def plain(here: Chest, new: Chest, how: dict[str, Any]) -> tuple[Array, Array]:
    """All pixels alone."""
    first = pb.share(LEVELS["all"], cap=how["cap"](LEVELS["all"]))
    cal = pb.calibrate(here.truth, here.band, promises=[first], failure_prob=DELTA, **how["settings"])
    return _ends(cal.apply(new.band))


def per_promise(here: Chest, new: Chest, how: dict[str, Any]) -> tuple[Array, Array]:
    """A calibration for each promise, with Bonferroni; an interval holds those of all of them."""
    promises = here.promises(how["cap"])
    settings = {**how["settings"], "confidence": "hoeffding_bentkus"}
    ends = []
    for promise in promises:
        cal = pb.calibrate(here.truth, here.band, promises=[promise], failure_prob=DELTA / len(promises), **settings)
        ends.append(_ends(cal.apply(new.band)))
    return np.min([lower for lower, _ in ends], axis=0), np.max([upper for _, upper in ends], axis=0)


def unweighted(here: Chest, new: Chest, how: dict[str, Any]) -> tuple[Array, Array]:
    """The frontier that knows of all pixels alone, walked until all promises hold."""
    settings = how["settings"]
    pairs = pairs_of(here.truth, here.band, None, (0.0, 1.0))
    by_unit = "units" in settings
    aims, regions = aims_of(here.promises(how["cap"]), here.band.lower, "units", by_unit)
    rng = np.random.default_rng(settings["seed"])
    unit_of = np.unique(here.patients if by_unit else np.arange(len(here.truth)), return_inverse=True)[1]
    split = Split.draw(unit_of, settings["n_opt"], rng)
    path = partial(frontier, rng=rng, risk_level=LEVELS["all"], unit_of=unit_of[split.fitting])
    cal = calibrate_archive(
        replace(pairs, regions=regions), split, path, betting, risk_level=LEVELS["all"], failure_prob=DELTA,
        method="frontier", units="patient" if by_unit else None, seed="0", aims=aims,
    )  # fmt: skip
    return _ends(cal.apply(new.band))


def semantic(here: Chest, new: Chest, how: dict[str, Any]) -> tuple[Array, Array]:
    """Semantic RCPS, by the labels at test time."""
    levels = {0: LEVELS["all"], **{value: LEVELS[name] for name, value in ORGANS.items()}}
    found = literal_semantic_rcps(
        here.truth, here.band.lower, here.band.upper, here.labels, risk_levels=levels, failure_prob=DELTA, step=0.002
    )
    widening = np.select([new.labels == label for label in found], list(found.values()))
    return np.clip(new.band.lower - widening, 0, 1), np.clip(new.band.upper + widening, 0, 1)


WAYS: dict[str, Way] = {
    "ours, labels": partial(jointly, labels=True),
    "ours": partial(jointly, labels=False),
    "unweighted": unweighted,
    "per promise": per_promise,
    "semantic RCPS": semantic,
    "plain 5%": plain,
}


def _ends(interval: pb.Interval) -> tuple[Array, Array]:
    return interval.lower, interval.upper


# ---------------------------------------------------------------- what they come to


def judged(new: Chest, ends: tuple[Array, Array], how: dict[str, Any]) -> dict[str, float]:
    """Risk of every promise on slices (patients) that did not calibrate, and mean lengths."""
    lower, upper = ends
    missed = ((new.truth < lower) | (new.truth > upper)).reshape(len(new.truth), -1)
    length = (upper - lower).astype(np.float64)
    by_unit = "units" in how["settings"]
    aims, regions = aims_of(new.promises(how["cap"]), new.band.lower, "units", by_unit)
    masks = [np.ones(missed.shape, bool), *(mask.reshape(missed.shape) for _, mask in regions)]
    found = {"length": float(length.mean())}
    for aim in aims:
        mask = masks[aim.region]
        found[f"risk of {aim.name}"] = _risk(aim, (missed & mask).sum(axis=1), mask.sum(axis=1), new, by_unit)
        if aim.region:
            found[f"length in {aim.name}"] = float(length.reshape(missed.shape)[mask].mean())
    return found


def _risk(aim: Aim, missed: Array, size: Array, new: Chest, by_unit: bool) -> float:
    there = size > 0
    losses = aim.cap * aim.losses(missed[there], size[there])
    if by_unit:
        who = np.unique(new.patients[there], return_inverse=True)[1]
        losses = np.bincount(who, losses) / np.bincount(who)
    return float(losses.mean())


def draws(
    chest: Chest, count: int, images: int, keep: Callable[[list[Row]], None], *, by_patient: bool, ways: list[str]
) -> list[Row]:
    """What every way comes to in every draw; what there is so far is kept after each."""
    rows = []
    for seed in range(count):
        rng = np.random.default_rng([seed, by_patient])
        everyone = chest.patients if by_patient else np.arange(len(chest.truth))
        unit = np.unique(everyone)
        size = round(0.75 * len(unit)) if by_patient else images
        first = np.isin(everyone, rng.permutation(unit)[:size])
        here, new = chest.take(first), chest.take(~first)
        settings: dict[str, Any] = {"seed": seed, "n_opt": round(FITTING * size)}
        settings |= {"units": here.patients, "unit_name": "patient"} if by_patient else {}
        how = {"settings": settings, "cap": (lambda level: 5 * level) if by_patient else (lambda level: None)}
        for name in ways:
            began = time.perf_counter()
            try:
                found = judged(new, WAYS[name](here, new, how), how)
            except pb.NoGuarantee as error:
                print(f"draw {seed}: {name}: {error}", flush=True)
                continue
            rows.append({"draw": seed, "way": name, **found, "seconds": round(time.perf_counter() - began, 1)})
        print(
            f"draw {seed}: " + ", ".join(f"{r['way']} {r['length']:.4f}" for r in rows if r["draw"] == seed), flush=True
        )
        keep(rows)
    return rows


def summary(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Means over draws by way: risks, with the draws in which the others kept each promise, and lengths."""
    out = []
    long = []
    for way in dict.fromkeys(row["way"] for row in rows):
        own = [row for row in rows if row["way"] == way]
        risks = {name: np.array([row[f"risk of {name}"] for row in own]) for name in (*LEVELS, "tail")}
        level = {**LEVELS, "tail": 0.10}
        kept = np.all([risk <= level[name] for name, risk in risks.items()], axis=0)
        told: dict[str, Any] = {"way": way, "draws": len(own), "all kept": int(kept.sum())}
        told |= {name: f"{risk.mean():.1%} ({(risk <= level[name]).sum()})" for name, risk in risks.items()}
        lengths = [key for key in own[0] if key.startswith("length")]
        means = {key: float(np.mean([row[key] for row in own])) for key in lengths}
        out.append(told)
        long.append({"way": way} | {key.removeprefix("length in "): f"{x:.4f}" for key, x in means.items()})
    return out, long


def main() -> None:
    """Run all ways, print tables, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--images", type=int, default=800, help="slices that calibrate in a draw")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--only", choices=["slices", "patients"])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    chest = read(given.file)
    results: dict[str, Any] = {"machine": machine(), "slices": len(chest.truth), "images": given.images}
    for unit in ("slices", "patients"):
        if given.only in (None, unit):
            by_patient = unit == "patients"
            ways = [way for way in given.ways if not (by_patient and way == "semantic RCPS")]

            def keep(rows: list[Row], unit: str = unit) -> None:
                results[unit] = rows
                if given.out is not None:
                    replace_file(given.out, (json.dumps(results, indent=1) + "\n").encode())

            rows = draws(chest, given.draws, given.images, keep, by_patient=by_patient, ways=ways)
            risks, lengths = summary(rows)
            show(f"by {unit}: risks, mean over draws (draws in which the promise was kept)", risks)
            show(f"by {unit}: mean lengths", lengths)


if __name__ == "__main__":
    main()
