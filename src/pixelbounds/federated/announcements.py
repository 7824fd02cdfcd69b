"""Sites, as they announced themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from ..images.checks import Limits
from ..images.library import Array
from ..images.measure import Measure
from ..images.source import UNKNOWN, Source
from .fields import SUBGROUP
from .messages import Message


class AnsweringImages(NamedTuple):
    """What a site announced of the images that an answer is about: sizes (n, 1 + regions); digests are of all."""

    sizes: Array
    image_hashes: Array
    region_digests: Array


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
    def made(self) -> dict[str, Any]:
        """How its images and units were made, as all sites must say it."""
        units = self.text["units"] is not None
        names = ("limits", "family", "measure", "source", "unit_key")
        return {name: self.text[name] for name in names} | {"given units": units}

    @property
    def sizes(self) -> Array:
        """Pixels of each image, (n,)."""
        same = np.full(self.text["images"], int(np.prod(self.text["pixels"])))
        return self.announcement.tables.get("sizes", same)

    @property
    def unit_of(self) -> Array:
        """Unit of each image, numbered there, (n,)."""
        return self.announcement.tables.get("unit_of", np.arange(self.text["images"]))

    @property
    def name_hashes(self) -> list[bytes]:
        """Keyed hash of the name of each unit; none without a key."""
        return [row.tobytes() for row in self.announcement.tables.get("names", np.empty((0, 0))).astype(np.uint8)]

    @property
    def span(self) -> Limits:
        """Least and greatest possible value."""
        low, high = self.text["limits"]
        return -inf if low is None else low, inf if high is None else high

    def place(self, region: str) -> str | None:
        """Whether a region is a mask, weights or a subgroup; None where there is none of this name."""
        return next((str(about["place"]) for about in self.text["regions"] if about["name"] == region), None)

    def subgroup(self, region: str) -> Array:
        """Which images belong to a subgroup, bool (n,)."""
        names = [about["name"] for about in self.text["regions"] if about["place"] == SUBGROUP]
        return self.announcement.tables["subgroups"][:, names.index(region)]

    def answering(self, regions: Sequence[str] = (), images: Array | slice = slice(None)) -> AnsweringImages:
        """What it announced of some images, and of some regions."""
        names = [about["name"] for about in self.text["regions"] if about["place"] != SUBGROUP]
        at, tables = [names.index(region) for region in regions], self.announcement.tables
        sizes, digests = self.sizes[:, None], np.zeros((0, 8), np.int64)
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
