"""What a user keeps of an evaluation: how often, where and for whom intervals miss, and how long they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..images.checks import check_count
from ..images.library import Array


class _Record:
    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not known is None."""
        return {name: _plain(value) for name, value in vars(self).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, _Record):
        return value.to_dict()
    if isinstance(value, np.ndarray | tuple):
        return [_plain(x) for x in (value.tolist() if isinstance(value, np.ndarray) else value)]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _span(low: float, high: float, form: str = ".2%") -> str:
    return "[unknown]" if np.isnan(low) else f"[{low:{form}}, {high:{form}}]"


@dataclass(frozen=True, eq=False)
class Strata(_Record):
    """Risk in parts of the pixels, one row each: share of all pixels, risk with its interval low..high, mean length.

    `label` (rows,) numbers the strata or holds the groups' labels; strata between `edges` (rows + 1,) are ordered.
    """

    of: str
    label: Array
    edges: Array | None
    share: Array
    risk: Array
    low: Array
    high: Array
    mean_length: Array

    def __len__(self) -> int:
        return len(self.label)

    def __str__(self) -> str:
        return self.table()

    def table(self, rows: Any = slice(None)) -> str:
        """Some rows, by default all, as text for a terminal."""
        lines = [f"{self.of:<25}{'share':>9}{'outside':>9}{'interval':>19}{'length':>10}"]
        ends = self.edge_texts(4)
        for i in np.arange(len(self))[rows]:
            name = f"{ends[i]} to {ends[i + 1]}" if ends else str(self.label[i])
            within = _span(self.low[i], self.high[i])
            numbers = f"{self.share[i]:>9.2%}{self.risk[i]:>9.2%}{within:>19}{self.mean_length[i]:>10.4g}"
            lines.append(f"  {name:<23}{numbers}")
        return "\n".join(lines)

    def edge_texts(self, digits: int, tiny: float = 0.0) -> list[str]:
        """The edges between strata to some digits, those up to `tiny` as 0; none where rows are groups."""
        if self.edges is None:
            return []
        return [f"{edge if edge > tiny else 0:.{digits}g}" for edge in self.edges]

    def riskiest(self, count: int) -> Array:
        """Rows with the greatest risk, riskiest first."""
        return np.argsort(-self.risk, kind="stable")[:count]


@dataclass(frozen=True, eq=False)
class SampleCoverage(_Record):
    """Share of fresh samples' pixels inside the intervals; `inside[j]`: share of pixels that hold j of the samples."""

    share: float
    interval: tuple[float, float]
    inside: Array

    def __float__(self) -> float:
        return self.share

    @property
    def samples(self) -> int:
        """Fresh samples per image."""
        return len(self.inside) - 1

    def share_below(self, level: float) -> float:
        """Share of pixels whose interval holds fewer than this share of their samples."""
        return float(self.inside[np.arange(len(self.inside)) < level * self.samples].sum())


@dataclass(frozen=True, eq=False)
class Evaluation(_Record):
    """What intervals are worth on held-out images.

    `risk` is the mean share of missed pixels, every unit weighing the same; `by_image` (n,) and `by_unit` (units,) hold
    the shares, `unit_of` (n,) the row of each image in `units` and `by_unit`, `length_by_image` the mean lengths.
    `median_length` is over all pixels. Intervals have level `confidence_level` over `units`, and are NaN for one unit.
    """

    risk: float
    risk_interval: tuple[float, float]
    mean_length: float
    mean_length_interval: tuple[float, float]
    median_length: float
    by_image: Array
    length_by_image: Array
    by_unit: Array
    units: Array
    unit_of: Array
    size_stratified: Strata
    by_edge: Strata
    by_group: Strata | None
    coverage: SampleCoverage | None
    confidence_level: float
    pixels: tuple[int, ...]

    @property
    def strata(self) -> dict[str, Strata]:
        """All that the risk is broken down by: "length", "edge", and "group" where groups were given."""
        found = {"length": self.size_stratified, "edge": self.by_edge}
        return found if self.by_group is None else {**found, "group": self.by_group}

    def worst(self, count: int = 5) -> Array:
        """Images with the greatest share of missed pixels, worst first."""
        return np.argsort(-self.by_image, kind="stable")[: check_count(count, "count")]

    def __repr__(self) -> str:
        return f"Evaluation of {len(self.by_image)} images: risk {self.risk:.4g}, mean length {self.mean_length:.4g}"

    def __str__(self) -> str:
        n = len(self.by_image)
        drawn = len(self.by_unit)
        over = f"{drawn} images" if drawn == n else f"{drawn} units"
        sizes = f"shape {self.pixels}" if self.pixels else "different sizes"
        worst = ", ".join(f"{i} ({self.by_image[i]:.2%})" for i in self.worst())
        lengths = f"{self.mean_length:.4g} {_span(*self.mean_length_interval, '.4g')}, median {self.median_length:.4g}"
        lines = [
            f"{n} images of {sizes}; [{self.confidence_level:.6g} bootstrap intervals] over {over}",
            f"pixels outside   {self.risk:.2%} {_span(*self.risk_interval)}",
            f"mean length      {lengths}",
            f"worst images     {worst}",
        ]
        if self.coverage is not None:
            sampled = self.coverage
            few = f"{sampled.share_below(0.5):.2%} of the pixels hold fewer than half of {sampled.samples}"
            lines.append(f"samples inside   {sampled.share:.2%} {_span(*sampled.interval)}; {few}")
        lines += [self.size_stratified.table(), self.by_edge.table()]
        if self.by_group is not None:
            risky = self.by_group.riskiest(4)
            lines.append(self.by_group.table(risky))
            if len(risky) < len(self.by_group):
                lines.append(f"  ({len(self.by_group) - len(risky)} groups with lower risk: see by_group)")
        return "\n".join(lines)
