"""How often a promise of 10% at 90% breaks when it is misused, in simulated worlds whose true risk is known.

python -m benchmarks voids [WORD]    (a quarter of an hour on one core; or only the parts with that word)

Each row counts the worlds in which the risk is above 10%. Risks are in closed form, or the mean over many fresh images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
from scipy.stats import norm

import pixelbounds as pb
from benchmarks.__main__ import machine
from benchmarks.pages import result
from pixelbounds.evaluation.unit_means import mean_interval
from pixelbounds.images.library import Array

PAGE = "docs/what_voids_the_promise.md"
LEVEL, WORLDS = 0.1, 2000
Rng = np.random.Generator
World = Callable[[Rng], dict[str, bool]]  # what was done -> whether the promise broke


def uncovered(rng: Rng, n: int) -> tuple[Array, pb.Band]:
    """A truth of 0 in 10.1% of the images, which no widening of the multiplicative family reaches."""
    centre = rng.uniform(0.2, 0.8, (n, 1))
    return np.where(rng.random((n, 1)) < 0.101, 0.0, centre), pb.Band(centre - 0.1, centre + 0.1)


def looks(rng: Rng) -> dict[str, bool]:
    truth, band = uncovered(rng, 120)

    def certified(n: int) -> bool:
        try:
            pb.calibrate(truth[:n], band[:n].with_family("multiplicative"), risk_level=LEVEL, method="rcps")
        except pb.NoGuarantee:
            return False
        return True

    return {
        "one look, at 60 images": certified(60),
        "ten looks at a growing set, until one certifies": any(map(certified, range(30, 121, 10))),
    }


def rare_failures(rng: Rng, n: int) -> tuple[Array, pb.Band]:
    """A fifth of the images is missed almost everywhere, by much; nothing in the band tells which."""
    centre = rng.uniform(0.2, 0.8, (n, 6, 6))
    bad = rng.random((n, 1, 1)) < 0.2
    away = np.where(centre > 0.5, -1, 1) * rng.uniform(0.1, 0.2, (n, 1, 1))
    truth = centre + 0.02 * rng.standard_normal(centre.shape) + bad * away
    return np.clip(truth, 0, 1), pb.Band(centre - 0.05, centre + 0.05)


@cache
def fresh(draw: Callable[..., tuple[Array, pb.Band]], seed: int, *size: int) -> tuple[Array, pb.Band]:
    """New images, drawn once."""
    return draw(np.random.default_rng(seed), *size)


def broken(cal: pb.Calibration) -> bool:
    truth, band = fresh(rare_failures, 1, 4000)
    return bool(pb.losses.l01(truth, cal.apply(band)).mean() > LEVEL)


def tries(rng: Rng) -> dict[str, bool]:
    truth, band = rare_failures(rng, 60)

    def shortest(ways: list[dict[str, object]]) -> pb.Calibration:
        found = [pb.calibrate(truth, band, risk_level=LEVEL, **way) for way in ways]
        return min(found, key=lambda cal: float(cal.apply(band).length.mean()))

    seeds = [{"method": "rcps", "seed": int(rng.integers(2**31))} for _ in range(20)]
    methods: list[dict[str, object]] = [
        {"method": method, "bound": bound}
        for method in ("rcps", "krcps", pb.Frontier(groups="band"))
        for bound in ("betting", "hoeffding_bentkus")
    ]
    return {
        "one calibration": broken(shortest(seeds[:1])),
        "the shortest of 20 seeds": broken(shortest(seeds)),
        "the shortest of 3 methods x 2 bounds": broken(shortest(methods)),
    }


def sampled(rng: Rng, n: int, m: int) -> tuple[Array, pb.Band]:
    centre = rng.uniform(0.2, 0.5, (n, 16))
    samples = centre[:, None] + 0.02 * rng.standard_normal((n, m, 16)) + 0.3 * (rng.random((n, m, 16)) < 0.04)
    truth = centre + 0.01 * rng.standard_normal(centre.shape) + 0.3 * (rng.random(centre.shape) < 0.15)
    return np.clip(truth, 0, 1), pb.calibrated_quantiles(np.clip(samples, 0, 1), 0.1)


def numbers_of_samples(rng: Rng) -> dict[str, bool]:
    cal = pb.calibrate(*sampled(rng, 100, 19), risk_level=LEVEL, method="rcps")
    found = {}
    for m in (19, 399):
        truth, band = fresh(sampled, m, 1000, m)
        claimed = replace(band, source=cal.record.source)
        risk = pb.losses.l01(truth, cal.apply(claimed)).mean()
        found[f"bands of 19 samples calibrated, of {m} applied"] = bool(risk > LEVEL)
    return found


def marked(rng: Rng, n: int) -> tuple[Array, pb.Band]:
    """Bands whose width tells images apart; a fifth of the images is missed."""
    centre = rng.uniform(0.2, 0.8, (n, 6, 6))
    bad = rng.random((n, 1, 1)) < 0.2
    truth = centre + 0.02 * rng.standard_normal(centre.shape) + bad * np.where(centre > 0.5, -0.15, 0.15)
    half = 0.05 + 0.01 * rng.random((n, 1, 1))
    return np.clip(truth, 0, 1), pb.Band(centre - half, centre + half)


def groups(rng: Rng) -> dict[str, bool]:
    truth, band = marked(rng, 60)
    first = pb.calibrate(truth, band, risk_level=LEVEL, seed=rng, method=pb.Frontier(groups="learned", n_fit=36))
    reused = first.without_hashes().grouping
    second = pb.calibrate(truth, band, risk_level=LEVEL, seed=rng, method=pb.Frontier(groups=reused, n_fit=10))
    new, its_band = fresh(marked, 2, 1000)
    ways = {"groups fitted on the fitting images": first, "groups fitted on images that now certify": second}
    return {name: bool(pb.losses.l01(new, cal.apply(its_band)).mean() > LEVEL) for name, cal in ways.items()}


def units(rng: Rng) -> dict[str, bool]:
    """Units of 20 hard or 2 easy images."""
    sizes = np.where(rng.random(60) < 0.5, 20, 2)
    unit = np.repeat(np.arange(60), sizes)
    deviation = np.repeat(np.where(sizes == 20, 0.06, 0.02), sizes)[:, None]
    centre = rng.uniform(0.4, 0.6, (len(unit), 9))
    shared = np.repeat(rng.standard_normal(60), sizes)[:, None]
    truth = np.clip(centre + deviation * (0.3 * shared + np.sqrt(0.91) * rng.standard_normal(centre.shape)), 0, 1)
    band = pb.Band(centre - 0.03, centre + 0.03)
    found = {}
    for weighting, most in (("units", None), ("images", 20)):
        how = {"units": pb.Units(unit, weighting=weighting, max_images=most), "method": "rcps"}
        try:
            cal = pb.calibrate(truth, band, risk_level=LEVEL, **how)
        except pb.NoGuarantee:  # too few units are large: nothing is promised
            found[f"promise by {weighting}, judged by images"] = False
            continue
        hard, easy = (2 * norm.sf((0.03 + cal.widening[0]) / x) for x in (0.06, 0.02))
        if weighting == "units":
            found["promise by units, judged by units"] = bool((hard + easy) / 2 > LEVEL)
        found[f"promise by {weighting}, judged by images"] = bool((20 * hard + 2 * easy) / 22 > LEVEL)
    return found


def bound_at_the_point(rng: Rng) -> dict[str, bool]:
    far = np.linspace(0.05, 0.45, 6)
    truth = 0.5 + np.concatenate([[0.0], far])[rng.choice(7, 120, p=[0.88, *[0.02] * 6])]
    band = pb.Band(np.full((120, 2), 0.49), np.full((120, 2), 0.505))  # two values: of one there is an exact test
    cal = pb.calibrate(np.stack([truth, truth], axis=1), band, risk_level=LEVEL, method="rcps", seed=rng)
    risk = 0.02 * (far > 0.005 + cal.widening[0] + 1e-9).sum()
    return {
        "the level": bool(risk > LEVEL + 1e-9),
        "the bound at the point that the data chose": bool(risk > cal.curve[cal.chosen, 2]),
    }


def evaluations(rng: Rng) -> dict[str, bool]:
    """10.05% are missed where 10% are promised, and images are added until the verdict is kept."""
    missed = (rng.random(1000) < 1.005 * LEVEL).astype(float)

    def kept(n: int) -> bool:
        return mean_interval(rng.permutation(missed[:n]), 0.95)[1] <= LEVEL

    return {
        "one evaluation of 500 images says kept": kept(500),
        "one of 20 evaluations of 50 to 1,000 images says kept": any(map(kept, range(50, 1001, 50))),
    }


PARTS: dict[str, World] = {
    "Trying again on the same images": tries,
    "Looking again at a growing set": looks,
    "Bands made in another way": numbers_of_samples,
    "Groups that saw the images which certify": groups,
    "Units and images": units,
    "A bound at the chosen point": bound_at_the_point,
    "Evaluating again until it says kept": evaluations,
}


def run(only: str = "") -> list[dict[str, object]]:
    """Worlds in which the promise broke, by what was done; parts without that word stay as they were measured."""
    rows = result("voids")["rows"]
    for part, world in PARTS.items():
        if only in part:
            found = [world(np.random.default_rng([7, seed])) for seed in range(WORLDS)]
            rows = [row for row in rows if row["part"] != part]
            for name in found[0]:
                share = sum(one[name] for one in found) / WORLDS
                rows.append(
                    {"part": part, "what": name, "worlds": WORLDS, "share": share, "commit": machine()["commit"]}
                )
                print(rows[-1], flush=True)
    return sorted(rows, key=lambda row: list(PARTS).index(row["part"]))


def text() -> str:
    """The tables of the page."""
    rows = result("voids")["rows"]
    lines = ["| | what was done | worlds | broken |", "|---|---|---|---|"]
    before = ""
    for row in rows:
        part = row["part"] if row["part"] != before else ""
        before = row["part"]
        lines.append(f"| {part} | {row['what']} | {row['worlds']:,} | {row['share']:.0%} |")
    return "\n".join([*lines, "", "Counted by `python -m benchmarks voids`."])
