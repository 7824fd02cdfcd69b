"""Units: what is independent of what (patients, scans), and the losses of images as losses of units.

The theory of the paper is about n independent losses. Images of one patient are not independent, so their losses are
averaged first: the n of every bound counts units, and a promise is about a future unit.

With `weighting="images"` each image counts the same instead. Let S be the number of images in a unit, L their mean loss
and B a number that is fixed beforehand. The mean over images is at most the level exactly if
E[min(S, B) (L - level)] <= 0, that is, if the mean over units of Z = level + min(S, B) / B (L - level) is at most the
level. Z lies in [0, 1] as L does, so it takes the place of L in every bound; a unit of more than B images counts as one
of B. With weights of images, such as the pixels of a region, S is their sum and L the mean so weighted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..images.checks import check_choice, check_count, check_unit_name, check_units
from ..images.library import Array

WEIGHTINGS = ("units", "images")


@dataclass(frozen=True, eq=False)
class Units:
    """The unit of each image, (n,), and how units count.

    name          a noun in the singular: "patient", "scan"
    weighting     "units": each unit counts the same; "images": each image does
    max_images    with "images": the most images for which a unit counts; default: the most of a fitting unit

    >>> Units(["a", "a", "b"], name="patient").weighting
    'units'
    """

    ids: Any
    name: str = "unit"
    weighting: str = "units"
    max_images: int | None = None

    def __post_init__(self) -> None:
        check_unit_name(self.name)
        check_choice(self.weighting, WEIGHTINGS, "weighting")
        if self.max_images is not None:
            check_count(self.max_images, "max_images")
            if self.weighting != "images":
                raise ValueError(f"max_images is {self.max_images}; it needs weighting='images': leave it out")


def units_of(units: Any, n: int) -> tuple[Units | None, Array]:
    """Units of n images from plain ids, `Units` or None, and the number of each image's unit, (n,)."""
    if units is None:
        return None, np.arange(n)
    units = units if isinstance(units, Units) else Units(units)
    return units, np.unique(check_units(units.ids, n), return_inverse=True)[1]


def split_by_unit(unit_of: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Images of `count` random units, bool (n,), and the other units in random order."""
    shuffled = rng.permutation(np.unique(unit_of))
    return np.isin(unit_of, shuffled[:count]), shuffled[count:]


@dataclass(frozen=True, eq=False)
class UnitLosses:
    """Losses of images to losses of units.

    unit_of        number of each image's unit, (n,)
    counts         which images count, bool (n,)
    order          units with such an image, in the order in which their losses are returned
    max_images     B of the module's text; 0: each unit counts the same
    image_weights  what an image counts for within its unit, (n,); None: all the same
    shares         how much the unit of each image counts, (n,), in [0, 1]; None: 1 (`monitoring.recalibrate`)
    """

    unit_of: Array
    counts: Array
    order: Array
    max_images: float = 0.0
    image_weights: Array | None = None
    shares: Array | None = None

    def means(self, losses: Array) -> Array:
        """Mean loss of each unit: (..., n) -> (..., units)."""
        if len(self.unit_of) == self.unit_of.max() + 1:  # every image is its own unit
            return np.take(losses, self._image_of, axis=-1)
        units, sizes = self._sizes
        if self.image_weights is not None:
            losses = losses * self.image_weights
        rows = [np.bincount(units, x[self.counts], len(sizes)) for x in losses.reshape(-1, losses.shape[-1])]
        means = (np.stack(rows) / np.where(sizes > 0, sizes, 1))[:, self.order]
        return np.ascontiguousarray(means).reshape(*losses.shape[:-1], len(self.order))

    @cached_property
    def weights(self) -> Array:
        """How much each unit counts, (units,): min(S, B) / B where B is given, times its share."""
        weights = np.ones(len(self.order))
        if self.max_images:
            weights = np.minimum(self._sizes[1][self.order], self.max_images) / self.max_images
        if self.shares is not None:
            by_unit = np.zeros(int(self.unit_of.max()) + 1)
            by_unit[self.unit_of] = self.shares
            weights = weights * by_unit[self.order]
        return weights

    @property
    def weighted(self) -> bool:
        """Whether units count unlike."""
        return bool(self.max_images) or self.shares is not None

    @cached_property
    def _image_of(self) -> Array:
        """The image of each unit, where every image is its own."""
        return np.argsort(self.unit_of)[self.order]

    @cached_property
    def _sizes(self) -> tuple[Array, Array]:
        """Unit of each image that counts, and how many images, or which weight, each unit has."""
        weights = None if self.image_weights is None else self.image_weights[self.counts]
        units = self.unit_of[self.counts]
        return units, np.bincount(units, weights, minlength=int(self.unit_of.max()) + 1)


def losses_by_unit(
    unit_of: Array, counts: Array, order: Array, max_images: float = 0.0, image_weights: Array | None = None
) -> UnitLosses:
    """`UnitLosses` of those units of `order` that have an image which counts."""
    order = order[np.isin(order, unit_of[counts])]
    return UnitLosses(unit_of, counts, order, max_images, image_weights)


def largest_unit(unit_of: Array, counts: Array, weight: Array) -> float:
    """The greatest weight of a unit, over the images that count."""
    return float(np.bincount(unit_of[counts], weight[counts]).max())
