"""Segmentations: a mask is an image in {0, 1}, and a network's probability p of it is the band [p, p].

The additive family makes an outer mask of it (upper end 1: the pixel cannot be excluded) and an inner mask (lower end
above 0: the pixel is certain). A pixel of the organ outside the outer mask is missed, one of the background inside the
inner mask is false. Where a promise is counted says which: within the organ, or outside it. So a calibration of masks
is a calibration of images, and all that is true of the one is true of the other.

`calibrate_masks` uses what is special about masks: a missed pixel of a class lies at an upper end of that class, a
false one at a lower end. So each promise depends on one threshold. Each threshold is tested from the wide end on all
images, and none is needed to fit. Of m promises each is tested at failure probability delta / m; those that hold at the
narrowest masks leave their part to the others (Holm). Let k promises be broken at the narrowest masks. Before the first
error only the m - k others can have left their parts, so no test of the k had more than delta / k. A test that passes
at some failure probability passes at each greater one: bets are made once, for delta / m.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np

from ..images.checks import check_count, check_number, check_same_shape
from ..images.ends import Band, Interval
from ..images.library import Array, as_array, differ_in_size, library_of, to_numpy
from ..images.source import Source
from ..kernels.bets import betting_wealth
from .bounds import BOUNDS, binomial, rejects
from .calibration import Calibration, settings_of
from .certify import CertifiedPoint, LossTable, fixed_sequence_test, loss_table
from .data import CalibrationData
from .groups.positions import ClassSides
from .methods import RCPS, split
from .paths.path import Path
from .promises import CertifiedPromise, Promise, share, tail
from .target import RiskTest, Target, risk_test_of

SEGMENTATION = "segmentation"
# widenings that are tested: even in logits, for probabilities, and in distance, for margins
_MARGINS = np.unique([0.0, *(1 / (1 + np.exp(-np.linspace(0, 16, 1025)))), *np.linspace(0.5, 1, 1025)])
_USUAL = int(np.searchsorted(_MARGINS, 0.9))  # bands are described there (monitoring)


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
    if axis is not None and isinstance(probabilities, np.ndarray) and probabilities.dtype.kind == "b":
        probabilities = probabilities.astype(np.float32)
    p = as_array(probabilities, "probabilities")
    if differ_in_size(p):
        raise ValueError("probabilities are of images of different sizes; bring these to one size")
    if library_of(p) == "zarr":
        import dask.array as da

        p = da.from_array(p)
    if logits:
        p = 1 / (1 + np.exp(-np.clip(to_numpy(p), -80, 80)))
    if axis is not None:
        p = p.mean(check_count(axis, "axis", least=-p.ndim, most=p.ndim - 1))
    if library_of(p) in ("numpy", "torch") and not bool(((p >= 0) & (p <= 1)).all()):
        raise ValueError("probabilities must lie in [0, 1]; if they are logits, before a sigmoid, say logits=True")
    return _band_of(p, SEGMENTATION)


def _band_of(p: Any, kind: str) -> Band:
    likely = p >= 0.5
    return Band(p * likely, p * ~likely + likely, source=Source(kind))


def margin_band(masks: Any, spacing: float | Sequence[float] = 1.0) -> Band:
    """The band of predicted masks (n, *pixels), bool, without probabilities: the distance to their boundary.

    Widened alike everywhere, the outer mask is the prediction dilated by a margin and the inner one eroded by it.
    `spacing` is that of the pixels, one number or one for each axis. Axes before these count masks of their own: masks
    (n, classes, h, w) take two numbers.
    """
    from scipy.ndimage import distance_transform_edt as distance

    masks = np.asarray(masks) > 0
    each: Any = [spacing] * (masks.ndim - 1) if np.ndim(spacing) == 0 else spacing
    steps = np.array([check_number(x, "spacing") for x in each])
    if not 0 < len(steps) < masks.ndim or (steps <= 0).any():
        raise ValueError(f"spacing is {spacing}; give numbers above 0, at most one for each axis of {masks.shape[1:]}")
    pixels = masks.shape[-len(steps) :]
    reach = float(np.hypot.reduce(np.array(pixels) * steps))
    p = np.zeros(masks.shape)
    for image, mask in zip(p.reshape(-1, *pixels), masks.reshape(-1, *pixels), strict=True):
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


def calibrate_masks(
    truth: Any,
    band: Band,
    *,
    missed: float | None = None,
    false: float | None = None,
    names: Sequence[str] | None = None,
    above: float | None = None,
    failure_prob: float = 0.1,
    bound: Any = "betting",
    units: Any = None,
    seed: Any = 0,
) -> Calibration:
    """The calibration of two thresholds for each class, of the outer and of the inner mask.

    truth    masks of 0 and 1, (n, *pixels), or (n, classes, *pixels) where `names` are given
    band     their band: `segmentation_band` or `margin_band`
    missed, false, names, above    as in `segmentation_promises`; all that they ask for holds jointly
    failure_prob, bound, units, seed    as in `calibrate`; seed is that of the order of the images

    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=(200, 2, 8, 8))
    >>> masks = (rng.uniform(size=p.shape) < p).astype(np.float32)
    >>> calibration = calibrate_masks(masks, segmentation_band(p), missed=0.1, false=0.1, names=("lung", "heart"))
    >>> [promise.risk < 0.1 for promise in calibration.promises]
    [True, True, True, True]
    """
    if missed is None and false is None:
        raise ValueError("nothing is asked for: say missed=, false=, or both, each a share such as 0.1")
    if not np.isin(np.unique(np.asarray(to_numpy(truth))), (0, 1)).all():
        raise ValueError("truth has values other than 0 and 1; give masks, such as labels == 2")
    promises = segmentation_promises(truth, missed=missed, false=false, names=names, above=above)
    target = Target(promises, failure_prob, bound)
    if target.bound is BOUNDS["conformal"]:
        raise ValueError("bound is 'conformal', which says nothing with high probability; use another, such as betting")
    data = CalibrationData(truth, band, units)
    if not data.band.source.kind.startswith(SEGMENTATION):
        raise ValueError(f"the band is {data.band.source}; make it with segmentation_band or margin_band")
    classes = 1 if names is None else len(names)
    certifying = split(data, target, RCPS(), seed).certifying
    path = Path(np.tile(_MARGINS, (2 * classes, 1)), ClassSides(classes), _USUAL)
    table = loss_table(certifying, path, target)
    found = _thresholds(table, target)
    at = np.zeros(2 * classes, np.int64)  # where nothing is promised, the network's own mask stays
    for i, (narrowest, _) in enumerate(found):
        at[2 * (i % classes) + int(missed is not None and i < classes)] = narrowest
    widening = path.points[np.arange(len(at)), at]
    table = replace(table, path=Path(widening[:, None], path.grouping))
    point = CertifiedPoint(0, 1.0, tuple(promise for _, promise in found), np.empty((0, 3)), 0)
    return Calibration.of(table, point, target, "thresholds", str(seed), settings_of(RCPS(), data))


@dataclass(frozen=True, eq=False)
class _NestedTest(RiskTest):
    """A test whose bets are made for the failure probability `for_prob`, whatever its own is."""

    for_prob: float

    def passes(self, losses: Array) -> bool:
        """Whether the bound is below the level; of bets, whether they have won enough."""
        if self.bound is BOUNDS["betting"]:
            return bool(betting_wealth(losses, self.level, self.for_prob) > -log(self.failure_prob))
        nested = self.bound in (*BOUNDS.values(), binomial)  # as is not known of a user's own
        return rejects(self.bound, losses, self.failure_prob if nested else self.for_prob, self.level)


def _thresholds(table: LossTable, target: Target) -> list[tuple[int, CertifiedPromise]]:
    """The narrowest point at which each promise is certified, in Holm's way, and what was seen there."""
    images = table.images
    tests = [
        risk_test_of(
            risk, table.sizes, images.images, images.data.unit_of, images.order, target.bound,
            target.failure_prob / len(images.risks), zero_one=images.data.units is None and risk.kind == "tail",
        )
        for risk in images.risks
    ]  # fmt: skip
    tests = [_NestedTest(**vars(test), for_prob=test.failure_prob) for test in tests]
    left = list(range(len(tests)))
    found: dict[int, tuple[int, CertifiedPromise]] = {}
    while left:
        tried = {i: _narrowest(table, replace(tests[i], failure_prob=target.failure_prob / len(left))) for i in left}
        found |= tried
        if all(point > 0 for point, _ in tried.values()):
            break
        left = [i for i in left if tried[i][0] > 0]
    return [found[i] for i in range(len(found))]


def _narrowest(table: LossTable, test: RiskTest) -> tuple[int, CertifiedPromise]:
    risk, points = test.risk, len(table.path)
    size = table.sizes[:, risk.region]

    def losses(point: int) -> Array:
        return test.losses(risk.losses(np.asarray(table.missed[risk.region * points + point]), size))

    point = fixed_sequence_test(test, losses, points, 0, table.images.data)
    seen = losses(point)
    return point, risk.certified(test.units.max_images, test.risk_of(seen), len(seen))


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
