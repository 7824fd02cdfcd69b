"""One split of the calibration images through the stages: one path, one table of losses, which every bound reads."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

from pixelbounds.calibration.block import Block, Grouping
from pixelbounds.calibration.bounds import bound_named, rejects
from pixelbounds.calibration.certify import LossTable, certify, loss_table
from pixelbounds.calibration.choice import point_at_risk
from pixelbounds.calibration.data import CalibrationData, FittingImages
from pixelbounds.calibration.methods import KRCPS, Method, split
from pixelbounds.calibration.paths.path import Path, misses
from pixelbounds.calibration.target import Target
from pixelbounds.images.checks import NoGuarantee
from pixelbounds.images.ends import outward
from pixelbounds.images.library import Array

from .experiment import KRCPSSection

Cell = dict[str, Any]  # n_opt, d_opt, k


@dataclass(frozen=True, eq=False)
class Fitted:
    """Losses of a calibration set along a fitted path, what they are for, and seconds that took."""

    table: LossTable
    target: Target
    seconds: float

    @property
    def path(self) -> Path:
        """With its groups."""
        return self.table.path

    @property
    def certifying(self) -> int:
        """Units that certify."""
        return len(self.table.images.order)


@dataclass(frozen=True, eq=False)
class Certified:
    """Widening of each group, or None where the promise cannot be certified; seconds in all."""

    widening: Array | None
    seconds: float


def fit(data: CalibrationData, method: Method, target: Target, seed: int) -> Fitted:
    """The stages of `calibrate` up to the table of losses."""
    begin, rng = perf_counter(), np.random.default_rng(seed)
    fitting, certifying = split(data, target, method, rng)
    path = method.fit(fitting, target, rng)
    return Fitted(loss_table(certifying, path, target), target, perf_counter() - begin)


def certified(fitted: Fitted, bound: str) -> Certified:
    """The last stage, with a bound."""
    begin = perf_counter()
    try:
        point = certify(fitted.table, replace(fitted.target, bound=bound))
    except NoGuarantee:
        return Certified(None, fitted.seconds + perf_counter() - begin)
    return Certified(fitted.path.at(point.point, point.part), fitted.seconds + perf_counter() - begin)


def fit_on_all(data: CalibrationData, method: Method, target: Target, seed: int) -> Path:
    """The path of a method of which every image fits: what no calibration may do."""
    data, risks = data.with_promises(target)
    return method.fit(FittingImages(data, np.arange(len(data)), risks, len(data)), target, seed)


def cut(data: CalibrationData, path: Path, risk_level: float) -> Array:
    """Widenings at the first point whose mean loss on these very images is at most the risk level."""
    return path.at(point_at_risk(data, path, risk_level))


def measure(
    data: CalibrationData,
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
    least, most = data.limits
    if widening is None:
        return {"length": most - least, "risk": 0.0} | ({} if fresh is None else {"fresh": 1.0})

    def work(truth: Array, block: Block) -> Array:
        lower, upper = outward(*block.widen(data.family, grouping, widening), np.float32)
        parts = [upper - lower, (truth < lower) | (truth > upper)]
        if fresh is not None:
            drawn = np.clip(fresh[block.start : block.start + len(block)], least, most)
            parts.append((drawn >= lower) & (drawn <= upper))
        return np.stack([x.reshape(len(block), -1).mean(axis=1, dtype=np.float64) for x in parts], axis=1)

    rows = np.concatenate(list(data.over_blocks(work)))
    rows[:, 1] = np.minimum(rows[:, 1], 1.0 if cap is None else cap)
    if unit_of is not None:
        sums = np.zeros((int(unit_of.max()) + 1, rows.shape[1]))
        np.add.at(sums, unit_of, rows)
        counts = np.bincount(unit_of)
        rows = (sums / np.maximum(counts, 1)[:, None])[counts > 0]
    return dict(zip(("length", "risk", "fresh"), map(float, rows.mean(axis=0)), strict=False))


# ---------------------------------------------------------------- the grid of K-RCPS


def krcps_of(cell: Cell, gammas: Sequence[float]) -> KRCPS:
    """K-RCPS with the n_opt, d_opt and K of a cell."""
    d_opt = None if cell["d_opt"] == "all" else int(cell["d_opt"])
    return KRCPS(k=cell["k"], d_opt=d_opt, gammas=gammas, n_fit=cell["n_opt"])


def cells_of(grid: KRCPSSection, n_opts: Sequence[int]) -> list[Cell]:
    """Every cell of the grid with these n_opt."""
    return [{"n_opt": n, "d_opt": d, "k": k} for n, k, d in product(n_opts, grid.k, grid.d_opt)]


def choose_cell(
    data: CalibrationData, grid: KRCPSSection, bounds: Sequence[str], target: Target, seed: int
) -> tuple[dict[str, Cell], float]:
    """K and d_opt chosen on the fitting images of a split alone, for each bound; seconds that took.

    Every cell is fitted on one half of the fitting images. On the other half its path is followed to the point that the
    bound would certify, had the certifying images the losses of that half, repeated to their number; the cell with the
    shortest intervals there wins. All cells thus compare at the risk that the bound allows. No certifying image is
    looked at, so the guarantee is that of the winner. n_opt is not chosen: looking at further images would spend them.
    """
    begin, rng = perf_counter(), np.random.default_rng(seed)
    cells = cells_of(grid, [min(grid.n_opt)])
    fitting, _ = split(data, target, krcps_of(cells[0], grid.gamma_values), rng)
    images: Any = fitting.data
    shuffled = deepcopy(rng).permutation(len(fitting.images))
    taught = replace(fitting, images=np.sort(shuffled[::2]))
    other = images.take(np.sort(shuffled[1::2]))
    best: dict[str, tuple[float, Cell]] = {}
    for cell in cells:
        path = krcps_of(cell, grid.gamma_values).fit(taught, target, deepcopy(rng))
        missed, sizes, *_ = other.aggregate(misses, path=path)
        for bound in bounds:
            point = _allowed(missed / sizes[:, :1], fitting.certifying, replace(target, bound=bound))
            length = measure(other, path.grouping, path.at(point))["length"]
            if bound not in best or length < best[bound][0]:
                best[bound] = length, cell
    return {bound: cell for bound, (_, cell) in best.items()}, perf_counter() - begin


def _allowed(losses: Array, count: int, target: Target) -> int:
    """The first point that the bound would accept if the losses (n, T), repeated, were those of `count` images."""
    bound, low, high = bound_named(target.bound), -1, losses.shape[1] - 1
    while high - low > 1:
        middle = (low + high) // 2
        passes = rejects(bound, np.resize(losses[:, middle], count), target.failure_prob, target.level)
        low, high = (low, middle) if passes else (middle, high)
    return high
