"""Two ends per pixel: a `Band` before calibration, an `Interval` after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np

from .checks import ImageError, Limits, check_ordered, check_same_shape, check_values
from .foreign import Axes, as_plain_array, axes_together, check_axes, dataset_of, parts_of
from .library import (
    Array,
    Runner,
    as_array,
    as_images,
    differ_in_size,
    in_memory,
    is_plain,
    joined,
    library_of,
    over_images,
    rows_of,
    singly,
    to_numpy,
)
from .measure import Measure
from .notebook import facts_html, first_images_html
from .source import NOT_KNOWN, Source, source_from

_IMAGES = ("lower", "upper", "centre")


class _Ends:
    lower: Any
    upper: Any
    axes: Axes | None

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, *pixels)."""
        return tuple(self.lower.shape)

    @property
    def pixels(self) -> tuple[int, ...]:
        """Shape of one image; () where images differ in size."""
        return self.shape[1:]

    @property
    def parts(self) -> dict[str, Any]:
        """Lower, upper and, where there is one, centre."""
        return {name: x for name in _IMAGES if (x := getattr(self, name, None)) is not None}

    def __len__(self) -> int:
        return int(self.lower.shape[0])

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {len(self)} images of {self._size}, {self.lower.dtype}"

    @property
    def _size(self) -> str:
        return "different sizes" if differ_in_size(self.lower) else f"shape {self.pixels}"

    def to_xarray(self) -> Any:
        """A Dataset of xarray with lower, upper and, where there is one, centre; names and coordinates as they came."""
        if differ_in_size(self.lower):
            raise ValueError("images differ in size, and a Dataset has one grid for all; write them with write_ragged")
        arrays = {name: x if library_of(x) == "dask" else to_numpy(x) for name, x in self.parts.items()}
        source = getattr(self, "source", NOT_KNOWN)
        return dataset_of(arrays, self.axes, {"source": json.dumps(source.state())} if source.known else {})

    def _html(self, title: str, between: str, **more: Any) -> str:
        facts = {"images": len(self), "shape": self._size, "type": self.lower.dtype, **more}
        parts = () if differ_in_size(self.lower) else ("lower", "upper", between)
        return facts_html(title, facts, first_images_html({name: getattr(self, name) for name in parts}))


@dataclass(frozen=True, eq=False, repr=False)
class Band(_Ends):
    """Lower and upper image per observation, (n, *pixels), before calibration; some families widen about a `centre`.

    `source` says how the band was made (a `Source`, or a string that is its kind); a calibration refuses a band that
    was made in another way. `family` says how it widens ("additive", "scaled", "multiplicative" or a `Family`; default:
    scaled where there is a centre, else additive). `axes` are names and coordinates that DataArrays of xarray brought.

    >>> Band(np.zeros((2, 3)), np.ones((2, 3)))
    Band of 2 images of shape (3,), float64
    """

    lower: Any
    upper: Any
    centre: Any = None
    source: Any = NOT_KNOWN
    axes: Axes | None = None
    family: Any = None

    def __post_init__(self) -> None:
        given = self.parts
        if self.axes is None and not all(map(is_plain, given.values())):
            object.__setattr__(self, "axes", axes_together({f"band.{name}": x for name, x in given.items()}))
        parts = {name: as_array(x, f"band.{name}") for name, x in given.items()}
        if not {"lower", "upper"} <= parts.keys():
            raise TypeError("a Band needs both lower and upper; give two arrays of shape (n, *pixels)")
        check_same_shape(**parts)
        vars(self).update(parts, source=source_from(self.source))
        if all(in_memory(x) for x in parts.values()):
            for _ in over_images(self.rows, self.lower, Runner()):
                pass

    def __repr__(self) -> str:
        return super().__repr__() + (f", {self.source}" if self.source.known else "")

    def _repr_html_(self) -> str:
        return self._html("Band, before calibration", "width", made=self.source)

    def __getitem__(self, images: Any) -> Band:
        if isinstance(images, int | np.integer):
            raise TypeError(f"a Band is indexed by several images; write band[{images}:{images + 1}]")
        chosen = self.map(lambda x: x[images])
        return chosen if self.axes is None else replace(chosen, axes=self.axes.taken(images))

    @property
    def width(self) -> Any:
        """Upper minus lower, (n, *pixels)."""
        return self.upper - self.lower

    @property
    def arrays(self) -> list[Any]:
        """Lower, upper and, where there is one, centre."""
        return list(self.parts.values())

    def map(self, function: Callable[[Any], Any], *, checked: bool = False) -> Band:
        """The band with a function applied to each of its arrays; `checked`: the result needs no further check."""
        parts = {name: function(x) for name, x in self.parts.items()}
        return (trusted_band if checked else Band)(**parts, source=self.source, family=self.family)

    def with_family(self, family: Any) -> Band:
        """The same band, which widens as another family does."""
        return trusted_band(self.lower, self.upper, self.centre, self.source, family, self.axes)

    @classmethod
    def from_xarray(cls, dataset: Any) -> Band:
        """The band of a Dataset of xarray with lower, upper and perhaps centre; images along the first axis."""
        said = getattr(dataset, "attrs", {}).get("source")
        source = NOT_KNOWN if said is None else Source.from_state(json.loads(said))
        return cls(**parts_of(dataset, _IMAGES), source=source)

    def rows(self, start: int, stop: int) -> Band:
        """Images start..stop in NumPy, checked: finite, lower at most upper."""
        rows = self.map(lambda x: rows_of(x, start, stop), checked=True)
        for name, x in rows.parts.items():
            check_values(f"band.{name}", x, start)
        check_ordered(rows.lower, rows.upper, start)
        return rows


def trusted_band(
    lower: Any, upper: Any, centre: Any = None, source: Source = NOT_KNOWN, family: Any = None, axes: Axes | None = None
) -> Band:
    """A Band of arrays that were checked already."""
    band = object.__new__(Band)
    vars(band).update(lower=lower, upper=upper, centre=centre, source=source, axes=axes, family=family)
    return band


def one_band(band: Any) -> Band:
    """A band, or the images of several bands as one."""
    if isinstance(band, list | tuple) and band and all(isinstance(part, Band) for part in band):
        if len({(part.source, part.centre is None) for part in band}) > 1:
            sources = sorted({str(part.source) for part in band})
            raise ValueError(
                f"bands of one set must have one source, and all or none a centre; these are of {'; '.join(sources)}"
            )
        parts = {name: joined([part.parts[name] for part in band]) for name in band[0].parts}
        return Band(**parts, source=band[0].source, family=band[0].family)
    if not isinstance(band, Band):
        raise TypeError(f"band is a {type(band).__name__}; wrap your bounds as pixelbounds.Band(lower, upper)")
    return band


@dataclass(frozen=True, eq=False, repr=False)
class Interval(_Ends):
    """Calibrated ends per pixel, (n, *pixels).

    `axes` are names and coordinates that DataArrays of xarray brought, `measure` is what the numbers stand for and
    `limits` where all ends lie, as the calibration knows it: maps in Hounsfield units are written of such numbers only.

    >>> Interval(np.zeros((1, 2)), np.array([[0.5, 1.0]])).length
    array([[0.5, 1. ]])
    """

    lower: Any
    upper: Any
    axes: Axes | None = None
    measure: Measure | None = None
    limits: Limits | None = None

    def __post_init__(self) -> None:
        given = {"interval.lower": self.lower, "interval.upper": self.upper}
        if self.axes is None and not is_plain(self.lower):
            object.__setattr__(self, "axes", axes_together(given))
        parts = {name.removeprefix("interval."): as_array(x, name) for name, x in given.items()}
        check_same_shape(**parts)
        vars(self).update(parts)

    def _repr_html_(self) -> str:
        return self._html("Interval, calibrated", "length")

    @property
    def length(self) -> Any:
        """Upper minus lower, (n, *pixels)."""
        return self.upper - self.lower

    @property
    def outer(self) -> Any:
        """Of a segmentation: pixels that cannot be excluded, bool (n, *pixels)."""
        return self.upper >= 1

    @property
    def inner(self) -> Any:
        """Of a segmentation: pixels that are certain, bool (n, *pixels)."""
        return self.lower > 0

    @classmethod
    def from_xarray(cls, dataset: Any) -> Interval:
        """The interval of a Dataset of xarray with lower and upper; images along the first axis."""
        return cls(**parts_of(dataset, ("lower", "upper")))

    def contains(self, truth: Any) -> Any:
        """Whether each true pixel lies within its interval, (n, *pixels) -> bool."""
        check_axes(self.axes, truth, "truth")
        truth = as_array(truth, "truth")
        check_same_shape(interval=self.lower, truth=truth)
        if differ_in_size(self.lower):
            ends = zip(truth, self.lower, self.upper, strict=True)
            return [(x >= lower) & (x <= upper) for x, lower, upper in ends]
        return (truth >= self.lower) & (truth <= self.upper)


def outward(lower: Array, upper: Array, dtype: Any) -> tuple[Array, Array]:
    """Ends rounded to `dtype`, lower down and upper up, so that a stored interval still holds what it held."""
    ends = []
    for x, towards, short in ((lower, -np.inf, np.greater), (upper, np.inf, np.less)):
        rounded = x.astype(dtype)
        wrong = short(rounded.astype(x.dtype), x)
        rounded[wrong] = np.nextafter(rounded[wrong], rounded.dtype.type(towards))
        ends.append(rounded)
    return ends[0], ends[1]


def check_range(name: str, parts: Sequence[Array], start: int, limits: Limits) -> None:
    """Refuse images on another scale than the limits, such as 0..255 for limits (0, 1): the mean of some parts."""
    span = limits[1] - limits[0]
    if not isfinite(span):
        return
    middle = np.mean([x.reshape(len(x), -1).mean(axis=1) for x in parts], axis=0)
    wrong = (middle < limits[0] - span / 2) | (middle > limits[1] + span / 2)
    if wrong.any():
        image = int(np.argmax(wrong))
        raise ImageError(
            f"{name} of {{image}} has mean {middle[image]:.6g}, far outside the limits ({limits[0]:g}, "
            f"{limits[1]:g}); bring band and truth to one scale, or set limits (limits=, --limits)",
            start + image,
        )


def check_labels(labels: Any, band: Band) -> Any:
    """Labels known at test time: whole numbers (n, *pixels), or a list of them where images differ in size."""
    if labels is None:
        return None
    check_axes(band.axes, labels, "labels")
    labels = as_images(labels, "labels")
    if not library_of(labels) and not differ_in_size(labels):
        raise TypeError(f"labels is a {type(labels).__name__}; give an array, one whole number per image and pixel")
    dtype = str(labels.dtype).removeprefix("torch.")
    if not dtype.startswith(("int", "uint", "bool")):
        raise TypeError(f"labels have dtype {labels.dtype}; give whole numbers, one per image and pixel")
    if differ_in_size(band.lower) and not differ_in_size(labels):
        labels = singly(labels)
    check_same_shape(band=band.lower, labels=labels)
    return labels


def check_features(features: Any, band: Band) -> Any:
    """Images known at test time: (n, *pixels) for one, (n, f, *pixels) for f of them, or a list of (n, *pixels)."""
    if features is None:
        return None
    if differ_in_size(band.lower):
        raise ValueError("features are for images of one size; leave them out, or bring the images to one size")
    features = as_plain_array(features, "features")
    if isinstance(features, list | tuple) and len(features):
        parts = {f"features[{i}]": as_array(x, f"features[{i}]") for i, x in enumerate(features)}
        check_same_shape(band=band.lower, **parts)
        features = np.stack([to_numpy(x) for x in parts.values()], axis=1)
    features = as_array(features, "features")
    if library_of(features) == "zarr":  # a zarr array takes no new axis
        import dask.array as da

        features = da.from_array(features)
    shape = tuple(features.shape)
    if shape == band.shape:
        return features[:, None]
    if len(shape) == len(band.shape) + 1 and (shape[0], *shape[2:]) == band.shape:
        return features
    raise ValueError(
        f"features have shape {shape}, but the band has {band.shape}; give (n, *pixels) or (n, f, *pixels)"
    )
