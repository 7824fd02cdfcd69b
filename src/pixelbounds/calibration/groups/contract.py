"""What every grouping is: a frozen record that labels ends and can be stored as arrays and JSON."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Any, ClassVar, ParamSpec, TypeVar

import numpy as np

from ...images.library import Array
from ..pairs import Block, Pairs, all_entries
from ..prints import prints

State = tuple[dict[str, Any], dict[str, Array]]  # JSON part, arrays


P = ParamSpec("P")
G = TypeVar("G", bound="Grouping")


class Grouping(ABC):
    """K groups of ends."""

    kind: ClassVar[str]
    sided: ClassVar[bool] = False
    fitted_on: Array = np.empty(0, np.uint64)  # prints of the images that shaped it, which must not certify
    _kinds: ClassVar[dict[str, type[Grouping]]] = {}

    def __init_subclass__(cls) -> None:
        Grouping._kinds[cls.kind] = cls

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of groups, K."""

    @abstractmethod
    def at(self, block: Block, entry: Array, side: Array) -> Array:
        """Groups of some ends: flat index within the block (e,), end (e,) -> (e,) int32."""

    def every(self, block: Block) -> Array:
        """Groups of all ends: (2, n * pixels) int32, lower ends first; (1, n * pixels) where both ends are alike."""
        if self.sided:
            return self.at(block, *all_entries(block)).reshape(2, -1)
        entry = np.arange(len(block) * block.image_size)
        return self.at(block, entry, np.zeros(len(entry), np.uint8)).reshape(1, -1)

    @abstractmethod
    def state(self) -> State:
        """What a file must hold."""

    @classmethod
    @abstractmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> Grouping:
        """The grouping that a file holds."""

    def check(self, block: Block) -> None:  # noqa: B027  (most groupings fit any band)
        """Refuse a band that the grouping cannot label."""


def load_grouping(kind: str, meta: dict[str, Any], arrays: dict[str, Array]) -> Grouping:
    """The grouping of a kind from its state."""
    if not isinstance(kind, str) or kind not in Grouping._kinds:
        raise ValueError(f"groups of kind {kind!r} are unknown to this version; it knows {', '.join(Grouping._kinds)}")
    try:
        return Grouping._kinds[kind].from_state(meta, arrays)
    except (KeyError, AttributeError, IndexError) as error:
        raise ValueError(f"groups of kind {kind!r} cannot be made of this state: {error!r} is missing") from error


def on_images(grouping: G, images: Array) -> G:
    """The grouping, remembering the images that shaped it by their prints, (n,) uint64."""
    if images.dtype != np.uint64 or images.ndim != 1:
        raise ValueError(f"prints are {images.dtype} {images.shape}; they must be uint64, one per image")
    known = copy(grouping)
    object.__setattr__(known, "fitted_on", images)
    return known


def remembered(fit: Callable[P, G]) -> Callable[P, G]:
    """A function that fits groups on some images of pairs, made to remember those images."""

    @wraps(fit)
    def fitted(*given: P.args, **more: P.kwargs) -> G:
        grouping = fit(*given, **more)
        pairs, images = given[:2]
        if not isinstance(pairs, Pairs):  # images that stay elsewhere are not known here
            return grouping
        return on_images(grouping, pairs.ask(prints, np.asarray(images))[1])

    return fitted


def consecutive(labels: Array) -> tuple[Array, Array]:
    """Labels renumbered 0..K-1 without gaps, and the values they had."""
    values, renumbered = np.unique(labels, return_inverse=True)
    return renumbered.reshape(labels.shape).astype(np.int32), values
