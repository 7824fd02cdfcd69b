"""What each kind of message may say, field by field: types, ranges, and the tables that an announcement brings.

Files come from others. Nothing of them is used before it was checked here: a wrong field is an error that names the
file (or site), the field and its value.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..calibration.confidence import BOUNDS
from ..calibration.families import FAMILIES
from ..calibration.promises import PLACES, WAYS_TO_WEIGH, check_name
from ..calibration.result import WEIGHTINGS
from ..images.library import Array
from ..images.measure import Measure
from ..images.source import Source
from .keys import HASH_BYTES

MOST_IMAGES = 10_000_000  # of a site
MOST_PIXELS = 2**40  # of an image
MOST_SITES = 1000
MOST_ROUNDS = 64
_MOST_TEXT = 2000  # characters
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


def _source(state: dict[str, Any]) -> dict[str, Any]:
    """How bands were made, as `Source.state` gives it."""
    if len(str(state)) > _MOST_TEXT:
        raise ValueError(f"a source takes at most {_MOST_TEXT} characters")
    try:
        Source.from_state(state)
    except TypeError as error:
        raise ValueError(str(error)) from error
    return state


def _measure(state: dict[str, Any]) -> dict[str, Any]:
    """What numbers stand for, as `Measure.state` gives it."""
    Measure.from_state(state)
    return state


def _one_of(*names: str) -> AfterValidator:
    def known(name: str) -> str:
        if name not in names:
            raise ValueError(f"it must be one of {', '.join(names)}")
        return name

    return AfterValidator(known)


_Name = Annotated[str, AfterValidator(check_site_name)]
_Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Images = Annotated[int, Field(ge=1, le=MOST_IMAGES)]
_Count = Annotated[int, Field(ge=1, le=2**20)]
_Round = Annotated[int, Field(ge=1, le=MOST_ROUNDS)]
_Level = Annotated[float, Field(gt=0, lt=1)]
_Ends = Annotated[list[float | None], Field(min_length=2, max_length=2), AfterValidator(_ascending)]
_FamilyWord = Annotated[str, _one_of(*FAMILIES)]
_SourceState = Annotated[dict[str, Any], AfterValidator(_source)]
_MeasureState = Annotated[dict[str, Any], AfterValidator(_measure)]
_Short = Annotated[str, Field(max_length=200)]
_RegionName = Annotated[str, AfterValidator(check_name)]
_MOST_REGIONS = 64


class _Said(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class _Region(_Said):
    """A region of a site, or of a plan."""

    name: _RegionName
    place: Annotated[str, _one_of(*PLACES[1:])]


def _different(regions: list[_Region]) -> list[_Region]:
    if len({region.name for region in regions}) < len(regions):
        raise ValueError("two regions have one name")
    return regions


_Regions = Annotated[list[_Region], Field(max_length=_MOST_REGIONS), AfterValidator(_different)]


class _Announcement(_Said):
    site: _Name
    images: _Images
    units: _Images | None
    pixels: Annotated[list[Annotated[int, Field(ge=1, le=MOST_PIXELS)]], Field(max_length=8)]
    source: _SourceState
    measure: _MeasureState | None
    centred: bool
    limits: _Ends
    least_count: _Count
    regions: _Regions

    @model_validator(mode="after")
    def _possible(self) -> _Announcement:
        if self.units is not None and self.units > self.images:
            raise ValueError(f"{self.units} units cannot have {self.images} images")
        size = 1
        for side in self.pixels:
            size *= side
        if size > MOST_PIXELS:
            raise ValueError(f"pixels {self.pixels} are more than {MOST_PIXELS}")
        return self


class _Asked(_Said):
    """A site, as a plan knows it."""

    site: _Name
    images: _Images
    units: _Images | None
    least_count: _Count


class _Given(_Said):
    """A part of a question: `value` of a number; the rest of a grouping."""

    is_: Annotated[Literal["number", "array", "path", "grouping"], Field(alias="is")]
    value: Annotated[int, Field(ge=-(2**53), le=2**53)] | float | None = None
    kind: _Short | None = None
    meta: dict[str, Any] | None = None
    dtypes: dict[str, Annotated[str, Field(pattern="^[<>|=]?[biuf][1248]$")]] | None = None
    fitted_on: bool = False  # whether a grouping brings the prints of the images that shaped it


class _Plan(_Said):
    study: _Digest
    round: _Round
    statistic: _Short
    scope: _Short
    given: Annotated[dict[str, _Given], Field(max_length=8)]
    family: _FamilyWord
    limits: _Ends
    source: _SourceState
    measure: _MeasureState | None
    sites: Annotated[list[_Asked], Field(min_length=1, max_length=MOST_SITES)]
    regions: _Regions


class _Answer(_Said):
    site: _Name
    study: _Digest
    plan: _Digest
    round: _Round


class _Promised(_Said):
    """A promise, as `Promise` has it, but for its region."""

    kind: Annotated[str, _one_of("share", "tail")]
    at_most: _Level
    above: Annotated[float, Field(ge=0, lt=1)] | None
    cap: Annotated[float, Field(gt=0, le=1)] | None
    name: _RegionName | None
    weighting: Annotated[str, _one_of(*WAYS_TO_WEIGH)] | None

    @model_validator(mode="after")
    def _possible(self) -> _Promised:
        if (self.kind == "tail") != (self.above is not None):
            raise ValueError(f"a {self.kind} above {self.above} cannot be")
        return self


class _Settings(_Said):
    risk_level: _Level
    promises: Annotated[list[_Promised], Field(max_length=_MOST_REGIONS)]
    failure_prob: _Level
    method: Annotated[str, _one_of("frontier", "rcps")]
    confidence: Annotated[str, _one_of(*BOUNDS)]
    groups: Literal["band"] | _Given | None
    family: _FamilyWord
    k: Annotated[int, Field(ge=1, le=4096)] | None
    n_opt: Annotated[int, Field(ge=0, le=MOST_IMAGES * MOST_SITES)] | None
    seed: Annotated[int, Field(ge=0, le=2**128)]
    shared_units: Annotated[str, _one_of("refuse", "join")]
    unit_name: Annotated[str, Field(min_length=1, max_length=40)]
    weighting: Annotated[str, _one_of(*WEIGHTINGS)]
    max_images: _Images | None


class _Kept(_Said):
    text: _Announcement
    tables: Annotated[list[_Short], Field(max_length=8)]


class _Answered(_Said):
    question: _Digest
    tables: Annotated[int, Field(ge=0, le=8)]


class _Study(_Said):
    settings: _Settings
    sites: Annotated[list[_Kept], Field(min_length=1, max_length=MOST_SITES)]
    answered: Annotated[list[_Answered], Field(max_length=MOST_ROUNDS)]


_FORMS: dict[str, type[_Said]] = {"announcement": _Announcement, "plan": _Plan, "answer": _Answer, "study": _Study}


def check_text(kind: str, text: Mapping[str, Any], who: str) -> None:
    """Refuse what a message of a kind cannot say."""
    try:
        _FORMS[kind].model_validate(dict(text))
    except ValidationError as error:
        found = error.errors(include_url=False)
        missing = [".".join(map(str, each["loc"])) for each in found if each["type"] == "missing"]
        if missing:
            raise ValueError(f"{who} lacks {', '.join(missing)}; send it again") from error
        first = found[0]
        field = ".".join(map(str, first["loc"])) or kind
        shown = reprlib.repr(first["input"])
        why = first["msg"].removeprefix("Value error, ").replace("Input should", "it should")
        raise ValueError(f"{who} has {field} {shown}: {why}; send it again") from error


def check_announced(text: Mapping[str, Any], tables: Mapping[str, Array], who: str) -> None:
    """Refuse tables of an announcement that do not fit what it says."""
    images, units = text["images"], text["units"]
    wanted: dict[str, tuple[int, ...]] = {"image_hashes": (8,)}
    if units is not None:
        wanted["unit_of"] = (images,)
    if not text["pixels"]:
        wanted["sizes"] = (images,)
    if units is not None and "names" in tables:
        wanted["names"] = (units, HASH_BYTES)
    masks = [about["place"] for about in text["regions"] if about["place"] != "subgroup"]
    subgroups = len(text["regions"]) - len(masks)
    more: set[str] = set()
    if masks:
        wanted["region_digests"] = (len(masks), 8)
        more.add("region_sizes")
    if subgroups:
        more.add("subgroups")
    if set(tables) != set(wanted) | more:
        raise ValueError(
            f"{who} has the tables {_listed(tables)}, but should have {_listed({*wanted, *more})}; announce again"
        )
    for name, shape in wanted.items():
        x = tables[name]
        if x.dtype.kind not in "iu" or x.shape != shape:
            raise ValueError(
                f"{who} has {name} of {x.dtype} {x.shape}; it should be whole numbers of shape {shape}: announce again"
            )
    for name in {"image_hashes", "region_digests"} & set(tables):
        _check_range(who, name, tables[name], 0, images * (2**32 - 1))
    if masks:
        _check_region_sizes(who, tables["region_sizes"], (images, len(masks)), masks)
    if subgroups and (tables["subgroups"].dtype != np.bool_ or tables["subgroups"].shape != (images, subgroups)):
        raise ValueError(f"{who} has subgroups that are not yes or no of shape {(images, subgroups)}: announce again")
    if "sizes" in tables:
        _check_range(who, "sizes", tables["sizes"], 1, MOST_PIXELS)
    if "names" in tables:
        _check_range(who, "names", tables["names"], 0, 255)
        if len(np.unique(tables["names"], axis=0)) != units:
            raise ValueError(f"{who} gives two of its units one name; announce again")
    if units is not None:
        _check_range(who, "unit_of", tables["unit_of"], 0, units - 1)
        if len(np.unique(tables["unit_of"])) != units:
            raise ValueError(f"{who} says {units} units, but some of them have no image; announce again")


def _check_region_sizes(who: str, x: Array, shape: tuple[int, int], places: list[str]) -> None:
    """Pixels of each region in each image, or sums of weights."""
    if x.dtype.kind not in "iuf" or x.shape != shape:
        raise ValueError(f"{who} has region_sizes of {x.dtype} {x.shape}; it should be numbers of shape {shape}")
    if not np.isfinite(x).all() or x.min() < 0 or x.max() > 1e300:
        raise ValueError(f"{who} has region_sizes that no region has, below 0, NaN or infinite: announce again")
    for column, place in zip(x.T, places, strict=True):
        if place == "region" and ((np.rint(column) != column).any() or column.max() > MOST_PIXELS):
            raise ValueError(f"{who} has region_sizes of a mask that are no counts of pixels: announce again")


def _check_range(who: str, name: str, x: Array, least: int, most: int) -> None:
    low, high = int(x.min()), int(x.max())
    if low < least or high > most:
        raise ValueError(f"{who} has {name} from {low} to {high}; it should lie in {least} to {most}: announce again")


def _listed(names: Any) -> str:
    return ", ".join(sorted(names)) or "none"
