"""Sites, as they announced themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from ..images.checks import Limits
from ..images.library import Array
from ..images.measure import Measure
from ..images.source import UNKNOWN, Source
from .fields import SUBGROUP
from .messages import Message


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
    def images(self) -> int:
        """How many it has."""
        return int(self.text["images"])

    @property
    def made(self) -> dict[str, Any]:
        """How its images were made, as all sites must say it."""
        units = self.text["units"] is not None
        return {name: self.text[name] for name in ("limits", "family", "measure", "source")} | {"given units": units}

    @property
    def sizes(self) -> Array:
        """Pixels of each image, (n,)."""
        tables = self.announcement.tables
        return tables["sizes"] if "sizes" in tables else np.full(self.images, int(np.prod(self.text["pixels"])))

    @property
    def unit_of(self) -> Array:
        """Unit of each image, numbered there, (n,)."""
        tables = self.announcement.tables
        return tables["unit_of"] if "unit_of" in tables else np.arange(self.images)

    @property
    def name_hashes(self) -> list[bytes] | None:
        """Keyed hash of the name of each unit, where there is a key."""
        names = self.announcement.tables.get("names")
        return None if names is None else [row.tobytes() for row in names.astype(np.uint8)]

    @property
    def span(self) -> Limits:
        """Least and greatest possible value."""
        low, high = self.text["limits"]
        return -inf if low is None else low, inf if high is None else high

    def place(self, region: str) -> str | None:
        """Whether a region is a mask, weights or a subgroup; None where there is none of this name."""
        return next((str(about["place"]) for about in self.text["regions"] if about["name"] == region), None)

    def region_sizes(self, regions: Sequence[str]) -> Array:
        """Pixels of each image, and sizes of some regions: (n, 1 + regions)."""
        columns = [self.announcement.tables["region_sizes"][:, i] for i in self._places(regions)]
        return np.stack([self.sizes, *columns], axis=1).astype(np.float64)

    def region_digests(self, regions: Sequence[str]) -> Array:
        """Digests of some regions, (regions, 8)."""
        rows = [self.announcement.tables["region_digests"][i] for i in self._places(regions)]
        return np.array(rows, np.int64).reshape(-1, 8)

    def subgroup(self, region: str) -> Array:
        """Which images belong to a subgroup, bool (n,)."""
        names = [about["name"] for about in self.text["regions"] if about["place"] == SUBGROUP]
        return self.announcement.tables["subgroups"][:, names.index(region)]

    def _places(self, regions: Sequence[str]) -> list[int]:
        names = [about["name"] for about in self.text["regions"] if about["place"] != SUBGROUP]
        return [names.index(region) for region in regions]


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
