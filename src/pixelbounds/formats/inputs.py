"""Files to truth, bands, intervals, units and labels.

A band comes as a run of `pixelbounds sample`, as `lower` and `upper` (and perhaps `centre`) in a zarr group, an .npz
file or a folder of one file each, or as samples (n, m, *pixels), whose calibrated quantiles are taken. Images of
different sizes lie in a store that `write_ragged` wrote, by the same names: truth, lower and upper, or samples (m,
*pixels) of each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..bands import calibrated_miscoverage, calibrated_quantiles, quantile_source
from ..execution import (
    BAD,
    DONE,
    MARKS,
    band_at,
    bands_to,
    gather,
    open_stored,
    quantiles,
    readable,
    rows_at,
    watched,
)
from ..execution.sample_bands import ragged_bands
from ..images import Array, Band, Interval, Limits, check_limits
from ..images.ragged import Ragged, is_ragged
from .opener import open_images
from .outputs import maps_of
from .runs import Run, open_run
from .scans import Images
from .stores import (
    SHAPES,
    FilePath,
    Reading,
    arrays_at,
    checked,
    existing,
    is_store,
    only,
    sets_at,
    source_of,
    store_at,
    told,
)

EACH = "each"  # units: every image is its own
MISCOVERAGE = 0.1  # of bands made of samples, unless told
_BLOCK_BYTES = 2**26  # read at a time


# ---------------------------------------------------------------- truth


def open_truth(path: FilePath, reading: Reading = Reading(), limits: Limits = (0.0, 1.0)) -> Images:  # noqa: B008
    """True images as floats; 8-bit ones span the limits, 0 becoming the least and 255 the greatest value."""
    if is_ragged(path):
        truth = only(sets_at(path, reading, reading.truth_key), Path(path), (reading.truth_key or "truth",))
        return Images(truth, tuple(map(str, range(len(truth)))))
    images = open_images(path, key=reading.truth_key, window=reading.window)
    pixels = checked(images.pixels, str(path), reading)
    return Images(spanning(pixels, limits), images.names, images.units, images.geometry)


def spanning(pixels: Any, limits: Limits) -> Any:
    """8-bit images as float32 between the limits, converted as they are read; others as they are."""
    if str(pixels.dtype) != "uint8":
        return pixels
    import dask.array as da

    least, most = (np.float32(x) for x in limits)
    rows = _rows(pixels.shape, 4)
    lazy = da.from_array(pixels, chunks=(rows, *pixels.shape[1:]))
    return lazy.map_blocks(
        lambda x: np.clip(least + (x / np.float32(255)) * (most - least), least, most), dtype=np.float32
    )


def _rows(shape: Any, itemsize: int) -> int:
    return max(1, _BLOCK_BYTES // (prod(int(x) for x in shape[1:]) * itemsize))


def open_units(images: Images, reading: Reading) -> Array | None:
    """Unit of each image: of a file of names, one per image; else what the images' own files say."""
    if reading.units is None or reading.units == EACH:
        return images.units if reading.units is None else None
    path = existing(reading.units, "a file with the unit of each image, or `each` where images are independent")
    if path.suffix == ".npy":
        units = np.load(path, allow_pickle=False)
    else:
        try:
            units = np.array([line.strip() for line in path.read_text().splitlines() if line.strip()])
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is no text; give one unit per line, or an .npy file") from error
    if units.shape != (len(images),):
        raise ValueError(f"{path} holds {len(units)} units for {len(images)} images; give one per image")
    return units


def open_labels(path: FilePath) -> Any:
    """Whole numbers of an array file or a NIfTI file: a partition (*pixels), or a segmentation (n, *pixels)."""
    path = existing(path, "the name of a grouping (learned, band, loss, squared, otsu) or a file of labels")
    if path.suffix in (".npy", ".npz", ".zarr"):
        labels = only(arrays_at(path), path, ("labels", "groups", "segmentation"))
    else:
        labels = open_images(path, window=None).pixels
    if labels.dtype.kind not in "iub":
        whole = np.rint(labels[...])
        if not np.array_equal(whole, labels[...]):
            raise ValueError(f"{path} holds {labels.dtype} values that are not whole; labels must be whole numbers")
        return whole.astype(np.int32)
    return labels


# ---------------------------------------------------------------- bands


@dataclass(frozen=True, eq=False)
class Bands:
    """A band as it lies in files: a `Band`, or samples (n, m, *pixels) that become one a few images at a time; where
    images differ in size, a Band of `Ragged`, or a `Ragged` of samples (m, *pixels).

    `known` holds what else the files say of the images: observation, estimate, fresh samples (`held_out`); `there`
    which images the band has, where some were left out.
    """

    band: Band | None = None
    samples: Any = None
    miscoverage: float | Fraction = MISCOVERAGE
    images: Images | None = None
    limits: Limits | None = None
    known: dict[str, Any] = field(default_factory=dict)
    there: Array | None = None
    skip_bad: bool = False

    @property
    def ragged(self) -> bool:
        """Whether images differ in size."""
        return isinstance(self.reads[0], Ragged)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of each image, where they differ."""
        skipped = 1 if self.band is None else 0  # the samples of an image
        return [shape[skipped:] for shape in self.reads[0].shapes]

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, *pixels); (n,) where images differ in size."""
        if self.band is not None:
            return self.band.shape
        if self.ragged:
            return (len(self.samples),)
        n, _, *pixels = self.samples.shape
        return (int(n), *(int(x) for x in pixels))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, images: slice) -> Band:
        return self.reader()(*images.indices(len(self))[:2])

    @property
    def reads(self) -> list[Any]:
        """The arrays in which the band lies."""
        if self.band is None:
            return [self.samples]
        return [x for x in (self.band.lower, self.band.upper, self.band.centre) if x is not None]

    def reader(self) -> Callable[[int, int], Band]:
        """What gives the band of images start..stop in NumPy, and refers to nothing else."""
        band, samples, level = self.band, self.samples, self.miscoverage
        if self.ragged:  # as many images as have one size
            if band is None:
                return lambda start, stop: calibrated_quantiles(np.stack(list(samples[start:stop])), level)
            return lambda start, stop: band.map(lambda x: np.stack(list(x[start:stop])))
        if band is None:
            return lambda start, stop: band_at(samples, level, start, stop)
        return lambda start, stop: band.map(lambda x: rows_at(x, start, stop))

    def whole(self, store: Path | None) -> tuple[Band, Array]:
        """The band of all images, and which of them are there: as it lies, or of samples, in memory or in a store."""
        every = np.ones(len(self), bool) if self.there is None else self.there
        if self.band is not None:
            return self.band, every
        if self.ragged:
            return ragged_bands(self.samples, store, self.miscoverage), every
        if store is not None:
            return bands_to(self.samples, store, self.miscoverage, skip_bad=self.skip_bad)
        parts, marks = gather(
            quantiles(self.samples, self.miscoverage), [self.samples], len(self), prod(self.shape[1:]),
            skip_bad=self.skip_bad,
        )  # fmt: skip
        source = quantile_source("calibrated", self.miscoverage)
        band = Band(parts["lower"], parts["upper"], source=source, miscoverage=calibrated_miscoverage(source))
        return band, marks == DONE


def open_bands(
    path: FilePath,
    reading: Reading = Reading(),  # noqa: B008 - frozen
    *,
    miscoverage: float | Fraction = MISCOVERAGE,
) -> Bands:
    """The band that lies at a path; `miscoverage` is that of samples unless `reading` says another."""
    path = existing(path, f"a run of `pixelbounds sample`, or a file or folder with {SHAPES}")
    about = told(path)
    if about.get("kind") == "interval":
        raise ValueError(f"{path} holds intervals, which are calibrated already; give the band they were made of")
    if about.get("kind") == "bands":
        band, there = open_stored(path)
        if not there.all() and not reading.skip_bad:
            raise ValueError(f"{path} lacks {int((~there).sum())} images that were skipped; say --skip-bad here, too")
        return Bands(band, there=there)
    if about:
        return _of_run(open_run(path), reading)
    if reading.kind is not None:
        raise ValueError(f"kind is {reading.kind!r}, but {path} is no run of `pixelbounds sample`; leave --kind out")
    if not is_store(path) and path.is_dir():
        parts = _of_folder(path, reading)
        return Bands(Band(**{name: images.pixels for name, images in parts.items()}), images=parts["lower"])
    level = miscoverage if reading.miscoverage is None else reading.miscoverage
    if is_ragged(path):
        return _of_sets(path, reading, level)
    arrays = arrays_at(path, reading)
    if {"lower", "upper"} <= arrays.keys() and reading.key is None:
        return Bands(Band(arrays["lower"], arrays["upper"], arrays.get("centre"), source_of(path)))
    samples = only(arrays, path, (reading.key or "samples",))
    if samples.ndim < 3:
        raise ValueError(f"{path} holds an array of shape {tuple(samples.shape)}; give {SHAPES}")
    return Bands(samples=samples, miscoverage=level, skip_bad=reading.skip_bad)


def check_pair(truth: Any, bands: Bands) -> None:
    """One band per true image; else what the shapes are and what they might mean."""
    given, wanted = bands.shape, tuple(truth.shape)
    made = f", made of samples of shape {tuple(bands.samples.shape)}" if bands.band is None else ""
    if bands.ragged and isinstance(truth, Ragged) and given == wanted:
        pairs = enumerate(zip(bands.shapes, truth.shapes, strict=True))
        differ = next(((i, ours, theirs) for i, (ours, theirs) in pairs if ours != theirs), None)
        if differ is not None:
            raise ValueError("the band of image {} has shape {}, but its truth has {}; they must agree".format(*differ))
    elif bands.ragged != isinstance(truth, Ragged):
        one, other = ("bands", "truth") if bands.ragged else ("truth", "bands")
        raise ValueError(
            f"the {one} may differ in size (a store of values and shapes), but the {other} lie in one array; write "
            "both with pixelbounds.ragged.write_ragged, or both as arrays"
        )
    elif given != wanted:
        raise ValueError(
            f"the bands have shape {given}{made}, but the truth has shape {wanted}; they must agree: {SHAPES}"
        )


def open_interval(path: FilePath, reading: Reading = Reading()) -> Interval:  # noqa: B008
    """The intervals that `pixelbounds apply` wrote, or anything else with `lower` and `upper`."""
    path = Path(path)
    if path.name.endswith((".nii", ".nii.gz")) and not path.exists():  # written as NAME_lower.nii.gz and so on
        files = {part: maps_of(path, part) for part in ("lower", "upper")}
        if files["lower"] and len(files["lower"]) == len(files["upper"]):
            lower, upper = (_together(files[part], reading) for part in ("lower", "upper"))
            return Interval(lower, upper)
    path = existing(path, "intervals: a file or folder with lower and upper of shape (n, *pixels)")
    if path.is_dir() and not is_store(path):
        parts = _of_folder(path, reading)
        return Interval(parts["lower"].pixels, parts["upper"].pixels)
    arrays = sets_at(path, reading) if is_ragged(path) else arrays_at(path, reading)
    if not {"lower", "upper"} <= arrays.keys():
        held = ", ".join(name or "one array" for name in arrays)
        raise ValueError(
            f"{path} holds {held}, not lower and upper; give intervals, or bands and the calibration (--calibration)"
        )
    return Interval(arrays["lower"], arrays["upper"])


def open_marks(path: FilePath, n: int) -> Array:
    """Which images a store of intervals has, (n,) bool: all but those that were skipped."""
    node = store_at(Path(path)) if told(path) else {}
    return np.asarray(node[MARKS][:]) != BAD if MARKS in node else np.ones(n, bool)


def _together(files: list[Path], reading: Reading) -> Array:
    """The slices of several scans."""
    return np.concatenate([open_images(file, window=reading.window).pixels for file in files])


def _of_run(run: Run, reading: Reading) -> Bands:
    """The band of a sampling run, with whatever else the run kept."""
    names = {"observation": "observation", "mean": "estimate", "estimate": "estimate"}
    known = {word: run[name] for name, word in names.items() if name in run.group}
    known |= {name: run[name] for name in ("samples", "held_out") if name in run.group}
    if reading.miscoverage is not None and reading.miscoverage != run.about.get("miscoverage"):
        raise ValueError(
            f"miscoverage is {reading.miscoverage:g}, but {run.path} was drawn with {run.about.get('miscoverage')}; "
            "leave --miscoverage out"
        )
    least, most = run.about["limits"]
    known = {name: watched(x) for name, x in known.items()}
    there = readable(*(run[name] for name in run.parts(reading.kind))) if reading.skip_bad else None
    band = run.band(reading.kind, check=not reading.skip_bad, there=there)
    return Bands(band.map(watched), limits=(least, most), known=known, there=there)


def _of_sets(path: Path, reading: Reading, miscoverage: float | Fraction) -> Bands:
    """The band of images of different sizes: lower and upper, or samples (m, *pixels) of each."""
    sets = sets_at(path, reading, reading.key)
    if {"lower", "upper"} <= sets.keys() and reading.key is None:
        return Bands(Band(sets["lower"], sets["upper"], sets.get("centre"), source_of(path)))
    samples = only(sets, path, (reading.key or "samples",))
    if len(samples.shapes[0]) < 2:
        raise ValueError(f"{path} holds images of shapes such as {samples.shapes[0]}; samples are (m, *pixels) each")
    return Bands(samples=samples, miscoverage=miscoverage)


def _of_folder(path: Path, reading: Reading) -> dict[str, Images]:
    """A folder that holds `lower` and `upper`, perhaps `centre`, each as whatever `open_images` reads."""
    parts, limits = {}, check_limits(reading.limits or (0.0, 1.0))
    for name in ("lower", "upper", "centre"):
        found = [x for x in sorted(path.iterdir()) if x.name.split(".")[0] == name]
        if len(found) > 1:
            raise ValueError(f"{path} holds {found[0].name} and {found[1].name}; keep one of them")
        if found:
            images = open_images(found[0], window=reading.window)
            parts[name] = Images(spanning(images.pixels, limits), images.names, images.units, images.geometry)
    if not {"lower", "upper"} <= parts.keys():
        raise ValueError(f"{path} is no folder of bands; it needs lower and upper, such as lower.npy and upper.npy")
    return parts
