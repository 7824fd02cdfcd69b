"""One split of the calibration images: a path is fitted once, its losses are tabled once, and every bound reads them.

`split_pairs` takes the images that `pixelbounds.calibrate` takes for the same seed, and the methods get the generator
as `calibrate` hands it on: a row of the table is what a user gets from `calibrate`, only sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from time import perf_counter
from typing import Any, ClassVar
from zlib import crc32

import numpy as np

from pixelbounds.calibration.block import Block
from pixelbounds.calibration.certify import Certificate, RiskTest, certify_l01
from pixelbounds.calibration.confidence import bound_named, rejects
from pixelbounds.calibration.data import LocalData
from pixelbounds.calibration.groups.contract import Grouping, State
from pixelbounds.calibration.groups.positions import by_loss
from pixelbounds.calibration.loss_table import Path, Table, loss_table
from pixelbounds.calibration.procedures import knot_at_risk, krcps, rcps
from pixelbounds.calibration.split import Split
from pixelbounds.images.ends import outward
from pixelbounds.images.library import Array

from .experiment import KRCPSSection

Method = Callable[[LocalData, Array, np.random.Generator, float], tuple[Grouping, Path]]
Cell = dict[str, Any]  # n_opt, d_opt, k


@dataclass(frozen=True, eq=False)
class SplitPairs:
    """Calibration images, which of them fit and which certify, and the seed."""

    pairs: LocalData
    split: Split
    seed: int

    @cached_property
    def taught(self) -> LocalData:
        """The fitting images alone; where none fit, all of them, of which a method is told to look at none."""
        images = np.flatnonzero(self.split.fitting)
        return self.pairs.take(images) if len(images) else self.pairs

    @property
    def fitting(self) -> int:
        """Images that fit."""
        return int(self.split.fitting.sum())

    def generator(self) -> np.random.Generator:
        """As `calibrate` has it after its split."""
        rng = np.random.default_rng(self.seed)
        rng.permutation(int(self.split.unit_of.max()) + 1)
        return rng


@dataclass(frozen=True, eq=False)
class Remembered(Grouping):
    """A grouping that labels the same ends of the same images only once; several bounds ask for them again."""

    inner: Grouping
    kind: ClassVar[str] = "remembered"
    _known: dict[tuple[int, ...], Array] = field(default_factory=dict, repr=False)

    @property
    def count(self) -> int:
        """As the grouping itself."""
        return self.inner.count

    @property
    def sided(self) -> bool:  # type: ignore[override]
        """As the grouping itself."""
        return self.inner.sided

    def at(self, block: Block, entry: Array, side: Array) -> Array:
        """Labels, looked up by the content of what they depend on."""
        given = block.band.lower, block.band.upper, block.features, entry, side
        key = tuple(crc32(np.ascontiguousarray(x).tobytes()) for x in given if x is not None)
        if key not in self._known:
            self._known[key] = self.inner.at(block, entry, side)
        return self._known[key]

    def state(self) -> State:
        """As the grouping itself."""
        return self.inner.state()

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, Array]) -> Remembered:
        """Never kept in a file."""
        raise ValueError("a remembered grouping lives in memory only")


@dataclass(frozen=True, eq=False)
class Fitted:
    """Groups, path, and missed ends of every calibration image along it, (n, T); seconds that took."""

    parts: SplitPairs
    grouping: Grouping
    path: Path
    table: Array
    seconds: float

    @property
    def groups(self) -> str:
        """Number and kind of the groups."""
        inner = self.grouping.inner if isinstance(self.grouping, Remembered) else self.grouping
        return f"{inner.count} {inner.kind}"


@dataclass(frozen=True, eq=False)
class Certified:
    """Widening of each group, or None where the risk level cannot be certified; certifying units; seconds in all."""

    widening: Array | None
    certifying: int
    seconds: float


def split_pairs(pairs: LocalData, n_opt: int, seed: int, unit_of: Array | None = None) -> SplitPairs:
    """Fitting and certifying images, as `calibrate` takes them."""
    unit_of = np.arange(len(pairs)) if unit_of is None else unit_of
    return SplitPairs(pairs, Split.draw(unit_of, n_opt, np.random.default_rng(seed)), seed)


def all_fit(pairs: LocalData, seed: int) -> SplitPairs:
    """Every image fits: what no calibration may do."""
    every = np.arange(len(pairs))
    return SplitPairs(pairs, Split(every, np.ones(len(pairs), bool), every), seed)


def fit(parts: SplitPairs, method: Method | None, risk_level: float) -> Fitted:
    """Fit a path and table its losses; no method is RCPS, which fits nothing."""
    begin = perf_counter()
    if method is None:
        grouping, path = rcps(parts.pairs)
    else:
        grouping, path = method(parts.taught, np.arange(parts.fitting), parts.generator(), risk_level)
    if grouping.kind == "learned":  # dear to label
        grouping = Remembered(grouping)
    table = loss_table(parts.pairs, grouping, path)
    return Fitted(parts, grouping, path, table, perf_counter() - begin)


def certify(
    fitted: Fitted, confidence: str, risk_level: float, failure_prob: float, images: int | None = None
) -> Certified:
    """The least certified widening, with all certifying units or the first few of them."""
    begin = perf_counter()
    pairs = fitted.parts.pairs
    unit_of = fitted.parts.split.unit_of
    order = fitted.parts.split.order[:images]
    bound = bound_named(confidence)
    task = RiskTest(pairs, np.isin(unit_of, order), unit_of, order, bound, risk_level, failure_prob)
    widening = None
    if task.passes(task.per_unit(fitted.table[:, -1] / pairs.image_size)):
        with Table() as table:
            table.append(fitted.table)
            found: Certificate = certify_l01(task, fitted.grouping, fitted.path, table)
        widening = fitted.path.at(found.knot, found.part)
    return Certified(widening, len(order), fitted.seconds + perf_counter() - begin)


def cut(pairs: LocalData, grouping: Grouping, path: Path, risk_level: float) -> Array:
    """Widenings at the first knot whose mean loss on these very images is at most the risk level."""
    return path.knots[:, knot_at_risk(pairs, grouping, path, risk_level)]


def measure(
    pairs: LocalData,
    grouping: Grouping,
    widening: Array | None,
    fresh: Array | None = None,
    unit_of: Array | None = None,
    cap: float | None = None,
) -> dict[str, float]:
    """Mean length and risk on held-out images, and the share of fresh samples held; units weigh the same.

    With a cap an image that misses more counts as one that misses `cap`. Where nothing was certified, the interval is
    all that is possible: everything between the limits.
    """
    least, most = pairs.limits
    if widening is None:
        return {"length": most - least, "risk": 0.0} | ({} if fresh is None else {"fresh": 1.0})

    def work(truth: Array, block: Block) -> Array:
        lower, upper = outward(*block.widen(pairs.family, grouping, widening), np.float32)
        parts = [upper - lower, (truth < lower) | (truth > upper)]
        if fresh is not None:
            drawn = np.clip(fresh[block.start : block.start + len(block)], least, most)
            parts.append((drawn >= lower) & (drawn <= upper))
        return np.stack([x.reshape(len(block), -1).mean(axis=1, dtype=np.float64) for x in parts], axis=1)

    rows = np.concatenate(list(pairs.over_blocks(work)))
    rows[:, 1] = np.minimum(rows[:, 1], 1.0 if cap is None else cap)
    if unit_of is not None:
        sums = np.zeros((int(unit_of.max()) + 1, rows.shape[1]))
        np.add.at(sums, unit_of, rows)
        counts = np.bincount(unit_of)
        rows = (sums / np.maximum(counts, 1)[:, None])[counts > 0]
    return dict(zip(("length", "risk", "fresh"), map(float, rows.mean(axis=0)), strict=False))


# ---------------------------------------------------------------- the grid of K-RCPS


def krcps_method(cell: Cell, gammas: Sequence[float], grouping: Grouping | None = None) -> Method:
    """K-RCPS with the K and d_opt of a cell; a grouping that was fitted already need not be fitted again."""
    d_opt = None if cell["d_opt"] == "all" else int(cell["d_opt"])
    groups: dict[str, Any] = {"k": cell["k"]} if grouping is None else {"groups": grouping}
    return partial(krcps, d_opt=d_opt, gammas=gammas, **groups)


def fit_grid(
    pairs: LocalData, n_opts: Sequence[int], grid: KRCPSSection, risk_level: float, seed: int
) -> list[tuple[Cell, Fitted]]:
    """Every cell with these n_opt; cells of one n_opt share their split, cells of one K their groups too."""
    out = []
    for n_opt in n_opts:
        parts = split_pairs(pairs, n_opt, seed)
        for k in grid.k:
            begin = perf_counter()
            grouping = by_loss(parts.taught, np.arange(n_opt), k)
            shared = perf_counter() - begin
            for d_opt in grid.d_opt:
                cell = {"n_opt": n_opt, "d_opt": d_opt, "k": k}
                found = fit(parts, krcps_method(cell, grid.gamma_values, grouping), risk_level)
                out.append((cell, Fitted(parts, grouping, found.path, found.table, found.seconds + shared)))
    return out


def choose_cell(
    parts: SplitPairs, grid: KRCPSSection, confidences: Sequence[str], risk_level: float, failure_prob: float
) -> tuple[dict[str, Cell], float]:
    """K and d_opt chosen on the fitting images of a split alone, for each bound; seconds that took.

    Every cell is fitted on one half of the fitting images. On the other half its path is followed to the point that the
    bound would certify, had the certifying images the losses of that half, repeated to their number; the cell with the
    shortest intervals there wins. All cells thus compare at the risk that the bound allows. No certifying image is
    looked at, so the guarantee is that of the winner. n_opt is not chosen: looking at further images would spend them.
    """
    begin = perf_counter()
    fitting = parts.taught
    shuffled = parts.generator().permutation(len(fitting))
    taught = np.sort(shuffled[::2])
    other = fitting.take(np.sort(shuffled[1::2]))
    best: dict[str, tuple[float, Cell]] = {}
    for k, d_opt in product(grid.k, grid.d_opt):
        cell = {"n_opt": parts.fitting, "d_opt": d_opt, "k": k}
        grouping, path = krcps_method(cell, grid.gamma_values)(fitting, taught, parts.generator(), risk_level)
        losses = loss_table(other, grouping, path) / other.image_size
        for confidence in confidences:
            knot = _allowed(losses, len(parts.split.order), confidence, risk_level, failure_prob)
            length = measure(other, grouping, path.knots[:, knot])["length"]
            if confidence not in best or length < best[confidence][0]:
                best[confidence] = length, cell
    return {confidence: cell for confidence, (_, cell) in best.items()}, perf_counter() - begin


def _allowed(losses: Array, count: int, confidence: str, risk_level: float, failure_prob: float) -> int:
    """The first knot that the bound would accept if the losses (n, T), repeated, were those of `count` images."""
    bound = bound_named(confidence)
    low = -1
    high = losses.shape[1] - 1
    while high - low > 1:
        middle = (low + high) // 2
        passes = rejects(bound, np.resize(losses[:, middle], count), failure_prob, risk_level)
        if passes:
            high = middle
        else:
            low = middle
    return high
