"""The regions that promises in words name, opened beside the true images: label maps once, read as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.promises import Promise
from ..formats.arrays import Reading
from ..formats.label_maps import open_label_map, region_of_map
from ..formats.scans import Images
from ..images.library import Array, differ_in_size, library_of
from ..images.regions import body, dilate, edges, region_as_read
from .promise_words import PromiseText, Region, region_of_words

Take = Callable[[Any], Any]  # the images that can be read, of an array (n, ...)


@dataclass(frozen=True, eq=False)
class PromiseRegions:
    """Promises as they were said, and the label maps that they name, by path."""

    said: tuple[PromiseText, ...]
    maps: dict[Path, Any]

    @classmethod
    def open(cls, said: Sequence[PromiseText], images: Images, reading: Reading) -> PromiseRegions:
        """Open every map once; each has the shape of the true images."""
        return cls(tuple(said), {path: open_label_map(path, images, reading) for path in map_paths(said)})

    @property
    def stores(self) -> list[Any]:
        """The maps that may have holes."""
        return [x for x in self.maps.values() if library_of(x) == "zarr" and len(x.shape) > 1]

    def promises(self, truth: Any, take: Take) -> list[Promise]:
        """The promises about those of the images that can be read: `truth` of these, and what takes them of a map.

        Promises within the same region share it, so that it is read once for all of them.
        """
        known: dict[Region, Any] = {}
        for one in self.said:
            if one.region is not None and one.region not in known:
                known[one.region] = _within(one.region, self.maps, truth, take)
        return [one.promise(None if one.region is None else known[one.region]) for one in self.said]


def named_regions(words: Sequence[str], images: Images, reading: Reading) -> dict[str, Any]:
    """Regions of true images by name, as `pixelbounds.federated` takes them."""
    named = [region_of_words(text) for text in words]
    twice = [name for i, (name, _) in enumerate(named) if name in dict(named[:i])]
    if twice:
        raise ValueError(f"two regions are called {twice[0]!r}; give each a name of its own with 'as'")
    maps = {region.path: open_label_map(region.path, images, reading) for _, region in named if region.path is not None}
    return {name: _within(region, maps, images.pixels, lambda x: x) for name, region in named}


def _within(region: Region, maps: Mapping[Path, Any], truth: Any, take: Take) -> Any:
    if region.path is None:
        return region_as_read(truth, _Found(region))
    found = region_of_map(region.path, take(maps[region.path]), region.labels)
    if not region.dilated:
        return found
    if not differ_in_size(found) and not isinstance(found, list) and (found.ndim < 2 or found.dtype.kind == "f"):
        what = "weights" if found.dtype.kind == "f" else "whole images"
        raise ValueError(f"{region.path} holds {what}, which cannot grow by pixels; leave 'dilated' out")
    if isinstance(found, list):
        return [dilate(image[None], region.dilated)[0] for image in found]
    return region_as_read(found, partial(dilate, pixels=region.dilated))


def map_paths(said: Sequence[PromiseText]) -> list[Path]:
    """The files that promises name, each once."""
    return list(
        dict.fromkeys(one.region.path for one in said if one.region is not None and one.region.path is not None)
    )


class _Found:
    """A region of the truth: (k, *pixels) -> bool."""

    def __init__(self, region: Region) -> None:
        self.region = region

    def __call__(self, truth: Array) -> Array:
        found = body(truth) if self.region.place == "body" else edges(truth, self.region.top)
        return np.asarray(dilate(found, self.region.dilated) if self.region.dilated else found)
