"""Regions of images that a promise can be about: bool arrays (n, *pixels), or a list where images differ in size.

A promise needs its region on the calibration images only, where the truth is known, so a region may come from the truth
(an organ, its edges) and nothing need be segmented later. Axes of at most 4 hold channels (`spatial_axes`): a region is
found on the mean of the channels and is the same in all of them. Volumes are images with one axis more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .checks import ImageError, check_number, check_open_unit, check_same_shape, check_values
from .library import (
    Array,
    Derived,
    as_array,
    as_images,
    differ_in_size,
    in_file,
    library_of,
    rows_of,
    singly,
    spatial_axes,
    to_numpy,
)
from .ragged import Ragged

OTSU_CELLS = 256  # of the histogram that is cut
_MOST_WEIGHT = 1e100  # of a pixel, so that sums of many stay finite


def body(images: Any, threshold: float | None = None) -> Any:
    """The body in each image: the largest connected part above a threshold, its holes filled: (n, *pixels) -> bool.

    Parts are connected along the spatial axes, not over corners. The threshold is Otsu's of each image by default, in
    the images' own values; an image of one value has no body.

    >>> image = np.zeros((1, 6, 6))
    >>> image[0, 1:5, 1:5] = 0.8
    >>> image[0, 2, 2] = 0.0
    >>> body(image).sum(), body(image)[0, 2, 2]
    (np.int64(16), np.True_)
    """
    from scipy import ndimage

    if threshold is not None:
        threshold = check_number(threshold, "threshold")

    def of(image: Array) -> Array:
        if threshold is None and image.min() == image.max():
            return np.zeros(image.shape, bool)
        least = float(otsu_thresholds(image, 2)[0]) if threshold is None else threshold
        parts, count = ndimage.label(image > least)
        if not count:
            return np.zeros(image.shape, bool)
        largest = 1 + int(np.argmax(np.bincount(parts.reshape(-1))[1:]))
        return np.asarray(ndimage.binary_fill_holes(parts == largest), bool)

    return _each(as_array(images, "images"), lambda image: _over_channels(of, image))


def edges(truth: Any, top: float = 0.05) -> Any:
    """The sharpest share `top` of the pixels of each image, by the length of the gradient: (n, *pixels) -> bool.

    Of pixels that are equally sharp at the cut all belong, unless they are flat: an image of one value has no edges.

    >>> ramp = np.zeros((1, 8, 8))
    >>> ramp[0, :, 4:] = 1.0
    >>> edges(ramp, top=0.25).sum(axis=1)
    array([[0, 0, 0, 8, 8, 0, 0, 0]])
    """
    top = check_open_unit(top, "top")

    def of(image: Array) -> Array:
        strength = edge_strength(image[None])[0]
        count = max(1, int(top * strength.size))
        least = np.partition(strength.reshape(-1), strength.size - count)[strength.size - count]
        return (strength >= least) & (strength > 0)

    return _each(as_array(truth, "truth"), of)


def label(labels: Any, value: int | Sequence[int]) -> Any:
    """Where a segmentation has one of some labels: whole numbers (n, *pixels) -> bool.

    >>> label(np.array([[0, 1, 2, 2]]), 2), label(np.array([[0, 1, 2, 2]]), [1, 2])
    (array([[False, False,  True,  True]]), array([[False,  True,  True,  True]]))
    """
    values = np.atleast_1d(np.asarray(value))
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iu":
        raise ValueError(f"value is {value!r}; give a label, or several, as whole numbers")
    images = _plain(labels, "labels")
    if np.dtype(str(images.dtype).removeprefix("torch.")).kind not in "iu":
        raise TypeError(f"labels have dtype {images.dtype}; a segmentation holds whole numbers")
    return _each(images, lambda image: np.isin(image, values))


def dilate(region: Any, pixels: float) -> Any:
    """A region and all that lies within some pixels of it, in a straight line: bool (n, *pixels) -> bool.

    >>> spot = np.zeros((1, 5, 5), bool)
    >>> spot[0, 2, 2] = True
    >>> dilate(spot, 1).sum(), dilate(spot, 1.5).sum()
    (np.int64(5), np.int64(9))
    """
    from scipy.ndimage import distance_transform_edt

    reach = check_number(pixels, "pixels")
    if reach < 0:
        raise ValueError(f"pixels is {reach:g}; a region grows by 0 pixels or more")
    images = _plain(region, "region")
    if np.dtype(str(images.dtype).removeprefix("torch.")).kind not in "bu":
        raise TypeError(f"region has dtype {images.dtype}; give a mask of bool, for example labels == 2")

    def of(image: Array) -> Array:
        region = region_rows(image[None], "region", 0, 1)[0]
        if not region.any():
            return np.zeros(region.shape, bool)
        steps = [1.0] * region.ndim
        for axis in _channels(region):  # one channel is beyond the reach of another
            steps[axis] = 2 * reach + 1
        return np.asarray(distance_transform_edt(~region, steps) <= reach)

    return _each(images, of)


def edge_strength(images: Array) -> Array:
    """Length of the gradient over the spatial axes: (n, *pixels) -> (n, *pixels); axes of at most 4 are channels."""
    slopes = (np.gradient(images, axis=axis) ** 2 for axis in spatial_axes(images))
    return np.sqrt(sum(slopes, np.zeros_like(images)))


def otsu_thresholds(values: Array, k: int, cells: int = OTSU_CELLS) -> Array:
    """Exact multi-Otsu thresholds by dynamic programming over a histogram: (*pixels) -> at most k - 1 values."""
    counts, edges = np.histogram(values, cells)
    middle = (edges[:-1] + edges[1:]) / 2
    mass = np.concatenate([[0], np.cumsum(counts)]).astype(np.float64)
    moment = np.concatenate([[0], np.cumsum(counts * middle)])
    weight = mass[None, :] - mass[:, None]  # cells i..j-1
    between = np.where(weight > 0, (moment[None, :] - moment[:, None]) ** 2 / np.maximum(weight, 1), -np.inf)
    best, cuts = between[0], []
    for _ in range(k - 1):
        options = best[:, None] + between
        cuts.append(options.argmax(axis=0))
        best = options.max(axis=0)
    at, thresholds = cells, []
    for cut in reversed(cuts):
        at = int(cut[at])
        thresholds.append(edges[at])
    return np.unique(thresholds)


def _plain(x: Any, name: str) -> Any:
    x = as_images(x, name)
    if differ_in_size(x) or (library_of(x) and x.ndim > 1):
        return x
    raise TypeError(f"{name} is a {type(x).__name__}; give an array (n, *pixels), or a list of arrays, one per image")


def _each(images: Any, of: Callable[[Array], Array]) -> Any:
    found = []
    for i in range(int(images.shape[0])):
        rows = rows_of(images, i, i + 1)
        if rows.dtype.kind == "f":
            check_values("images", rows, i)
        found.append(of(rows[0]))
    return found if differ_in_size(images) else np.stack(found)


def _channels(image: Array) -> tuple[int, ...]:
    spatial = [axis - 1 for axis in spatial_axes(image[None])]
    return tuple(axis for axis in range(image.ndim) if axis not in spatial) if spatial else ()


def _over_channels(of: Callable[[Array], Array], image: Array) -> Array:
    channels = _channels(image)
    if not channels:
        return of(image)
    return np.broadcast_to(np.expand_dims(of(image.mean(axis=channels)), channels), image.shape).copy()


def region_as_read(images: Any, of: Callable[[Array], Any]) -> Any:
    """The region `of` images, found as they are read where these lie in files: (n, *pixels) -> bool.

    `of` takes images to bool, (k, *pixels) -> (k, *pixels), and one image does not depend on another.
    """
    if not differ_in_size(images):
        return Derived(images, of, bool) if in_file(images) else of(to_numpy(images))
    if not in_file(images):
        return [np.asarray(of(image[None])[0]) for image in images]
    return Ragged([_OneRegion(images, i, of) for i in range(len(images))])


class _OneRegion:
    """The region of one of images that differ in size, found whenever it is asked for."""

    def __init__(self, images: Ragged, number: int, of: Callable[[Array], Any]) -> None:
        self.images = images
        self.number = number
        self.of = of
        self.shape = images.shapes[number]
        self.dtype = np.dtype(bool)

    def __getitem__(self, at: Any) -> Array:
        return np.asarray(self.of(self.images[self.number][None])[0])[at]


def region_rows(values: Any, name: str, start: int, stop: int) -> Array:
    """Images start..stop of a region, checked: a mask of bool, or weights of at least 0 in float64."""
    rows = rows_of(values, start, stop)
    if rows.dtype == bool:
        return rows
    if rows.dtype.kind in "iu":
        strange = (rows != 0) & (rows != 1) & (rows != 255)
        why = "whole numbers other than 0 and 1 (or 255); for a segmentation write labels == 2, or weights as floats"
        out = rows.astype(bool)
    else:
        check_values(name, rows, start)
        out = rows.astype(np.float64)
        strange = (out < 0) | (out > _MOST_WEIGHT)
        why = f"weights below 0 or above {_MOST_WEIGHT:g}; they must lie between"
    images = strange.reshape(len(rows), -1).any(axis=1)
    if images.any():
        raise ImageError(f"{name} has {why}, see {{image}}", start + int(np.argmax(images)))
    return out


def place_of(within: Any, band: Any, what: str, name: str) -> tuple[str, Any]:
    """Whether a region of the images of a band is a mask (bool, or 0 and 1), weights, both of their shape, or a
    subgroup of whole images, (n,); and its array, checked (`PLACES`).
    """
    values = as_images(within, what)
    if not library_of(values) and not differ_in_size(values):
        values = np.asarray(values)
    dtype = str(values.dtype).removeprefix("torch.").replace("bfloat16", "float32")
    if dtype == "object" or np.dtype(dtype).kind not in "biuf":
        raise TypeError(f"{what} has dtype {values.dtype}; give a mask of bool, or weights of at least 0")
    n = int(band.shape[0])
    if not differ_in_size(values) and tuple(values.shape) == (n,):
        mask = to_numpy(values)
        if mask.dtype != bool and not np.isin(mask, (0, 1, 255)).all():
            raise ValueError(
                f"within of {name!r} holds one value per image: give bool, True for images of the subgroup"
            )
        return "subgroup", mask.astype(bool)
    if differ_in_size(band):
        values = singly(values)
    if not differ_in_size(values) and tuple(values.shape) != tuple(band.shape):
        raise ValueError(
            f"{what} has shape {tuple(values.shape)}; give {tuple(band.shape)}, one value per image and pixel, or "
            f"({n},), one per image"
        )
    check_same_shape(band=band, **{what: values})
    return "weights" if np.dtype(dtype).kind == "f" else "region", values
