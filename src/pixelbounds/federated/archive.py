"""Sites in place of images: what the coordinator calibrates on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..calibration.data import HERE, ROWS, CalibrationData, Statistic
from ..calibration.families import Family
from ..calibration.loss_table import arriving, regional_misses
from ..calibration.paths.weighted_frontier import missed_cells
from ..calibration.split import Split
from ..images.checks import Limits
from ..images.library import Array, Runner
from ..images.source import Source
from .answers import Respondent, Tables, checked_tables
from .messages import Message
from .places import told_region
from .questions import FORMS, Question, encode


class Unanswered(Exception):
    """A question that sites were not asked yet."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.statistic)
        self.question = question


@dataclass(frozen=True, eq=False)
class Sites(CalibrationData):
    """The images of all sites in order, which answer from what was collected; `scope`: "all", "fitting" once taken."""

    announced: Sequence[Message]
    split: Split
    family: Family
    limits: Limits
    answers: Iterator[tuple[str, Tables]]  # digest of a question, tables, in the order in which they are asked
    scope: str = "all"
    regions: tuple[str, ...] = ()  # that promises are about, by name
    runner: Runner = HERE

    @property
    def sizes(self) -> Array:
        """Pixels of each image, (n,)."""
        every = np.concatenate([_sizes(site) for site in self.announced])
        return every if self.scope == "all" else every[self.split.fitting]

    @property
    def pixels(self) -> tuple[int, ...]:
        """Shape of one image; () where images differ in size."""
        shapes = {tuple(site.text["pixels"]) for site in self.announced}
        return shapes.pop() if len(shapes) == 1 else ()

    @property
    def source(self) -> Source:
        """How the bands were made."""
        return Source.from_state(self.announced[0].text["source"])

    def take(self, images: Array) -> Sites:
        """The fitting images."""
        self._scope(images, self.split.fitting)
        return replace(self, scope="fitting")

    def parts(self, statistic: Statistic, images: Array | None = None, **given: Any) -> list[Tables]:
        """What all sites answered, as one part, or the question as an exception."""
        scope = self.scope
        if scope == "fitting":
            self._scope(images, np.ones(len(self), bool))
        elif images is not None:
            self._scope(images, ~self.split.fitting)
            scope = "certifying"
        question = Question(statistic.name, scope, *encode(given))
        digest, found = next(self.answers, ("", ()))
        if not digest:
            raise Unanswered(question)
        if digest != question.digest:
            raise ValueError("this machine arrives at other questions than were asked; merge where the study began")
        tables = {str(j): x for j, x in enumerate(found)}
        found = checked_tables(question, given, self.family, tables, self._together(scope, statistic))
        return [found if statistic is not missed_cells else (*found[:2], *(x.astype(np.float64) for x in found[2:]))]

    def _together(self, scope: str, statistic: Statistic) -> Respondent:
        """All sites as one, whose sums a study keeps."""
        every = np.concatenate([_sizes(site) for site in self.announced])
        rows = every[~self.split.fitting] if scope == "certifying" else every
        image_hashes = sum(site.tables["image_hashes"] for site in self.announced)
        exact = all(site.text["least_count"] == 1 for site in self.announced)
        within = digests = None
        if FORMS[statistic.name].regional:
            within = np.concatenate([sizes_at(site, self.regions) for site in self.announced])
            within = within[self.split.fitting] if scope == "fitting" else within
            digests = np.sum([told_region(site, self.regions, "region_digests") for site in self.announced], axis=0)
        return Respondent(
            "the study's file", rows, int(every[self.split.fitting].sum()), np.asarray(image_hashes), exact, None, within,  # noqa: E501
            digests, remedy="it was damaged or edited: begin again",
        )  # fmt: skip

    def _scope(self, images: Array | None, wanted: Array) -> None:
        if images is not None and not np.array_equal(images, np.flatnonzero(wanted)):
            raise ValueError("sites are asked for their fitting images, their certifying images, or all")

    # ------------------------------------------------------------ one site

    @cached_property
    def _first(self) -> Array:
        return np.cumsum([0, *(site.text["images"] for site in self.announced)])

    def fitting(self, at: int) -> Array:
        """Whether each image of a site fits."""
        return self.split.fitting[self._first[at] : self._first[at + 1]]

    def respondent(self, at: int, statistic: Statistic, before: Tables | None) -> Respondent:
        """What a site can answer: by name, its certifying images, and what it told in the round before."""
        site, fitting = self.announced[at], self.fitting(at)
        sizes = _sizes(site)
        earlier = None
        if statistic is arriving and before is not None:
            earlier = before[0][self._first[at] : self._first[at + 1]][~fitting]
        who = f"the answer of site {site.text['site']!r}"
        exact = site.text["least_count"] == 1
        within = digests = None
        if FORMS[statistic.name].regional:
            within = sizes_at(site, self.regions)[fitting if statistic is missed_cells else ~fitting]
            digests = np.asarray(told_region(site, self.regions, "region_digests"))
        return Respondent(
            who,
            sizes[~fitting],
            int(sizes[fitting].sum()),
            site.tables["image_hashes"],
            exact,
            earlier,
            within,
            digests,
        )

    def fitting_units(self, at: int) -> Array:
        """Whether each unit of a site fits."""
        unit_of = units_at(self.announced[at])
        out = np.zeros(int(unit_of.max()) + 1, bool)
        out[unit_of] = self.fitting(at)
        return out

    def expand(self, at: int, found: Tables, statistic: Statistic) -> Tables:
        """Rows of a site's certifying images among rows of zeros for its fitting images, which nobody looks at.

        Sizes of regions were announced of all images.
        """
        fitting, out = self.fitting(at), []
        for x, join in zip(found, statistic.joins, strict=True):
            rows = x
            if join is ROWS:
                rows = np.zeros((len(fitting), *x.shape[1:]), x.dtype)
                rows[~fitting] = x
            out.append(rows)
        if statistic is regional_misses:
            out[1] = sizes_at(self.announced[at], self.regions)
        return tuple(out)


def _sizes(site: Message) -> Array:
    if "sizes" in site.tables:
        return site.tables["sizes"]
    return np.full(site.text["images"], int(np.prod(site.text["pixels"])))


def sizes_at(site: Message, regions: Sequence[str]) -> Array:
    """Pixels of each image of a site, and sizes of some of its regions: (n, 1 + regions)."""
    return np.stack([_sizes(site), *told_region(site, regions, "region_sizes")], axis=1)


def units_at(site: Message) -> Array:
    """Unit of each image of a site, numbered there."""
    return site.tables["unit_of"] if "unit_of" in site.tables else np.arange(site.text["images"])
