"""The ten questions that a coordinator may ask, and what each is given: numbers, arrays, a grouping, a path.

A plan comes from another machine, and what it gives drives compiled loops. So a question is asked only as the table
`FORMS` has it, of the images that it is meant for, and every array is checked for type, shape, range and order before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from ..calibration.data import Statistic
from ..calibration.families import Family
from ..calibration.groups.band_bins import BandGroups, cells, extent, occupied
from ..calibration.groups.contract import Grouping, load_grouping, on_images
from ..calibration.loss_table import Path, arriving, misses, regional_misses
from ..calibration.paths.frontier import farthest, longest, spend
from ..calibration.paths.weighted_frontier import missed_cells
from ..images.library import Array

FITTING, CERTIFYING, ALL = "fitting", "certifying", "all"  # images; of all, rows of the certifying ones are told
WITHOUT_POSITIONS = ("single", "band", "learned")  # groups that a plan may use: a map of pixels could single one out
MOST_GROUPS = 2**16
MOST_POINTS = 2**13  # of a path, or edges
_MOST_CELLS = 2**26  # groups x edges, or groups x points
_MOST_KEYS = 2**28  # groups x leading bits of knots, the index by which arrivals are found
_KEYS_PER_OCTAVE = 128
_LEAST_UNIT = 1e-300
_PRINTS = "fitted_on"  # of the images that shaped a grouping; they must not certify


@dataclass(frozen=True, eq=False)
class Form:
    """A statistic that may be asked for, of which images, and what it must be given, by kind."""

    statistic: Statistic
    scope: str
    given: Mapping[str, str]

    @property
    def regional(self) -> bool:
        """Whether it is counted in the regions of promises, too."""
        return self.statistic in (missed_cells, regional_misses)


FORMS = {
    form.statistic.name: form
    for form in (
        Form(extent, FITTING, {}),
        Form(cells, FITTING, {"spans": "array"}),
        Form(occupied, FITTING, {"grouping": "grouping"}),
        Form(farthest, FITTING, {}),
        Form(longest, FITTING, {"edge": "number"}),
        Form(spend, FITTING, {"grouping": "grouping", "edges": "array", "units": "array"}),
        Form(missed_cells, FITTING, {"grouping": "grouping", "edges": "array"}),
        Form(misses, ALL, {"grouping": "grouping", "path": "path"}),
        Form(regional_misses, ALL, {"grouping": "grouping", "path": "path"}),
        Form(arriving, CERTIFYING, {"grouping": "grouping", "path": "path", "knot": "number"}),
    )
}


@dataclass(frozen=True, eq=False)
class Question:
    """A statistic of the "fitting", the "certifying" or "all" images, and what it is given."""

    statistic: str
    scope: str
    given: Mapping[str, Any]
    tables: Mapping[str, Array]

    @property
    def digest(self) -> str:
        """By which an answer is known to belong to this question."""
        state = hashlib.sha256(json.dumps([self.statistic, self.scope, self.given], sort_keys=True).encode())
        for name in sorted(self.tables):
            state.update(f"{name} {self.tables[name].shape}".encode() + self.tables[name].tobytes())
        return state.hexdigest()


def form_of(question: Question) -> Form:
    """The form of a question that sites answer."""
    if question.statistic not in FORMS:
        raise ValueError(
            f"the plan asks for {question.statistic!r}, which this version does not tell; it tells {', '.join(FORMS)}"
        )
    form = FORMS[question.statistic]
    if question.scope != form.scope:
        raise ValueError(
            f"the plan asks for {question.statistic} of the {question.scope!r} images; sites tell it of the "
            f"{form.scope!r} images alone"
        )
    return form


def arguments_of(question: Question, family: Family) -> dict[str, Any]:
    """What the statistic of a question is given, checked; errors speak of the plan."""
    form = form_of(question)
    if {name: about["is"] for name, about in question.given.items()} != dict(form.given):
        listed = ", ".join(f"{name} ({kind})" for name, kind in form.given.items()) or "nothing"
        raise ValueError(f"the plan gives {question.statistic} {', '.join(question.given)}; it needs {listed}")
    given = decode(question.given, question.tables)
    for name, value in given.items():
        if name != "path":
            _CHECKS[name](value, family)
    if "path" in given:
        given["path"] = _path(given["path"], given["grouping"], family)
    if "knot" in given and given["knot"] >= len(given["path"]):
        raise ValueError(f"the plan has knot {given['knot']} of a path of {len(given['path'])} points; send another")
    if question.statistic == "occupied":
        _check_blank(given["grouping"])
    if "edges" in given and given["grouping"].count * len(given["edges"]) > _MOST_CELLS:
        raise ValueError(f"the plan has {given['grouping'].count} groups x {len(given['edges'])} edges, too many")
    return given


# ---------------------------------------------------------------- as JSON and arrays


def encode(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Numbers, arrays, groupings and paths as JSON and arrays."""
    said: dict[str, Any] = {}
    tables: dict[str, Array] = {}
    for name, value in given.items():
        if isinstance(value, Grouping):
            meta, arrays = value.state()
            said[name] = {"is": "grouping", "kind": value.kind, "meta": meta}
            said[name]["dtypes"] = {key: x.dtype.str for key, x in arrays.items()}
            tables |= {f"{name}.{key}": x for key, x in arrays.items()}
            if len(value.fitted_on):
                said[name]["fitted_on"] = True
                tables[f"{name}.{_PRINTS}"] = value.fitted_on.view(np.int64)
        elif isinstance(value, Path):
            said[name] = {"is": "path"}
            tables[name] = value.knots
        elif isinstance(value, np.ndarray):
            said[name] = {"is": "array"}
            tables[name] = value
        else:
            said[name] = {"is": "number", "value": value}
    return said, tables


def decode(said: Mapping[str, Any], tables: Mapping[str, Array]) -> dict[str, Any]:
    """What `encode` was given, a path as its array; every table has its place."""
    out: dict[str, Any] = {}
    wanted: set[str] = set()
    for name, about in said.items():
        parts = {name} if about["is"] in ("array", "path") else set()
        if about["is"] == "grouping":
            parts = {f"{name}.{key}" for key in about.get("dtypes") or {}}
            parts |= {f"{name}.{_PRINTS}"} if about.get("fitted_on") else set()
        missing = sorted(parts - tables.keys())
        if missing:
            raise ValueError(f"the plan lacks the table {missing[0]!r}; send it again")
        wanted |= parts
        if about["is"] == "grouping":
            out[name] = _grouping(name, about, tables)
        else:
            out[name] = tables[name] if parts else about.get("value")
    if tables.keys() - wanted:
        raise ValueError(f"the plan has a table {min(tables.keys() - wanted)!r} that it does not speak of")
    return out


def _grouping(name: str, about: Mapping[str, Any], tables: Mapping[str, Array]) -> Grouping:
    if about.get("kind") is None or about.get("meta") is None or about.get("dtypes") is None:
        raise ValueError(f"the plan has {name} without kind, meta and dtypes; send it again")
    arrays = {key: _typed(f"{name}.{key}", tables[f"{name}.{key}"], dtype) for key, dtype in about["dtypes"].items()}
    grouping = load_grouping(about["kind"], dict(about["meta"]), arrays)
    check_groups(grouping)
    if not 1 <= grouping.count <= MOST_GROUPS:
        raise ValueError(f"the plan has {grouping.count} groups; there can be 1 to {MOST_GROUPS}")
    if not about.get("fitted_on"):
        return grouping
    shaped = tables[f"{name}.{_PRINTS}"]
    if shaped.dtype != np.int64 or shaped.ndim != 1:
        raise ValueError(f"the plan has prints of {shaped.dtype} {shaped.shape}; they must be whole, one per image")
    return on_images(grouping, shaped.view(np.uint64))


def _typed(name: str, x: Array, dtype: str) -> Array:
    """A table in the type that it had; whole numbers travel in as few bytes as hold them."""
    wanted = np.dtype(dtype)
    if wanted.kind in "iu" and x.dtype.kind in "iu":
        info = np.iinfo(wanted)
        if x.size and (int(x.min()) < info.min or int(x.max()) > info.max):
            raise ValueError(f"the plan has {name} from {x.min()} to {x.max()}, which {wanted} does not hold")
        return x.astype(wanted)
    if x.dtype != wanted:
        raise ValueError(f"the plan has {name} of {x.dtype} where it says {wanted}; send it again")
    return x


# ---------------------------------------------------------------- what can be given


def check_groups(groups: Any) -> None:
    """Refuse groups that follow the pixel grid: counts by group would be counts by position."""
    if isinstance(groups, Grouping) and groups.kind not in WITHOUT_POSITIONS:
        raise ValueError(
            f"groups of kind {groups.kind!r} follow the pixel grid or labels, so that counts would tell where pixels "
            f"lie; sites answer for groups of kind {', '.join(WITHOUT_POSITIONS)}"
        )


def _check_blank(grouping: Grouping) -> None:
    """Combinations are told apart before groups are made of them."""
    if not isinstance(grouping, BandGroups) or not np.array_equal(grouping.table, np.arange(len(grouping.table))):
        raise ValueError("the plan asks which combinations occur of groups that are no combinations; send another")


def _floats(name: str, x: Any, shape: tuple[int | None, ...]) -> Array:
    """Finite float64 of a shape, None being any length."""
    if not isinstance(x, np.ndarray) or x.dtype != np.float64 or x.ndim != len(shape):
        raise ValueError(f"the plan has {name} {getattr(x, 'dtype', x)!r}; it needs float64 with {len(shape)} axes")
    if any(wanted not in (None, size) for size, wanted in zip(x.shape, shape, strict=True)):
        raise ValueError(f"the plan has {name} of shape {x.shape}; it needs {shape}")
    if not np.isfinite(x).all():
        raise ValueError(f"the plan has {name} with values that are NaN or infinite; send another")
    return x


def _check_spans(x: Any, family: Family) -> None:
    spans = _floats("spans", x, (3, 2))
    width = spans[:, 1] - spans[:, 0]
    if (width < 0).any() or ((width > 0) & (width < _LEAST_UNIT)).any() or not np.isfinite(width).all():
        raise ValueError(f"the plan has spans {spans.tolist()}; each must ascend")


def _check_edges(x: Any, family: Family) -> None:
    edges = _floats("edges", x, (None,))
    if not 2 <= len(edges) <= MOST_POINTS:
        raise ValueError(f"the plan has {len(edges)} edges; there can be 2 to {MOST_POINTS}")
    if edges[0] != family.start or (np.diff(edges) < 0).any():
        raise ValueError(f"the plan has edges that do not ascend from {family.start:g}, where the family starts")


def _check_units(x: Any, family: Family) -> None:
    units = _floats("units", x, (2,))
    if (units < _LEAST_UNIT).any():
        raise ValueError(f"the plan has units of length {units.tolist()}; they must be above 0")


def _check_edge(x: Any, family: Family) -> None:
    if isinstance(x, bool) or not isinstance(x, int | float) or not isfinite(x) or x < family.start:
        raise ValueError(f"the plan has edge {x!r}; it must be a number of at least {family.start:g}")


def _check_knot(x: Any, family: Family) -> None:
    if isinstance(x, bool) or not isinstance(x, int) or x < 1:
        raise ValueError(f"the plan has knot {x!r}; it must be a whole number of at least 1")


_CHECKS = {
    "spans": _check_spans,
    "edges": _check_edges,
    "units": _check_units,
    "edge": _check_edge,
    "knot": _check_knot,
    "grouping": lambda grouping, family: check_groups(grouping),
}


def _path(x: Any, grouping: Grouping, family: Family) -> Path:
    """A path of a grouping: one row of knots for each group, nondecreasing from where the family starts."""
    knots = _floats("path", x, (None, None))
    groups, points = knots.shape
    if groups != grouping.count:
        raise ValueError(f"the plan has a path of {groups} groups, but a grouping of {grouping.count}; send another")
    if not 1 <= points <= MOST_POINTS:
        raise ValueError(f"the plan has a path of {points} points; there can be 1 to {MOST_POINTS}")
    if (knots[:, 0] < family.start).any() or (np.diff(knots, axis=1) < 0).any():
        raise ValueError(f"the plan has a path that does not ascend from {family.start:g} in every group")
    positive = knots[knots > 0]
    octaves = float(np.log2(positive.max()) - np.log2(positive.min())) if len(positive) else 0.0
    if groups * (octaves + 1) * _KEYS_PER_OCTAVE > _MOST_KEYS:
        raise ValueError(f"the plan has a path of {groups} groups over {octaves:.0f} octaves, too many; send another")
    return Path(np.ascontiguousarray(knots))
