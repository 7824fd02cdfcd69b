"""Several bands of the same images: the one whose intervals are shortest on the fitting images is calibrated.

Candidates may differ in anything, such as the miscoverage of quantiles. The choice is one more thing that the fitting
images decide, like groups and path: given it, the certifying images are as fresh as before, and the promise is that of
the chosen band. Choosing by what the certifying images say is another matter, and voids it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from ..images.library import Array
from .data import LocalData
from .paths.weighted_frontier import PathObjective, joint_knot
from .procedures import grouping_of, knot_at_risk, mean_length, path_of, rcps
from .split import Split

_FEW = 4  # fitting units that are not halved


class Chosen(NamedTuple):
    """The pairs of the chosen band, its name, and the length that each candidate is likely to have."""

    pairs: LocalData
    name: str
    lengths: dict[str, float]


def choose_band(
    offered: Mapping[str, LocalData], split: Split, rng: np.random.Generator, risk_level: float, objective: PathObjective | None,  # noqa: E501
    method: str,
) -> Chosen:  # fmt: skip
    """The candidate with the shortest intervals on the fitting images; of equal ones the first."""
    images = np.flatnonzero(split.fitting)
    if not len(images):
        raise ValueError(
            f"{len(offered)} bands are offered, and no image fits, by which to choose: give n_opt, or one band"
        )
    halves = _halves(split.unit_of[images], rng, whole=method == "rcps")
    seed = int(rng.integers(2**63))
    lengths = {}
    for name, pairs in offered.items():
        fit = pairs.take(images)
        found = [_length(fit, *half, seed, risk_level, objective, method) for half in halves]
        lengths[name] = float(np.mean(found))
    best = min(lengths, key=lengths.__getitem__)
    return Chosen(offered[best], best, lengths)


def _halves(unit_of: Array, rng: np.random.Generator, *, whole: bool) -> list[tuple[Array, Array]]:
    """Images that shape intervals, and those that show their length: halves both ways, or all where units are few."""
    every = np.arange(len(unit_of))
    units = np.unique(unit_of)
    if whole or len(units) < _FEW:
        return [(every, every)]
    first = np.isin(unit_of, rng.permutation(units)[: len(units) // 2])
    return [(every[first], every[~first]), (every[~first], every[first])]


def _length(
    fit: LocalData,
    taught: Array,
    others: Array,
    seed: int,
    risk_level: float,
    objective: PathObjective | None,
    method: str,
) -> float:
    """Mean length on some images where these just keep what is asked, along the path that others shaped."""
    if method == "rcps":
        grouping, path = rcps(fit)
    else:
        grouping = grouping_of("band", fit, taught, np.random.default_rng(seed))
        path = path_of(fit, taught, grouping, risk_level, objective)
    shown = fit.take(others)
    if objective is None:
        knot = knot_at_risk(shown, grouping, path, risk_level)
    else:
        knot = joint_knot(shown, grouping, path, objective.take(others))
    return mean_length(shown, grouping, path.knots[:, knot])
