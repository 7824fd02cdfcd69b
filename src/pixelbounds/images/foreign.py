"""Arrays that come from elsewhere: masked, labelled, with units of measure, of another byte order, read once.

An array goes through `as_plain_array` at every door. What can be understood becomes a plain array; what would lose its
meaning on the way is refused, with what to write instead. A mask above all: a pixel that is masked has no value, and a
calibration that took the number beneath would promise something about it.

A DataArray of xarray also says what its axes are called and where each entry lies. That goes along beside the plain
numbers (`Axes`), from bands to intervals, and comes back with `to_xarray`; other arrays that say something else (rows
and columns swapped, other patients) are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

AXES = "axes"  # by this setting a record knows what the axes of its images were called
SIZES = "axis sizes"  # and of images of different sizes with channels how many, None for other axes
_IMAGE = "image"
_USUAL = {1: ("value",), 2: ("y", "x"), 3: ("z", "y", "x")}  # names of pixel axes that nobody named

_FILL = "fill what is masked and leave it out of the promise, within=~mask"


def optional_module(name: str, remedy: str) -> Any:
    """A module that need not be installed, or an error that says how it is."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name} is not installed; {remedy}", name=error.name) from error


_xarray = partial(optional_module, "xarray", "pip install xarray")


def as_plain_array(x: Any, name: str) -> Any:
    """`x` as a plain array where it is one of another kind, else `x` itself; what would lose its meaning is refused.

    A DataArray of xarray gives its values; a masked array without anything masked gives its data; subclasses of NumPy's
    arrays (a matrix) become plain; numbers get the byte order of this machine; an object array of arrays becomes a
    list.

    >>> as_plain_array(np.array([1.0, 2.0], ">f8"), "x").dtype
    dtype('float64')
    >>> as_plain_array(np.ma.array([1.0, 2.0], mask=[False, True]), "x")
    Traceback (most recent call last):
    TypeError: x has 1 masked values: fill what is masked and leave it out of the promise, within=~mask
    """
    if isinstance(x, list | tuple):
        changed = [as_plain_array(part, f"{name}[{i}]") for i, part in enumerate(x)]
        return x if all(a is b for a, b in zip(changed, x, strict=True)) else changed
    if hasattr(x, "__array_interface__") and not hasattr(x, "shape"):  # a picture of Pillow
        return np.asarray(x)
    if isinstance(x, Iterator):
        raise TypeError(
            f"{name} is a {type(x).__name__}, which can be read only once; give a list of its images, list({name}), or "
            "write them into a .zarr"
        )
    room = type(x).__module__.split(".")[0]
    if room == "xarray":
        return as_plain_array(_values(x, name), name)
    refuse_masked(x, name)
    if room != "pandas" and hasattr(x, "dtype") and _unit(x):
        raise TypeError(
            f"{name} has values in {_unit(x)!r}, which would be forgotten; give the numbers alone, in one unit for all "
            f"arrays, such as {name}.value, and say the unit: measure=pb.Measure(unit=...)"
        )
    if not isinstance(x, np.ndarray):
        return x
    if type(x) is not np.ndarray and not isinstance(x, np.memmap):
        x = np.ma.getdata(x).view(np.ndarray)
    if x.dtype == object and x.ndim == 1 and len(x) and all(hasattr(part, "shape") for part in x):
        return as_plain_array(list(x), name)
    return x if x.dtype.isnative else x.astype(x.dtype.newbyteorder("="))


def refuse_masked(x: Any, name: str) -> None:
    """Refuse an array in which something is masked, of NumPy, Dask or torch."""
    if isinstance(x, np.ma.MaskedArray):
        count = int(np.ma.count_masked(x))
        if count:
            raise TypeError(f"{name} has {count} masked values: {_FILL}")
    elif isinstance(getattr(x, "_meta", None), np.ma.MaskedArray):
        raise TypeError(f"{name} is a Dask array of masked arrays: {_FILL}, for example da.ma.filled({name}, 0)")
    elif type(x).__name__ == "MaskedTensor":
        raise TypeError(f"{name} is a masked tensor: {_FILL}, for example {name}.to_tensor(0)")


def _values(x: Any, name: str) -> Any:
    if not hasattr(x, "data") or not hasattr(x, "shape"):
        raise TypeError(f"{name} is a {type(x).__name__} of xarray; give one of its variables, such as {name}['truth']")
    return x.data


def _unit(x: Any) -> str:
    said = getattr(x, "unit", None)
    return str(getattr(x, "units", "") if said is None else said)


@dataclass(frozen=True, eq=False)
class Axes:
    """Names of all axes, images first, and an xarray Dataset that holds nothing but their coordinates."""

    names: tuple[str, ...]
    coordinates: Any

    def __repr__(self) -> str:
        return f"axes {', '.join(map(str, self.names))} with coordinates {', '.join(map(str, self.coordinates.coords))}"

    def taken(self, images: Any) -> Axes:
        """Of some images."""
        return Axes(self.names, self.coordinates.isel({self.names[0]: images}))

    def without(self, axis: int) -> Axes:
        """Without one of the axes, such as that of samples."""
        names = tuple(name for i, name in enumerate(self.names) if i != axis)
        lost = [name for name, x in self.coordinates.coords.items() if self.names[axis] in x.dims]
        return Axes(names, self.coordinates.drop_vars(lost))

    def check(self, other: Axes, name: str) -> None:
        """Another array has the same axes in the same order, and no other coordinates along them."""
        if other.names != self.names:
            raise ValueError(
                f"{name} has the axes {', '.join(map(str, other.names))}, but the band has "
                f"{', '.join(map(str, self.names))}; bring them into one order: {name}.transpose{self.names}"
            )
        theirs = other.coordinates.coords
        for key, ours in self.coordinates.coords.items():
            if key in theirs and not ours.equals(theirs[key]):
                raise ValueError(
                    f"{name} has other coordinates {key!r} than the band: it is of other images or pixels; bring them "
                    "together with xarray.align"
                )


def axes_of(x: Any) -> Axes | None:
    """The axes of a DataArray; None for anything else."""
    if type(x).__module__.split(".")[0] != "xarray" or not hasattr(x, "dims") or not hasattr(x, "coords"):
        return None
    return Axes(tuple(x.dims), x.coords.to_dataset())


def axes_together(parts: Mapping[str, Any]) -> Axes | None:
    """The axes of several arrays of one shape, of which those that have names agree."""
    found: Axes | None = None
    for name, x in parts.items():
        own = axes_of(x)
        if found is not None and own is not None:
            found.check(own, name)
        found = found or own
    return found


def check_same_axes(pixels: tuple[int | None, ...], names: Any, band: Any) -> None:
    """A band (or interval) has the axes of images that calibrated, (*pixels), None for any size; in one order, if both
    have names.
    """
    kind, shapes = type(band).__name__.lower(), set(getattr(band.lower, "shapes", None) or [tuple(band.pixels)])
    for own in shapes if pixels else ():
        whose = f"an image of this {kind} has shape {own}, and those of the calibration had {pixels}"
        if tuple(band.shape) == pixels:
            raise ValueError(f"{whose}: a single image is given as band[None], Band(lower[None], upper[None])")
        if len(own) != len(pixels):
            raise ValueError(
                f"{whose}: another number of axes is another kind of image, and the guarantee does not hold for it; "
                "give images as they were calibrated"
            )
        if any(size not in (None, here) for size, here in zip(pixels, own, strict=True)):
            raise ValueError(
                f"{whose}: the guarantee is about images of that grid; bring them to it, or calibrate on lists of "
                "images of all sizes that will come"
            )
    here = None if band.axes is None else [str(name) for name in band.axes.names[1:]]
    if None not in (names, here) and names != here:
        raise ValueError(
            f"this {kind} has the axes {', '.join(here or ())}, and those of the calibration had {', '.join(names)}; "
            f"bring them into that order: transpose(..., {', '.join(map(repr, names))})"
        )


def check_axes(axes: Axes | None, x: Any, name: str) -> None:
    """What comes beside a band with axes has the same ones, where it is a DataArray of as many axes."""
    own = axes_of(x)
    if axes is not None and own is not None and len(own.names) == len(axes.names):
        axes.check(own, name)


def dataset_of(arrays: Mapping[str, Any], axes: Axes | None, about: Mapping[str, str]) -> Any:
    """An xarray Dataset of arrays (n, *pixels) by name, with attributes; axes that nobody named are image, y, x."""
    xarray = _xarray()
    pixels = len(next(iter(arrays.values())).shape) - 1
    usual = (_IMAGE, *_USUAL.get(pixels, tuple(f"axis_{i}" for i in range(1, pixels + 1))))
    names = usual if axes is None else axes.names
    variables = {name: (names, x) for name, x in arrays.items()}
    return xarray.Dataset(variables, None if axes is None else axes.coordinates.coords, dict(about))


def parts_of(dataset: Any, wanted: tuple[str, ...]) -> dict[str, Any]:
    """The variables of a Dataset by name, of which the first two must be there."""
    if not isinstance(dataset, _xarray().Dataset):
        raise TypeError(f"dataset is a {type(dataset).__name__}; give an xarray Dataset with lower and upper")
    missing = [name for name in wanted[:2] if name not in dataset]
    if missing:
        held = ", ".join(map(str, dataset.data_vars)) or "nothing"
        raise ValueError(f"dataset holds {held}, and no {' or '.join(missing)}; rename its variables")
    return {name: dataset[name] for name in wanted if name in dataset}
