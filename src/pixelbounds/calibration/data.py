"""S_cal: truth and band of the calibration images, validated once, and read as statistics of blocks (Section 3.2).

`CalibrationData(truth, band, ...)` is the door: whatever calibrates, evaluates or monitors comes through it, and inner
functions trust it. Images may lie in memory, in a store, on a device; they are read block by block.

Fitting and certifying see images only through `aggregate`: a `Statistic` says what is counted of a block and how the
counts of blocks become one. Counts are exact in any order, so a subclass may leave images where they lie
(`pixelbounds.federated`); of it only what statistics tell is known (`at_hand`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import wraps
from itertools import chain
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..images.checks import ImageError, Limits, check_limits, check_same_shape, check_values, own_limits
from ..images.ends import Band, check_features, check_labels, check_range, one_band
from ..images.foreign import AXES, SIZES, Axes, check_axes
from ..images.library import (
    Array,
    Runner,
    alike,
    as_array,
    block_of,
    channel_axis,
    chosen_of,
    current_runner,
    differ_in_size,
    over_images,
    rescale_uint8,
    rows_of,
    singly,
    sizes_of,
)
from ..images.measure import Measure
from ..images.regions import region_rows
from ..images.source import Source
from ..kernels.values import survey
from .block import ROWS as ROWS
from .block import Block, Grouping, Statistic, image_hashes, known_rows
from .block import statistic as statistic
from .families import FAMILIES, Family, additive, check_nested, family_named
from .promises import RiskTarget, risk_targets_of
from .target import Target, Units, units_of
from .words import plural

T = TypeVar("T")
G = TypeVar("G", bound=Grouping)
NO_GRID = "but the images differ in size: use groups='band' or 'learned', or method='rcps'"
HERE = Runner()  # threads of this process
_SLIVER = 0.05  # of the spread of the truth: a band within it is on another scale
_TRIED_IMAGES = 16  # for that
_TRIED_VALUES = 2**12  # of each of them
_TRIED_PIXELS = 2**23  # that are read, beyond the first image


class CalibrationData:
    """Calibration images, (n, *pixels) each, or lists where images differ in size, that answer statistics.

    truth     within the limits; 8-bit images span them
    band      a Band, or a list of Bands; its family says how it widens
    units     unit of each image, (n,), or `Units`; default: every image is its own
    labels    whole numbers (n, *pixels) known at test time; groups then lie within labels
    features  further images known at test time: (n, *pixels), (n, f, *pixels), or a list
    limits    least and greatest possible value; None for none
    measure   what the numbers stand for
    """

    family: Family
    limits: Limits
    runner: Runner = HERE
    units: Units | None = None
    unit_of: Array  # number of each image's unit, (n,)
    measure: Measure | None = None
    labels: Any = None  # known at test time
    features: Any = None
    regions: tuple[tuple[str, Any], ...] = ()  # name and mask or weights of each
    at_hand: ClassVar[bool] = True  # whether truth and band can be read here

    def __init__(
        self, truth: Any, band: Any, units: Any = None, labels: Any = None, features: Any = None,
        limits: Any = (0.0, 1.0), measure: Measure | None = None,
    ) -> None:  # fmt: skip
        if measure is not None and not isinstance(measure, Measure):
            raise TypeError(f"measure is {measure!r}; give a pixelbounds.Measure, or leave it out")
        self.limits = check_limits(limits)
        self.truth, self.band = truth_and_band(truth, band, self.limits)
        plain = self.band.family is self.band.centre is None
        self.family = additive if plain else family_named(self.band.family, self.band)
        self.features = check_features(features, self.band)
        self.labels = check_labels(labels, self.band)
        self.units, self.unit_of = units_of(units, len(self.band))
        self.measure = measure
        self.runner = current_runner()

    @property
    def nouns(self) -> str:
        """What its units are called, more than one."""
        return "images" if self.units is None else plural(self.units.name)

    def __len__(self) -> int:
        return len(self.sizes)

    def _with(self, **changes: Any) -> CalibrationData:
        """The same with some fields changed, which are trusted."""
        changed = object.__new__(type(self))  # `copy` would forget the runner, as what travels does
        vars(changed).update(vars(self) | changes)
        return changed

    def with_regions(self, regions: tuple[tuple[str, Any], ...]) -> CalibrationData:
        """The data with checked regions, masks or weights (n, *pixels) by name, that are counted beside all pixels."""
        return self._with(regions=regions)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to a worker knows of no cluster."""
        return {**vars(self), "runner": HERE}

    @property
    def sizes(self) -> Array:
        """Pixels of each image, (n,)."""
        return sizes_of(self.band.lower)

    @property
    def pixels(self) -> tuple[int, ...]:
        """Shape of one image; () where images differ in size."""
        return self.band.pixels

    @property
    def source(self) -> Source:
        """How the band was made."""
        return self.band.source

    @property
    def grid(self) -> dict[str, Any]:
        """What a record keeps of the axes of an image: their names, and where images differ in size how long those
        are that hold channels.
        """
        known: dict[str, Any] = {}
        if self.at_hand and not self.pixels:
            axes = [set(sizes) for sizes in zip(*self.band.lower.shapes, strict=True)]
            channels = channel_axis([max(sizes) for sizes in axes])
            if channels is not None and len(axes[channels]) == 1:
                known[SIZES] = [max(sizes) if i == channels else None for i, sizes in enumerate(axes)]
        return known if self.band.axes is None else known | {AXES: [str(name) for name in self.band.axes.names[1:]]}

    @property
    def reads(self) -> list[Any]:
        """The arrays that a block is read from."""
        more = (self.features, self.labels, *(values for _, values in self.regions))
        return [x for x in (self.truth, *self.band.arrays, *more) if x is not None]

    def with_promises(self, target: Target) -> tuple[CalibrationData, tuple[RiskTarget, ...]]:
        """The data with the regions that promises are about, and the promises as they are counted on these images."""
        for promise in target.promises if self.band.axes is not None else ():
            check_axes(self.band.axes, promise.within, f"within of {promise.name!r}")
        weighting, most = (self.units.weighting, self.units.max_images or 0) if self.units else ("units", 0)
        risks, regions = risk_targets_of(target.promises, self.band.lower, weighting, self.units is not None, most)
        return self._with(regions=regions), risks

    def having(self) -> Array:
        """Which images have each region, all pixels first: bool (n, 1 + regions); regions alone are read."""

        def work(start: int, stop: int) -> Array:
            rows = [region_rows(values, name, start, stop).reshape(stop - start, -1) for name, values in self.regions]
            return np.stack([np.ones(stop - start, bool), *((row > 0).any(axis=1) for row in rows)], axis=1)

        reads = [values for _, values in self.regions]
        return np.concatenate(list(over_images(work, self.band.lower, self.runner, reads)))

    def parts(self, statistic: Statistic, images: Array | None = None, **given: Any) -> Iterable[tuple[Array, ...]]:
        """A statistic of the blocks of all images, or of some (ascending), in order."""
        family = self.family
        return self.over_blocks(lambda truth, block: statistic.count(truth, block, family, **given), images)

    def aggregate(self, statistic: Statistic, images: Array | None = None, **given: Any) -> tuple[Array, ...]:
        """A statistic of all images, or of some (ascending)."""
        return statistic.merge(self.parts(statistic, images, **given))

    def read(self, start: int, stop: int) -> tuple[Array, Block]:
        """Truth and block of images start..stop, checked and of one dtype."""
        truth = rows_of(self.truth, start, stop)
        band = self.band.map(lambda x: rows_of(x, start, stop), checked=True)
        dtype = np.result_type(truth, band.lower, band.upper)
        truth = truth.astype(dtype, copy=False)
        band = band.map(lambda x: x.astype(dtype, copy=False), checked=True)
        flat = [x.reshape(-1) for x in (truth, band.lower, band.upper)]
        span = self.limits[1] - self.limits[0]
        good, outside, far = survey(*flat, *own_limits(self.limits, dtype), span)
        if good < truth.size or far > 0 or band.centre is not None:  # the slow road finds out what and where
            check_values("truth", truth, start, self.limits)
            rows = self.band.rows(start, stop)
            check_range("band", (rows.lower, rows.upper), start, self.limits)
        features, labels = known_rows(self.features, self.labels, start, stop)
        regions = tuple(region_rows(values, name, start, stop) for name, values in self.regions)
        return truth, Block(start, band, self.limits, features, labels, outside, regions)

    def over_blocks(self, work: Callable[[Array, Block], T], images: Array | None = None) -> Iterator[T]:
        """`work(truth, block)` over all images in order, or over some (ascending), in blocks."""
        if images is None or len(images) == len(self):
            return over_images(lambda a, b: work(*self.read(a, b)), self.band.lower, self.runner, self.reads)

        def some(start: int, stop: int) -> list[T]:
            return [work(*self.gather(run)) for run in alike(self.band.lower, images[start:stop])]

        block = block_of(int(self.sizes.mean()), len(images))
        return chain.from_iterable(self.runner.over(some, len(images), block, self.reads))

    def take(self, images: Array) -> CalibrationData:
        """Some images (ascending) in memory, checked; images of different sizes stay where they are."""
        part = self._some(images)
        if not differ_in_size(self.band.lower):
            part._read_all(images)
        return part

    def gather(self, images: Array) -> tuple[Array, Block]:
        """Truth and block of some images (ascending), of one size."""
        return self._some(images)._read_all(images)

    def _some(self, images: Array) -> CalibrationData:
        return self._with(
            truth=chosen_of(self.truth, images), band=self.band.map(lambda x: chosen_of(x, images), checked=True),
            features=chosen_of(self.features, images), labels=chosen_of(self.labels, images),
            regions=tuple((name, chosen_of(values, images)) for name, values in self.regions),
            unit_of=self.unit_of[images],
        )  # fmt: skip

    def _read_all(self, numbers: Array) -> tuple[Array, Block]:
        """All images, which errors name by these numbers."""
        try:
            return self.read(0, len(numbers))
        except ImageError as error:
            raise ImageError(error.message, int(numbers[error.image])) from error

    def check_bands(self, images: Array) -> None:
        """Refuse a family that is not nested, and warn of a band on another scale, on some images; none: on all."""
        images = images if len(images) else np.arange(len(self))
        _check_family(self, images)
        _check_scales(self, images)


# ---------------------------------------------------------------- images at the door


def check_fitting(pairs: Any, images: Any) -> None:
    """CalibrationData, and the numbers of at least one of their images, ascending."""
    if not isinstance(pairs, CalibrationData):
        raise TypeError(f"data is a {type(pairs).__name__}; give pixelbounds.CalibrationData(truth, band)")
    numbers = np.asarray(images)
    if numbers.ndim != 1 or not len(numbers) or numbers.dtype.kind not in "iu":
        raise ValueError(f"images is {images!r}; give the numbers of the fitting images, at least one")
    if numbers.min() < 0 or numbers.max() >= len(pairs) or (np.diff(numbers) <= 0).any():
        raise ValueError(f"images is {images!r}; the numbers must ascend within 0..{len(pairs) - 1}")


def truth_and_band(truth: Any, band: Any, limits: Limits) -> tuple[Any, Band]:
    """Truth and band, checked, of one shape; 8-bit truth spans the limits."""
    if isinstance(truth, Band) and not isinstance(band, Band):
        raise TypeError("truth is a Band: the truth comes first, and then the band")
    given, band = band, one_band(band)
    if isinstance(given, list | tuple) and len(given) == len(truth) != len(band):
        raise ValueError(
            f"the {len(given)} Bands hold {len(band)} images in all, for {len(truth)} truths; a Band holds images "
            "(n, *pixels), so that of a single one is pixelbounds.Band(lower[None], upper[None])"
        )
    truth = true_images(truth, limits, band.axes)
    if differ_in_size(truth):
        band = band.map(singly, checked=True)
    return true_images(truth, limits, None, band=band.lower), band


def true_images(truth: Any, limits: Limits, axes: Axes | None = None, **beside: Any) -> Any:
    """True images as an array, 8-bit ones between the limits; `beside` are images by name, of the same shape."""
    if axes is not None:
        check_axes(axes, truth, "truth")
    truth = as_array(rescale_uint8(truth, limits), "truth")
    if any(differ_in_size(x) for x in beside.values()):
        truth = singly(truth)
    check_same_shape(**beside, truth=truth)
    return truth


def _check_family(data: CalibrationData, images: Array) -> None:
    if data.family.name in FAMILIES:
        if FAMILIES[data.family.name] is not data.family:
            raise ValueError(f"your family is called {data.family.name!r}, a name that is taken; give it another")
        return
    span = data.limits[1] - data.limits[0]
    for some in alike(data.band.lower, images):
        truth, block = data.gather(some)
        check_nested(data.family, truth, block.band, span if np.isfinite(span) else float(np.ptp(truth)) or 1.0)


def _check_scales(data: CalibrationData, images: Array) -> None:
    """Warn where all values of the band lie within a sliver of those of the truth, on some of these images.

    Ends are compared from their 0.1% to their 99.9% quantile, the truth from 1% to 99%: a few bright pixels that a
    band misses, or a band about a blurred image, are no other scale.
    """
    count = int(np.clip(_TRIED_PIXELS // max(1, int(data.sizes.mean())), 1, min(_TRIED_IMAGES, len(images))))
    some = images[np.unique(np.linspace(0, len(images) - 1, count).round().astype(int))]
    truths: list[Array] = []
    ends: list[Array] = []
    for run in alike(data.band.lower, some):
        truth, block = data.gather(run)
        for part, kept in ((truth, truths), (block.band.lower, ends), (block.band.upper, ends)):
            flat = part.reshape(len(part), -1)
            kept.append(flat[:, :: -(-flat.shape[1] // _TRIED_VALUES)].reshape(-1))
    least, most = np.quantile(np.concatenate(truths), (0.01, 0.99)).tolist()
    low, high = np.quantile(np.concatenate(ends), (0.001, 0.999)).tolist()
    flat_band = all((x == ends[i % 2][0]).all() for i, x in enumerate(ends))  # it knows nothing, on any scale
    if high - low < _SLIVER * (most - least) and not flat_band:
        warnings.warn(
            f"the band's values lie between {low:.4g} and {high:.4g}, a sliver of the truth's, {least:.4g} to "
            f"{most:.4g}: are they on one scale? Intervals are valid, but far longer than they need be: bring band and "
            "truth to one scale",
            stacklevel=3,
        )


@dataclass(frozen=True, eq=False)
class FittingImages:
    """S_opt: images that shape groups and path.

    data        these images alone; all images where none fits
    images      their numbers in `data`, ascending; empty where none fits
    risks       the promises as they are counted on these images
    certifying  how many units will certify
    """

    data: CalibrationData
    images: Array
    risks: tuple[RiskTarget, ...]
    certifying: int

    @property
    def unit_of(self) -> Array:
        """Number of each fitting image's unit."""
        return self.data.unit_of[self.images]

    @property
    def units(self) -> int:
        """How many units fit."""
        return len(np.unique(self.unit_of))

    def weighed(self, target: Target) -> tuple[RiskTarget, ...]:
        """The promises whose misses shape the path; none for one share of all pixels, or for losses that see images."""
        return () if target.of_all_pixels else tuple(risk for risk in self.risks if risk.counts_only)

    def take(self, images: Array) -> FittingImages:
        """Some of them alone, by their places among these; read once."""
        risks = tuple(risk.take(images) for risk in self.risks)
        return FittingImages(self.data.take(self.images[images]), np.arange(len(images)), risks, self.certifying)


@dataclass(frozen=True, eq=False)
class CertifyingImages:
    """S_rcps: images that decide how far along the path to go.

    data      all images
    images    which of them certify, bool (n,)
    order     the certifying units in random order, as bets need it
    risks     the promises as they are counted on all images
    fitting   the images that fit
    shares    how much the unit of each image counts, (n,), in [0, 1]; None: all the same
    """

    data: CalibrationData
    images: Array
    order: Array
    risks: tuple[RiskTarget, ...]
    fitting: FittingImages
    shares: Array | None = None


def remembered(fit: Callable[..., G]) -> Callable[..., G]:
    """A function that fits groups on some images of pairs, which are checked first, made to remember those images."""

    @wraps(fit)
    def fitted(pairs: CalibrationData, images: Array, *more: Any, **settings: Any) -> G:
        check_fitting(pairs, images)
        grouping = fit(pairs, images, *more, **settings)
        if not pairs.at_hand:  # images that stay elsewhere are not known here
            return grouping
        return grouping.on_images(pairs.aggregate(image_hashes, np.asarray(images))[1])

    return fitted
