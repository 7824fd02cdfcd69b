"""Sites in place of images: the `CalibrationData` that the coordinator calibrates on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..calibration.data import HERE, CalibrationData, Statistic
from ..calibration.families import Family
from ..calibration.promises import RiskTarget
from ..calibration.target import Target, Units
from ..images.checks import Limits
from ..images.library import Array, Runner
from ..images.measure import Measure
from ..images.source import Source
from .announcements import Site
from .arguments import encode
from .questions import QUESTIONS, Question
from .site_regions import targets_of_sites
from .tables import Tables


class Unanswered(Exception):
    """A question that sites did not answer yet, and what it is given, as JSON and arrays."""

    def __init__(self, question: Question, text: Mapping[str, Any], tables: Mapping[str, Array]) -> None:
        super().__init__(question.statistic.name)
        self.question, self.text, self.tables = question, text, tables


@dataclass(frozen=True, eq=False, kw_only=True)
class SiteData(CalibrationData):
    """The images of all sites in order, which answer from what was collected."""

    sites: Sequence[Site]
    answers: Iterator[Tables]  # in the order of the questions
    units: Units | None
    unit_of: Array
    family: Family
    limits: Limits
    measure: Measure | None
    regions: tuple[str, ...] = ()  # that promises are about, by name
    images: Array | None = None  # those that fit, by number; None for all
    runner: Runner = HERE

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
        """The data with the regions that promises are about, and the promises as they are counted on these images."""
        risks, regions = targets_of_sites(target.promises, self.sites, self.units)
        return replace(self, regions=regions), risks

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
