"""One draw of calibration and validation images, and the result of each row of the table on it.

Rows that share work form a group, the unit that is stored: `compute(plan, material, draw, group)` returns its records,
one per row (one per row and cell for the grid of K-RCPS), and points of the curves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np

from pixelbounds.calibration.bounds import greatest_loss
from pixelbounds.calibration.data import CalibrationData
from pixelbounds.calibration.groups.band_features import fit_band_groups
from pixelbounds.calibration.methods import KRCPS, RCPS, Frontier, Method
from pixelbounds.calibration.promises import share
from pixelbounds.calibration.target import Target
from pixelbounds.images.library import Array

from .experiment import Experiment
from .fits import Certified, Fitted, cells_of, certified, choose_cell, cut, fit, fit_on_all, krcps_of, measure
from .material import Material
from .rows import ALL_BOUNDS, PAPER_BOUNDS, scan_key

DrawRecord = dict[str, Any]
LIMITS = (0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Draw:
    """Calibration and validation images (ascending numbers) of one draw, taken from a material."""

    experiment: Experiment
    material: Material
    number: int

    @cached_property
    def images(self) -> tuple[Array, Array]:
        """Images for calibration and for validation, as if all were exchangeable."""
        wanted = self.experiment.draws
        held = len(self.material)
        if wanted.calibration + wanted.validation > held:
            asked = f"{wanted.calibration} calibration and {wanted.validation} validation images"
            raise ValueError(
                f"{self.experiment.name} draws {asked}, but the material has {held}; give more images, or lower [draws]"
            )
        order = self._generator().permutation(held)
        return np.sort(order[: wanted.calibration]), np.sort(order[wanted.calibration :][: wanted.validation])

    @cached_property
    def scans(self) -> tuple[Array, Array]:
        """The same by whole scans, in the same proportion: no scan is in both."""
        unit = self.material.unit
        wanted = self.experiment.draws
        order = self._generator().permutation(int(unit.max()) + 1)
        count = round(len(order) * wanted.calibration / (wanted.calibration + wanted.validation))
        return np.flatnonzero(np.isin(unit, order[:count])), np.flatnonzero(np.isin(unit, order[count:]))

    @property
    def seed(self) -> int:
        """Of calibration, as `calibrate` takes it."""
        return self.experiment.draws.seed * 100_000 + self.number

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng([self.experiment.draws.seed, self.number])

    def data(self, band: str, images: Array, *, features: bool = False, units: bool = False) -> CalibrationData:
        """Truth and band of some images."""
        part = self.material.band(band).map(lambda x: x[images], checked=True)
        if band == "multiplicative":
            part = part.with_family(band)
        extra = self.material.features(self.experiment.frontier.features, images) if features else None
        ids = self.material.unit[images] if units else None
        made: Any = CalibrationData(self.material.truth[images], part, ids, None, extra, LIMITS)
        return made

    def both(self, band: str, features: bool = False) -> tuple[CalibrationData, CalibrationData]:
        """Truth and band of the images for calibration, and of those for validation."""
        cal, val = self.images
        return self.data(band, cal, features=features), self.data(band, val, features=features)

    @property
    def target(self) -> Target:
        """What the experiment promises."""
        return Target([share(self.experiment.task.risk_level)], self.experiment.task.failure_prob)

    def fit(self, data: CalibrationData, method: Method) -> Fitted:
        """A method on calibration images."""
        return fit(data, method, self.target, self.seed)

    @property
    def has_features(self) -> bool:
        """Whether the material has the further images that learned groups may see."""
        wanted = self.experiment.frontier.features
        return bool(wanted) and all(name in self.material.arrays for name in wanted)

    @property
    def frontier(self) -> Frontier:
        """Our method, with the fitting images and the groups of the plan."""
        return Frontier(self.experiment.frontier.groups, n_fit=self.experiment.frontier.n_opt)

    def fresh(self, images: Array, band: str = "calibrated") -> Array | None:
        """A further sample of each image from the sampler that made a band, where the material has one."""
        name = "printed_fresh" if band == "printed" else "fresh"
        return self.material[name][images] if name in self.material.arrays else None

    def record(self, row: str, fitted: Fitted, bound: str, held_out: CalibrationData, **more: Any) -> DrawRecord:
        """The result of a row on the validation images."""
        outcome = certified(fitted, bound)
        return {**self.measured(row, fitted.path.grouping, outcome, held_out), "certifying": fitted.certifying, **more}

    def measured(
        self, row: str, grouping: Any, outcome: Certified, held_out: CalibrationData, **more: Any
    ) -> DrawRecord:
        """What widenings give on held-out images; nothing moved where the band suffices as it is."""
        fresh = self.fresh(self.images[1], row.split("/")[0])
        return {"row": row, **measure(held_out, grouping, outcome.widening, fresh), "certifying": 0,
                **described(grouping, outcome, held_out.family.start), **more}  # fmt: skip


def described(grouping: Any, outcome: Certified, start: float) -> DrawRecord:
    """What a record says of a calibration."""
    return {
        "certified": outcome.widening is not None,
        "moved": outcome.widening is None or bool((outcome.widening > start).any()),
        "groups": f"{grouping.count} {grouping.kind}",
        "seconds": outcome.seconds,
    }


# ---------------------------------------------------------------- groups of rows


def _rcps(band: str, draw: Draw) -> Iterator[DrawRecord]:
    cal, val = draw.both(band)
    fitted = draw.fit(cal, RCPS())
    for bound in PAPER_BOUNDS:
        yield draw.record(f"{band}/rcps/{bound}", fitted, bound, val)


def _grid(band: str, draw: Draw) -> Iterator[DrawRecord]:
    """RCPS, every cell of K-RCPS, and the cell that the fitting images choose."""
    yield from _rcps(band, draw)
    grid = draw.experiment.krcps
    cal, val = draw.both(band)
    records = []
    few = [draw.experiment.frontier.n_opt] if band == "calibrated" else []
    for name, n_opts in (("krcps", grid.n_opt), ("krcps_few", few)):
        for cell in cells_of(grid, n_opts):
            fitted = draw.fit(cal, krcps_of(cell, grid.gamma_values))
            records += [draw.record(f"{band}/{name}/{b}", fitted, b, val, cell=cell) for b in PAPER_BOUNDS]
    yield from records
    chosen, seconds = choose_cell(cal, grid, PAPER_BOUNDS, draw.target, draw.seed)
    for bound, cell in chosen.items():
        record = next(r for r in records if r["row"] == f"{band}/krcps/{bound}" and r["cell"] == cell)
        yield record | {"row": f"{band}/krcps_chosen/{bound}", "seconds": record["seconds"] + seconds}


def _frontier(draw: Draw) -> Iterator[DrawRecord]:
    """The frontier with every bound, and what cannot be had: cut by the validation images, and fitted on them too."""
    task, target = draw.experiment.task, draw.target
    cal, val = draw.both("calibrated")
    fitted = draw.fit(cal, draw.frontier)
    for bound in ALL_BOUNDS:
        yield draw.record(f"calibrated/frontier/{bound}", fitted, bound, val)
    certifiable = greatest_loss(fitted.certifying, task.risk_level, task.failure_prob)
    grouping = fitted.path.grouping
    for procedure, risk in {"oracle_bound": certifiable, "oracle_cut": task.risk_level}.items():
        limit = Certified(cut(val, fitted.path, risk), fitted.seconds)
        found = draw.measured(f"calibrated/{procedure}/none", grouping, limit, val)
        yield found
    best = found | {"row": "calibrated/oracle/none"}
    tried: list[tuple[CalibrationData, Any]] = [(val, grouping), (val, "band")]
    tried += [(val, "learned")] if draw.frontier.groups is None else []
    if draw.has_features:
        tried.append((draw.data("calibrated", draw.images[1], features=True), None))
    for data, groups in tried:  # the shortest of all
        path = fit_on_all(data, Frontier(groups), target, draw.seed)
        limit = Certified(cut(data, path, task.risk_level), fitted.seconds)
        best = min(best, draw.measured(best["row"], path.grouping, limit, data), key=lambda r: float(r["length"]))
    yield best


def _by_calibration(draw: Draw) -> Iterator[DrawRecord]:
    """What a bound costs: mean length with fewer calibration images, of which as many fit as by default."""
    val = draw.data("calibrated", draw.images[1])
    shuffled = np.random.default_rng(draw.seed).permutation(draw.images[0])
    for count in draw.experiment.curves.calibration:
        fitted = draw.fit(draw.data("calibrated", np.sort(shuffled[:count])), replace(draw.frontier, n_fit=None))
        for bound in ALL_BOUNDS:
            outcome = certified(fitted, bound)
            point = measure(val, fitted.path.grouping, outcome.widening)
            yield {
                "curve": "calibration",
                "bound": bound,
                "x": count,
                "certified": outcome.widening is not None,
            } | point


def _with_betting(band: str, name: str, features: bool, draw: Draw) -> Iterator[DrawRecord]:
    """The frontier on another band, or one whose learned groups see further images."""
    if features and not draw.has_features:
        return
    cal, val = draw.both(band, features)
    fitted = draw.fit(cal, draw.frontier)
    yield draw.record(f"{band}/{name}/betting", fitted, "betting", val)


def _scans(draw: Draw) -> Iterator[DrawRecord]:
    """Rows in which the unit is the scan: one loss per scan, and no scan is both fitted on and certified with.

    As many scans fit as by default. With a cap on what an image counts for, the risk is that which is promised.
    """
    settings = draw.experiment.scans
    if settings is None:
        raise ValueError(f"{draw.experiment.name} has no section [scans]")
    first, last = draw.scans
    cal, val = draw.data("calibrated", first, units=True), draw.data("calibrated", last, units=True)
    fresh, delta = draw.fresh(last), draw.experiment.task.failure_prob
    methods: dict[str, Method] = {
        "rcps": RCPS(),
        "krcps_plain": KRCPS(k=8, gammas=draw.experiment.krcps.gamma_values),
        "frontier": Frontier(draw.experiment.frontier.groups),
    }
    for level, bound, (name, method) in product(settings.risk_levels, PAPER_BOUNDS, methods.items()):
        target = Target([share(level, cap=settings.cap)], delta, bound)
        fitted = fit(cal, method, target, draw.seed)
        outcome, grouping = certified(fitted, bound), fitted.path.grouping
        yield {
            "row": f"calibrated/{name}/{bound}/{scan_key(level, settings.cap)}",
            **measure(val, grouping, outcome.widening, fresh, val.unit_of, settings.cap),
            "certifying": fitted.certifying,
            **described(grouping, outcome, cal.family.start),
        }


def _by_groups(draw: Draw) -> Iterator[DrawRecord]:
    """Mean length against K and n_opt."""
    curves, gammas = draw.experiment.curves, draw.experiment.krcps.gamma_values
    cal, val = draw.both("calibrated")
    for n_opt in curves.n_opt:
        methods: dict[tuple[str, int], tuple[Method, tuple[str, ...]]] = {}
        for k in curves.k:
            methods["krcps", k] = KRCPS(k=k, gammas=gammas, n_fit=n_opt), PAPER_BOUNDS
            # a function fits the groups, so that K is the number of bins of width alone
            banded = Frontier(partial(fit_band_groups, width=k), n_fit=n_opt)
            methods["frontier, band groups", k] = banded, ("betting",)
        for k in curves.learned_k:
            methods["frontier, learned groups", k] = Frontier("learned", k, n_opt), ("betting",)
        for (name, k), (method, bounds) in methods.items():
            fitted = draw.fit(cal, method)
            grouping = fitted.path.grouping
            for bound in bounds:
                outcome = certified(fitted, bound)
                point = {"k": k, "n_opt": n_opt, "groups": f"{grouping.count} {grouping.kind}"}
                length = measure(val, grouping, outcome.widening)
                certain = {"certified": outcome.widening is not None}
                yield {"curve": "groups", "method": name, "bound": bound, **point, **certain, **length}


GROUPS: dict[str, tuple[str, Callable[[Draw], Iterator[DrawRecord]]]] = {  # the band that a group needs, its rows
    **{band: (band, partial(_rcps, band)) for band in ("qr", "qr_printed", "dropout", "multiplicative")},
    **{band: (band, partial(_grid, band)) for band in ("conffusion", "naive", "calibrated", "printed")},
    "frontier": ("calibrated", _frontier),
    "featured": ("calibrated", partial(_with_betting, "calibrated", "featured", True)),
    "narrow": ("narrow", partial(_with_betting, "narrow", "frontier", False)),
    "ours": ("ours", partial(_with_betting, "ours", "frontier", False)),
    "printed_frontier": ("printed", partial(_with_betting, "printed", "frontier", False)),
    "scans": ("calibrated", _scans),
    "by_calibration": ("calibrated", _by_calibration),
    "by_groups": ("calibrated", _by_groups),
}


def schedule(experiment: Experiment, material: Material) -> list[tuple[int, str]]:
    """All (draw, group) of an experiment, draw by draw: rows whose arrays are missing are left out."""
    out = []
    for draw in range(experiment.draws.count):
        for group, (band, _) in GROUPS.items():
            idle = group in ("by_calibration", "by_groups") and draw >= experiment.curves.draws
            idle |= group == "scans" and (experiment.scans is None or not material.has_units)
            if not idle and not material.missing(band):
                out.append((draw, group))
    return out


def compute(experiment: Experiment, material: Material, draw: int, group: str) -> list[DrawRecord]:
    """The records of one group of rows on one draw."""
    return list(GROUPS[group][1](Draw(experiment, material, draw)))
