"""What a question is given by a plan: numbers, arrays, a grouping, a path; as JSON and arrays, and checked.

A plan drives compiled loops at a site. So each argument is checked for type, shape, range and order before, and for
how much memory it would take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

import numpy as np

from ..calibration.families import Family
from ..calibration.groups.band_bins import BandGroups
from ..calibration.groups.contract import Grouping, load_grouping, on_images
from ..calibration.paths.path import Path
from ..images.library import Array
from .tables import REAL, WHOLE, Form

WITHOUT_POSITIONS = ("single", "band", "learned")  # kinds of groups; a map of pixels could single one out
_MAX_GROUPS = 2**16
_MAX_POINTS = 2**13  # of a path, or edges
_MAX_CELLS = 2**26  # groups x edges
_MAX_KEYS = 2**28  # groups x leading bits of widenings, the index by which entry scores are found
_KEYS_PER_OCTAVE = 128
_LEAST_UNIT = 1e-300
_HASHES = "fitted_on"  # of the images that shaped a grouping, which must not certify
_POINTS = "points"  # of a path
_REMEDY = "ask the coordinator for another plan"


@dataclass(frozen=True)
class Argument:
    """An argument of a question: its kind, and its check, given the arguments before it."""

    kind: str  # number, array, grouping or path
    check: Callable[[Any, Mapping[str, Any], Family], Any]


def check_groups(grouping: Grouping) -> Grouping:
    """Refuse groups that follow the pixel grid: counts by group would be counts by position."""
    if grouping.kind not in WITHOUT_POSITIONS:
        raise ValueError(
            f"groups of kind {grouping.kind!r} follow the pixel grid or labels, so that counts would show where pixels "
            f"lie; sites answer for groups of kind {', '.join(WITHOUT_POSITIONS)}"
        )
    if not 1 <= grouping.count <= _MAX_GROUPS:
        raise ValueError(f"the plan has {grouping.count} groups, where 1 to {_MAX_GROUPS} are possible; {_REMEDY}")
    return grouping


def _combinations(grouping: Grouping, before: Mapping[str, Any], family: Family) -> Grouping:
    """Combinations of bins, numbered before groups are made of them."""
    if not isinstance(grouping, BandGroups) or not np.array_equal(grouping.table, np.arange(len(grouping.table))):
        raise ValueError(f"the plan asks which combinations occur of groups that are no combinations; {_REMEDY}")
    return check_groups(grouping)


def _spans(x: Any, before: Mapping[str, Any], family: Family) -> Array:
    spans = Form(REAL, (3, 2), least=-inf, rises=True).check(x, "the plan has spans", _REMEDY)
    width = spans[:, 1] - spans[:, 0]
    if ((width > 0) & (width < _LEAST_UNIT)).any() or not np.isfinite(width).all():
        raise ValueError(f"the plan has spans {spans.tolist()}, too narrow or too wide; {_REMEDY}")
    return spans


def _edges(x: Any, before: Mapping[str, Any], family: Family) -> Array:
    edges = Form(REAL, (None,), least=family.start, rises=True).check(x, "the plan has edges", _REMEDY)
    if not 2 <= len(edges) <= _MAX_POINTS or edges[0] != family.start:
        raise ValueError(
            f"the plan has {len(edges)} edges from {edges[:1]} on; there must be 2 to {_MAX_POINTS} from "
            f"{family.start:g} on, where the family starts: {_REMEDY}"
        )
    if before["grouping"].count * len(edges) > _MAX_CELLS:
        raise ValueError(f"the plan has {before['grouping'].count} groups x {len(edges)} edges, too many; {_REMEDY}")
    return edges


def _units(x: Any, before: Mapping[str, Any], family: Family) -> Array:
    return Form(REAL, (2,), least=_LEAST_UNIT).check(x, "the plan has units of length", _REMEDY)


def _edge(x: Any, before: Mapping[str, Any], family: Family) -> float:
    if isinstance(x, bool) or not isinstance(x, int | float) or not isfinite(x) or x < family.start:
        raise ValueError(f"the plan has edge {x!r}; it must be a number of at least {family.start:g}")
    return x


def _path(path: tuple[Grouping, Any], before: Mapping[str, Any], family: Family) -> Path:
    """A path of a grouping: one row of widenings for each group, nondecreasing from where the family starts."""
    grouping, x = check_groups(path[0]), path[1]
    form = Form(REAL, (grouping.count, None), least=family.start, rises=True)
    points = form.check(x, "the plan has a path", _REMEDY)
    if not 1 <= points.shape[1] <= _MAX_POINTS:
        raise ValueError(f"the plan has a path of {points.shape[1]} points, where 1 to {_MAX_POINTS} are possible")
    positive = points[points > 0]
    octaves = float(np.log2(positive.max()) - np.log2(positive.min())) if len(positive) else 0.0
    if len(points) * (octaves + 1) * _KEYS_PER_OCTAVE > _MAX_KEYS:
        raise ValueError(f"the plan has a path of {len(points)} groups over {octaves:.0f} octaves, too many; {_REMEDY}")
    return Path(np.ascontiguousarray(points), grouping)


def _point(x: Any, before: Mapping[str, Any], family: Family) -> int:
    if isinstance(x, bool) or not isinstance(x, int) or not 1 <= x < len(before["path"]):
        raise ValueError(f"the plan has point {x!r} of a path of {len(before['path'])} points; {_REMEDY}")
    return x


GROUPING = Argument("grouping", lambda grouping, before, family: check_groups(grouping))
COMBINATIONS = Argument("grouping", _combinations)
SPANS = Argument("array", _spans)
EDGES = Argument("array", _edges)
UNITS = Argument("array", _units)
PATH = Argument("path", _path)
EDGE = Argument("number", _edge)
POINT = Argument("number", _point)


# ---------------------------------------------------------------- as JSON and arrays


def encode(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Numbers, arrays, groupings and paths as JSON and arrays."""
    text: dict[str, Any] = {}
    tables: dict[str, Array] = {}
    for name, value in given.items():
        if isinstance(value, Grouping | Path):
            grouping: Any = value.grouping if isinstance(value, Path) else value
            meta, arrays = grouping.state()
            arrays = arrays | ({_HASHES: grouping.fitted_on.view(np.int64)} if len(grouping.fitted_on) else {})
            arrays = arrays | ({_POINTS: value.points} if isinstance(value, Path) else {})
            kind = "path" if isinstance(value, Path) else "grouping"
            text[name] = {"is": kind, "kind": grouping.kind, "meta": meta, "arrays": list(arrays)}
            tables |= {f"{name}.{key}": x for key, x in arrays.items()}
        elif isinstance(value, np.ndarray):
            text[name], tables[name] = {"is": "array"}, value
        else:
            text[name] = {"is": "number", "value": value}
    return text, tables


def decode(text: Mapping[str, Any], tables: Mapping[str, Array]) -> dict[str, Any]:
    """What `encode` was given, a path as its grouping and points; every table must have its place."""
    arrays = {
        name: {"": name} if about["is"] == "array" else {key: f"{name}.{key}" for key in about.get("arrays") or ()}
        for name, about in text.items()
    }
    wanted = {table for names in arrays.values() for table in names.values()}
    if wanted != tables.keys():
        raise ValueError(f"the plan lacks or has in excess the table {min(wanted ^ tables.keys())!r}; send it again")
    out: dict[str, Any] = {}
    for name, about in text.items():
        if about["is"] in ("grouping", "path"):
            out[name] = _grouping(name, about, {key: tables[table] for key, table in arrays[name].items()})
        else:
            out[name] = about.get("value") if about["is"] == "number" else tables[name]
    return out


def _grouping(name: str, about: Mapping[str, Any], arrays: dict[str, Array]) -> Any:
    """A grouping; of a path, its grouping and points."""
    hashes, points = arrays.pop(_HASHES, None), arrays.pop(_POINTS, None)
    grouping = load_grouping(str(about.get("kind")), dict(about.get("meta") or {}), arrays)
    if hashes is not None:
        form = Form(WHOLE, (None,), least=-(2**63), most=2**63)
        hashes = form.check(hashes, f"the plan has {_HASHES}", _REMEDY).astype(np.int64)
        grouping = on_images(grouping, hashes.view(np.uint64))
    return grouping if about["is"] == "grouping" else (grouping, points)
