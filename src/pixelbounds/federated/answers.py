"""What an answer can be: the tables that a question calls for, and the bounds that nothing countable exceeds.

Every table is held against the question and against what the site itself announced, never against the tables of
another site: so the site that is at fault is the one that is named. What passes can still be wrong (docs/federated.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..calibration.data import Statistic
from ..calibration.families import Family, additive
from ..images.library import Array
from ..kernels.entry_scores import FIXED_POINT
from .questions import FORMS, Question

Tables = tuple[Array, ...]
_CELLS = 4096  # of a feature of the band
_WORDS = {"i": "whole numbers", "f": "float64", "b": "yes or no", "n": "numbers"}
_ROUNDED = 1 + 1e-9  # sums of weights in another order
_MOST_SUM = 2**62


@dataclass(frozen=True, eq=False)
class Respondent:
    """Whose tables: how errors call them, the pixels of each image that has a row, and of all that fit together.

    `exact` is False where small counts were suppressed; `image_hashes` and `before` are what it told of its images earlier:  # noqa: E501
    the digest it announced, and its misses in the round before. `within` are the announced sizes of the regions that
    are asked for, (images, 1 + regions), `region_digests` their digests.
    """

    who: str
    rows: Array
    fitting: int
    image_hashes: Array
    exact: bool = True
    before: Array | None = None
    within: Array | None = None
    region_digests: Array | None = None
    remedy: str = "ask it again"

    def refuse(self, why: str) -> None:
        """The error that names whose tables are at fault."""
        raise ValueError(f"{self.who} {why}; {self.remedy}")


def checked_tables(
    question: Question, given: Mapping[str, Any], family: Family, tables: Mapping[str, Array], by: Respondent
) -> Tables:
    """The tables of an answer in their order, where they can be; `given`: its question's `arguments_of`."""
    wanted = _shapes(question.statistic, given, family, by)
    if set(tables) != {str(j) for j in range(len(wanted))}:
        by.refuse(f"has {len(tables)} tables, but {len(wanted)} were asked for")
    found = tuple(tables[str(j)] for j in range(len(wanted)))
    for x, (kind, shape) in zip(found, wanted, strict=True):
        if x.ndim != len(shape) or any(size not in (None, held) for held, size in zip(x.shape, shape, strict=True)):
            rows = f" ({len(by.rows)} of its images certify)" if "path" in given and x is found[0] else ""
            by.refuse(f"has a table of shape {x.shape}, but {_in_words(shape)} was asked for{rows}")
        if x.dtype.kind.replace("u", "i") not in (("i", "f") if kind == "n" else (kind,)):
            by.refuse(f"has a table of {x.dtype}, but {_WORDS[kind]} were asked for")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            by.refuse("has a table with impossible values, NaN or infinite")
        if kind in ("i", "n") and x.size and x.min() < 0:
            by.refuse(f"has a table with impossible values, such as a count of {x.min()}")
    _CHECKS[question.statistic](found, given, family, by)
    return found


def added(statistic: Statistic, parts: Sequence[Tables]) -> Tables:
    """The tables of all sites as one; sums that no whole number holds are refused."""
    for j, join in enumerate(statistic.joins):
        if join is np.add and sum(int(part[j].max(initial=0)) for part in parts) > 2**63 - 1:
            raise ValueError(
                f"the tables of {len(parts)} sites add up to more than a whole number holds; fewer fitting images help"
            )
    whole = [tuple(x.astype(np.int64) if x.dtype.kind in "iu" else x for x in part) for part in parts]
    merged = statistic.merge(whole)
    if statistic is FORMS["occupied"].statistic and not merged[0].any():
        raise ValueError("no combination of bins occurs often enough at any site; use fewer bins (k)")
    return merged


def _in_words(shape: tuple[int | None, ...]) -> str:
    return f"({', '.join('any' if size is None else str(size) for size in shape)})"


def _shapes(
    name: str, given: Mapping[str, Any], family: Family, by: Respondent
) -> list[tuple[str, tuple[int | None, ...]]]:
    """Kind and shape of each table that a statistic has."""
    rows = len(by.rows)
    if by.within is not None:
        asked, places = by.within.shape
        if name == "missed_cells":
            return [("i", (asked,)), ("i", (None,)), ("n", (None, places)), ("n", (asked, places))]
        return [
            ("n", (asked, places * len(given["path"]))),
            ("n", (asked, places)),
            ("i", (8,)),
            ("i", (places - 1, 8)),
        ]
    if name == "spend":
        groups, edges = given["grouping"].count, len(given["edges"])
        sums = (groups, edges) if family.ends is None else (2, groups, edges + 1)
        return [("i", (groups, edges + 1)), ("i", sums)]
    if name == "misses":
        return [("i", (rows, len(given["path"]))), ("i", (8,))]
    if name == "occupied":
        return [("b", (len(given["grouping"].table),))]
    shapes: dict[str, list[tuple[str, tuple[int | None, ...]]]] = {
        "extent": [("f", (2, 2))],
        "cells": [("i", (3, _CELLS))],
        "farthest": [("f", (1,))],
        "longest": [("f", (2,))],
        "arriving": [("i", (rows,)), ("f", (None,))],
    }
    return shapes[name]


# ---------------------------------------------------------------- what can be counted


def _total(x: Array) -> int:
    """The sum of whole numbers of at least 0; what would overflow is about right."""
    about = float(x.sum(dtype=np.float64))
    return int(about) if about >= _MOST_SUM else int(x.sum(dtype=np.int64))


def _extent(found: Tables, given: Mapping[str, Any], family: Family, by: Respondent) -> None:
    (least, most) = (-found[0][:, 0], found[0][:, 1])
    if (least > most).any() or least[0] < 0:
        by.refuse(f"says that widths lie in {least[0]:g} to {most[0]:g} and levels in {least[1]:g} to {most[1]:g}")


def _cells(found: Tables, given: Mapping[str, Any], family: Family, by: Respondent) -> None:
    low, high = given["spans"][1]
    for row, name in enumerate(("width", "room", "level")):
        ends = 0 if name == "room" and not high > low else 2 * by.fitting
        counted = _total(found[0][row])
        if counted > ends or (by.exact and counted != ends):
            by.refuse(f"counts {counted} ends by {name}, but its fitting images have {ends}")


def _occupied(found: Tables, given: Mapping[str, Any], family: Family, by: Respondent) -> None:
    if by.exact and not found[0].any():
        by.refuse("says that no combination of bins occurs, but its fitting images have some")


def _farthest(found: Tables, given: Mapping[str, Any], family: Family, by: Respondent) -> None:
    if found[0][0] < family.start:
        by.refuse(f"has a greatest score of {found[0][0]:g}, below {family.start:g}, where the family starts")


def _longest(found: Tables, given: Mapping[str, Any], family: Family, by: Respondent) -> None:
    if (found[0] < 0).any():
        by.refuse(f"has a greatest width of {found[0].min():g}, below 0")


def _spend(found: Tables, given: Mapping[str, Any], family: Family, by: Respondent) -> None:
    counts, sums = found
    missed = _total(counts)
    if missed > by.fitting:
        by.refuse(f"counts {missed} missed pixels, but its fitting images have {by.fitting}")
    for part in sums if sums.ndim == 3 else [sums[:, -1]]:
        if _total(part) >= _MOST_SUM:
            by.refuse(f"has lengths that add up to {_total(part):.3g}, more than a whole number holds")
    if sums.ndim == 2 and (np.diff(sums, axis=1) < 0).any():
        by.refuse("has lengths that fall where intervals widen")
    if family is additive:
        _check_rooms(sums, given, by)


def _check_rooms(sums: Array, given: Mapping[str, Any], by: Respondent) -> None:
    """Of the additive family each end counts one unit, and the room it has used up at an edge lies at that edge."""
    slopes, rooms = sums
    one = int(FIXED_POINT)
    ends = slopes // one
    counted = _total(ends)
    if (slopes % one).any() or counted > 2 * by.fitting or (by.exact and counted != 2 * by.fitting):
        by.refuse(f"counts {counted} ends by group, but its fitting images have {2 * by.fitting}")
    scale = FIXED_POINT / given["units"][1]
    edge = given["edges"] * scale
    most = ends[:, :-1] * (edge + 1) * (1 + 1e-9)
    least = ends[:, 1:-1] * (edge[:-1] - 1) * (1 - 1e-9)
    if (rooms[:, :-1] > most).any() or (rooms[:, 1:-1] < least).any() or rooms[:, -1].any():
        by.refuse("has ends with more or less room than the edges that they are counted at")


def _misses(found: Tables, given: Mapping[str, Any], family: Family, by: Respondent) -> None:
    rows, image_hashes = found
    if (rows > by.rows[:, None]).any():
        by.refuse("counts more misses than its images have pixels")
    if (np.diff(rows.astype(np.int64, copy=False), axis=1) > 0).any():
        image = int(np.argmax((np.diff(rows.astype(np.int64, copy=False), axis=1) > 0).any(axis=1)))
        by.refuse(f"counts more misses where intervals widen, in row {image}, which cannot be")
    if not np.array_equal(image_hashes, by.image_hashes):
        by.refuse("is about other images than it announced")


def _regional(found: Tables, given: Mapping[str, Any], family: Family, by: Respondent) -> None:
    rows, sizes, image_hashes, regions = found
    _check_sizes(sizes, by)
    table = rows.reshape(*sizes.shape, -1)  # images, regions, points of the path
    if (table > sizes[:, :, None] * _ROUNDED).any():
        by.refuse("counts more misses than its regions have pixels")
    if (table[:, :, 1:] > table[:, :, :-1]).any():
        by.refuse("counts more misses where intervals widen, which cannot be")
    if not np.array_equal(image_hashes, by.image_hashes):
        by.refuse("is about other images than it announced")
    if not np.array_equal(regions, np.asarray(by.region_digests).reshape(regions.shape)):
        by.refuse("is about other regions than it announced")


def _check_sizes(sizes: Array, by: Respondent) -> None:
    if not np.array_equal(sizes, np.asarray(by.within)):
        by.refuse("has regions of other sizes than it announced")


def _missed_cells(found: Tables, given: Mapping[str, Any], family: Family, by: Respondent) -> None:
    counts, key, weights, sizes = found
    _check_sizes(sizes, by)
    if not _total(counts) == len(key) == len(weights):
        by.refuse(f"lists {len(key)} cells, {len(weights)} with counts, but says {_total(counts)}")
    cells = given["grouping"].count * (len(given["edges"]) + 1)
    if len(key) and key.max() >= cells:
        by.refuse(f"has a cell {key.max()} of {cells}")
    image = np.repeat(np.arange(len(counts)), counts)
    most = sizes * (_ROUNDED if by.exact else 2.0)  # sizes that are told may be half of the true ones
    for column, size in zip(weights.T, most.T, strict=True):
        if (np.bincount(image, column, minlength=len(counts)) > size).any():
            by.refuse("counts more misses than its regions have pixels")


def _arriving(found: Tables, given: Mapping[str, Any], family: Family, by: Respondent) -> None:
    counts, shares = found
    if (counts > by.rows).any():
        by.refuse("counts more ends in an image than it has pixels")
    if _total(counts) != len(shares):
        by.refuse(f"lists {len(shares)} ends but counts {_total(counts)}")
    if len(shares) and (shares.min() < 0 or shares.max() > 1):
        by.refuse(f"has ends {shares.min():g} to {shares.max():g} of the way between two points; 0 to 1 can be")
    if by.before is not None:
        knot = given["knot"]
        if not np.array_equal(counts, by.before[:, knot - 1] - by.before[:, knot]):
            by.refuse("counts other ends between two points of the path than it missed there in the round before")


_CHECKS: dict[str, Callable[[Tables, Mapping[str, Any], Family, Respondent], None]] = {
    "extent": _extent,
    "cells": _cells,
    "occupied": _occupied,
    "farthest": _farthest,
    "longest": _longest,
    "spend": _spend,
    "misses": _misses,
    "arriving": _arriving,
    "missed_cells": _missed_cells,
    "regional_misses": _regional,
}
