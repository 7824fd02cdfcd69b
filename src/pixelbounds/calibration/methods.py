"""RCPS, K-RCPS and the frontier: what the fitting images say of groups and path; certifying images are not looked at.

RCPS        one widening for all pixels; nothing is fitted                             Algorithm 2
KRCPS       the line through the solution of (P_K)                                     Algorithm 1, Section 3.2
Frontier    the path of shortest intervals on the fitting images                       docs/theory/proof.md

A method is an object that holds its settings. `units_to_fit` says how many units fit; `fit` makes the path.

Which groups the frontier has is chosen on the fitting images alone: each candidate is fitted on one half of the fitting
units and followed along its frontier on the other half, until just the risk level is met; the first that is about as
short as the shortest wins and is fitted again on all of them. Among several bands the shortest is chosen likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from math import inf
from typing import Any, ClassVar

import numpy as np

from ..images.checks import check_choice, check_count, check_generator
from ..images.foreign import as_plain_array
from ..images.library import Array, differ_in_size, library_of, to_numpy
from . import groups as groupings
from .block import Block, Grouping
from .bounds import greatest_loss
from .data import NO_GRID, CalibrationData
from .paths.frontier import frontier_of
from .paths.line import GAMMAS, line_path, solve_program, stratified_pixels
from .paths.path import Path, misses, scalar_path
from .paths.weighted_frontier import joint_frontier, joint_point, weighed_promises
from .split import FittingImages, Method
from .target import Target, split_by_unit

FitGroups = Callable[[Any, Array, np.random.Generator], Grouping]  # data, fitting images, generator

NAMED_GROUPS = ("learned", "band", "loss", "squared", "otsu")
FEW = 4  # fitting units: what fewer teach is not true of others
FEW_VALUES = 256  # of all fitting units together: groups of fewer cost more than they save
_MANY = 48  # fitting units: fewer may tell only few groups apart (docs/research)
_ABOUT = 1.005  # lengths that differ less are equal: half of the fitting images cannot tell them apart


@dataclass(frozen=True)
class RCPS(Method):
    """One widening for all pixels (Algorithm 2). `n_fit` units show for how much a unit counts at most."""

    n_fit: int | None = None
    name: ClassVar[str] = "rcps"

    def units_to_fit(self, units: int, least: int, values: float = inf, *, labelled: bool = False) -> int:
        """None by default."""
        return self._asked(units, 0)

    def fit(self, fitting: FittingImages, target: Target, seed: Any = 0) -> Path:
        """A grid of widenings, whatever the images."""
        if fitting.data.labels is not None:
            raise ValueError("rcps has one group only: leave labels out, or use method='krcps' or 'frontier'")
        _refuse_features(fitting.data)
        return scalar_path(fitting.data, groupings.Single(), fitting.images)


@dataclass(frozen=True, eq=False)
class KRCPS(Method):
    """The line through the solution of (P_K) (Algorithm 1).

    k          number of groups of "loss" and "otsu"
    d_opt      pixels per image in (P_K), stratified by group; default: all
    groups     "loss" (default), "squared", "otsu", a partition (*pixels), a Grouping, or a function that fits one
    direction  of the line, one value of at least 0 per group; default: ones
    gammas     of the convex surrogate; the one of least objective is taken
    n_fit      fitting images (units, where given)
    """

    k: int | None = None
    d_opt: int | None = None
    groups: Any = None
    direction: Any = None
    gammas: Sequence[float] = GAMMAS
    n_fit: int | None = None
    name: ClassVar[str] = "krcps"

    def fit(self, fitting: FittingImages, target: Target, seed: Any = 0) -> Path:
        """The solution of (P_K) plus t times the direction."""
        data: Any = fitting.data
        rng = check_generator(seed)
        _refuse_features(data)
        usual = "loss" if data.labels is None or self.k is not None else groupings.Single()
        grouping = grouping_of(usual if self.groups is None else self.groups, data, fitting.images, rng, self.k)
        if grouping.sided:
            raise ValueError(
                f"krcps widens both ends of a pixel alike, but groups of kind {grouping.kind!r} treat them apart; "
                "use groups='loss', 'otsu' or a partition, or method='frontier'"
            )
        gammas = np.atleast_1d(_numbers(self.gammas))
        if gammas.ndim > 1 or not gammas.size or not ((gammas >= 0) & (gammas < 1)).all():
            raise ValueError(f"gammas is {self.gammas!r}; give at least one value in [0, 1)")
        pixels = None
        if self.d_opt is not None:
            pixels = stratified_pixels(grouping, data.pixels, check_count(self.d_opt, "d_opt"), rng)
        direction = np.ones(grouping.count) if self.direction is None else _numbers(self.direction)
        above = np.isfinite(direction) & (direction >= 0)
        if direction.shape != (grouping.count,) or not above.all() or not direction.any():
            raise ValueError(
                f"direction is {self.direction!r}; it must hold {grouping.count} finite values of at least 0, not all "
                "of them 0"
            )
        offset = solve_program(data, fitting.images, grouping, target.level, gammas.tolist(), pixels).widening
        if isinstance(grouping, groupings.LabelledGroups):  # labels that none of these images has
            offset[grouping.table[-1]] = offset.max()
        return line_path(data, fitting.images, grouping, offset, direction, target.level)


@dataclass(frozen=True, eq=False)
class Frontier(Method):
    """The path of shortest intervals on the fitting images.

    groups   "learned", "band", a partition (*pixels), a Grouping, or a function (data, images) that fits one; default:
             the shorter of the first two on the fitting images, few groups where few images fit
    k        bins per side of "learned", or bins of width of "band"
    n_fit    fitting images (units, where given)
    """

    groups: Any = None
    k: int | None = None
    n_fit: int | None = None
    name: ClassVar[str] = "frontier"

    @property
    def _chooses(self) -> bool:
        return self.groups is None and self.k is None

    def units_to_fit(self, units: int, least: int, values: float = inf, *, labelled: bool = False) -> int:
        """An eighth but at most 96, and at most a quarter of what is beyond the `least` that certify at all.

        Where the groups are not given: a sixth, and none with fewer than 1.5 times the least, where fewer than FEW
        would fit, or where units have so few values that those tell nothing of groups.
        """
        chooses = self._chooses and not labelled
        fit = min(96, -(-units // 8), (units - least) // (6 if chooses else 4))
        none = chooses and (2 * units < 3 * least or fit < FEW or fit * values < FEW_VALUES)
        return self._asked(units, 0 if none else max(1, fit))

    def fit(self, fitting: FittingImages, target: Target, seed: Any = 0) -> Path:
        """The frontier of the groups, or of the candidate that is shortest; one group where no image fits."""
        data, images, rng = fitting.data, fitting.images, check_generator(seed)
        if not (self.groups is None or (isinstance(self.groups, str) and self.groups == "learned")):
            _refuse_features(data)
        if not len(images):
            return scalar_path(data, groupings.Single())
        groups = self.groups
        if self._chooses and data.features is None:
            groups = few_groups(fitting.units, float(data.sizes.sum()))
        if groups is None and self.k is None:
            grouping = _shortest_groups(fitting, target, rng)
        else:
            grouping = grouping_of("learned" if groups is None else groups, data, images, rng, self.k)
        return path_of(fitting, grouping, target, target.level)


METHODS: dict[str, type[Method]] = {"frontier": Frontier, "krcps": KRCPS, "rcps": RCPS}


def method_of(method: Any, **settings: Any) -> Method:
    """The method that a name with settings, or an object, stands for; settings that are None are left out."""
    if isinstance(method, Method):
        return method
    kind = METHODS[check_choice(method, METHODS, "method")]
    given = {name: x for name, x in settings.items() if x is not None}
    strange = sorted(given.keys() - {each.name for each in fields(kind)})  # type: ignore[arg-type]
    if strange:
        raise ValueError(f"{method} has no setting {strange[0]!r}; leave it out, or use another method")
    return kind(**given)


def path_of(fitting: FittingImages, grouping: Grouping, target: Target, level: float) -> Path:
    """The frontier of a grouping, finest about a level: of misses alike, or weighed for several promises."""
    if weighed_promises(fitting, target):
        return joint_frontier(fitting, grouping, target, level)
    return frontier_of(fitting.data, fitting.images, grouping, level)


def _refuse_features(data: CalibrationData) -> None:
    if data.features is not None:
        raise ValueError("features are for learned groups: use pb.Frontier() or pb.Frontier('learned'), or leave them")


def _numbers(values: Any) -> Array:
    """Real numbers as float64; NaN where they are none."""
    try:
        out = np.asarray(values)
        return np.asarray(out if out.dtype.kind in "fiu" else np.nan, np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return np.full(1, np.nan)


# ---------------------------------------------------------------- groups


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
            f"groups is {str(groups)[:80]!r}; give a name (learned, band, loss, squared, otsu), a partition "
            "(*pixels), a Grouping, or a function that fits one"
        )
    if tuple(groups.shape[1:]) == data.pixels:
        raise ValueError("groups= takes one map for all images; give a map of each image, a segmentation, as labels=")
    return groupings.partition(to_numpy(groups), data.pixels)


def _named(name: str, data: Any, images: Array, rng: np.random.Generator, k: int | None, quantile: float) -> Grouping:
    if name == "learned":
        bins = 16 if k is None else check_count(k, "k")
        return groupings.fit_learned_groups(data, images, rng, bins_per_side=bins, quantile=quantile)
    if name == "band":
        return groupings.fit_band_groups(data, images, width=12 if k is None else check_count(k, "k", most=4096))
    if name == "otsu":
        return groupings.by_otsu(data, images, 4 if k is None else check_count(k, "k"))
    return groupings.by_loss(data, images, 8 if k is None else k, "l01" if name == "loss" else "squared")


def _by_width(bins: int) -> Callable[[CalibrationData, Array], Grouping]:
    """Few groups, which few images can tell apart also where the path is followed far beyond them."""
    return partial(groupings.fit_band_groups, width=bins, room=1)


def few_groups(units: int, values: float) -> Any:
    """Few groups, by width alone, where fitting units or their values are too few to choose by; else None."""
    if units < FEW or values < 8 * FEW_VALUES:
        return _by_width(2)
    return _by_width(4) if units < 4 * FEW else None


def _shortest_groups(fitting: FittingImages, target: Target, rng: np.random.Generator) -> Grouping:
    """The candidate that is shortest on units that it was not fitted on, fitted on all of them."""
    data, several = fitting.data, bool(weighed_promises(fitting, target))
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
        first, _ = split_by_unit(fitting.unit_of, fitting.units // 2, np.random.default_rng(seed))
        halves = _halves(fitting, first)[: 2 if few else 1]
        certified = greatest_loss(fitting.certifying, target.level, target.failure_prob) if few else 0.0
        level = certified or target.level
        lengths = [sum(_length_of(*half, fit, seed, target, level) for half in halves) for fit in tried]
        best = next(fit for fit, length in zip(tried, lengths, strict=True) if length <= min(lengths) * _ABOUT)
    return best(data, fitting.images, rng)


# ---------------------------------------------------------------- lengths on fitting images


def shortest_band(
    offered: Mapping[str, FittingImages], target: Target, method: Method, rng: np.random.Generator
) -> tuple[str, dict[str, float]]:
    """The name of the band with the shortest intervals on the fitting images (of equal ones the first), and lengths."""
    first = next(iter(offered.values()))
    if not len(first.images):
        raise ValueError(f"{len(offered)} bands are offered, and no image fits, by which to choose: give n_fit")
    half = None
    if not isinstance(method, RCPS) and first.units >= FEW:
        half, _ = split_by_unit(first.unit_of, first.units // 2, rng)
    seed = int(rng.integers(2**63))
    fit: FitGroups = partial(grouping_of, groupings.Single() if isinstance(method, RCPS) else "band")
    lengths = {}
    for name, fitting in offered.items():
        parts = [(fitting, fitting)] if half is None else _halves(fitting, half)
        lengths[name] = float(np.mean([_length_of(*part, fit, seed, target, target.level) for part in parts]))
    return min(lengths, key=lengths.__getitem__), lengths


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
    if weighed_promises(others, target):
        point = joint_point(others, path, target)
    else:
        point = point_at_risk(others.data, path, level)
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
