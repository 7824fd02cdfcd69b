"""Populations of few units that are drawn with replacement, so that the true risk of any promise is a finite sum.

A unit has one or more images; an image has PIXELS pixels, the last of which is never missed and gets a value of its own
in each draw, so that no two images are alike. Risks are counted here, by plain sums over the population, and not by
what is under attack.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import pixelbounds as pb
from pixelbounds.images.library import Array

PIXELS = 9
MIDDLE = 0.5  # the last pixel is within this, and the width of a band
Rng = np.random.Generator


@dataclass(frozen=True)
class Asked:
    """What is promised: at most a share of a region's pixels, or of images that miss more than `above` of them."""

    at_most: float
    where: str = "all"
    above: float | None = None
    cap: float | None = None
    weighting: str | None = None

    def promise(self, within: Any = None) -> pb.Promise:
        """As a user writes it, with the region of the images at hand."""
        name = None if self.where == "all" else self.where
        if self.above is not None:
            return pb.tail(self.at_most, self.above, within, name=name)
        return pb.share(self.at_most, within, self.cap, name, self.weighting)


@dataclass(frozen=True)
class Drawn:
    """Images that were drawn, (n, p), and the unit of each, (n,)."""

    truth: Array
    band: pb.Band
    labels: Array
    regions: dict[str, Array]
    units: Array
    atoms: Array  # which images of the population they are

    def promises(self, asked: list[Asked]) -> list[pb.Promise]:
        """What is promised, with the regions of these images."""
        return [one.promise(self.regions.get(one.where)) for one in asked]

    def take(self, images: Any) -> Drawn:
        """Some of the images."""
        regions = {name: x[images] for name, x in self.regions.items()}
        parts = self.truth[images], self.band[images], self.labels[images], regions, self.units[images]
        return Drawn(*parts, self.atoms[images])


@dataclass(frozen=True)
class Population:
    """Images, (a, p) each, the unit of each, (a,), and the chance of each unit, (u,).

    Regions are masks or weights (a, p), or (a,) of bool for whole images.
    """

    truth: Array
    lower: Array
    upper: Array
    unit_of: Array
    chance: Array
    labels: Array
    regions: dict[str, Array] = field(default_factory=dict)

    def draw(self, rng: Rng, n: int) -> Drawn:
        """The images of n units."""
        units = rng.choice(len(self.chance), n, p=self.chance)
        return self.of_units(units, rng)

    def of_units(self, units: Array, rng: Rng) -> Drawn:
        """The images of some units, one after the other."""
        members = [np.flatnonzero(self.unit_of == unit) for unit in units]
        atoms = np.concatenate(members)
        truth = self.truth[atoms]
        truth[:, -1] = MIDDLE + 0.01 * (rng.permutation(len(atoms)) / len(atoms) - 0.5)  # no image is drawn twice
        regions = {name: x[atoms] for name, x in self.regions.items()}
        names = np.repeat(np.arange(len(units)), [len(x) for x in members])
        band = pb.Band(self.lower[atoms], self.upper[atoms])
        return Drawn(truth, band, self.labels[atoms], regions, names, atoms)

    def intervals(self, cal: pb.Calibration) -> pb.Interval:
        """Intervals of all images of the population."""
        labels = {"labels": self.labels} if cal.labelled else {}
        return cal.apply(pb.Band(self.lower, self.upper), **labels)

    def broken(self, cal: pb.Calibration, asked: list[Asked]) -> bool:
        """Whether any promise of a calibration is broken; of units that count for more than was certified no more is
        counted.
        """
        missed = ~self.intervals(cal).contains(self.truth)
        found = zip(asked, cal.promises, strict=True)
        return any(self.risk(one, missed, kept.weighting, kept.most) > one.at_most + 1e-9 for one, kept in found)

    def risk(self, one: Asked, missed: Array, weighting: str, most: float = 0) -> float:
        """The true risk of a promise where these pixels are missed, bool (a, p)."""
        weight = np.ones(missed.shape) if one.where == "all" else self.regions[one.where].astype(float)
        if weight.ndim == 1:
            weight = np.repeat(weight[:, None], missed.shape[1], axis=1)
        size = weight.sum(axis=1)
        has = size > 0
        share = (missed * weight)[has].sum(axis=1) / size[has]
        loss = np.minimum(share, one.cap or 1.0) if one.above is None else (share > one.above).astype(float)
        counted = size[has] if weighting == "pixels" else np.ones(int(has.sum()))
        total = np.bincount(self.unit_of[has], counted, len(self.chance))
        mean = np.bincount(self.unit_of[has], counted * loss, len(self.chance)) / np.maximum(total, 1e-300)
        part = (total > 0).astype(float) if weighting == "units" else np.minimum(total, most or np.inf)
        return float((self.chance * part * mean).sum() / (self.chance * part).sum())

    def of_chance(self, chance: Array) -> Population:
        """The same units with other chances."""
        return replace(self, chance=chance / chance.sum())


def lucky(kinds: list[dict[str, Any]], steps: int = 40, far: float = 0.4, quantum: float = 0.0) -> Population:
    """Units of some kinds, whose pixels all lie above their band in proportion to the luck of the unit.

    A kind has a `chance`, the `hardness` of each pixel in each of its images, (images, p - 1), and `regions` by name,
    (images, p - 1), or one bool. Luck has so many equal steps: losses are nearly coin tosses, the hardest to certify.
    With a `quantum` truths are rounded to multiples of it, so that many arrive together.
    """
    truth, unit_of, chance, where = [], [], [], []
    for number, kind in enumerate(kinds):
        hardness = np.atleast_2d(np.asarray(kind["hardness"], float))
        for step in range(steps):
            for image, hard in enumerate(hardness):
                away = far * hard * (step + 0.5) / steps
                away = np.round(away / quantum) * quantum if quantum else away
                truth.append([*(MIDDLE + away), MIDDLE])
                unit_of.append(len(chance))
                where.append((number, image))
            chance.append(kind["chance"] / steps)
    names = kinds[0].get("regions", {})
    regions = {name: np.array([_region(kinds[k]["regions"][name], i) for k, i in where]) for name in names}
    shown = np.arange(PIXELS) // 3  # what the band tells of a pixel
    lower = np.tile(MIDDLE - (1 + shown) / 16, (len(truth), 1))
    upper = np.full((len(truth), PIXELS), MIDDLE + 0.01)
    labels = np.tile(shown, (len(truth), 1))
    chances = np.array(chance) / sum(chance)
    return Population(np.array(truth), lower, upper, np.array(unit_of), chances, labels, regions)


def _region(region: Any, image: int) -> Any:
    """A region of one image, with the last pixel outside; or whether the image is in the subgroup."""
    values = np.asarray(region)
    if values.ndim == 0:
        return bool(values)
    row = np.atleast_2d(values)[image]
    return np.append(row, row.dtype.type(0))
