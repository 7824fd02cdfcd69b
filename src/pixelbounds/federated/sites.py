"""Sites in place of images: what they announced, and the `CalibrationData` that the coordinator calibrates on.

A patient at two sites is one unit, not two. Sites do not send names; with a key that all of them have each sends a
keyed hash of the name of each unit, and equal hashes are equal names. Without a key this is not checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from ..calibration.data import HERE, CalibrationData, Statistic
from ..calibration.families import FAMILIES
from ..calibration.promises import ALL_PIXELS, Promise, RiskTarget, risk_target_of
from ..calibration.target import Target, Units
from ..images.checks import check_limits
from ..images.library import Array, Runner
from ..images.measure import Measure
from ..images.source import UNKNOWN, Source
from .arguments import encode
from .fields import SUBGROUP, Tables
from .messages import Message
from .questions import QUESTIONS, AnsweringImages


@dataclass(frozen=True, eq=False)
class Site:
    """A site, as it announced itself."""

    announcement: Message

    @property
    def text(self) -> Mapping[str, Any]:
        """What it said of itself."""
        return self.announcement.text

    @property
    def name(self) -> str:
        """By which the others know it."""
        return str(self.text["site"])

    @property
    def unit_of(self) -> Array:
        """Unit of each image, numbered there, (n,)."""
        return self.announcement.tables.get("unit_of", np.arange(self.text["images"]))

    @property
    def name_hashes(self) -> list[bytes]:
        """Keyed hash of the name of each unit; none without a key."""
        return [row.tobytes() for row in self.announcement.tables.get("names", np.empty((0, 0))).astype(np.uint8)]

    @property
    def regions(self) -> dict[str, str]:
        """Whether a region is a mask, weights or a subgroup, by its name."""
        return {about["name"]: about["place"] for about in self.text["regions"]}

    def subgroup(self, region: str) -> Array:
        """Which images belong to a subgroup, bool (n,)."""
        names = [name for name, place in self.regions.items() if place == SUBGROUP]
        return self.announcement.tables["subgroups"][:, names.index(region)]

    def answering(self, regions: Sequence[str] = (), images: Array | slice = slice(None)) -> AnsweringImages:
        """What it announced of some images, and of some regions."""
        names = [name for name, place in self.regions.items() if place != SUBGROUP]
        at, tables = [names.index(region) for region in regions], self.announcement.tables
        same = np.full(self.text["images"], int(np.prod(self.text["pixels"])))
        sizes, digests = tables.get("sizes", same)[:, None], np.zeros((0, 8), np.int64)
        if at:
            sizes, digests = np.hstack([sizes, tables["region_sizes"][:, at]]), tables["region_digests"][at]
        return AnsweringImages(sizes[images].astype(np.float64), tables["image_hashes"], digests)


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """What two say differently of how images were made, from `other`: name, and what each says."""
    for name, there in other.items():
        here = one[name]
        if name == "measure" and here is not None and there is not None:
            here, there = Measure.from_state(here), Measure.from_state(there)
            if not here.same_as(there):
                yield name, here, there
        elif name == "source":
            facts, others = Source.from_state(here).known, Source.from_state(there).known
            for fact in sorted({*facts, *others}):
                if facts.get(fact, UNKNOWN) != others.get(fact, UNKNOWN):
                    yield f"source: {fact}", facts.get(fact, UNKNOWN), others.get(fact, UNKNOWN)
        elif here != there:
            yield name, here, there


def check_alike(sites: Sequence[Site], *, join: bool) -> None:
    """Sites have names, images and, unless these are joined, units of their own, and images that were made alike."""
    alike = "limits", "family", "measure", "source", "unit_key"
    made = [{name: site.text[name] for name in alike} | {"given units": bool(site.text["units"])} for site in sites]
    for site, how in zip(sites, made, strict=True):
        first = sites[0].name
        words = [f"{what} {a} at {first!r}, {b} at {site.name!r}" for what, a, b in differences(made[0], how)]
        if words:
            raise ValueError(
                f"the images of sites {first!r} and {site.name!r} were not made alike ({'; '.join(words)}). Which is "
                "wrong cannot be known here; agree, and announce again"
            )
    for one, other in combinations(sites, 2):
        if one.name == other.name:
            raise ValueError(f"site {one.name!r} announces itself twice; every site needs a name of its own")
        if (one.answering().image_hashes == other.answering().image_hashes).all():
            raise ValueError(
                f"sites {one.name!r} and {other.name!r} announce the very same images; leave one of them out"
            )
    if join and sites[0].text["unit_key"] is None:
        raise ValueError("shared_units is 'join', but sites send no hashes of units; announce with units and a key")
    places = defaultdict(list)
    for site in sites:
        for unit, name in enumerate(site.name_hashes):
            places[name].append(f"unit {unit} of {site.name!r}")
    shared = [" and ".join(units) for units in places.values() if len(units) > 1]
    if shared and not join:
        raise ValueError(
            f"{len(shared)} units are at more than one site: {'; '.join(shared[:5])} (counted from 0 in the order of "
            "their names). Join them with shared_units='join' (--shared-units join), leave them out at one site, or, "
            "if they are different patients, give them different names"
        )


def joint_units(sites: Sequence[Site], *, join: bool) -> Array:
    """Unit of each image of all sites, numbered through; with `join` a unit at two sites has one number."""
    numbers: dict[Any, int] = {}
    parts = []
    for at, site in enumerate(sites):
        names = site.name_hashes if join else [(at, unit) for unit in range(int(site.unit_of.max()) + 1)]
        parts.append(np.array([numbers.setdefault(name, len(numbers)) for name in names])[site.unit_of])
    return np.concatenate(parts)


def promise_at_sites(promise: Promise) -> Promise:
    """A promise whose region, if it has a name, is at the sites: `within` holds that name."""
    if promise.kind == "loss":
        raise ValueError(f"the loss {promise.name!r} is a function, and none travels; use pb.share or pb.tail")
    if promise.within is not None:
        raise ValueError(
            f"the promise {promise.kind} {promise.at_most:g} has a region of its own, and regions are at the sites: "
            "give it a name in place of within, and announce regions under that name"
        )
    return replace(promise, within=promise.name)


def _common_place(region: str, sites: Sequence[Site]) -> str:
    places = [site.regions.get(region) for site in sites]
    for site, place in zip(sites, places, strict=True):
        if place is None:
            raise ValueError(
                f"a promise is about {region!r}, and site {site.name!r} announced no region of that name; announce one "
                "(a mask of False where there is none), or leave the name out for all pixels"
            )
        if place != places[0]:
            kinds = f"a {places[0]} at site {sites[0].name!r} and a {place} at {site.name!r}"
            raise ValueError(f"{region!r} is {kinds}; agree, and announce again")
    return str(places[0])


class Unanswered(Exception):
    """A question that sites did not answer yet, and what it is given, as JSON and arrays."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SiteData(CalibrationData):
    """The images of all sites in order, which answer from what was collected."""

    sites: Sequence[Site]
    answers: Iterator[Tables]  # in the order of the questions
    units: Units | None
    unit_of: Array
    regions: tuple[str, ...] = ()  # type: ignore[assignment]  # that promises are about, by name
    images: Array | None = None  # those that fit, by number; None for all
    runner: Runner = HERE
    at_hand: ClassVar[bool] = False

    def __post_init__(self) -> None:
        text = self.sites[0].text
        measure = None if text["measure"] is None else Measure.from_state(text["measure"])
        vars(self).update(limits=check_limits(text["limits"]), measure=measure, family=FAMILIES[text["family"]])

    @cached_property
    def sizes(self) -> Array:
        """Pixels of each image, (n,)."""
        return self._region_sizes[:, 0].astype(np.int64)

    @property
    def pixels(self) -> tuple[int, ...]:
        """Shape of one image; () where images differ in size."""
        shapes = {tuple(site.text["pixels"]) for site in self.sites}
        return shapes.pop() if len(shapes) == 1 else ()

    @property
    def source(self) -> Source:
        """How the bands were made."""
        return Source.from_state(self.sites[0].text["source"])

    def take(self, images: Array) -> SiteData:
        """The fitting images."""
        return replace(self, images=images, unit_of=self.unit_of[images])

    def with_promises(self, target: Target) -> tuple[SiteData, tuple[RiskTarget, ...]]:
        """The data with the regions that promises are about, and the promises as they are counted on these images.

        A promise without a name is about all pixels, one with a name about the region, or subgroup, of that name.
        """
        weighting, max_images = (self.units.weighting, self.units.max_images or 0) if self.units else ("units", 0)
        rounded = [site.name for site in self.sites if site.text["least_count"] > 1]
        regions: list[str] = []
        risks = []
        for promise in target.promises:
            place, region, subgroup = "all", 0, np.ones(len(self.unit_of), bool)
            if promise.name is not None:
                place = _common_place(promise.name, self.sites)
                if place == SUBGROUP:
                    subgroup = np.concatenate([site.subgroup(promise.name) for site in self.sites])
                else:
                    regions += [promise.name] if promise.name not in regions else []
                    region = 1 + regions.index(promise.name)
            named = replace(promise, name=promise.name or ALL_PIXELS)
            risk = risk_target_of(named, place, region, subgroup, weighting, self.units is not None, max_images)
            if rounded and risk.weighting == "pixels" and region:
                why = f"site {rounded[0]!r} rounds sizes of regions (least_count)"
                raise ValueError(f"{risk.words} pools pixels, and {why}; count units or images")
            risks.append(risk)
        return replace(self, regions=tuple(regions)), tuple(risks)

    def having(self) -> Array:
        """Which images have each region, all pixels first: bool (n, 1 + regions)."""
        return self._region_sizes > 0

    def parts(self, statistic: Statistic, images: Array | None = None, **given: Any) -> list[Tables]:
        """What all sites answered, as one part, or the request as an exception."""
        question = QUESTIONS[statistic.name]
        tables = next(self.answers, None)
        if tables is None:
            raise Unanswered(question, *encode({name: given[name] for name in question.given}))
        return [tables]

    @cached_property
    def _region_sizes(self) -> Array:
        sizes = np.concatenate([site.answering(self.regions).sizes for site in self.sites])
        return sizes if self.images is None else sizes[self.images]
