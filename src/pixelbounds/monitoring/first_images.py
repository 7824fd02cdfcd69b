"""What the first images of an anytime calibration settle: groups and path, and for how much a unit counts at most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..calibration.confidence import betting
from ..calibration.data import ROWS, LocalData, Statistic
from ..calibration.groups.contract import Grouping
from ..calibration.joint_test import CertifyingUnits, most_of_a_unit
from ..calibration.loss_table import Path, region_sizes
from ..calibration.paths.weighted_frontier import PathObjective
from ..calibration.procedures import frontier, groups_for, krcps, rcps
from ..calibration.promises import CertifiedPromise, RiskTarget
from ..images.checks import check_count
from ..images.library import Array
from .horizons import fewest

_COMING = 7  # times as many as the first ones, where nobody says how many images are expected
_sizes = Statistic("sizes", lambda truth, block, family: (region_sizes(block),), (ROWS,))


def fitted_path(
    method: str,
    pairs: LocalData,
    unit_of: Array,
    rng: np.random.Generator,
    risk_level: float,
    objective: PathObjective | None,
    gammas: Sequence[float],
    choices: dict[str, Any],
) -> tuple[Grouping, Path]:
    """Groups and path from all of the images; `choices` are those of groups that the user made."""
    every = np.arange(len(pairs))
    takes = {"rcps": (), "krcps": ("groups", "k", "d_opt", "direction"), "frontier": ("groups", "k")}[method]
    strange = sorted(choices.keys() - set(takes))
    strange += ["features"] * (pairs.features is not None and method != "frontier")
    strange += ["labels"] * (pairs.labels is not None and method == "rcps")
    if strange:
        raise ValueError(f"{method} takes no {', '.join(strange)}; leave it out, or use another method")
    if method == "rcps":
        return rcps(pairs)
    if method == "krcps":
        return krcps(pairs, every, rng, risk_level, gammas=gammas, **choices)
    if not choices and pairs.features is None:
        choices = {"groups": groups_for(int(unit_of.max()) + 1, float(pairs.sizes.sum()))}
    return frontier(pairs, every, rng, risk_level, unit_of=unit_of, objective=objective, **choices)


def objective_for(
    targets: tuple[RiskTarget, ...], unit_of: Array, failure_prob: float, expected: int | None
) -> PathObjective:
    """What the path for several promises aims at."""
    units = int(unit_of.max()) + 1
    least = 2 * max(fewest(target.level, failure_prob) for target in targets)
    coming = max(_COMING * units, least) if expected is None else check_count(expected, "expected")
    return PathObjective(targets, unit_of, coming, betting, failure_prob)


def most_of(target: RiskTarget, pairs: LocalData, unit_of: Array, fits: bool) -> float:
    """For how many images or pixels a unit counts at most, from the first images; 0 where units count the same."""
    if target.weighting == "units":
        return 0.0
    sizes = pairs.aggregate(_sizes)[0]
    counts = target.counts(sizes)
    weight = sizes[:, target.region] if target.weighting == "pixels" else np.ones(len(counts))
    units_certifying = CertifyingUnits(np.full(len(counts), not fits), unit_of, unit_of[:0], betting, 0.5)
    return most_of_a_unit(target, units_certifying, counts, weight)


def as_asked(target: RiskTarget, most: float) -> CertifiedPromise:
    """A promise before anything was seen."""
    return CertifiedPromise(
        target.kind, target.name, target.place, target.at_most, target.above, target.cap, target.weighting, most, 0.0, 1
    )  # fmt: skip
