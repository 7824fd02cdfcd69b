"""The regions that promises name, opened beside the true images: label maps once, read as they are needed."""

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
from .promise_words import PromiseText, Region, region_texts
from .request import paths_of

Take = Callable[[Any], Any]  # the images that can be read, of an array (n, ...)


@dataclass(frozen=True, eq=False)
class PromiseRegions:
    """Promises as text, and the label maps that they name, by path."""

    texts: tuple[PromiseText, ...]
    maps: dict[Path, Any]

    @classmethod
    def open(cls, texts: Sequence[PromiseText], images: Images, reading: Reading) -> PromiseRegions:
        """Open every map once; each has the shape of the true images."""
        return cls(tuple(texts), {path: open_label_map(path, images, reading) for path in paths_of(texts)})

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
    """A region of the truth: (k, *pixels) -> bool."""
    if region.place in ("organ", "background"):
        mask = (truth > 0) == (region.place == "organ")
    else:
        mask = body(truth) if region.place == "body" else edges(truth, region.top)
    return np.asarray(dilate(mask, region.dilated) if region.dilated else mask)
