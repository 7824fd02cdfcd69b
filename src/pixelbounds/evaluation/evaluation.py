"""What a user keeps of an evaluation: how often, where and for whom intervals miss, and how long they are."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import partial
from html import escape
from math import ceil, floor
from typing import Any

import numpy as np

from ..calibration.promises import Terms, promise_key
from ..calibration.words import plural, share_in_words
from ..images.checks import check_choice, check_count
from ..images.foreign import optional_module
from ..images.library import Array, channel_axis

_ROUNDED = 1e-30  # lengths and slopes that are 0 but for rounding


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {name: _plain(x) for name, x in vars(value).items()}
    if isinstance(value, np.ndarray | tuple):
        return [_plain(x) for x in (value.tolist() if isinstance(value, np.ndarray) else value)]
    return None if isinstance(value, float) and not np.isfinite(value) else value


_pandas = partial(optional_module, "pandas", "pip install pandas, or use to_dict()")


def share_ends(low: float, high: float) -> tuple[str, str]:
    """Both ends of an interval of a share in words, rounded outward: what is not 0 does not become 0.

    >>> share_ends(0.0, 0.00001), share_ends(0.12345, 0.54321)
    (('0.00%', '0.01%'), ('12.34%', '54.33%'))
    """
    return f"{floor(1e4 * low) / 1e4:.2%}", f"{ceil(1e4 * high) / 1e4:.2%}"


def length_ends(low: float, high: float) -> tuple[str, str]:
    """The same of a length, to four digits; none where they are not known."""
    if np.isnan(low):
        return "", ""
    down = Context(4, ROUND_FLOOR).create_decimal(repr(float(low)))
    up = Context(4, ROUND_CEILING).create_decimal(repr(float(high)))
    return f"{float(down):.4g}", f"{float(up):.4g}"


def entries_of(pixels: tuple[int, ...]) -> str:
    """What is inside or outside of images of this shape: pixels, or values where they may have channels."""
    return "values" if channel_axis(pixels) is not None or len(pixels) == 1 else "pixels"


def _bracket(low: str, high: str) -> str:
    return f" [{low}, {high}]" if low else ""


@dataclass(frozen=True, eq=False)
class Strata:
    """Risk in parts of the pixels, one row each: share of all pixels, risk with its interval low..high, mean length.

    `pooled` is the share missed of all such pixels, and `share @ pooled` the risk of all. `risk` is the mean over
    `units`, each counting the same, of the share of their own such pixels that is missed; a unit with fewer than a
    tenth of the mean number of them is left out. Each interval is of `risk`, valid by itself, not all at once, with
    the strata taken as given: cuts between them are quantiles of these images.
    `label` (rows,) numbers the strata or holds the groups' labels; strata between `edges` (rows + 1,) are ordered.
    """

    of: str
    label: Array
    edges: Array | None
    share: Array
    risk: Array
    low: Array
    high: Array
    units: Array
    pooled: Array
    mean_length: Array

    def __len__(self) -> int:
        return len(self.label)

    def table(self, rows: Any = slice(None)) -> str:
        """Some rows, by default all, as text for a terminal."""
        lines = [f"{self.of:<25}{'share':>9}{'outside':>9}{'mean':>9}{'interval':>20}{'length':>10}"]
        ends = self.edge_texts(4)
        for i in np.arange(len(self))[rows]:
            name = f"{ends[i]} to {ends[i + 1]}" if ends else str(self.label[i])
            within = _bracket(*share_ends(self.low[i], self.high[i]))
            shares = f"{self.share[i]:>9.2%}{self.pooled[i]:>9.2%}{self.risk[i]:>9.2%}"
            lines.append(f"  {name:<23}{shares}{within:>20}{self.mean_length[i]:>10.4g}")
        return "\n".join(lines)

    __str__ = table

    def to_frame(self) -> Any:
        """A pandas DataFrame, one row for each stratum."""
        columns = ("share", "risk", "low", "high", "units", "pooled", "mean_length")
        where = {} if self.edges is None else {"least": self.edges[:-1], "most": self.edges[1:]}
        index = _pandas().Index(self.label, name=self.of)
        return _pandas().DataFrame(where | {name: getattr(self, name) for name in columns}, index=index)

    def edge_texts(self, digits: int, width: float = 1.0) -> list[str]:
        """The edges between strata, in units of which there are `width`, to some digits; none where rows are groups."""
        if self.edges is None:
            return []
        return [f"{width * edge if edge > _ROUNDED else 0:.{digits}g}" for edge in self.edges]

    def riskiest(self, count: int) -> Array:
        """Rows with the greatest risk, riskiest first."""
        return np.argsort(-self.risk, kind="stable")[:count]


@dataclass(frozen=True, eq=False)
class SampleCoverage:
    """Share of fresh samples' pixels inside the intervals; `inside[j]`: share of pixels that hold j of the samples."""

    share: float
    interval: tuple[float, float]
    inside: Array

    @property
    def samples(self) -> int:
        """Fresh samples per image."""
        return len(self.inside) - 1

    @property
    def below_half(self) -> float:
        """Share of pixels whose interval holds fewer than half of their samples."""
        return float(self.inside[: (self.samples + 1) // 2].sum())


@dataclass(frozen=True, eq=False)
class SeenPromise(Terms):
    """What a promise comes to on images: its risk with an interval, over the units (or images) that have its region.

    The interval holds the risk with probability `confidence_level` of the evaluation, by itself; `jointly` is one that
    does for all promises at once. Where images or pixels count, both need `most`, the number for which a unit counts at
    most, from the calibration or the user: without it (0) they are all that is possible.
    """

    risk: float
    interval: tuple[float, float]
    units: int
    jointly: tuple[float, float]
    most: float

    @classmethod
    def of(cls, promise: Any, *seen: Any) -> SeenPromise:
        """What was seen of a promise, certified or as it is counted."""
        return cls(*promise_key(promise), *seen)

    @property
    def broken(self) -> bool:
        """Whether it is seen broken: even the low end that holds for all promises at once lies above the level."""
        return self.jointly[0] > self.at_most

    @property
    def verdict(self) -> str:
        """What is seen of all promises at once: "kept", "broken", "undecided"; "not seen" where none has the region."""
        if self.units == 0:
            return "not seen"
        if self.broken:
            return "broken"
        return "kept" if self.jointly[1] <= self.at_most else "undecided"

    def line(self) -> str:
        """As text for a terminal."""
        name = f"{self.name} above {self.above:.4g}" if self.kind == "tail" else self.name
        within = _bracket(*share_ends(*self.interval))
        return f"  {name:<23}{self.at_most:>9.2%}{self.risk:>9.2%}{within:>20}{self.units:>10}  {self.verdict}"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What intervals are worth on images whose truth is known.

    `risk` is the mean share of missed pixels, each unit counting the same; `image_risk` the same with each image
    counting the same, in units of at most `max_images` (a larger one counts as that many; 0: not known): where units
    differ in size the two differ. `by_image` (n,) and `by_unit` (units,) hold the shares, `unit_of` (n,) the row of
    each image in `units` and `by_unit`, `length_by_image` the mean lengths. `median_length` is over all pixels.
    `unit_name` is what a unit is called, None where each image is one.

    Intervals hold the mean of which they are with probability `confidence_level`, each by itself, at any number of
    independent units. That of `image_risk` is (0, 1) where `max_images` is not known: rare large units may be unseen.
    Mean length has one where limits are known, else NaN. `promises` are those that were asked about. `apart_from` is
    the digest of the calibration images, of which none is among these; None where that was not compared.
    """

    risk: float
    risk_interval: tuple[float, float]
    image_risk: float
    image_risk_interval: tuple[float, float]
    max_images: int
    mean_length: float
    mean_length_interval: tuple[float, float]
    median_length: float
    by_image: Array
    length_by_image: Array
    by_unit: Array
    units: Array
    unit_of: Array
    unit_name: str | None
    size_stratified: Strata
    by_edge: Strata
    by_group: Strata | None
    coverage: SampleCoverage | None
    confidence_level: float
    pixels: tuple[int, ...]
    apart_from: str | None = None
    promises: tuple[SeenPromise, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not known is None, and promises are there where they were asked about."""
        return {name: x for name, x in _plain(self).items() if x or name != "promises"}

    @property
    def each(self) -> str:
        """What is independent: the name of a unit, or image."""
        return self.unit_name or "image"

    @property
    def unit_sizes(self) -> Array:
        """Images of each unit, (units,)."""
        return np.bincount(self.unit_of)

    @property
    def entries(self) -> str:
        """What is inside or outside: pixels, or values where images may have channels."""
        return entries_of(self.pixels)

    @property
    def two_means(self) -> bool:
        """Whether it matters that units or that images count the same: units differ in size."""
        sizes = self.unit_sizes
        return bool((sizes != sizes[0]).any())

    @property
    def strata(self) -> dict[str, Strata]:
        """All that the risk is broken down by: "length", "edge", and "group" where groups were given."""
        by_group = {} if self.by_group is None else {"group": self.by_group}
        return {"length": self.size_stratified, "edge": self.by_edge, **by_group}

    def to_frame(self, of: str = "image") -> Any:
        """A pandas DataFrame: a row for each "image", "unit" or "promise", or each row of "length", "edge" or "group".

        The first two have the share missed and the mean length. pandas must be installed.
        """
        pandas = _pandas()
        check_choice(of, ("image", "unit", "promise", *self.strata), "of")
        if of == "promise":
            if not self.promises:
                raise ValueError("this evaluation looked at no promises; evaluate(truth, interval, promises=[...])")
            ends = ({"low": p.interval[0], "high": p.interval[1], "verdict": p.verdict} for p in self.promises)
            frame = pandas.DataFrame([vars(p) | more for p, more in zip(self.promises, ends, strict=True)])
            return frame.drop(columns=["interval", "jointly"]).set_index("name")
        if of in self.strata:
            return self.strata[of].to_frame()
        own = self.unit_name or "unit"
        if of == "unit":
            length = np.bincount(self.unit_of, self.length_by_image) / self.unit_sizes
            columns = {"images": self.unit_sizes, "missed": self.by_unit, "mean_length": length}
            return pandas.DataFrame(columns, index=pandas.Index(self.units, name=own))
        columns = {"missed": self.by_image, "mean_length": self.length_by_image}
        known = {} if self.unit_name is None else {own: self.units[self.unit_of]}
        return pandas.DataFrame(known | columns, index=pandas.RangeIndex(len(self.by_image), name="image"))

    def worst(self, count: int = 5) -> Array:
        """Images with the greatest share of missed pixels, worst first."""
        return np.argsort(-self.by_image, kind="stable")[: check_count(count, "count")]

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __repr__(self) -> str:
        return f"Evaluation of {len(self.by_image)} images: risk {self.risk:.4g}, mean length {self.mean_length:.4g}"

    def promise_table(self) -> str:
        """The promises as text for a terminal."""
        head = f"{'promise':<25}{'level':>9}{'seen':>9}{'interval':>20}{plural(self.each):>10}  verdict"
        return "\n".join([head, *(promise.line() for promise in self.promises)])

    def __str__(self) -> str:
        n = len(self.by_image)
        of = "" if self.unit_name is None else f" of {len(self.by_unit)} {plural(self.unit_name)}"
        sizes = f"shape {self.pixels}" if self.pixels else "different sizes"
        worst = ", ".join(f"{i} ({self.by_image[i]:.2%})" for i in self.worst())
        ends = _bracket(*length_ends(*self.mean_length_interval))
        lengths = f"{self.mean_length:.4g}{ends}, median {self.median_length:.4g}"
        same = f", each {self.each} counting the same" if self.two_means else ""
        lines = [
            f"{n} images{of}, {sizes}; [{share_in_words(self.confidence_level)} intervals], each valid by itself",
            f"{self.entries} outside  {self.risk:7.2%}{_bracket(*share_ends(*self.risk_interval))}{same}",
        ]
        if self.two_means:
            capped = f" in {plural(self.each)} of at most {self.max_images}" if self.max_images else ""
            ends = _bracket(*share_ends(*self.image_risk_interval)) if self.max_images else ""
            lines.append(f"{self.entries} outside  {self.image_risk:7.2%}{ends}, each image counting the same{capped}")
        lines += [f"mean length      {lengths}", f"worst images     {worst}"]
        if self.coverage is not None:
            seen = self.coverage
            few = f"{seen.below_half:.2%} of the pixels hold fewer than half of {seen.samples}"
            lines.append(f"samples inside   {seen.share:.2%}{_bracket(*share_ends(*seen.interval))}; {few}")
        if self.promises:
            lines.append(self.promise_table())
        lines += [self.size_stratified.table(), self.by_edge.table()]
        if self.by_group is not None:
            risky = self.by_group.riskiest(4)
            lines.append(self.by_group.table(risky))
            if len(risky) < len(self.by_group):
                lines.append(f"  ({len(self.by_group) - len(risky)} groups with lower risk: see by_group)")
        return "\n".join(lines)
