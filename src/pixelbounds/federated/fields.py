"""What messages may hold, field by field and array by array.

Plans, answers and announcements come from other machines, and their arrays index memory and drive compiled loops. So
nothing of them is used before it was held against a model of its kind, and every array against a `Form`: what is wrong
is an error that names the file (or site), the field and its value. What passes can still be wrong (docs/federated.md).
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ..calibration.families import FAMILIES
from ..calibration.promises import PLACES, check_name
from ..images.library import Array
from ..images.measure import Measure
from ..images.source import Source

Tables = tuple[Array, ...]
MAX_REGIONS = 64
SUBGROUP = PLACES[3]
HASH_BYTES = 16  # of a unit's name: two names share it by chance once in 2**128
_MAX_PIXELS = 2**40  # of an image
_MAX_SITES = 1000
_NOT_IN_NAMES = set('<>[]{}/\\"`|')  # a name is shown on terminals and pages

WHOLE, REAL, NUMBER, BOOL = "whole numbers", "float64", "numbers", "bool"
_KINDS = {WHOLE: "iu", REAL: "f", NUMBER: "iuf", BOOL: "b"}
_MAX_COUNT = 2**62  # sums of counts fit into int64


@dataclass(frozen=True, eq=False)
class Form:
    """What an array must be: kind of numbers, shape (None: any length), range, whether it rises, content.

    `least` and `most` may be arrays that broadcast.
    """

    kind: str
    shape: tuple[int | None, ...]
    least: Any = 0
    most: Any = None
    rises: bool = False  # along the last axis
    equals: Array | None = None

    def check(self, x: Any, what: str, remedy: str) -> Array:
        """The array, or an error that begins with `what`."""
        if (
            not isinstance(x, np.ndarray)
            or x.dtype.kind not in _KINDS[self.kind]
            or (x.dtype.kind == "f" and x.dtype != np.float64)
        ):
            raise ValueError(f"{what} of {getattr(x, 'dtype', x)!s}; it must hold {self.kind}: {remedy}")
        if x.ndim != len(self.shape) or any(n not in (None, m) for n, m in zip(self.shape, x.shape, strict=True)):
            sizes = ", ".join("any" if n is None else str(n) for n in self.shape)
            raise ValueError(f"{what} of shape {x.shape}; it must have shape ({sizes}): {remedy}")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise ValueError(f"{what} with values that are NaN or infinite; {remedy}")
        if self.kind == BOOL:
            return x
        most = _MAX_COUNT if self.most is None and x.dtype.kind != "f" else self.most
        for limit, outside, word in ((self.least, np.less, "least"), (most, np.greater, "most")):
            if limit is not None and (wrong := outside(x, limit)).any():
                at = np.unravel_index(np.argmax(wrong), x.shape)
                bound = np.broadcast_to(limit, x.shape)[at]
                raise ValueError(f"{what} with the value {x[at]:.6g}, where it must be at {word} {bound:.6g}; {remedy}")
        if self.rises and (x[..., 1:] < x[..., :-1]).any():
            raise ValueError(f"{what} that falls along its last axis, where it must not; {remedy}")
        if self.equals is not None and not np.array_equal(x, self.equals):
            raise ValueError(f"{what} that differs from what was announced; {remedy}")
        return x


def check_tables(forms: Mapping[str, Form], tables: Mapping[str, Array], who: str, remedy: str) -> Tables:
    """The tables of a message in the order of their forms, each checked."""
    if tables.keys() != forms.keys():
        listed, wanted = (", ".join(sorted(x)) or "none" for x in (tables, forms))
        raise ValueError(f"{who} has the tables {listed}; it must have {wanted}: {remedy}")
    return tuple(form.check(tables[name], f"{who} has {name}", remedy) for name, form in forms.items())


def _holds(test: Callable[[Any], bool], words: str) -> AfterValidator:
    def check(x: Any) -> Any:
        try:
            if test(x):
                return x
        except TypeError as error:
            raise ValueError(str(error)) from error
        raise ValueError(words)

    return AfterValidator(check)


def _state_of(kind: Any) -> AfterValidator:
    """The state of a source or measure."""
    return _holds(lambda x: len(str(x)) <= 2000 and kind.from_state(x) is not None, "it takes at most 2000 characters")


def _can_be_shown(name: str) -> bool:
    return name.strip() == name and 0 < len(name) <= 80 and name.isprintable() and not _NOT_IN_NAMES & set(name)


_Name = Annotated[str, _holds(_can_be_shown, "give a short name, such as 'north', of letters, digits, spaces and -_.")]
_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Images = Annotated[int, Field(ge=1, le=10_000_000)]
_Round = Annotated[int, Field(ge=1, le=64)]
_Short = Annotated[str, Field(max_length=200)]
_Side = Annotated[int, Field(ge=1)]
_Pixels = Annotated[list[_Side], Field(max_length=8), _holds(lambda x: prod(x) <= _MAX_PIXELS, "2**40 are possible")]
_Ends = Annotated[list[float | None], Field(min_length=2, max_length=2)]
_Limits = Annotated[_Ends, _holds(lambda x: None in x or x[0] < x[1], "the first limit must be below the second")]


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class _Region(_Fields):
    name: Annotated[str, AfterValidator(check_name)]
    place: Annotated[str, _holds(lambda place: place in PLACES[1:], f"it must be one of {', '.join(PLACES[1:])}")]


_OneName = _holds(lambda regions: len({x.name for x in regions}) == len(regions), "two regions have one name")
_Regions = Annotated[list[_Region], Field(max_length=MAX_REGIONS), _OneName]


class _Site(_Fields):  # in a plan
    site: _Name
    images: _Images
    units: _Images | None
    least_count: Annotated[int, Field(ge=1, le=2**20)]


class _Announcement(_Site):
    pixels: _Pixels
    source: Annotated[dict[str, Any], _state_of(Source)]
    measure: Annotated[dict[str, Any], _state_of(Measure)] | None
    family: Annotated[str, _holds(lambda family: family in FAMILIES, f"it must be one of {', '.join(FAMILIES)}")]
    limits: _Limits
    unit_key: _Short | None
    regions: _Regions


class _Groups(_Fields):
    kind: _Short
    meta: dict[str, Any]


class _Plan(_Fields):  # its family, limits, source and measure must be those of the site itself
    study: _Digest
    round: _Round
    statistic: _Short
    given: Annotated[dict[str, int | float | _Groups | None], Field(max_length=8)]
    family: str
    limits: list[float | None]
    source: dict[str, Any]
    measure: dict[str, Any] | None
    sites: Annotated[list[_Site], Field(min_length=1, max_length=_MAX_SITES)]
    regions: _Regions


class _Answer(_Fields):
    site: _Name
    study: _Digest
    plan: _Digest
    round: _Round


class _Study(_Fields):
    settings: dict[str, Any]  # checked by `begin`
    sites: Annotated[int, Field(ge=1, le=_MAX_SITES)]
    rounds: Annotated[int, Field(ge=0, le=64)]


KINDS: dict[str, type[_Fields]] = {"announcement": _Announcement, "plan": _Plan, "answer": _Answer, "study": _Study}


def check_text(kind: str, text: Mapping[str, Any], who: str) -> None:
    """Refuse what a message of a kind cannot say."""
    try:
        KINDS[kind].model_validate(dict(text))
    except ValidationError as error:
        errors = error.errors(include_url=False)
        missing = [".".join(map(str, each["loc"])) for each in errors if each["type"] == "missing"]
        if missing:
            raise ValueError(f"{who} lacks {', '.join(missing)}; send it again") from error
        field = ".".join(map(str, errors[0]["loc"])) or kind
        why = errors[0]["msg"].removeprefix("Value error, ").replace("Input should", "it should")
        raise ValueError(f"{who} has {field} {reprlib.repr(errors[0]['input'])}: {why}; send it again") from error


def check_announced(text: Mapping[str, Any], tables: Mapping[str, Array], who: str) -> None:
    """Refuse tables of an announcement that do not fit what it says."""
    images, units = text["images"], text["units"]
    places = [about["place"] for about in text["regions"] if about["place"] != SUBGROUP]
    subgroups = len(text["regions"]) - len(places)
    digest_sum = images * (2**32 - 1)
    forms = {"image_hashes": Form(WHOLE, (8,), most=digest_sum)}
    if not text["pixels"]:
        forms["sizes"] = Form(WHOLE, (images,), least=1, most=_MAX_PIXELS)
    if units is not None:
        forms["unit_of"] = Form(WHOLE, (images,), most=units - 1)
    if text["unit_key"] is not None:
        forms["names"] = Form(WHOLE, (units or images, HASH_BYTES), most=255)
    if places:
        most = [_MAX_PIXELS if place == "region" else 1e300 for place in places]
        forms["region_sizes"] = Form(NUMBER, (images, len(places)), most=np.array(most))
        forms["region_digests"] = Form(WHOLE, (len(places), 8), most=digest_sum)
    if subgroups:
        forms["subgroups"] = Form(BOOL, (images, subgroups))
    check_tables(forms, tables, who, "announce again")
    for name, what in (("unit_of", "some of its units have no image"), ("names", "two of its units have one name")):
        if name in forms and len(np.unique(tables[name], axis=0)) != (units or images):
            raise ValueError(f"{who} says {units} units, but {what}; announce again")
