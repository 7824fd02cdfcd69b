"""Units and the split: which images fit groups and path, and which certify, never within a unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from ..images.checks import NoGuarantee, check_count, check_units
from ..images.library import Array
from .confidence import ConfidenceBound, least_images

FEW = 4  # fitting units: what fewer teach is not true of others
FEW_VALUES = 256  # of all fitting units together: groups of fewer cost more than they save
_SPARE = 1.5  # times the least that must certify a promise are left for it, as far as fitting units can tell


def unit_numbers(units: Any, n: int) -> Array:
    """Number of each image's unit, (n,); without units every image is its own."""
    return np.unique(check_units(units, n), return_inverse=True)[1]


def most_in_a_unit(split: Split, max_images: int | None) -> int:
    """The images that a unit counts for at most: as told, or the most that a fitting unit has, fixed before any bound.

    The certifying units must not say it: their number would then depend on what is bounded.
    """
    if max_images is not None:
        return check_count(max_images, "max_images")
    if not split.fitting.any():
        raise ValueError(
            "weighting='images' needs to know the most images that a unit has, and no unit fits here to tell it; give "
            "max_images"
        )
    return int(np.bincount(split.unit_of[split.fitting]).max())


def fitting_units(
    n_opt: int | None, method: str, units: int, least: int, asked: bool = False, values: float = inf
) -> int:
    """How many units fit: none for rcps, a quarter but at most 128 for krcps, an eighth but at most 96 for frontier.

    Where units are hardly more than the `least` that certify at all, each of them certifies more than it teaches: at
    most a quarter of what is beyond the least fits, a sixth where the frontier chooses its groups, unless they were
    `asked` for. It then has one group with fewer than 1.5 times the least, where fewer than FEW would fit, or where
    units have so few `values` (a number or two for each image) that those tell nothing of groups.
    """
    if n_opt is None:
        if method == "rcps":
            return 0
        chosen = method == "frontier" and not asked
        share, most = {"krcps": (4, 128), "frontier": (8, 96)}[method]
        fit = min(most, -(-units // share), (units - least) // (6 if chosen else 4))
        if chosen and (2 * units < 3 * least or fit < FEW or fit * values < FEW_VALUES):
            return 0
        return max(1, fit)
    n_opt = check_count(n_opt, "n_opt", least=0 if method == "rcps" else 1)
    if n_opt >= units:
        raise ValueError(
            f"n_opt is {n_opt}, but there are only {units} images (units); some must be left to certify: "
            "lower n_opt or give more images"
        )
    return n_opt


def least_units(risk_level: float, failure_prob: float, bound: ConfidenceBound) -> int:
    """Fewest units that certify at all; 0 where a user's bound says that none do, which certifying will report."""
    try:
        return least_images(risk_level, failure_prob, confidence=bound)
    except ValueError:
        return 0


class Need(NamedTuple):
    """Which units have what a promise is about, bool (units,), and how many of these must certify it at the least."""

    having: Array
    least: int


@dataclass(frozen=True, eq=False)
class Split:
    """Unit of each image (n,), which images fit (bool (n,)), and the certifying units in random order."""

    unit_of: Array
    fitting: Array
    order: Array

    @classmethod
    def draw(cls, unit_of: Array, fit: int, rng: np.random.Generator, needs: Sequence[Need] = ()) -> Split:
        """Some units at random fit; the others certify, in an order that tells nothing, as bets need it.

        With needs, fewer fit where those that do tell that something is rare. The rule looks at fitting units alone:
        when it stops, the others are as good as new. Keeping all units that have a rare region for certification would
        certify everything else on a mixture with too many of them.
        """
        shuffled = rng.permutation(int(unit_of.max()) + 1)
        if fit >= len(shuffled):
            raise NoGuarantee(f"{len(shuffled)} image (unit) cannot both fit and certify; give more images")
        fit = min((_enough(need, shuffled, fit) for need in needs), default=fit)
        return cls(unit_of, np.isin(unit_of, shuffled[:fit]), shuffled[fit:])


def _enough(need: Need, shuffled: Array, fit: int) -> int:
    """After how many of the units, in random order, as many are likely left as must certify; none where none fit.

    What is likely is said by the units before, with one that has it added.
    """
    for count in range(1, fit):
        share = (int(need.having[shuffled[:count]].sum()) + 1) / (count + 1)
        if (len(shuffled) - count - 1) * share < _SPARE * need.least:
            return count
    return fit
