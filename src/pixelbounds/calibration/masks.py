"""Segmentations: a mask is an image in {0, 1}, and a network's probability p of it is the band [p, p].

The additive family makes an outer mask of it (upper end 1: the pixel cannot be excluded) and an inner mask (lower end
above 0: the pixel is certain). A pixel of the organ outside the outer mask is missed, one of the background inside the
inner mask is false. Where a promise is counted says which: within the organ, or outside it. So a calibration of masks
is a calibration of images, and all that is true of the one is true of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..images.checks import check_count, check_number, check_same_shape
from ..images.ends import Band, Interval
from ..images.library import Array, as_array, library_of, to_numpy
from ..images.source import Source
from .promises import Promise, share, tail

if TYPE_CHECKING:
    from .calibration import Calibration

SEGMENTATION = "segmentation"


def is_of_masks(calibration: Calibration) -> bool:
    """Whether a calibration is about segmentations."""
    return calibration.record.source.kind.startswith(SEGMENTATION)


def segmentation_band(probabilities: Any, *, logits: bool = False, axis: int | None = None) -> Band:
    """The band of a network's probabilities, (n, *pixels) or (n, classes, *pixels).

    logits    they are logits of single classes: the logistic function is applied
    axis      they are samples of masks, m on this axis: their mean is the probability

    >>> segmentation_band(np.array([[0.1, 0.9]]))
    Band of 1 images of shape (2,), float64, segmentation
    """
    p = as_array(probabilities, "probabilities")
    if library_of(p) == "zarr":
        import dask.array as da

        p = da.from_array(p)
    if logits:
        p = 1 / (1 + np.exp(-np.clip(to_numpy(p), -80, 80)))
    if axis is not None:
        p = p.mean(check_count(axis, "axis", least=-p.ndim, most=p.ndim - 1))
    if library_of(p) in ("numpy", "torch") and not bool(((p >= 0) & (p <= 1)).all()):
        raise ValueError(
            "probabilities must lie in [0, 1]; for the output of a network before its sigmoid: logits=True"
        )
    return _band_of(p, SEGMENTATION)


def _band_of(p: Any, kind: str) -> Band:
    likely = p >= 0.5
    return Band(p * likely, p * ~likely + likely, source=Source(kind))


def margin_band(masks: Any, spacing: float | Sequence[float] = 1.0) -> Band:
    """The band of predicted masks (n, *pixels), bool, without probabilities: the distance to their boundary.

    Widened alike everywhere, the outer mask is the prediction dilated by a margin and the inner one eroded by it;
    `spacing` is that of the pixels.
    """
    from scipy.ndimage import distance_transform_edt as distance

    masks = np.asarray(masks) > 0
    each: Any = [spacing] * (masks.ndim - 1) if np.ndim(spacing) == 0 else spacing
    steps = np.array([check_number(x, "spacing") for x in each])
    reach = float(np.hypot.reduce(np.array(masks.shape[1:]) * steps))
    p = np.zeros(masks.shape)
    for image, mask in zip(p, masks, strict=True):
        image[...] = 1.0 if mask.all() else 0.0
        if 0 < mask.sum() < mask.size:
            signed = np.where(mask, distance(mask, steps), -distance(~mask, steps))
            image[...] = 0.5 + signed / (2 * reach)
    return _band_of(p, f"{SEGMENTATION}, distance to the boundary")


def class_masks(labels: Any, classes: Mapping[str, int]) -> Array:
    """Masks of classes by name from maps of labels: whole numbers (n, *pixels) -> float32 (n, classes, *pixels).

    >>> class_masks(np.array([[0, 1, 2]]), {"lung": 1, "heart": 2})
    array([[[0., 1., 0.],
            [0., 0., 1.]]], dtype=float32)
    """
    labels = np.asarray(to_numpy(labels))
    if labels.dtype.kind not in "iub":
        raise TypeError(f"labels have dtype {labels.dtype}; give whole numbers, one per pixel")
    if not isinstance(classes, Mapping) or not classes:
        raise TypeError(f"classes is {classes!r}; give the value of each class by its name, such as {{'lung': 1}}")
    return np.stack([labels == value for value in classes.values()], axis=1).astype(np.float32)


def segmentation_promises(
    masks: Any, *, missed: float | None = None, false: float | None = None, names: Sequence[str] | None = None,
    above: float | None = None,
) -> list[Promise]:  # fmt: skip
    """What is promised of each class of true masks (n, *pixels), or (n, classes, *pixels) where `names` are given.

    missed    at most this share of the organ lies outside the outer mask, on average over images that show it; with
              `above`: at most this share of images has more than `above` of the organ there
    false     at most this share of the background lies inside the inner mask

    >>> masks = np.zeros((4, 2, 8, 8), np.float32)
    >>> [promise.name for promise in segmentation_promises(masks, missed=0.05, false=0.01, names=("lung", "heart"))]
    ['lung', 'heart', 'background of lung', 'background of heart']
    """
    masks = np.asarray(to_numpy(masks)) > 0
    if names is not None and (masks.ndim < 3 or masks.shape[1] != len(names)):
        raise ValueError(f"masks have shape {masks.shape} for {len(names)} names; classes belong on the second axis")

    def plane(c: int, value: bool) -> Array:
        region = np.zeros(masks.shape, bool)
        at = (slice(None), c) if names is not None else ()
        region[at] = masks[at] == value
        return region

    organs = ["organ"] if names is None else list(names)
    promises = []
    if missed is not None and above is None:
        promises = [share(missed, plane(c, True), name=name) for c, name in enumerate(organs)]
    elif missed is not None and above is not None:
        promises = [tail(missed, above, plane(c, True), name=name) for c, name in enumerate(organs)]
    if false is not None:
        promises += [share(false, plane(c, False), name=f"background of {name}") for c, name in enumerate(organs)]
    return promises


def volume_outside(truth: Any, interval: Interval) -> Array:
    """The loss of images whose true volume does not lie between those of the inner and the outer mask: 0 or 1, (n,).

    For `pb.loss`; of several classes together give each a calibration, or the masks of one.

    >>> volume_outside(np.array([[0.0, 1.0, 1.0]]), Interval(np.array([[0, 0, 0.5]]), np.array([[0.2, 0.4, 1]])))
    array([1.])
    """
    truth = to_numpy(as_array(truth, "truth"))
    least, most = volumes(interval)
    check_same_shape(interval=interval.lower, truth=truth)
    volume = (truth > 0).reshape(len(truth), -1).sum(axis=1)
    return np.asarray((volume < least) | (volume > most), np.float64)


def volumes(interval: Interval, voxel: float = 1.0) -> tuple[Array, Array]:
    """Volumes of the inner and of the outer mask of each image, in units of a `voxel`'s: (n,), (n,)."""
    check_number(voxel, "voxel")
    if not isinstance(interval, Interval):
        raise TypeError(f"interval is a {type(interval).__name__}; give the Interval that Calibration.apply returns")
    masks = (to_numpy(x).reshape(len(interval), -1) for x in (interval.inner, interval.outer))
    inner, outer = (mask.sum(axis=1) * voxel for mask in masks)
    return inner, outer
