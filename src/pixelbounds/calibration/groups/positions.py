"""Groups that follow the pixel grid: all images have one size, a pixel keeps its group (Section 3.2).

The paper sorts pixels by their mean loss on the fitting images and cuts at quantiles; multi-Otsu cuts the same map
where its classes differ most. A partition is the user's own map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...images.checks import check_count
from ...images.foreign import as_plain_array
from ...images.library import Array, library_of, to_numpy
from ...images.regions import OTSU_CELLS, otsu_thresholds
from ..block import Block, Grouping, State
from ..data import NO_GRID, CalibrationData, remembered
from .contract import whole_number, whole_numbers, without_gaps

_MOST = 2**16  # groups


@dataclass(frozen=True, eq=False)
class Partition(Grouping):
    """One group per pixel position: labels (*pixels) in 0..K-1."""

    labels: Array
    kind: ClassVar[str] = "partition"

    @property
    def count(self) -> int:
        """Number of groups."""
        return int(self.labels.max()) + 1

    def check(self, block: Block) -> None:
        """The pixel grid is the one that the groups were made for."""
        if block.band.pixels != self.labels.shape:
            raise ValueError(
                f"the band has images of shape {block.band.pixels}, but the groups were fitted on {self.labels.shape}; "
                "use groups='band' or 'learned' for images of other sizes"
            )

    def at(self, block: Block, entry: Array, side: Array) -> Array:
        """Group of the position."""
        return self.labels.reshape(-1)[entry % block.image_size]

    def state(self) -> State:
        """The map of labels."""
        return {}, {"labels": self.labels}

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> Partition:
        """From the map of labels."""
        axes = np.ndim(arrays["labels"])
        labels = whole_numbers(arrays, "labels", max(1, axes), 0, np.size(arrays["labels"]) - 1)
        return cls(without_gaps(labels, "labels"))


@dataclass(frozen=True, eq=False)
class ClassSides(Grouping):
    """One group per class and end: images are (classes, *pixels), or of one class."""

    classes: int
    kind: ClassVar[str] = "classes"
    sided: ClassVar[bool] = True

    @property
    def count(self) -> int:
        """Two of each class: of lower ends, and of upper ones."""
        return 2 * self.classes

    def check(self, block: Block) -> None:
        """Images have so many classes."""
        if self.classes > 1 and block.band.pixels[0] != self.classes:
            raise ValueError(f"images of shape {block.band.pixels} have no {self.classes} classes on the first axis")

    def at(self, block: Block, entry: Array, side: Array) -> Array:
        """Group of the class and of the end."""
        return (entry % block.image_size // (block.image_size // self.classes) * 2 + side).astype(np.int32)

    def state(self) -> State:
        """How many classes there are."""
        return {"classes": self.classes}, {}

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> ClassSides:
        """From how many classes there are."""
        return cls(max(1, whole_number(meta, "classes", _MOST)))


def loss_map(pairs: CalibrationData, images: Array) -> Array:
    """Share of some images whose band misses each pixel: (*pixels)."""
    if not pairs.pixels:
        raise ValueError(f"these groups are maps of pixels, {NO_GRID}")

    def work(truth: Array, block: Block) -> Array:
        return ((truth < block.band.lower) | (truth > block.band.upper)).sum(axis=0)

    return np.asarray(sum(pairs.over_blocks(work, images)), np.float64) / len(images)


@remembered
def by_loss(pairs: CalibrationData, images: Array, k: int = 8) -> Partition:
    """K quantiles of the entrywise loss on the fitting images; tied quantiles merge."""
    check_count(k, "k", most=_MOST)
    values = loss_map(pairs, images)
    inner = np.quantile(values, np.arange(1, k) / k, method="inverted_cdf")
    return _renumbered(np.searchsorted(np.unique(inner), values, side="left"))


@remembered
def by_otsu(pairs: CalibrationData, images: Array, k: int = 4) -> Partition:
    """K classes of the entrywise loss with the greatest variance between classes."""
    check_count(k, "k", most=OTSU_CELLS)
    values = loss_map(pairs, images)
    return _renumbered(np.searchsorted(otsu_thresholds(values, k), values, side="right"))


def _renumbered(labels: Array) -> Partition:
    return Partition(np.unique(labels, return_inverse=True)[1].reshape(labels.shape).astype(np.int32))


def partition(labels: Any, pixels: tuple[int, ...]) -> Partition:
    """A user's own map of whole numbers, one per pixel position."""
    labels = as_plain_array(labels, "labels")
    labels = to_numpy(labels) if library_of(labels) else np.asarray(labels)
    if labels.shape != pixels or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(
            f"groups have shape {labels.shape} and dtype {labels.dtype}; give whole numbers of shape {pixels}"
        )
    return _renumbered(labels)
