"""Attacks on the sentences: worlds made to break a promise, counted against its failure probability.

python -m benchmarks attacks [WORLDS [WORD]]    (400 worlds by default; WORD counts only attacks with it in their name)

In every world images are drawn, calibrated and forgotten; the true risk of every promise is a finite sum over the
population (`populations`). A world counts as broken if any of its promises is, at any look. What is wrong on purpose
(the plain mean in the place of a bound; a calibration of fixed size at every look; that of one site for both) must be
caught: else an attack would show nothing.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import binom

import pixelbounds as pb
from benchmarks.__main__ import machine
from benchmarks.pages import result
from benchmarks.populations import MIDDLE, PIXELS, Asked, Population, Rng, lucky
from pixelbounds import federated
from pixelbounds.images.library import Array

PAGE = "docs/research/attacks.md"
DELTA = 0.1


def plain_mean(losses: Array, failure_prob: float) -> float:
    """No bound at all."""
    return float(losses.mean())


WRONG = "wrong on purpose"
BOUNDS: dict[str, Any] = {"betting": "betting", "Hoeffding-Bentkus": "hoeffding_bentkus", WRONG: plain_mean}
Attack = Callable[[Rng, Any], bool]  # a generator and a bound -> whether a promise is broken
_FIRST = PIXELS - 1  # pixels that can be missed


def pixels(*numbers: int) -> Array:
    """A mask of some pixels."""
    return np.isin(np.arange(_FIRST), numbers)


NONE = pixels()
EVERY = np.ones(_FIRST)
BANDS = pb.Frontier(groups="band", k=3)


# ---------------------------------------------------------------- worlds


def breaks(world: Population, rng: Rng, n: int, asked: list[Asked], bound: Any, *given: str, **how: Any) -> bool:
    """Whether a promise is broken that n units of a world certify, `given` their labels or units."""
    drawn = world.draw(rng, n)
    how |= {"promises": drawn.promises(asked), **{name: getattr(drawn, name) for name in given}}
    return world.broken(pb.calibrate(drawn.truth, drawn.band, bound=bound, seed=rng, **how), asked)


COINS = lucky([{"chance": 1.0, "hardness": EVERY, "regions": {"left": pixels(0, 1, 2, 3)}}], steps=200)


def coins(rng: Rng, bound: Any) -> bool:
    """All pixels of an image are missed together, and five promises are broken just below one widening."""
    share = 0.2 * _FIRST / PIXELS  # the last pixel is never missed
    asked = [
        Asked(share), Asked(0.2, "left"), Asked(0.2, above=0.5), Asked(0.1, "left", cap=0.5), Asked(0.2, "left", 0.3),
    ]  # fmt: skip
    return breaks(COINS, rng, 150, asked, bound, method="rcps")


ORGANS = lucky([
    {"chance": 0.45, "hardness": 0.5 * EVERY,
     "regions": {"organ": NONE, "overlap": pixels(2, 3, 4, 5), "rare": NONE, "scanner": False}},
    {"chance": 0.35, "hardness": np.where(pixels(0, 1, 2, 3), 0.7, 0.5),
     "regions": {"organ": pixels(0, 1, 2, 3), "overlap": pixels(3, 4), "rare": NONE, "scanner": True}},
    {"chance": 0.2, "hardness": np.where(pixels(5, 6), 1.0, 0.6),
     "regions": {"organ": pixels(5), "overlap": NONE, "rare": pixels(6, 7), "scanner": True}},
])  # fmt: skip


def organs(rng: Rng, bound: Any) -> bool:
    """Seven promises at once: regions that overlap or are rare, a subgroup, a cap and a tail."""
    asked = [
        Asked(0.1), Asked(0.25, "organ"), Asked(0.05, "overlap"), Asked(0.25, "rare"), Asked(0.15, "scanner"),
        Asked(0.08, cap=0.5), Asked(0.08, above=0.4),
    ]  # fmt: skip
    return breaks(ORGANS, rng, 150, asked, bound, method=BANDS)


def told_by_truth() -> Population:
    """The labels are made of the truth: 1 where a pixel lies far from its band, and then they are right."""
    world = lucky([{"chance": 1.0, "hardness": np.linspace(0.4, 1, _FIRST), "regions": {"right": pixels(5, 6, 7)}}])
    return Population(**{**vars(world), "labels": (world.truth > 0.6).astype(int)})


LABELS = told_by_truth()


def labels(rng: Rng, bound: Any) -> bool:
    """Labels that tell of the truth, at calibration and afterwards."""
    asked = [Asked(0.15), Asked(0.2, "right")]
    return breaks(LABELS, rng, 150, asked, bound, "labels", method=pb.Frontier("band", 3, 12))


SCANS = lucky([
    {"chance": 0.5, "hardness": np.tile(EVERY, (10, 1)), "regions": {"organ": np.tile(pixels(0, 1), (10, 1))}},
    {"chance": 0.5, "hardness": [0.5 * EVERY, 0.3 * EVERY], "regions": {"organ": [NONE, pixels(2)]}},
], steps=25)  # fmt: skip


def scans(rng: Rng, bound: Any) -> bool:
    """Units of ten hard images and of two easy ones: by units, by images, by pooled pixels, and a tail."""
    asked = [
        Asked(0.2), Asked(0.35, weighting="images"), Asked(0.4, "organ", weighting="pixels"), Asked(0.25, above=0.5),
    ]  # fmt: skip
    return breaks(SCANS, rng, 90, asked, bound, "units", method=pb.RCPS(n_fit=15))


def of_sizes() -> Population:
    """Regions of one to eight pixels, the smaller the harder."""
    kinds = [
        {"chance": 1.0, "hardness": (1 - 0.08 * size) * EVERY, "regions": {"lesion": pixels(*range(size))}}
        for size in range(1, _FIRST + 1)
    ]
    return lucky(kinds, steps=25)


LESIONS = of_sizes()


def lesions(rng: Rng, bound: Any) -> bool:
    """Pooled pixels of regions of very different sizes."""
    asked = [Asked(0.25, "lesion", weighting="pixels"), Asked(0.3, above=0.7)]
    return breaks(LESIONS, rng, 120, asked, bound, method=pb.RCPS(n_fit=12))


TIED = lucky([{"chance": 1.0, "hardness": np.where(pixels(0, 1), 1.0, 0.8)}], steps=50, quantum=0.05)


def ties(rng: Rng, bound: Any) -> bool:
    """Truths of eight values, so that whole images arrive at one point of the path, where the risk is just too much."""
    return breaks(TIED, rng, 120, [Asked(0.164)], bound, method="rcps")


def choices(rng: Rng, bound: Any) -> bool:
    """Of two bands and several groups the fitting images choose."""
    drawn = ORGANS.draw(rng, 120)
    wide = pb.Band(drawn.band.lower - 0.02, drawn.band.upper + 0.03)
    asked = [Asked(0.2)]
    offered = {"narrow": drawn.band, "wide": wide}
    cal = pb.calibrate(drawn.truth, offered, risk_level=0.2, bound=bound, seed=rng, method=pb.Frontier(n_fit=24))
    moved = (0.02, 0.03) if cal.record.settings["band"] == "wide" else (0.0, 0.0)
    chosen = Population(**{**vars(ORGANS), "lower": ORGANS.lower - moved[0], "upper": ORGANS.upper + moved[1]})
    return chosen.broken(cal, asked)


def shifted(rng: Rng, bound: Any) -> bool:
    """Images of one source, weighed by likelihood ratios, for another in which hard ones are five times as frequent."""
    hard = np.arange(len(ORGANS.chance)) >= 2 * len(ORGANS.chance) // 3
    new = ORGANS.of_chance(np.where(hard, 2.0, 0.75) * ORGANS.chance)
    ratio = new.chance / ORGANS.chance
    asked = [Asked(0.2), Asked(0.4, "rare")]
    drawn = ORGANS.draw(rng, 200)
    known = {"weights": ratio[ORGANS.unit_of[drawn.atoms]], "max_weight": float(ratio.max())}
    how = {"promises": drawn.promises(asked), "bound": bound, "seed": rng, "method": "rcps"}
    return new.broken(pb.recalibrate(drawn.truth, drawn.band, **known, **how), asked)


def trusted(rng: Rng, bound: Any) -> bool:
    """Masks of all pixels, but for those that the band tells apart, are wrong together in one image of four."""
    drawn, level = COINS.draw(rng, 150), 0.25 * _FIRST / PIXELS - 0.001
    wrong = bound is plain_mean
    how = {"bound": "hoeffding" if wrong else bound, "failure_prob": 0.999 if wrong else DELTA}  # next to no margin
    estimate = np.full(drawn.truth.shape, MIDDLE)
    try:
        mask = pb.trust(estimate, drawn.band, drawn.truth, tolerance=0.3, at_most=level, seed=rng, **how)
    except pb.NoGuarantee:
        return False
    losses = mask.losses(COINS.truth, np.full(COINS.truth.shape, MIDDLE), pb.Band(COINS.lower, COINS.upper))
    return float(losses @ COINS.chance) > level + 1e-9


def sites(rng: Rng, bound: Any) -> bool:
    """Two sites with fixed numbers of images, easy ones at one and hard ones at the other; small counts suppressed."""
    third = len(ORGANS.chance) // 3
    north = ORGANS.of_chance(np.where(np.arange(len(ORGANS.chance)) < third, 1.0, 0.0))
    south = ORGANS.of_chance(np.where(np.arange(len(ORGANS.chance)) >= 2 * third, 1.0, 0.0))
    both = ORGANS.of_chance(north.chance + south.chance)
    asked = [Asked(0.2), Asked(0.15, cap=0.5), Asked(0.2, above=0.6)]
    hospitals = {"north": north.draw(rng, 60), "south": south.draw(rng, 60)}
    promises = [one.promise() for one in asked]
    if bound is plain_mean:  # the calibration of one site, for both
        alone = hospitals["north"]
        return both.broken(pb.calibrate(alone.truth, alone.band, promises=promises, method="rcps", seed=rng), asked)

    def told(name: str) -> dict[str, Any]:
        return {"site": name, "least_count": 2}

    opened = [federated.announce(here.truth, here.band, **told(name)) for name, here in hospitals.items()]
    study: Any = federated.begin(
        opened, promises=promises, bound=bound, failure_prob=DELTA, method="rcps", seed=int(rng.integers(2**31))
    )
    while isinstance(study, federated.Study):
        plan = study.plan
        answers = [federated.answer(plan, x.truth, x.band, **told(name)) for name, x in hospitals.items()]
        study = federated.merge(study, answers)
    return both.broken(study, asked)


def looks(rng: Rng, bound: Any) -> bool:
    """A calibration that grows, looked at after every fifth image; every look must keep every promise."""
    asked = [Asked(0.2), Asked(0.25, "organ"), Asked(0.3, above=0.6)]
    drawn = ORGANS.draw(rng, 215)
    first = drawn.take(slice(0, 15))
    if bound is plain_mean:  # a bound for one number of images, at every look
        some = [drawn.take(slice(0, n)) for n in range(60, 216, 20)]
        looked = [pb.calibrate(x.truth, x.band, promises=x.promises(asked), seed=rng, method="rcps") for x in some]
        return any(ORGANS.broken(cal, asked) for cal in looked)
    growing = pb.AnytimeCalibration(first.truth, first.band, promises=first.promises(asked), seed=rng, method=BANDS)
    before = None
    for n in range(15, 215, 5):
        some = drawn.take(slice(n, n + 5))
        growing.add(some.truth, some.band, within={"organ": some.regions["organ"]})
        cal = growing.certified
        if cal is not None and (before is None or (cal.widening != before).any()):
            before = cal.widening
            if ORGANS.broken(cal, asked):
                return True
    return False


ATTACKS: dict[str, Attack] = {
    "coin tosses: five promises that break at one point": coins,
    "rare and overlapping regions, a subgroup, cap, tail: seven jointly": organs,
    "labels made of the truth, then and now": labels,
    "units of ten hard or two easy images: by units, images, pixels, tail": scans,
    "pooled pixels of regions of 1 to 8": lesions,
    "ties: truths of eight values": ties,
    "band and groups chosen on the fitting images": choices,
    "weighed for another source": shifted,
    "trust masks that are wrong together": trusted,
    "two unlike sites, small counts suppressed": sites,
    "growing, 40 looks": looks,
}
ONLY = {"growing, 40 looks": ("betting", WRONG)}  # which has a bound of its own


# ---------------------------------------------------------------- counts


def count(name: str, bound: str, worlds: int) -> dict[str, Any]:
    """How many worlds of an attack break, and in how many nothing is certified."""
    broken = refused = 0
    for seed in range(worlds):
        rng = np.random.default_rng([zlib.crc32(f"{name} {bound}".encode()), seed])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # bands know little here, and look like another scale
                broken += ATTACKS[name](rng, BOUNDS[bound])
        except pb.NoGuarantee:
            refused += 1
    chance = float(binom.sf(broken - 1, worlds, DELTA))
    return {"attack": name, "bound": bound, "worlds": worlds, "broken": broken, "refused": refused, "chance": chance}


def run(worlds: str = "400", only: str = "") -> list[dict[str, Any]]:
    """Attacks with every bound, but for betting in a quarter of the worlds; other rows stay as they were counted."""
    fresh = [name for name in ATTACKS if only in name]
    kept = result("attacks")
    rows = [{"commit": kept["machine"]["commit"], **row} for row in kept["rows"] if row["attack"] not in fresh]
    for name in fresh:
        for bound in ONLY.get(name, BOUNDS):
            counted = count(name, bound, int(worlds) if bound == "betting" else max(1, int(worlds) // 4))
            rows.append({**counted, "commit": machine()["commit"]})
            print(rows[-1], flush=True)
    return sorted(rows, key=lambda row: (list(ATTACKS).index(row["attack"]), list(BOUNDS).index(row["bound"])))


def text() -> str:
    """The table of the page."""
    kept = result("attacks")
    cells = {(row["attack"], row["bound"]): f"{row['broken']} of {row['worlds']}" for row in kept["rows"]}
    lines = [f"| what is attacked | {' | '.join(BOUNDS)} |", "|---|" + "---|" * len(BOUNDS)]
    for name in dict.fromkeys(row["attack"] for row in kept["rows"]):
        lines.append(f"| {name} | {' | '.join(cells.get((name, bound), '') for bound in BOUNDS)} |")
    worlds = max(row["worlds"] for row in kept["rows"])
    most = max(row["broken"] / row["worlds"] for row in kept["rows"] if row["bound"] != WRONG)
    least = min(row["broken"] / row["worlds"] for row in kept["rows"] if row["bound"] == WRONG)
    said = (
        f"Worlds in which a promise is broken, at a failure probability of {DELTA:.0%}: at most {most:.1%} of them, "
        f"and at least {least:.0%} with what is wrong on purpose (the plain mean in the place of a bound; "
        "a calibration of fixed size at every look; that of one site for both)."
    )
    commits = list(dict.fromkeys(row.get("commit", kept["machine"]["commit"]) for row in kept["rows"]))
    command = f"python -m benchmarks attacks {worlds}"
    return "\n".join([said, "", *lines, "", f"Measured at {', '.join(commits)} (`{command}`)."])
