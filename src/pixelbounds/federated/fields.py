"""What each kind of message says, field by field: types, ranges, and the tables that an announcement brings.

Files come from others. Nothing of them is used before it was checked here: a wrong field is an error that names the
file (or site), the field and its value.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from math import prod
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ..calibration.families import FAMILIES
from ..calibration.promises import PLACES, check_name
from ..images.checks import check_choice
from ..images.library import Array
from ..images.measure import Measure
from ..images.source import Source
from .tables import BOOL, NUMBER, WHOLE, Form, check_tables

MAX_REGIONS = 64
SUBGROUP = PLACES[3]
HASH_BYTES = 16  # of a unit's name: two names share it by chance once in 2**128
_MAX_IMAGES = 10_000_000  # of a site
_MAX_PIXELS = 2**40  # of an image
_MAX_SITES = 1000
_MAX_ROUNDS = 64
_MAX_TEXT = 2000  # characters
_NOT_IN_NAMES = set('<>[]{}/\\"`|')  # a name is shown on terminals and pages


def check_site_name(site: Any) -> str:
    """A short name that can be shown anywhere."""
    good = isinstance(site, str) and site.strip() == site and 0 < len(site) <= 80 and site.isprintable()
    if not good or _NOT_IN_NAMES & set(site):
        raise ValueError(f"site is {site!r}; give a short name, such as 'north', of letters, digits, spaces and -_.")
    return str(site)


def _ascending(limits: list[float | None]) -> list[float | None]:
    low, high = limits
    if low is not None and high is not None and not low < high:
        raise ValueError("the first limit must be below the second")
    return limits


def _made_by(kind: Any) -> AfterValidator:
    """The state of a source or measure."""

    def check(state: dict[str, Any]) -> dict[str, Any]:
        if len(str(state)) > _MAX_TEXT:
            raise ValueError(f"it takes at most {_MAX_TEXT} characters")
        try:
            kind.from_state(state)
        except TypeError as error:
            raise ValueError(str(error)) from error
        return state

    return AfterValidator(check)


def _image_shape(pixels: list[int]) -> list[int]:
    if prod(pixels) > _MAX_PIXELS:
        raise ValueError(f"an image has at most {_MAX_PIXELS} pixels")
    return pixels


def _one_of(*names: str) -> AfterValidator:
    return AfterValidator(lambda name: check_choice(name, names, "it"))


_Name = Annotated[str, AfterValidator(check_site_name)]
_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Images = Annotated[int, Field(ge=1, le=_MAX_IMAGES)]
_LeastCount = Annotated[int, Field(ge=1, le=2**20)]
_Round = Annotated[int, Field(ge=1, le=_MAX_ROUNDS)]
_Limits = Annotated[list[float | None], Field(min_length=2, max_length=2), AfterValidator(_ascending)]
_Short = Annotated[str, Field(max_length=200)]


class _Fields(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class _Region(_Fields):
    """A region of a site, or of a plan."""

    name: Annotated[str, AfterValidator(check_name)]
    place: Annotated[str, _one_of(*PLACES[1:])]


def _different(regions: list[_Region]) -> list[_Region]:
    if len({region.name for region in regions}) < len(regions):
        raise ValueError("two regions have one name")
    return regions


_Regions = Annotated[list[_Region], Field(max_length=MAX_REGIONS), AfterValidator(_different)]


class _Announcement(_Fields):
    site: _Name
    images: _Images
    units: _Images | None
    pixels: Annotated[list[Annotated[int, Field(ge=1)]], Field(max_length=8), AfterValidator(_image_shape)]
    source: Annotated[dict[str, Any], _made_by(Source)]
    measure: Annotated[dict[str, Any], _made_by(Measure)] | None
    family: Annotated[str, _one_of(*FAMILIES)]
    limits: _Limits
    least_count: _LeastCount
    unit_key: _Short | None
    regions: _Regions


class _Site(_Fields):
    """A site in a plan."""

    site: _Name
    images: _Images
    units: _Images | None
    least_count: _LeastCount


class _Groups(_Fields):
    """Groups that a plan gives, or those of its path."""

    kind: _Short
    meta: dict[str, Any]


class _Plan(_Fields):
    """A plan; family, limits, source and measure must be those of the site itself."""

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
    rounds: Annotated[int, Field(ge=0, le=_MAX_ROUNDS)]


_FIELDS: dict[str, type[_Fields]] = {"announcement": _Announcement, "plan": _Plan, "answer": _Answer, "study": _Study}


def check_text(kind: str, text: Mapping[str, Any], who: str) -> None:
    """Refuse what a message of a kind cannot say."""
    try:
        _FIELDS[kind].model_validate(dict(text))
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
