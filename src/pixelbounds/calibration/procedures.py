"""The three procedures: what the fitting images say of groups and path. The certifying images are not looked at.

rcps        one widening for all pixels; nothing is fitted                             Algorithm 2 of the paper
krcps       the line through the solution of (P_K)                                     Algorithm 1
frontier    the path of shortest intervals on the fitting images                       ours

Which groups the frontier has is chosen on the fitting images alone: each candidate is fitted on one half of the fitting
units and taken along its frontier on the other half, until just the risk level is met; the first that is about as short
as the shortest wins and is fitted again on all of them. On images where a band's own features say all there is to say,
learned groups are as short but slower; where neighbourhoods matter, they are much shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any

import numpy as np

from ..images.checks import check_choice, check_count
from ..images.foreign import as_plain_array
from ..images.library import Array, differ_in_size, library_of, to_numpy
from . import groups as groupings
from .block import Block
from .data import NO_GRID, CalibrationData, LocalData
from .groups.contract import Grouping
from .loss_table import Path, loss_table, scalar_path
from .paths.frontier import frontier_of
from .paths.line import GAMMAS, line_path, solve_program, stratified_pixels
from .paths.weighted_frontier import PathObjective, joint_frontier, joint_knot
from .split import FEW, FEW_VALUES

Fit = Callable[[LocalData, Array, np.random.Generator], Grouping]  # pairs, fitting images, generator

METHODS = ("frontier", "krcps", "rcps")
NAMED_GROUPS = ("learned", "band", "loss", "squared", "otsu")
_MANY = 48  # fitting units: fewer may tell only few groups apart (docs/tried.md)
_ABOUT = 1.005  # lengths that differ less are equal: half of the fitting images cannot tell them apart


def rcps(pairs: CalibrationData) -> tuple[Grouping, Path]:
    """One widening for all pixels (Algorithm 2); nothing is fitted."""
    return groupings.Single(), scalar_path(pairs)


def krcps(
    pairs: LocalData,
    images: Array,
    rng: np.random.Generator,
    risk_level: float,
    *,
    groups: Any = None,
    k: int | None = None,
    d_opt: int | None = None,
    direction: Any = None,
    gammas: Sequence[float] = GAMMAS,
) -> tuple[Grouping, Path]:
    """The line through the solution of (P_K) (Algorithm 1)."""
    usual = "loss" if pairs.labels is None or k is not None else groupings.Single()
    grouping = grouping_of(usual if groups is None else groups, pairs, images, rng, k)
    if grouping.sided:
        raise ValueError(
            f"krcps widens both ends of a pixel alike, but groups of kind {grouping.kind!r} treat them apart; "
            "use groups='loss', 'otsu' or a partition, or method='frontier'"
        )
    values = _numbers(gammas)
    if values is None or values.ndim > 1 or not values.size or not ((values >= 0) & (values < 1)).all():
        raise ValueError(f"gammas is {gammas!r}; give at least one value in [0, 1)")
    pixels = None
    if d_opt is not None:
        pixels = stratified_pixels(grouping, pairs.band.pixels, check_count(d_opt, "d_opt"), rng)
    eta = np.ones(grouping.count) if direction is None else _numbers(direction)
    if (
        eta is None
        or eta.shape != (grouping.count,)
        or not (eta >= 0).all()
        or not np.isfinite(eta).all()
        or not eta.any()
    ):
        raise ValueError(
            f"direction is {direction!r}; it must hold {grouping.count} finite values of at least 0, not all of them 0"
        )
    offset = solve_program(pairs, images, grouping, risk_level, np.atleast_1d(values).tolist(), pixels).widening
    if isinstance(grouping, groupings.LabelledGroups):  # labels that none of these images has
        offset[grouping.table[-1]] = offset.max()
    return grouping, line_path(pairs, images, grouping, offset, eta, risk_level)


def frontier(
    pairs: Any,
    images: Array,
    rng: np.random.Generator,
    risk_level: float,
    *,
    groups: Any = None,
    k: int | None = None,
    unit_of: Array | None = None,
    objective: PathObjective | None = None,
    certified: float | None = None,
) -> tuple[Grouping, Path]:
    """The path of shortest intervals on the fitting images, each its own unit unless told; one group where none fit.

    With a goal (of as many images as the pairs have) it is the path for several promises. `certified` is the greatest
    risk that the certifying units can certify, at which groups are judged where few units fit: they certify few, too.
    """
    if not len(images):
        return rcps(pairs)
    if groups is None and k is None:
        own = images if unit_of is None else unit_of
        few = pairs.features is None and len(np.unique(own)) < _MANY
        tried: list[Fit] = [partial(grouping_of, "band"), partial(grouping_of, "learned")]
        if pairs.features is not None:  # with much to learn from, the score's tail can be told apart too
            tried = [_learned_to(q) for q in (0.75, 0.9)]
        if objective is not None and pairs.labels is not None and pairs.features is None:
            tried.pop()  # labels say more of a region than what could be learned
        if few or objective is not None:  # few images, and a rare region, tell many groups apart badly
            tried.insert(0, partial(grouping_of, _by_width(4 if few else 8)))
        level = certified if few and certified else risk_level
        grouping = shortest(pairs, images, rng, level, tried, own, objective, both=few)(pairs, images, rng)
    else:
        grouping = grouping_of("learned" if groups is None else groups, pairs, images, rng, k)
    return grouping, path_of(pairs, images, grouping, risk_level, objective)


def path_of(pairs: Any, images: Array, grouping: Grouping, risk_level: float, objective: PathObjective | None) -> Path:
    """The frontier of a grouping on some images; with a goal, that for several promises."""
    if objective is None:
        return frontier_of(pairs, images, grouping, risk_level)
    return joint_frontier(pairs, images, grouping, risk_level, objective.take(images))


# ---------------------------------------------------------------- which groups


def groups_for(fitting: int, values: float = inf) -> Any:
    """The frontier's default groups: a choice on the fitting images, but few and by width alone where units, or the
    values that all of them have together, are too few to choose by.
    """
    if fitting < FEW or values < 8 * FEW_VALUES:
        return _by_width(2)
    return _by_width(4) if fitting < 4 * FEW else None


def _by_width(bins: int) -> Callable[[LocalData, Array], Grouping]:
    """Few groups, which few images can tell apart also where the path is followed far beyond them."""
    return partial(groupings.fit_band_groups, width=bins, room=1)


def grouping_of(
    groups: Any, pairs: LocalData, images: Array, rng: np.random.Generator, k: int | None = None
) -> Grouping:
    """The grouping that a name, an array or a Grouping stands for, fitted on the fitting images, within labels."""
    return _within_labels(pairs, images, _named_or_given(groups, pairs, images, rng, k))


def _within_labels(pairs: LocalData, images: Array, found: Grouping) -> Grouping:
    """Groups, or their runs within labels where there are labels."""
    if pairs.labels is None or isinstance(found, groupings.LabelledGroups):
        return found
    return groupings.fit_labelled_groups(pairs, images, found)


def _learned_to(quantile: float) -> Fit:
    """Learned groups of one quantile of the score."""

    def fit(pairs: LocalData, images: Array, rng: np.random.Generator) -> Grouping:
        return _within_labels(pairs, images, groupings.fit_learned_groups(pairs, images, rng, quantile=quantile))

    return fit


def _named_or_given(groups: Any, pairs: LocalData, images: Array, rng: np.random.Generator, k: int | None) -> Grouping:
    if isinstance(groups, str):
        check_choice(groups, NAMED_GROUPS, "groups")
        if groups == "learned":
            bins = 16 if k is None else check_count(k, "k")
            return groupings.fit_learned_groups(pairs, images, rng, bins_per_side=bins)
        if groups == "band":
            return groupings.fit_band_groups(pairs, images, width=12 if k is None else check_count(k, "k", most=4096))
        if groups in ("loss", "squared"):
            return groupings.by_loss(pairs, images, 8 if k is None else k, "l01" if groups == "loss" else "squared")
        return groupings.by_otsu(pairs, images, 4 if k is None else check_count(k, "k"))
    if k is not None:
        raise ValueError("k sets the number of groups of a named grouping; leave it out where you give the groups")
    if callable(groups):
        groups = groups(pairs, images)
        if not isinstance(groups, Grouping):
            raise TypeError(f"groups is a function that returned a {type(groups).__name__}; it must return a Grouping")
    if isinstance(groups, Grouping):
        found = groups
        for _ in pairs.over_blocks(lambda truth, block: found.check(block), images):
            pass
        return found
    groups = as_plain_array(groups, "groups")
    if differ_in_size(pairs.band.lower) and (library_of(groups) or isinstance(groups, list | tuple)):
        raise ValueError(f"groups are a map of pixels, {NO_GRID}")
    if not library_of(groups):
        raise TypeError(
            f"groups is {str(groups)[:80]!r}; give a name (learned, band, loss, squared, otsu), a partition "
            "(*pixels), a Grouping, or a function that fits one"
        )
    if tuple(groups.shape[1:]) == pairs.pixels:
        raise ValueError("groups= takes one map for all images; give a map of each image, a segmentation, as labels=")
    return groupings.partition(to_numpy(groups), pairs.pixels)


def shortest(
    pairs: LocalData,
    images: Array,
    rng: np.random.Generator,
    risk_level: float,
    fits: Sequence[Fit],
    unit_of: Array,
    objective: PathObjective | None = None,
    both: bool = False,
) -> Fit:
    """The first candidate with about the shortest intervals on units that it was not fitted on; candidates are given
    with the cheapest first, which is taken where units are too few. `unit_of` says the unit of each of the images. Half
    of the units teach and the others judge, or `both`, in turn.
    """
    units = np.unique(unit_of)
    if len(units) < 4:
        return fits[0]
    seed = int(rng.integers(2**63))  # all candidates see the same halves and the same randomness
    first = np.isin(unit_of, np.random.default_rng(seed).permutation(units)[: len(units) // 2])

    def length(fit: Fit, teaches: Array) -> float:
        taught, untouched = images[teaches], pairs.take(images[~teaches])
        grouping = fit(pairs, taught, np.random.default_rng(seed))
        path = path_of(pairs, taught, grouping, risk_level, objective)
        if objective is None:
            return length_at_risk(untouched, grouping, path, risk_level)
        knot = joint_knot(untouched, grouping, path, objective.take(images[~teaches]))
        return mean_length(untouched, grouping, path.knots[:, knot])

    lengths = [sum(length(fit, half) for half in ((first, ~first) if both else (first,))) for fit in fits]
    return next(fit for fit, found in zip(fits, lengths, strict=True) if found <= min(lengths) * _ABOUT)


def knot_at_risk(pairs: LocalData, grouping: Grouping, path: Path, risk_level: float) -> int:
    """The first knot whose mean loss on these very images is at most the risk level, or the last."""
    risk = (loss_table(pairs, grouping, path) / pairs.sizes[:, None]).mean(axis=0)
    return min(int(np.argmax(np.append(risk, 0.0) <= risk_level)), len(path) - 1)


def length_at_risk(pairs: LocalData, grouping: Grouping, path: Path, risk_level: float) -> float:
    """Mean clipped length where the risk on these very images is just the risk level."""
    return mean_length(pairs, grouping, path.knots[:, knot_at_risk(pairs, grouping, path, risk_level)])


def mean_length(pairs: LocalData, grouping: Grouping, widening: Array) -> float:
    """Mean clipped length at one widening of each group."""

    def work(truth: Array, block: Block) -> Array:
        lower, upper = block.widen(pairs.family, grouping, widening)
        return (upper - lower).reshape(len(block), -1).mean(axis=1)

    return float(np.concatenate(list(pairs.over_blocks(work))).mean())


def _numbers(values: Any) -> Array | None:
    """Real numbers as float64, None where they are none."""
    try:
        out = np.asarray(values)
        return np.asarray(out, np.float64) if out.dtype.kind in "fiu" else None
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
