"""Which groups, or which band, on the fitting images alone: what an argument names, or the shortest candidate.

Each candidate is fitted on one half of the fitting units and followed along its frontier on the other half, until just
the risk level is met; the first that is about as short as the shortest wins and is fitted again on all of them. Among
several bands the shortest is chosen likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ..images.checks import check_choice, check_count
from ..images.foreign import as_plain_array
from ..images.library import Array, differ_in_size, library_of, to_numpy
from . import groups as groupings
from .block import Block, Grouping
from .bounds import greatest_loss
from .data import NO_GRID, CalibrationData, FittingImages
from .paths.frontier import frontier_of
from .paths.path import Path, misses, scalar_path
from .paths.weighted_frontier import joint_frontier, joint_point
from .target import Target

FitGroups = Callable[[Any, Array, np.random.Generator], Grouping]  # data, fitting images, generator
NAMED_GROUPS = ("learned", "band", "loss", "otsu")
FEW = 4  # fitting units: what fewer teach is not true of others
FEW_VALUES = 256  # of all fitting units together: groups of fewer cost more than they save
_MANY = 48  # fitting units: fewer may tell only few groups apart (docs/research)
_ABOUT = 1.005  # lengths that differ less are equal: half of the fitting images cannot tell them apart


def path_of(fitting: FittingImages, grouping: Grouping, target: Target, level: float) -> Path:
    """The frontier of a grouping, finest about a level: of misses alike, or weighed for several promises."""
    if fitting.weighed(target):
        return joint_frontier(fitting, grouping, target, level)
    return frontier_of(fitting.data, fitting.images, grouping, level)


def grouping_of(
    groups: Any, data: Any, images: Array, rng: np.random.Generator, k: int | None = None, quantile: float = 0.75
) -> Grouping:
    """The grouping that a name, an array, a function or a Grouping stands for, fitted on some images, within labels."""
    if isinstance(groups, str):
        grouping = _named(check_choice(groups, NAMED_GROUPS, "groups"), data, images, rng, k, quantile)
    else:
        grouping = _given(groups, data, images, k)
    if data.labels is None or isinstance(grouping, groupings.LabelledGroups):
        return grouping
    return groupings.fit_labelled_groups(data, images, grouping)


def _given(groups: Any, data: Any, images: Array, k: int | None) -> Grouping:
    if k is not None:
        raise ValueError("k sets the number of groups of a named grouping; leave it out where you give the groups")
    if callable(groups):
        groups = groups(data, images)
        if not isinstance(groups, Grouping):
            raise TypeError(f"groups is a function that returned a {type(groups).__name__}; it must return a Grouping")
    if isinstance(groups, Grouping):
        if data.at_hand:
            for _ in data.over_blocks(lambda truth, block: groups.check(block), images):
                pass
        return groups
    groups = as_plain_array(groups, "groups")
    if differ_in_size(data.band.lower) and (library_of(groups) or isinstance(groups, list | tuple)):
        raise ValueError(f"groups are a map of pixels, {NO_GRID}")
    if not library_of(groups):
        raise TypeError(
            f"groups is {str(groups)[:80]!r}; give a name (learned, band, loss, otsu), a partition "
            "(*pixels), a Grouping, or a function that fits one"
        )
    if tuple(groups.shape[1:]) == data.pixels:
        raise ValueError("groups= takes one map for all images; give a map of each image, a segmentation, as labels=")
    return groupings.partition(to_numpy(groups), data.pixels)


def _named(name: str, data: Any, images: Array, rng: np.random.Generator, k: int | None, quantile: float) -> Grouping:
    if name == "learned":
        return groupings.fit_learned_groups(data, images, rng, bins_per_side=16 if k is None else k, quantile=quantile)
    if name == "band":
        return groupings.fit_band_groups(data, images, width=12 if k is None else check_count(k, "k", most=4096))
    if name == "otsu":
        return groupings.by_otsu(data, images, 4 if k is None else k)
    return groupings.by_loss(data, images, 8 if k is None else k)


def _by_width(bins: int) -> Callable[[CalibrationData, Array], Grouping]:
    """Few groups, which few images can tell apart also where the path is followed far beyond them."""
    return partial(groupings.fit_band_groups, width=bins, room=1)


def few_groups(units: int, values: float) -> Any:
    """Few groups, by width alone, where fitting units or their values are too few to choose by; else None."""
    if units < FEW or values < 8 * FEW_VALUES:
        return _by_width(2)
    return _by_width(4) if units < 4 * FEW else None


def shortest_groups(fitting: FittingImages, target: Target, rng: np.random.Generator) -> Grouping:
    """The candidate that is shortest on units that it was not fitted on, fitted on all of them."""
    data, several = fitting.data, bool(fitting.weighed(target))
    few = data.features is None and fitting.units < _MANY
    tried: list[FitGroups] = [partial(grouping_of, "band"), partial(grouping_of, "learned")]
    if data.features is not None:  # with much to learn from, the score's tail can be told apart too
        tried = [partial(grouping_of, "learned", quantile=q) for q in (0.75, 0.9)]
    if several and data.labels is not None and data.features is None:
        tried.pop()  # labels say more of a region than what could be learned
    if few or several:  # few images, and a rare region, tell many groups apart badly
        tried.insert(0, partial(grouping_of, _by_width(4 if few else 8)))
    best = tried[0]
    if fitting.units >= 4:
        seed = int(rng.integers(2**63))  # all candidates see the same halves and the same randomness
        halves = _halves(fitting, half_of(fitting, np.random.default_rng(seed)))[: 2 if few else 1]
        certified = greatest_loss(fitting.certifying, target.level, target.failure_prob) if few else 0.0
        level = certified or target.level
        lengths = [sum(_length_of(*half, fit, seed, target, level) for half in halves) for fit in tried]
        best = next(fit for fit, length in zip(tried, lengths, strict=True) if length <= min(lengths) * _ABOUT)
    return best(data, fitting.images, rng)


def shortest_band(
    offered: Mapping[str, FittingImages], target: Target, method: Any, rng: np.random.Generator
) -> tuple[str, dict[str, float]]:
    """The name of the band with the shortest intervals on the fitting images (of equal ones the first), and lengths."""
    first = next(iter(offered.values()))
    if not len(first.images):
        raise ValueError(f"{len(offered)} bands are offered, and no image fits, by which to choose: give n_fit")
    single = method.name == "rcps"
    half = None if single or first.units < FEW else half_of(first, rng)
    seed = int(rng.integers(2**63))
    fit: FitGroups = partial(grouping_of, groupings.Single() if single else "band")
    lengths = {}
    for name, fitting in offered.items():
        parts = [(fitting, fitting)] if half is None else _halves(fitting, half)
        lengths[name] = float(np.mean([_length_of(*part, fit, seed, target, target.level) for part in parts]))
    return min(lengths, key=lengths.__getitem__), lengths


def half_of(fitting: FittingImages, rng: np.random.Generator) -> Array:
    """Images of half of the fitting units, at random: bool (n,)."""
    return np.isin(fitting.unit_of, rng.permutation(np.unique(fitting.unit_of))[: fitting.units // 2])


def _halves(fitting: FittingImages, first: Array) -> list[tuple[FittingImages, FittingImages]]:
    """Those of the first half, by a mask, and the others, both ways."""
    one, other = fitting.take(np.flatnonzero(first)), fitting.take(np.flatnonzero(~first))
    return [(one, other), (other, one)]


def _length_of(
    taught: FittingImages, others: FittingImages, fit: FitGroups, seed: int, target: Target, level: float
) -> float:
    """Mean length on other images where these just keep what is asked, along the path that some shaped."""
    grouping = fit(taught.data, taught.images, np.random.default_rng(seed))
    if isinstance(grouping, groupings.Single):
        path = scalar_path(taught.data, grouping, taught.images)
    else:
        path = path_of(taught, grouping, target, level)
    point = joint_point(others, path, target) if others.weighed(target) else point_at_risk(others.data, path, level)
    return mean_length(others.data, grouping, path.points[:, point])


def point_at_risk(data: CalibrationData, path: Path, level: float) -> int:
    """The first point whose mean share of missed pixels on these very images is at most a level, or the last."""
    table, sizes, *_ = data.aggregate(misses, path=path)
    risk = (table[:, : len(path)] / sizes[:, :1]).mean(axis=0)
    return min(int(np.argmax(np.append(risk, 0.0) <= level)), len(path) - 1)


def mean_length(data: CalibrationData, grouping: Grouping, widening: Array) -> float:
    """Mean clipped length at one widening of each group."""

    def work(truth: Array, block: Block) -> Array:
        lower, upper = block.widen(data.family, grouping, widening)
        return (upper - lower).reshape(len(block), -1).mean(axis=1)

    return float(np.concatenate(list(data.over_blocks(work))).mean())
