"""Promises as text, for the command line and for TOML files.

    share:0.05                                       --promise, once for each promise
    share:0.10,within=labels.nii.gz:2,name=heart
    tail:0.05,above=0.10

    [[promise]]                                      --promises FILE.toml, a table for each promise
    kind = "share"
    level = 0.10
    within = "labels.nii.gz:2"
    name = "heart"

The text is kind and level, then key=value; the keys are those of the tables (`PromiseText`). A region is `body`,
`edges`, `edges:0.1` (the sharpest tenth), `organ` or `background` of a true mask, a file with a mask, weights or a
subgroup, or labels of a map, FILE:2 or FILE:2+3. Files that a TOML file names lie beside it. A name or a file with a
comma is written in a TOML file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError, field_validator, model_validator

from ..calibration.promises import Promise, check_name, share, tail
from ..formats.arrays import Reading
from ..formats.label_maps import open_label_map, region_of_map
from ..formats.scans import Images
from ..images.library import Array, differ_in_size, library_of
from ..images.regions import body, dilate, edges, region_as_read
from ..storage.toml import TomlSection, explained, read_toml

_BUILT_IN = ("body", "edges", "organ", "background")  # regions of the truth; the last two of a true mask
_TOP = 0.05  # of the edges, by default
_EXAMPLE = "share:0.10,within=labels.nii.gz:2,name=heart"


@dataclass(frozen=True)
class Region:
    """A built-in region (the sharpest `top` of the edges), or some labels of a "file"; `dilated` by pixels."""

    place: str
    path: Path | None = None
    labels: tuple[int, ...] = ()
    top: float = _TOP
    dilated: float = 0.0


class RegionText(TomlSection):
    """A region and its name, as text."""

    within: str | None = Field(None, description=f"{', '.join(_BUILT_IN)}, edges:0.1, a file, or labels, FILE:2+3")
    dilated: float = Field(0.0, ge=0, description="pixels by which the region grows, such as 3")
    name: str | None = Field(None, description="the name of the region, such as heart")

    @field_validator("name")
    @classmethod
    def _printable(cls, name: str | None) -> str | None:
        return name and check_name(name)

    @model_validator(mode="after")
    def _is_a_region(self) -> RegionText:
        if self.dilated and self.within is None:
            raise ValueError("dilated is given without within, the region that grows")
        if self.region is not None and not 0 < self.region.top <= 1:
            raise ValueError(f"within is {self.within}; the share of the edges lies above 0 and is at most 1")
        return self

    @property
    def region(self) -> Region | None:
        """The region, None for all pixels."""
        if self.within is None:
            return None
        place, _, top = self.within.lower().partition(":")
        if place in _BUILT_IN and (not top or (place == "edges" and re.fullmatch(r"[\d.]+", top))):
            return Region(place, top=float(top or _TOP), dilated=self.dilated)
        labels = re.fullmatch(r"(.+?):(-?\d{1,9}(?:\+-?\d{1,9})*)", self.within)
        file, numbers = labels.groups() if labels else (self.within, "")
        whole = tuple(int(x) for x in numbers.split("+") if x)
        return Region("file", Path(file).expanduser(), whole, dilated=self.dilated)

    @property
    def path(self) -> Path | None:
        """The file of the region, where it has one."""
        return None if self.region is None else self.region.path

    @property
    def called(self) -> str | None:
        """The name; by default that of a built-in region."""
        region = self.region
        return region.place if self.name is None and region is not None and region.path is None else self.name


class PromiseText(RegionText):
    """A promise as text; its region is not read yet."""

    kind: Literal["share", "tail"] = Field(description="share or tail, then the level: share:0.05")
    level: float = Field(gt=0, lt=1, description="what the risk must not exceed, a share such as 0.05")
    above: float | None = Field(
        None, ge=0, lt=1, description="the share of missed pixels above which an image is bad, such as 0.1"
    )
    cap: float | None = Field(None, gt=0, le=1, description="what an image counts for at most, such as 0.25")
    weighting: Literal["units", "images", "pixels"] | None = Field(None, description="what counts the same")
    prevalence: float | None = Field(
        None, gt=0, le=1, description="the share of images that have the region, in a plan"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> PromiseText:
        if self.kind == "share" and self.above is not None:
            raise ValueError("above belongs to a tail; write tail:0.05,above=0.1")
        if self.kind == "tail" and self.above is None:
            raise ValueError("above is missing, the share of missed pixels above which an image is bad; add above=0.1")
        if self.kind == "tail" and (self.cap is not None or self.weighting is not None):
            raise ValueError(f"{'weighting' if self.cap is None else 'cap'} belongs to a share; a tail counts images")
        self.promise()
        return self

    def promise(self, within: Any = None) -> Promise:
        """The promise about a region that was read."""
        if self.kind == "tail":
            return tail(self.level, self.above or 0.0, within, self.called)
        return share(self.level, within, self.cap, self.called, self.weighting)


class _PromiseFile(TomlSection):
    promise: list[PromiseText] = Field(min_length=1, description='tables [[promise]] with kind = "share", level = 0.05')


def promise_texts(texts: Sequence[str], *, planned: bool = False) -> tuple[PromiseText, ...]:
    """The promises of all texts, each a promise or a .toml file of several; `planned` before there are images.

    >>> heart, bad = promise_texts(["share:0.1,within=labels.nii.gz:2+3,name=heart", "tail:0.05,above=0.1"])
    >>> heart.level, heart.region.path.name, heart.region.labels, heart.name, bad.above
    (0.1, 'labels.nii.gz', (2, 3), 'heart', 0.1)
    """
    promises: list[PromiseText] = []
    for text in texts:
        if text.endswith(".toml"):
            tables = read_toml(text, _PromiseFile).content.promise
            promises += [_beside(table, Path(text).parent) for table in tables]
        else:
            kind, _, rest = text.partition(":")
            level, *pairs = rest.split(",")
            start = {"kind": kind} | ({"level": level} if level else {})
            promises.append(_read(PromiseText, f'the promise "{text}"', start, pairs, _EXAMPLE))
    shares = [one.prevalence for one in promises if one.prevalence is not None]
    if shares and not planned:
        raise ValueError(f"prevalence={shares[0]:g} is for plan alone; leave it out, the images have the region or not")
    return tuple(promises)


def region_texts(texts: Sequence[str]) -> dict[str, Region]:
    """Regions by name: REGION[,dilated=PIXELS][,name=NAME].

    >>> sorted(region_texts(["labels.nii.gz:2,name=heart", "edges:0.1"]))
    ['edges', 'heart']
    """
    regions: dict[str, Region] = {}
    for text in texts:
        within, *pairs = text.split(",")
        one = _read(RegionText, f'the region "{text}"', {"within": within}, pairs, "labels.nii.gz:2,name=heart")
        if one.called is None or one.region is None:
            raise ValueError(f'the region "{text}" has no name, which promises need; add name=heart')
        if one.called in regions:
            raise ValueError(f"two regions are called {one.called!r}; give each its own name=")
        regions[one.called] = one.region
    return regions


def _read(model: Any, label: str, start: dict[str, str], pairs: Sequence[str], example: str) -> Any:
    values = dict(start)
    for pair in pairs:
        key, equals, value = (x.strip() for x in pair.partition("="))
        if not equals or not value or key in values:
            why = f"{key!r} comes twice" if key in values else f"{pair!r} is not key=value"
            raise ValueError(f"{label} is not understood: {why}; write, for example, {example}")
        values[key] = value
    try:
        return model.model_validate_strings(values, strict=False)
    except ValidationError as error:
        raise ValueError(f"{explained(model, error, label)}; for example {example}") from error


def _beside(promise: PromiseText, folder: Path) -> PromiseText:
    """The promise of a TOML file, whose region may be a file in the folder."""
    if promise.path is None or promise.within is None:
        return promise
    return promise.model_copy(update={"within": str(folder / Path(promise.within).expanduser())})


Take = Callable[[Any], Any]  # the images that can be read, of an array (n, ...)


@dataclass(frozen=True, eq=False)
class PromiseRegions:
    """Promises as text, and the label maps that they name, by path."""

    texts: tuple[PromiseText, ...]
    maps: dict[Path, Any]

    @classmethod
    def open(cls, texts: Sequence[PromiseText], images: Images, reading: Reading) -> PromiseRegions:
        """Open every map once; each has the shape of the true images."""
        paths = dict.fromkeys(one.path for one in texts if one.path is not None)
        return cls(tuple(texts), {path: open_label_map(path, images, reading) for path in paths})

    @property
    def stores(self) -> list[Any]:
        """The maps that may have holes."""
        return [x for x in self.maps.values() if library_of(x) == "zarr" and len(x.shape) > 1]

    def promises(self, truth: Any, take: Take) -> list[Promise]:
        """The promises about those of the images that can be read: `truth` of these, and what takes them of a map.

        Promises within the same region share it, so that it is read once for all of them.
        """
        regions = dict.fromkeys(one.region for one in self.texts if one.region is not None)
        read = {region: _within(region, self.maps, truth, take) for region in regions}
        return [one.promise(None if one.region is None else read[one.region]) for one in self.texts]


def named_regions(texts: Sequence[str], images: Images, reading: Reading) -> dict[str, Any]:
    """Regions of true images by name, as `pixelbounds.federated` and `Monitor` take them."""
    regions = region_texts(texts)
    maps = {x.path: open_label_map(x.path, images, reading) for x in regions.values() if x.path is not None}
    return {name: _within(region, maps, images.pixels, lambda x: x) for name, region in regions.items()}


def _within(region: Region, maps: Mapping[Path, Any], truth: Any, take: Take) -> Any:
    if region.path is None:
        return region_as_read(truth, partial(_built, region))
    mask = region_of_map(region.path, take(maps[region.path]), region.labels)
    if not region.dilated:
        return mask
    if isinstance(mask, list):
        return [dilate(image[None], region.dilated)[0] for image in mask]
    if not differ_in_size(mask) and (mask.ndim < 2 or mask.dtype.kind == "f"):
        what = "weights" if mask.dtype.kind == "f" else "whole images"
        raise ValueError(f"{region.path} holds {what}, which cannot grow by pixels; leave dilated= out")
    return region_as_read(mask, partial(dilate, pixels=region.dilated))


def _built(region: Region, truth: Array) -> Array:
    if region.place in ("organ", "background"):
        mask = (truth > 0) == (region.place == "organ")
    else:
        mask = body(truth) if region.place == "body" else edges(truth, region.top)
    return np.asarray(dilate(mask, region.dilated) if region.dilated else mask)
