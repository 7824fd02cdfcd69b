"""One draw of calibration and validation images, and what each row of the table gives on it.

Rows that share work form a group, the unit that is stored: `compute(plan, material, draw, group)` returns its records,
one per row (one per row and cell for the grid of K-RCPS), and points of the curves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from time import perf_counter
from typing import Any

import numpy as np

from pixelbounds.calibration.calibrate import calibrate
from pixelbounds.calibration.confidence import greatest_loss, least_images
from pixelbounds.calibration.data import LocalData
from pixelbounds.calibration.families import family_named
from pixelbounds.calibration.groups.band_bins import fit_band_groups
from pixelbounds.calibration.groups.learned import fit_learned_groups
from pixelbounds.calibration.procedures import frontier, groups_for, rcps
from pixelbounds.calibration.promises import share
from pixelbounds.calibration.split import fitting_units, unit_numbers
from pixelbounds.images.checks import NoGuarantee
from pixelbounds.images.library import Array

from .experiment import Experiment, ScansSection
from .fits import (
    Certified,
    Fitted,
    Method,
    all_fit,
    certify,
    choose_cell,
    cut,
    fit,
    fit_grid,
    krcps_method,
    measure,
    split_pairs,
)
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

    def pairs(self, band: str, images: Array, features: bool = False) -> LocalData:
        """Truth and band of some images."""
        part = self.material.band(band).map(lambda x: x[images], checked=True)
        family = family_named("multiplicative" if band == "multiplicative" else None, part)
        extra = self.material.features(self.experiment.frontier.features, images) if features else None
        return LocalData(self.material.truth[images], part, family, LIMITS, extra)

    def both(self, band: str, features: bool = False) -> tuple[LocalData, LocalData]:
        """Truth and band of the images for calibration, and of those for validation."""
        cal, val = self.images
        return self.pairs(band, cal, features), self.pairs(band, val, features)

    @property
    def has_features(self) -> bool:
        """Whether the material has the further images that learned groups may see."""
        return all(name in self.material.arrays for name in self.experiment.frontier.features)

    def fresh(self, images: Array, band: str = "calibrated") -> Array | None:
        """A further sample of each image from the sampler that made a band, where the material has one."""
        name = "printed_fresh" if band == "printed" else "fresh"
        return self.material[name][images] if name in self.material.arrays else None

    def certified(self, fitted: Fitted, confidence: str) -> Certified:
        """Certified as the experiment asks."""
        return certify(fitted, confidence, self.experiment.task.risk_level, self.experiment.task.failure_prob)

    def record(self, row: str, fitted: Fitted, outcome: Certified, held_out: LocalData, **more: Any) -> DrawRecord:
        """What a row gives on the validation images."""
        fresh = self.fresh(self.images[1], row.split("/")[0])
        return {
            "row": row,
            **measure(held_out, fitted.grouping, outcome.widening, fresh),
            **described(fitted, outcome),
            **more,
        }


def described(fitted: Fitted, outcome: Certified) -> DrawRecord:
    """What a record says of a calibration; nothing moved where the band suffices as it is."""
    start = fitted.parts.pairs.family.start
    return {
        "certified": outcome.widening is not None,
        "moved": outcome.widening is None or bool((outcome.widening > start).any()),
        "certifying": outcome.certifying,
        "groups": fitted.groups,
        "seconds": outcome.seconds,
    }


# ---------------------------------------------------------------- groups of rows


def _rcps(band: str, draw: Draw) -> Iterator[DrawRecord]:
    cal, val = draw.both(band)
    fitted = fit(split_pairs(cal, 0, draw.seed), None, draw.experiment.task.risk_level)
    for bound in PAPER_BOUNDS:
        yield draw.record(f"{band}/rcps/{bound}", fitted, draw.certified(fitted, bound), val)


def _grid(band: str, draw: Draw) -> Iterator[DrawRecord]:
    """RCPS, every cell of K-RCPS, and the cell that the fitting images choose."""
    yield from _rcps(band, draw)
    task = draw.experiment.task
    grid = draw.experiment.krcps
    cal, val = draw.both(band)
    records = []
    few = [draw.experiment.frontier.n_opt] if band == "calibrated" else []
    for name, n_opts in (("krcps", grid.n_opt), ("krcps_few", few)):
        for cell, fitted in fit_grid(cal, n_opts, grid, task.risk_level, draw.seed):
            for bound in PAPER_BOUNDS:
                outcome = draw.certified(fitted, bound)
                records.append(draw.record(f"{band}/{name}/{bound}", fitted, outcome, val, cell=cell))
    yield from records
    parts = split_pairs(cal, min(grid.n_opt), draw.seed)
    chosen, seconds = choose_cell(parts, grid, PAPER_BOUNDS, task.risk_level, task.failure_prob)
    for bound, cell in chosen.items():
        known = next(r for r in records if r["row"] == f"{band}/krcps/{bound}" and r["cell"] == cell)
        yield known | {"row": f"{band}/krcps_chosen/{bound}", "seconds": known["seconds"] + seconds}


def fit_frontier(
    pairs: LocalData, n_opt: int, seed: int, risk_level: float, failure_prob: float, unit_of: Array | None = None
) -> Fitted:
    """The frontier as `calibrate` fits it unless told."""
    parts = split_pairs(pairs, n_opt, seed, unit_of)
    own = None if unit_of is None else unit_of[parts.split.fitting]
    level = greatest_loss(len(parts.split.order), risk_level, failure_prob)
    return fit(parts, partial(frontier, groups=groups_for(n_opt), unit_of=own, certified=level), risk_level)


def _frontier(draw: Draw) -> Iterator[DrawRecord]:
    """The frontier with every bound, and what cannot be had: cut by the validation images, and fitted on them too."""
    task = draw.experiment.task
    level = task.risk_level
    cal, val = draw.both("calibrated")
    fitted = fit_frontier(cal, draw.experiment.frontier.n_opt, draw.seed, level, task.failure_prob)
    for bound in ALL_BOUNDS:
        yield draw.record(f"calibrated/frontier/{bound}", fitted, draw.certified(fitted, bound), val)
    certifiable = greatest_loss(len(fitted.parts.split.order), level, task.failure_prob)
    for procedure, risk in {"oracle_bound": certifiable, "oracle_cut": level}.items():
        limit = Certified(cut(val, fitted.grouping, fitted.path, risk), 0, fitted.seconds)
        found = draw.record(f"calibrated/{procedure}/none", fitted, limit, val)
        yield found
    best = found | {"row": "calibrated/oracle/none"}
    tried: list[tuple[LocalData, Any]] = [(val, fitted.grouping), (val, "band"), (val, "learned")]
    if draw.has_features:
        featured = draw.pairs("calibrated", draw.images[1], features=True)
        for quantile in (0.75, 0.9):  # between which `calibrate` chooses
            rng = np.random.default_rng(draw.seed)
            tried.append((featured, partial(fit_learned_groups, rng=rng, quantile=quantile)))
    for pairs, groups in tried:  # the shortest of all
        other = fit(all_fit(pairs, draw.seed), partial(frontier, groups=groups), level)
        limit = Certified(cut(pairs, other.grouping, other.path, level), 0, other.seconds)
        best = min(best, draw.record(best["row"], other, limit, pairs), key=lambda record: float(record["length"]))
    yield best


def _by_calibration(draw: Draw) -> Iterator[DrawRecord]:
    """What a bound costs: mean length with fewer calibration images, of which as many fit as `calibrate` takes."""
    task = draw.experiment.task
    val = draw.pairs("calibrated", draw.images[1])
    shuffled = np.random.default_rng(draw.seed).permutation(draw.images[0])
    for count in draw.experiment.curves.calibration:
        cal = draw.pairs("calibrated", np.sort(shuffled[:count]))
        n_opt = fitting_units(None, "frontier", count, least_images(task.risk_level, task.failure_prob))
        fitted = fit_frontier(cal, n_opt, draw.seed, task.risk_level, task.failure_prob)
        for bound in ALL_BOUNDS:
            outcome = draw.certified(fitted, bound)
            point = measure(val, fitted.grouping, outcome.widening)
            certified = outcome.widening is not None
            yield {"curve": "calibration", "bound": bound, "x": count, "certified": certified, **point}


def _featured(band: str, draw: Draw) -> Iterator[DrawRecord]:
    """The frontier whose learned groups see further images."""
    if not draw.has_features:
        return
    cal, val = draw.both(band, features=True)
    fitted = fit(split_pairs(cal, draw.experiment.frontier.n_opt, draw.seed), frontier, draw.experiment.task.risk_level)
    yield draw.record(f"{band}/featured/betting", fitted, draw.certified(fitted, "betting"), val)


def _frontier_alone(band: str, draw: Draw) -> Iterator[DrawRecord]:
    """The frontier on another band."""
    cal, val = draw.both(band)
    task = draw.experiment.task
    fitted = fit_frontier(cal, draw.experiment.frontier.n_opt, draw.seed, task.risk_level, task.failure_prob)
    yield draw.record(f"{band}/frontier/betting", fitted, draw.certified(fitted, "betting"), val)


def _scans(draw: Draw) -> Iterator[DrawRecord]:
    """Rows in which the unit is the scan: one loss per scan, and no scan is both fitted on and certified with.

    As many scans fit as `calibrate` takes unless told.
    """
    settings = draw.experiment.scans
    task = draw.experiment.task
    if settings is None:
        raise ValueError(f"{draw.experiment.name} has no section [scans]")
    first, last = draw.scans
    cal = draw.pairs("calibrated", first)
    val = draw.pairs("calibrated", last)
    unit = unit_numbers(draw.material.unit[first], len(first))
    new_unit = unit_numbers(draw.material.unit[last], len(last))
    count = int(unit.max()) + 1
    fresh = draw.fresh(last)
    if settings.cap is not None:
        yield from _capped_scans(draw, cal, val, unit, new_unit, settings)
        return
    plain = krcps_method({"k": 8, "d_opt": "all"}, draw.experiment.krcps.gamma_values)
    for level, bound in product(settings.risk_levels, PAPER_BOUNDS):
        least = least_images(level, task.failure_prob, confidence=bound)
        n_opt = {name: fitting_units(None, name, count, least) for name in ("krcps", "frontier")}
        rows = {
            "rcps": fit(split_pairs(cal, 0, draw.seed, unit), None, level),
            "krcps_plain": fit(split_pairs(cal, n_opt["krcps"], draw.seed, unit), plain, level),
            "frontier": fit_frontier(cal, n_opt["frontier"], draw.seed, level, task.failure_prob, unit),
        }
        for name, fitted in rows.items():
            outcome = certify(fitted, bound, level, task.failure_prob)
            yield {
                "row": f"calibrated/{name}/{bound}/scan {level:g}",
                **measure(val, fitted.grouping, outcome.widening, fresh, new_unit),
                **described(fitted, outcome),
            }


def _capped_scans(
    draw: Draw, cal: LocalData, val: LocalData, unit: Array, new_unit: Array, settings: ScansSection
) -> Iterator[DrawRecord]:
    """The same with a cap on what an image counts for, by `calibrate` itself; the risk is that which is promised."""
    task = draw.experiment.task
    fresh = draw.fresh(draw.scans[1])
    methods: dict[str, dict[str, Any]] = {
        "rcps": {"method": "rcps"},
        "krcps_plain": {"method": "krcps", "k": 8, "gammas": draw.experiment.krcps.gamma_values},
        "frontier": {"method": "frontier"},
    }
    single, _ = rcps(cal)
    for level, bound, name in product(settings.risk_levels, PAPER_BOUNDS, methods):
        begin = perf_counter()
        promise = share(level, cap=settings.cap)
        try:
            found = calibrate(
                cal.truth, cal.band, promises=[promise], failure_prob=task.failure_prob, confidence=bound,
                units=unit, seed=draw.seed, limits=LIMITS, **methods[name],
            )  # fmt: skip
        except NoGuarantee:
            found = None
        seconds = perf_counter() - begin
        grouping = single if found is None else found.grouping
        widening = None if found is None else found.widening
        yield {
            "row": f"calibrated/{name}/{bound}/{scan_key(level, settings.cap)}",
            **measure(val, grouping, widening, fresh, new_unit, settings.cap),
            "certified": found is not None,
            "moved": widening is None or bool((widening > cal.family.start).any()),
            "certifying": 0 if found is None else found.promises[0].certifying,
            "groups": f"{grouping.count} {grouping.kind}",
            "seconds": seconds,
        }


def _by_groups(draw: Draw) -> Iterator[DrawRecord]:
    """Mean length against K and n_opt."""
    curves = draw.experiment.curves
    task = draw.experiment.task
    gammas = draw.experiment.krcps.gamma_values
    cal, val = draw.both("calibrated")
    for n_opt in curves.n_opt:
        parts = split_pairs(cal, n_opt, draw.seed)
        methods: dict[tuple[str, int], tuple[Method, tuple[str, ...]]] = {}
        for k in curves.k:
            methods["krcps", k] = krcps_method({"d_opt": "all", "k": k}, gammas), PAPER_BOUNDS
            # a function fits the groups, so that K is the number of bins of width alone
            banded = partial(frontier, groups=partial(fit_band_groups, width=k))
            methods["frontier, band groups", k] = banded, ("betting",)
        for k in curves.learned_k:
            methods["frontier, learned groups", k] = partial(frontier, groups="learned", k=k), ("betting",)
        for (name, k), (method, bounds) in methods.items():
            fitted = fit(parts, method, task.risk_level)
            for bound in bounds:
                outcome = draw.certified(fitted, bound)
                point = {"k": k, "n_opt": n_opt, "groups": fitted.groups, "certified": outcome.widening is not None}
                length = measure(val, fitted.grouping, outcome.widening)
                yield {"curve": "groups", "method": name, "bound": bound, **point, **length}


GROUPS: dict[str, tuple[str, Callable[[Draw], Iterator[DrawRecord]]]] = {  # the band that a group needs, its rows
    **{band: (band, partial(_rcps, band)) for band in ("qr", "qr_printed", "dropout", "multiplicative")},
    **{band: (band, partial(_grid, band)) for band in ("conffusion", "naive", "calibrated", "printed")},
    "frontier": ("calibrated", _frontier),
    "featured": ("calibrated", partial(_featured, "calibrated")),
    "narrow": ("narrow", partial(_frontier_alone, "narrow")),
    "printed_frontier": ("printed", partial(_frontier_alone, "printed")),
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
