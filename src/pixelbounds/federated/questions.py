"""The questions that a coordinator may ask: one class each.

A class names its statistic, of which images it is asked, what a plan gives it, the form of the answer, what an answer
cannot be, and how small counts are suppressed. A new statistic is a class here, and the call of `aggregate` in
`calibration/` that asks for it.

A site may set a `least_count` of pixels, below which its fitting images report no counts; groups and path become a
little worse. What its certifying images miss is rounded up, never down: every reported loss is at least the true one,
falls as intervals widen, and is a function of its image fixed before the study began, so what is certified of the mean
of reported losses holds for the true mean. Single values (extremes, places between points) are not reported at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..calibration.block import Block, Grouping, all_entries
from ..calibration.data import ROWS, CalibrationData, Statistic, statistic
from ..calibration.families import Family, additive
from ..calibration.groups.band_features import cells, extent, occupied
from ..calibration.paths.frontier import longest, spend
from ..calibration.paths.path import arriving, farthest, misses
from ..calibration.paths.weighted_frontier import missed_cells
from ..images.library import Array
from ..kernels.entry_scores import FIXED_POINT
from .arguments import CHECKS, decode
from .fields import BOOL, NUMBER, REAL, WHOLE, Form, Tables, check_tables


class AnsweringImages(NamedTuple):
    """What a site announced of the images that an answer is about: sizes (n, 1 + regions); digests are of all."""

    sizes: Array
    image_hashes: Array
    region_digests: Array


FITTING, CERTIFYING, ALL = "fitting", "certifying", "all"  # images; of all, rows of fitting images are sent as 0


class Question:
    """A statistic that sites answer."""

    statistic: ClassVar[Statistic]
    words: ClassVar[str]  # what it reports
    tables: ClassVar[tuple[str, ...]]  # their names in an answer
    form: ClassVar[Mapping[str, Form]]  # of tables that depend on nothing
    images: ClassVar[str] = FITTING
    regional: ClassVar[bool] = False  # whether it is counted in the regions of promises, too
    given: ClassVar[tuple[str, ...]] = ()  # names of arguments that a plan gives
    fixed: ClassVar[Mapping[str, Any]] = {}  # further arguments of the statistic

    def forms(self, given: Mapping[str, Any], family: Family, of: AnsweringImages) -> Mapping[str, Form]:
        """The forms of the tables that are sent. Sizes, and digests of no regions, were announced and are not."""
        return self.form

    def contradiction(self, tables: Tables) -> str:
        """What is impossible in tables of these forms, in words; "" where nothing is."""
        return ""

    def suppressed(self, data: CalibrationData, images: Array | None, given: Mapping[str, Any], least: int) -> Tables:
        """The tables without counts of fewer than `least` pixels."""
        raise ValueError(
            f"the plan asks for {self.words} ({data.family.name} family), which are values of single pixels; announce "
            "with limits and bands of the additive family, use method='rcps', or leave least_count out"
        )

    def merged(self, parts: Sequence[Tables]) -> Tables:
        """The tables of all sites as one."""
        for j, join in enumerate(self.statistic.joins):
            if join is np.add and sum(int(part[j].max(initial=0)) for part in parts) > 2**63 - 1:
                raise ValueError(f"the tables of {len(parts)} sites overflow when added; fewer fitting images help")
        whole = [tuple(x.astype(np.int64) if x.dtype.kind in "iu" else x for x in part) for part in parts]
        return self.statistic.merge(whole)

    def arguments(self, text: Mapping[str, Any], tables: Mapping[str, Array], family: Family) -> dict[str, Any]:
        """What a plan gives, checked."""
        statistic, values, checked = self.statistic.name, decode(text, tables), dict[str, Any]()
        if values.keys() != set(self.given):
            raise ValueError(f"the plan gives {statistic} {', '.join(values)}; it needs {', '.join(self.given)}")
        for name in self.given:
            check = CHECKS.get(f"{statistic}.{name}") or CHECKS[name]
            checked[name] = check(values[name], checked, family)
        return checked

    def asked(self, fitting: Array) -> Array:
        """Which images of a site it is asked of, where `fitting` of them fit, both (n,) bool."""
        return {FITTING: fitting, CERTIFYING: ~fitting, ALL: np.ones_like(fitting)}[self.images]

    def answer(self, data: CalibrationData, fitting: Array, given: Mapping[str, Any], least: int) -> dict[str, Array]:
        """The tables of a site by name; none where no image is asked for."""
        asked = self.asked(fitting)
        if not asked.any():
            return {}
        images = None if self.images == ALL else np.flatnonzero(asked)
        if least > 1:
            tables = self.suppressed(data, images, given, least)
        else:
            tables = data.aggregate(self.statistic, images, **given, **self.fixed)
        sent = {}
        for name, x, join in zip(self.tables, tables, self.statistic.joins, strict=True):
            if name != "sizes" and (name != "region_digests" or len(x)):
                rows = np.where(fitting[:, None], 0, x) if join is ROWS and self.images == ALL else x
                sent[name] = as_whole(rows) if self.regional else rows
        return sent

    def check(
        self, tables: Mapping[str, Array], given: Mapping[str, Any], family: Family, of: AnsweringImages, who: str
    ) -> Tables:
        """The tables of an answer in order, checked, none where no image is asked for; errors name the site."""
        if not len(of.sizes):
            return check_tables({}, tables, who, "ask it again")
        forms = self.forms(given, family, of)
        sent = dict(zip(forms, check_tables(forms, tables, who, "ask it again"), strict=True))
        checked = tuple(sent[name] if name in sent else getattr(of, name) for name in self.tables)
        if wrong := self.contradiction(checked):
            raise ValueError(f"{who} {wrong}; ask it again")
        return checked


def as_whole(x: Array) -> Array:
    """Numbers that are all whole as such: they travel in few bytes."""
    return x.astype(np.int64) if (np.rint(x) == x).all() else x


def rounded_up(counts: Array, sizes: Array, least: int) -> Array:
    """Misses (n, T) up to the next multiple of `least`, at most all pixels (n,) of an image.

    >>> rounded_up(np.array([[9, 4, 0]]), np.array([9]), 5)
    array([[9, 5, 0]])
    """
    return np.minimum(-(-counts.astype(np.int64) // least) * least, sizes[:, None])


def reported_sizes(sizes: Array, least: int) -> Array:
    """Pixels of regions down to a multiple of `least`, but one `least` where there are any.

    What is missed of them is rounded up and is at most this: the share that is reported is never below the true one.

    >>> reported_sizes(np.array([0, 3, 14]), 5)
    array([ 0,  5, 10])
    """
    return sizes if least == 1 else np.where(sizes > 0, np.maximum(sizes // least * least, least), 0)


def image_and_region_sizes(sizes: Array, least: int) -> Array:
    """Reported sizes (n, 1 + regions) as whole numbers; pixels of an image, the first column, are no secret."""
    rounded = reported_sizes(sizes.astype(np.int64), least)
    rounded[:, 0] = sizes[:, 0]
    return rounded


def carried(counts: Array, least: int) -> Array:
    """Counts along a row as multiples of `least`: what is too few for one is carried on, at the end left out.

    >>> carried(np.array([[1, 3, 4, 0, 2, 1]]), 5)
    array([[0, 0, 5, 0, 5, 0]])
    """
    return np.diff(np.cumsum(counts, axis=1) // least * least, axis=1, prepend=0)


class _Extent(Question):
    statistic, tables, form = extent, ("extent",), {"extent": Form(REAL, (2, 2), least=-inf)}
    words = "least and greatest width and level of the fitting images"

    def contradiction(self, tables: Tables) -> str:
        (ends,) = tables
        return "says that the least width or level is above the greatest" if (-ends[:, 0] > ends[:, 1]).any() else ""


class _Cells(Question):
    statistic, tables, form, given = cells, ("counts",), {"counts": Form(WHOLE, (3, 4096))}, ("spans",)
    words = "histograms of width, room and level of the fitting images"

    def suppressed(self, data: CalibrationData, images: Array | None, given: Mapping[str, Any], least: int) -> Tables:
        (counts,) = data.aggregate(cells, images, **given)
        return (np.where(counts < 2 * least, 0, counts),)  # two ends may be of one pixel


class _Occupied(Question):
    statistic, tables, given = occupied, ("occurs",), ("grouping",)
    words = "which combinations of bins occur in the fitting images"

    def forms(self, given: Mapping[str, Any], family: Family, of: AnsweringImages) -> dict[str, Form]:
        return {"occurs": Form(BOOL, (len(given["grouping"].table),))}

    def suppressed(self, data: CalibrationData, images: Array | None, given: Mapping[str, Any], least: int) -> Tables:
        return (data.aggregate(combinations, images, **given)[0] >= 2 * least,)

    def merged(self, parts: Sequence[Tables]) -> Tables:
        (occurs,) = super().merged(parts)
        if not occurs.any():
            raise ValueError("no combination of bins occurs often enough at any site; use fewer bins (k)")
        return (occurs,)


@statistic(np.add)
def combinations(truth: Array, block: Block, family: Family, grouping: Grouping) -> Tables:
    """Ends of each combination of bins."""
    return (np.bincount(grouping.at(block, *all_entries(block)), minlength=grouping.count),)


class _Farthest(Question):
    statistic, tables = farthest, ("score",)
    words = "the greatest score of the fitting images"

    def forms(self, given: Mapping[str, Any], family: Family, of: AnsweringImages) -> dict[str, Form]:
        return {"score": Form(REAL, (1,), least=family.start)}


class _Longest(Question):
    statistic, tables, form, given = longest, ("widths",), {"widths": Form(REAL, (2,))}, ("edge",)
    words = "the greatest width of the fitting images"


class _Spend(Question):
    statistic, tables, given = spend, ("missed", "lengths"), ("grouping", "edges", "units")
    words = "misses and lengths by group of the fitting images"

    def forms(self, given: Mapping[str, Any], family: Family, of: AnsweringImages) -> dict[str, Form]:
        groups, edges = given["grouping"].count, len(given["edges"])
        linear = family.ends is not None
        lengths = Form(WHOLE, (2, groups, edges + 1)) if linear else Form(WHOLE, (groups, edges), rises=True)
        return {"missed": Form(WHOLE, (groups, edges + 1)), "lengths": lengths}

    def suppressed(self, data: CalibrationData, images: Array | None, given: Mapping[str, Any], least: int) -> Tables:
        """An additive end counts one, so that its slopes say how many ends there are; rooms are those of their edge."""
        if data.family is not additive:
            return super().suppressed(data, images, given, least)
        missed, (slopes, _) = data.aggregate(spend, images, **given)
        ends = carried(slopes // int(FIXED_POINT), 2 * least)
        edges = np.floor(given["edges"] * (FIXED_POINT / given["units"][1])).astype(np.int64)
        return carried(missed, least), np.stack([ends * int(FIXED_POINT), ends * np.append(edges, 0)])


class _MissedCells(Question):
    statistic, tables = missed_cells, ("counts", "cells", "weights", "sizes")
    given, regional = ("grouping", "edges"), True
    words = "misses of each fitting image by group, in all and in each region"

    def forms(self, given: Mapping[str, Any], family: Family, of: AnsweringImages) -> dict[str, Form]:
        images, places = of.sizes.shape
        last = given["grouping"].count * (len(given["edges"]) + 1) - 1
        return {
            "counts": Form(WHOLE, (images,), most=last + 1),
            "cells": Form(WHOLE, (None,), most=last),
            "weights": Form(NUMBER, (None, places)),
        }

    def contradiction(self, tables: Tables) -> str:
        counts, cell, weights, _ = tables
        fits = counts.sum() == len(cell) == len(weights)
        return "" if fits else f"lists {len(cell)} cells, {len(weights)} with weights, but counts {counts.sum()}"

    def suppressed(self, data: CalibrationData, images: Array | None, given: Mapping[str, Any], least: int) -> Tables:
        """Misses by cell are counted over all images of the site, as if each had its share: none is reported alone."""
        counts, cell, weights, exact = data.aggregate(missed_cells, images, **given)
        sizes = image_and_region_sizes(exact, least)
        shape = given["grouping"].count, len(given["edges"]) + 1
        sums = [np.bincount(cell, x, minlength=shape[0] * shape[1]).astype(np.int64) for x in weights.T]
        total = np.stack([carried(x.reshape(shape), least).reshape(-1) for x in sums], axis=1)
        kept = np.flatnonzero(total.any(axis=1))
        part = sizes / np.maximum(sizes.sum(axis=0), 1)
        spread = (part[:, None] * total[kept]).reshape(-1, len(sums))
        return np.full(len(counts), len(kept)), np.tile(kept, len(counts)), spread, sizes


class _Misses(Question):
    statistic, images, regional = misses, ALL, True
    tables = ("missed", "sizes", "image_hashes", "region_digests")
    given = ("path",)
    fixed: ClassVar = {"digests": True}
    words = "misses of each certifying image along the path, in all and in each region"

    def forms(self, given: Mapping[str, Any], family: Family, of: AnsweringImages) -> dict[str, Form]:
        images, places = of.sizes.shape
        digests = {"region_digests": Form(WHOLE, (places - 1, 8), equals=of.region_digests)} if places > 1 else {}
        missed = Form(NUMBER, (images, places * len(given["path"])))
        return {"missed": missed, "image_hashes": Form(WHOLE, (8,), equals=of.image_hashes), **digests}

    def contradiction(self, tables: Tables) -> str:
        missed, sizes, *_ = tables
        rows = missed.reshape(*sizes.shape, -1)  # images, regions, points of the path
        if (rows[:, :, 0] > sizes * (1 + 1e-9)).any():  # sums of weights in another order
            return "misses more of an image or a region than it has"
        return "misses more where intervals widen" if (rows[:, :, 1:] > rows[:, :, :-1]).any() else ""

    def suppressed(self, data: CalibrationData, images: Array | None, given: Mapping[str, Any], least: int) -> Tables:
        missed, exact, *digests = data.aggregate(misses, images, **given, **self.fixed)
        sizes = image_and_region_sizes(exact, least)
        rows = rounded_up(missed.reshape(sizes.size, -1), sizes.reshape(-1), least)
        return rows.reshape(missed.shape), sizes, *digests


class _Arriving(Question):
    statistic, tables, images = arriving, ("counts", "shares"), CERTIFYING
    given = "path", "point"
    words = "where between two points of the path pixels are covered"

    def forms(self, given: Mapping[str, Any], family: Family, of: AnsweringImages) -> dict[str, Form]:
        return {"counts": Form(WHOLE, (len(of.sizes),), most=of.sizes[:, 0]), "shares": Form(REAL, (None,), most=1)}

    def contradiction(self, tables: Tables) -> str:
        counts, shares = tables
        return "" if counts.sum() == len(shares) else f"lists {len(shares)} ends but counts {counts.sum()}"

    def suppressed(self, data: CalibrationData, images: Array | None, given: Mapping[str, Any], least: int) -> Tables:
        """Ends between two points of the path, as the reported misses have them, all at the later point."""
        assert images is not None
        missed, _ = data.aggregate(misses, images, path=given["path"])
        rows = rounded_up(missed, data.sizes[images], least)
        counts = rows[:, given["point"] - 1] - rows[:, given["point"]]
        return counts, np.ones(int(counts.sum()))


QUESTIONS: dict[str, Question] = {kind.statistic.name: kind() for kind in Question.__subclasses__()}
