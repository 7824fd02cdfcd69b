"""A path as knots, the grid of widenings that knots are taken from, and the path of one group (RCPS)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isfinite

import numpy as np

from ...images import Array
from ...kernels import arrivals, index_knots
from ..families import additive
from ..pairs import Archive

KNOTS = 2048


@dataclass(frozen=True, eq=False)
class Path:
    """Widenings along the path: knots (K, T), nondecreasing in T."""

    knots: Array

    def __post_init__(self) -> None:
        if (np.diff(self.knots, axis=1) < 0).any():
            raise ValueError("a path must be nondecreasing in every group")

    def __len__(self) -> int:
        return self.knots.shape[1]

    def at(self, knot: int, part: float = 1.0) -> Array:
        """Widenings (K,) a share `part` of the way from the knot before to a knot, rounded up."""
        high = self.knots[:, knot]
        if part == 1.0:
            return high.copy()
        low = self.knots[:, knot - 1]
        between = low + part * (high - low)
        return np.minimum(high, between + 2.0**-48 * np.maximum(np.abs(low), np.abs(high)))

    def between(self, knot: int, steps: int) -> Path:
        """The way from the knot before to a knot, in even steps."""
        low, high = self.knots[:, knot - 1, None], self.knots[:, knot, None]
        inner = low + np.arange(steps) / steps * (high - low)
        return Path(np.maximum.accumulate(np.append(np.minimum(inner, high), high, axis=1), axis=1))

    def arrivals(self, label: Array, shortfall: Array) -> Array:
        """First knot that covers each end, T if none: (e,), (e,) -> (e,)."""
        return arrivals(self.knots, self._index, label, shortfall)

    @cached_property
    def _index(self) -> tuple[int, Array]:
        return index_knots(self.knots)


def grid_of(pairs: Archive) -> tuple[float, int, int]:
    """Scale of a grid of widenings and the octaves that it reaches below and above it; no image is looked at."""
    span = pairs.limits[1] - pairs.limits[0]
    if pairs.family is additive and isfinite(span):
        return span, 14, 0  # widening by the whole range covers everything
    return (1.0, 14, 14) if isfinite(span) else (1.0, 20, 20)


def widening_grid(pairs: Archive, per_octave: int) -> Array:
    """The start, then widenings in geometric progression: (points,)."""
    scale, below, above = grid_of(pairs)
    octaves = np.linspace(-below, above, per_octave * (below + above) + 1)
    return np.concatenate([[0.0], scale * 2.0**octaves]) + pairs.family.start


def scalar_path(pairs: Archive) -> Path:
    """One group whose widening is the path's parameter; its knots depend on no image."""
    return Path(widening_grid(pairs, per_octave=146)[None])
