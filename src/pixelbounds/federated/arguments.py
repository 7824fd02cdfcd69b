"""What a question is given by a plan: numbers, arrays, a grouping, a path; as JSON and arrays, and checked.

A plan drives compiled loops at a site. So each argument is checked for type, shape, range and order before, and for
how much memory it would take. A check is given what `decode` made of the argument, and the arguments before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import Any

import numpy as np

from ..calibration.block import Grouping
from ..calibration.families import Family
from ..calibration.groups.band_features import BandGroups
from ..calibration.groups.contract import load_grouping
from ..calibration.paths.path import Path
from ..images.library import Array
from .fields import REAL, WHOLE, Form

WITHOUT_POSITIONS = ("single", "band", "learned")  # kinds of groups; a map of pixels could single one out
_MAX_GROUPS = 2**16
_MAX_POINTS = 2**13  # of a path, or edges
_MAX_CELLS = 2**26  # groups x edges
_MAX_KEYS = 2**28  # groups x leading bits of widenings, the index by which entry scores are found
_KEYS_PER_OCTAVE = 128
_LEAST_UNIT = 1e-300
_REMEDY = "ask the coordinator for another plan"


def check_groups(grouping: Any) -> Grouping:
    """Refuse groups that follow the pixel grid: counts by group would be counts by position."""
    if not isinstance(grouping, Grouping):
        raise ValueError(f"the plan has {grouping!r} where groups should be; {_REMEDY}")
    if grouping.kind not in WITHOUT_POSITIONS:
        raise ValueError(f"groups of kind {grouping.kind!r} follow the pixel grid; use {', '.join(WITHOUT_POSITIONS)}")
    if not 1 <= grouping.count <= _MAX_GROUPS:
        raise ValueError(f"the plan has {grouping.count} groups, where 1 to {_MAX_GROUPS} are possible; {_REMEDY}")
    return grouping


def _combinations(x: Any, before: Mapping[str, Any], family: Family) -> Grouping:
    if not isinstance(x, BandGroups) or not np.array_equal(x.table, np.arange(len(x.table))):
        raise ValueError(f"the plan asks which combinations occur of groups that are no combinations; {_REMEDY}")
    return check_groups(x)


def _spans(x: Any, before: Mapping[str, Any], family: Family) -> Array:
    spans = Form(REAL, (3, 2), least=-inf, rises=True).check(x, "the plan has spans", _REMEDY)
    width = spans[:, 1] - spans[:, 0]
    if ((width > 0) & (width < _LEAST_UNIT)).any() or not np.isfinite(width).all():
        raise ValueError(f"the plan has spans {spans.tolist()}, too narrow or too wide; {_REMEDY}")
    return spans


def _edges(x: Any, before: Mapping[str, Any], family: Family) -> Array:
    edges = Form(REAL, (None,), least=family.start, rises=True).check(x, "the plan has edges", _REMEDY)
    most = min(_MAX_POINTS, _MAX_CELLS // before["grouping"].count)
    if not 2 <= len(edges) <= most or edges[0] != family.start:
        needs = f"there must be 2 to {most} from {family.start:g} on, where the family starts"
        raise ValueError(f"the plan has {len(edges)} edges from {edges[:1]} on; {needs}: {_REMEDY}")
    return edges


def _edge(x: Any, before: Mapping[str, Any], family: Family) -> float:
    if not isinstance(x, int | float) or not isfinite(x) or x < family.start:
        raise ValueError(f"the plan has edge {x!r}; it must be a number of at least {family.start:g}")
    return x


def _path(x: Any, before: Mapping[str, Any], family: Family) -> Path:
    """A path of a grouping: one row of widenings for each group, nondecreasing from where the family starts."""
    grouping, points = x if isinstance(x, tuple) else (x, None)
    form = Form(REAL, (check_groups(grouping).count, None), least=family.start, rises=True)
    form.check(points, "the plan has a path", _REMEDY)
    if not 1 <= points.shape[1] <= _MAX_POINTS:
        raise ValueError(f"the plan has a path of {points.shape[1]} points, where 1 to {_MAX_POINTS} are possible")
    positive = points[points > 0]
    octaves = float(np.log2(positive.max()) - np.log2(positive.min())) if len(positive) else 0.0
    if len(points) * (octaves + 1) * _KEYS_PER_OCTAVE > _MAX_KEYS:
        raise ValueError(f"the plan has a path of {len(points)} groups over {octaves:.0f} octaves, too many; {_REMEDY}")
    return Path(np.ascontiguousarray(points), grouping)


def _point(x: Any, before: Mapping[str, Any], family: Family) -> int:
    if not isinstance(x, int) or not 1 <= x < len(before["path"]):
        raise ValueError(f"the plan has point {x!r} of a path of {len(before['path'])} points; {_REMEDY}")
    return x


CHECKS: dict[str, Callable[[Any, Mapping[str, Any], Family], Any]] = {  # by name, of one statistic or of all
    "occupied.grouping": _combinations,
    "grouping": lambda x, before, family: check_groups(x),
    "spans": _spans,
    "edges": _edges,
    "units": lambda x, before, family: Form(REAL, (2,), _LEAST_UNIT).check(x, "the plan has units of length", _REMEDY),
    "edge": _edge,
    "path": _path,
    "point": _point,
}


def encode(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Numbers, arrays, groupings and paths as JSON and arrays; what is an array is None in JSON."""
    text, tables = dict(given), dict[str, Array]()
    for name, value in given.items():
        if isinstance(value, Grouping | Path):
            points = {"points": value.points} if isinstance(value, Path) else {}
            grouping: Any = value.grouping if isinstance(value, Path) else value
            meta, arrays = grouping.state()
            hashes = {"fitted_on": grouping.fitted_on.view(np.int64)} if len(grouping.fitted_on) else {}
            text[name] = {"kind": grouping.kind, "meta": meta}
            tables |= {f"{name}.{key}": x for key, x in (arrays | hashes | points).items()}
        elif isinstance(value, np.ndarray):
            text[name], tables[name] = None, value
    return text, tables


def decode(text: Mapping[str, Any], tables: Mapping[str, Array]) -> dict[str, Any]:
    """What `encode` was given, a path as its grouping and points; no table may be left."""
    out, left = dict(text), dict(tables)
    for name, about in text.items():
        if about is None:
            out[name] = left.pop(name, None)
        elif isinstance(about, Mapping):
            arrays = {key.removeprefix(f"{name}."): left.pop(key) for key in tables if key.startswith(f"{name}.")}
            hashes, points = arrays.pop("fitted_on", None), arrays.pop("points", None)
            grouping = load_grouping(about["kind"], dict(about["meta"]), arrays)
            if hashes is not None:
                form = Form(WHOLE, (None,), least=-(2**63), most=2**63)
                hashes = form.check(hashes, "the plan has fitted_on", _REMEDY).astype(np.int64)
                grouping = grouping.on_images(hashes.view(np.uint64))
            out[name] = grouping if points is None else (grouping, points)
    if left:
        raise ValueError(f"the plan has the table {min(left)!r} in excess; {_REMEDY}")
    return out
