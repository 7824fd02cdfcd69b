"""Files to truth, bands, intervals and units.

A band comes as a run of `pixelbounds sample`, as `lower` and `upper` (and perhaps `centre`) in a zarr group, an .npz
file or a folder of one file each, or as samples (n, m, *pixels), whose calibrated quantiles are taken. Images of
different sizes lie in a store that `write_ragged` wrote, by the same names: truth, lower and upper, or samples (m,
*pixels) of each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..bands import calibrated_ranks
from ..calibration.masks import SEGMENTATION, segmentation_band
from ..execution.blocks import readable
from ..execution.runner import Execution, current
from ..images.checks import Limits, check_limits
from ..images.ends import Band, Interval, trusted_band
from ..images.library import Array, differ_in_size, rescale_uint8
from ..images.measure import Measure
from ..images.source import Source
from ..samplers.runs import Run, open_run
from ..samplers.sample_bands import band_and_digests, bands_in_memory, bands_to, open_stored, sample_digests
from ..storage.chunks import guarded, rows_at
from ..storage.store import BAD, MARKS, row_digests
from .arrays import (
    ARRAY_SUFFIXES,
    SHAPES,
    Arrays,
    FilePath,
    Reading,
    check_dtype,
    check_not_half,
    checked,
    existing,
    is_ragged,
    is_store,
    only,
    parts_at,
    sets_at,
    source_of,
    stated_by,
)
from .label_maps import open_masks
from .maps import maps_of, measure_of_maps, written_scans
from .nifti import NIFTI_SUFFIXES
from .opener import open_images
from .scans import Images, check_patients, format_errors, patients_digest

EACH = "each"  # units: every image is its own
INDEPENDENT = (
    "no --units: every image counts as independent; slices of one patient are not: give --units FILE, or --units each "
    "where they are"
)
KEPT = "kept"  # kind of the band of the samples that a run kept
_MISCOVERAGE = 0.1  # of bands made of samples, by default
_CLIPPED = 0.01  # beyond this share of clipped values, the window is asked about
_IN_MEMORY = 2**30  # bytes of bands or intervals; more are kept in a temporary store


def open_truth(path: FilePath, reading: Reading, beside: Bands | None = None) -> Images:
    """True images as floats; 8-bit ones span the limits. `beside` bands of a segmentation they are masks."""
    limits = check_limits(reading.limits or (0.0, 1.0))
    if beside is not None and beside.band is not None and beside.band.source.kind == SEGMENTATION:
        return open_masks(path, beside.images, beside.shape)
    if is_ragged(path):
        truth = only(sets_at(path, reading, reading.truth_key), Path(path), (reading.truth_key or "truth",))
        return Images(check_dtype(truth, path), tuple(map(str, range(len(truth)))))
    images = open_images(path, key=reading.truth_key, window=reading.mapping)
    measure = images.measure
    if measure is not None and measure.clipped is not None:
        ask = ": is it the window of what matters?" if measure.clipped > _CLIPPED else ""
        warnings.warn(f"{measure.clipped:.1%} of the values of {path} lie beyond the {measure}{ask}", stacklevel=2)
    return replace(images, pixels=rescale_uint8(checked(images.pixels, str(path), reading), limits))


def open_units(images: Images, reading: Reading) -> Array | None:
    """Unit of each image: of a file of names, one per image; else what the images' own files say, else None."""
    if reading.units == EACH:
        return None
    if reading.units is None:
        if images.units is None:
            warnings.warn(INDEPENDENT, stacklevel=2)
        return images.units
    path = existing(reading.units, "a file with the unit of each image, or `each` where images are independent")
    if path.suffix == ".npy":
        units = np.asarray(Arrays(path)[""])
    else:
        with format_errors(f"{path} is no text", "give one unit per line, or an .npy file"):
            units = np.array([line.strip() for line in path.read_text().splitlines() if line.strip()])
    if units.shape != (len(images),):
        raise ValueError(f"{path} holds {len(units)} units for {len(images)} images; give one per image")
    return units


@dataclass(frozen=True, eq=False)
class Bands:
    """A band as it lies in files: a `Band`, or samples (n, m, *pixels) that become one a few images at a time; where
    images differ in size, a Band of `Ragged`, or a `Ragged` of samples (m, *pixels).

    `limits`, `measure` and `patients` (a digest) are those of a run, or of the medical files of the band. `known` holds
    what else the files say of the images: observation, estimate, fresh samples (`held_out`); `there` which images the
    band has, where some were left out.
    """

    band: Band | None = None
    samples: Any = None
    miscoverage: float | Fraction = _MISCOVERAGE
    images: Images | None = None
    limits: Limits | None = None
    measure: Measure | None = None
    patients: str | None = None
    known: dict[str, Any] = field(default_factory=dict)
    there: Array | None = None
    skip_bad: bool = False
    source: Source | None = None  # of the bands of samples, where more is known of these

    @property
    def reads(self) -> list[Any]:
        """The arrays in which the band lies."""
        return [self.samples] if self.band is None else self.band.arrays

    @property
    def dtype(self) -> np.dtype[Any]:
        """The precision of the band's ends."""
        return np.dtype(str(self.reads[0].dtype).removeprefix("torch."))

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, *pixels); (n,) where images differ in size."""
        if self.band is not None:
            return self.band.shape
        n, *pixels = (int(x) for x in self.samples.shape)
        return (n, *pixels[1:])

    @property
    def ragged(self) -> bool:
        """Whether images differ in size."""
        return differ_in_size(self.reads[0])

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of each image."""
        if not self.ragged:
            return [self.shape[1:]] * len(self)
        samples = 1 if self.band is None else 0  # axes before the pixels
        return [shape[samples:] for shape in self.reads[0].shapes]

    def fit_in_memory(self, execution: Execution) -> bool:
        """Whether both ends of all images may lie in memory, and are used in this process only."""
        size = 2 * self.dtype.itemsize * sum(map(prod, self.shapes))
        return execution.client is None and size <= min(_IN_MEMORY, execution.memory // 4)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, images: slice) -> Band:
        return self.reader()(*images.indices(len(self))[:2])[0]

    def reader(self, *, input_hash: bool = False) -> Callable[[int, int], tuple[Band, list[Array]]]:
        """Returns the band of images start..stop in NumPy; with `input_hash` also digests (n,) of each of `reads`."""
        band, samples, level, source = self.band, self.samples, self.miscoverage, self.source
        if band is not None:

            def lying(start: int, stop: int) -> tuple[Band, list[Array]]:
                now = band.map(lambda x: _images(x, start, stop), checked=True)
                return now, [row_digests(x) for x in now.arrays] if input_hash else []

            return lying

        def made(start: int, stop: int) -> tuple[Band, list[Array]]:
            now, seen = band_and_digests(samples, level, start, stop, input_hash=input_hash)
            return now if source is None else trusted_band(now.lower, now.upper, None, source), [seen]

        return made

    def input_hash(self) -> Callable[[int, int], list[Array]]:
        """What gives these digests alone."""
        band, samples = self.band, self.samples
        if band is None:
            return lambda start, stop: [sample_digests(samples, start, stop)]
        return lambda start, stop: [row_digests(_images(x, start, stop)) for x in band.arrays]

    def whole(self, execution: Execution, store: Path | None, *, replace: bool = False) -> tuple[Band, Array]:
        """The band of all images, and which of them are there: as it lies, or of samples, in memory or in a store."""
        if self.band is not None:
            return self.band, np.ones(len(self), bool) if self.there is None else self.there
        how: dict[str, Any] = {"skip_bad": self.skip_bad, "execution": execution}
        if store is not None:
            band, there = bands_to(self.samples, store, self.miscoverage, replace=replace, **how)
        else:
            band, there = bands_in_memory(self.samples, self.miscoverage, **how)
        return Band(band.lower, band.upper, source=self.source or band.source), there


def _images(x: Any, start: int, stop: int) -> Array:
    """Images start..stop in NumPy, as they are stored; where images differ in size these have one."""
    return np.stack(list(x[start:stop])) if differ_in_size(x) else rows_at(x, start, stop)


def open_bands(
    path: FilePath, reading: Reading = Reading(), *, miscoverage: float | Fraction = _MISCOVERAGE,
    execution: Execution | None = None,
) -> Bands:  # fmt: skip
    """The band that lies at a path; `miscoverage` is that of samples unless `reading` says another."""
    path = existing(path, f"a run of `pixelbounds sample`, or a file or folder with {SHAPES}")
    if isinstance(reading.miscoverage, tuple):
        raise ValueError("several miscoverages are for `calibrate`, which chooses one on the fitting images; give one")
    about = stated_by(path)
    maps = path.is_dir() and not is_store(path) and measure_of_maps(path) is not None
    if about.get("kind") == "interval" or maps:
        raise ValueError(f"{path} holds intervals, calibrated already: give their bands, or leave --calibration out")
    if about.get("kind") == "bands":
        check_not_half(Arrays(path), path)
        band, there = open_stored(path)
        if not there.all() and not reading.skip_bad:
            raise ValueError(f"{path} lacks {int((~there).sum())} images that were skipped; say --skip-bad here, too")
        return Bands(band, there=there)
    if reading.kind == SEGMENTATION:
        images = open_images(path, key=reading.key, window=None)
        return Bands(segmentation_band(images.pixels), images=images)
    if about:
        return _of_run(open_run(path), reading, execution or current())
    if reading.kind is not None:
        raise ValueError(f"kind is {reading.kind!r}, but {path} is no run of `pixelbounds sample`; leave --kind out")
    if not is_store(path) and path.is_dir():
        parts = folder_parts(path, reading)
        first = parts["lower"]
        band = Band(**{name: images.pixels for name, images in parts.items()})
        return Bands(band, images=first, measure=first.measure, patients=patients_digest(first))
    arrays = parts_at(path, reading, reading.key)
    if {"lower", "upper"} <= arrays.keys() and reading.key is None:
        return Bands(Band(arrays["lower"], arrays["upper"], arrays.get("centre"), source_of(path)))
    if reading.key is None:
        check_not_half(arrays, path)
    samples = only(arrays, path, (reading.key or "samples",))
    if differ_in_size(samples) and len(samples.shapes[0]) < 2:
        raise ValueError(f"{path} holds images of shapes such as {samples.shapes[0]}; samples are (m, *pixels) each")
    if not differ_in_size(samples) and samples.ndim < 3:
        raise ValueError(f"{path} holds an array of shape {tuple(samples.shape)}; give {SHAPES}")
    level = miscoverage if reading.miscoverage is None else reading.miscoverage
    return Bands(samples=samples, miscoverage=level, skip_bad=reading.skip_bad)


def open_pair(truth: FilePath, bands: FilePath, reading: Reading, execution: Execution) -> tuple[Images, Bands, Limits]:
    """True images, their bands, and the limits: those of a run, else those asked for, else 0 and 1."""
    made = open_bands(bands, reading, execution=execution)
    reading = reading.as_in(str(bands), made.measure, made.limits)
    images = open_truth(truth, reading, made)
    check_pair(images, made, reading)
    return images, made, check_limits(reading.limits or (0.0, 1.0))


def check_pair(images: Images, bands: Bands, reading: Reading) -> None:
    """One band per true image, of the same patient; else what the shapes are and what they might mean."""
    truth = images.pixels
    if bands.ragged != differ_in_size(truth):
        one, other = ("bands", "truth") if bands.ragged else ("truth", "bands")
        raise ValueError(f"the {one} may differ in size, but the {other} lie in one array; write both alike")
    if bands.band is None and _are_swapped(truth, bands.samples):
        shapes = f"{tuple(truth.shape)} and {tuple(bands.samples.shape)}"
        raise ValueError(
            f"truth and samples have shapes {shapes}: they seem to be swapped; give the truth (n, *pixels) first"
        )
    if bands.shape != tuple(truth.shape):
        made = f", made of samples of shape {tuple(bands.samples.shape)}" if bands.band is None else ""
        made += ", which is the truth's: one image each" if made and bands.samples.shape == truth.shape else ""
        wanted = tuple(truth.shape)
        raise ValueError(f"the bands have shape {bands.shape}{made}, but the truth has shape {wanted}: give {SHAPES}")
    for image, (ours, theirs) in enumerate(zip(bands.shapes, truth.shapes, strict=True) if bands.ragged else ()):
        if ours != theirs:
            raise ValueError(f"the band of image {image} has shape {ours}, but its truth has {theirs}; they must agree")
    if reading.units is None:
        check_patients("the truth", images, bands.patients)


def _are_swapped(truth: Any, samples: Any) -> bool:
    """Whether the first has an axis of samples that the second lacks."""
    if differ_in_size(samples) or differ_in_size(truth) or len(truth.shape) != len(samples.shape) + 1:
        return False
    return (truth.shape[0], *truth.shape[2:]) == tuple(samples.shape)


def _of_run(run: Run, reading: Reading, execution: Execution) -> Bands:
    """The band of a sampling run, with whatever else the run kept."""
    names = {"observation": "observation", "mean": "estimate", "estimate": "estimate"}
    known = {word: run[name] for name, word in names.items() if name in run.group}
    if run["observation"].shape != run[run.parts()[0]].shape or run["observation"].dtype.kind == "c":
        known.pop("observation")  # a sinogram, k-space: no image to show
    known |= {name: run[name] for name in ("samples", "held_out") if name in run.group}
    limits = None if run.about["limits"] is None else check_limits(run.about["limits"])
    known = {name: guarded(x) for name, x in known.items()}
    if reading.kind == KEPT or reading.miscoverage not in (None, run.about.get("miscoverage")):
        return _of_kept_samples(run, reading, limits, known)
    there = None
    if reading.skip_bad:
        there = readable(execution, *(run[name] for name in run.parts(reading.kind)))
    band = run.band(reading.kind, check=not reading.skip_bad, there=there)
    return Bands(band.map(guarded), limits=limits, known=known, there=there, measure=run.measure, patients=run.patients)


def _of_kept_samples(run: Run, reading: Reading, limits: Limits | None, known: dict[str, Any]) -> Bands:
    """The band of any miscoverage of the samples that a run kept; these were rounded: it is a kind of its own."""
    level: Any = run.about.get("miscoverage") if reading.miscoverage is None else reading.miscoverage
    if "samples" not in known or reading.kind not in (None, "calibrated", KEPT):
        drawn = run.about.get("miscoverage")
        raise ValueError(f"{run.path} has miscoverage {drawn} and kept no samples: leave it out, or use --keep-samples")
    calibrated_ranks(int(known["samples"].shape[1]), level)  # there must be enough
    source = replace(run.source("calibrated"), kind=f"calibrated quantiles of {KEPT} samples", miscoverage=level)
    return Bands(
        samples=known["samples"], miscoverage=level, limits=limits, known=known, skip_bad=reading.skip_bad,
        source=source, measure=run.measure, patients=run.patients,
    )  # fmt: skip


def folder_parts(path: Path, reading: Reading) -> dict[str, Images]:
    """A folder that holds `lower` and `upper`, perhaps `centre`, each as whatever `open_images` reads."""
    parts = {}
    limits = check_limits(reading.limits or (0.0, 1.0))
    if written_scans(path, "lower"):
        return {name: open_images(path, window=reading.mapping, part=name) for name in ("lower", "upper")}
    for name in ("lower", "upper", "centre"):
        files = [x for x in sorted(path.iterdir()) if x.name.split(".")[0] == name]
        if len(files) > 1:
            raise ValueError(f"{path} holds {files[0].name} and {files[1].name}; keep one of them")
        if files:
            images = open_images(files[0], window=reading.mapping)
            arrays = files[0].suffix in ARRAY_SUFFIXES  # whose 8 bits have no scale, as in one file
            parts[name] = images if arrays else replace(images, pixels=rescale_uint8(images.pixels, limits))
    if not {"lower", "upper"} <= parts.keys():
        raise ValueError(f"{path} is no folder of bands; it needs lower and upper, such as lower.npy and upper.npy")
    return parts


def open_interval(path: FilePath, reading: Reading = Reading()) -> Interval:
    """The intervals that `pixelbounds apply` wrote, or anything else with `lower` and `upper`."""
    path = Path(path)
    reading = reading.as_in(str(path), measure_of_maps(path), None)
    if path.name.endswith(NIFTI_SUFFIXES) and not path.exists():  # written as NAME_lower.nii.gz and so on
        files = {part: maps_of(path, part) for part in ("lower", "upper")}
        if files["lower"] and len(files["lower"]) == len(files["upper"]):
            read = ([open_images(x, window=reading.mapping).pixels for x in scans] for scans in files.values())
            lower, upper = map(np.concatenate, read)
            return Interval(lower, upper, measure=measure_of_maps(path))
    path = existing(path, "intervals: a file or folder with lower and upper of shape (n, *pixels)")
    if path.is_dir() and not is_store(path):
        parts = folder_parts(path, reading)
        return Interval(parts["lower"].pixels, parts["upper"].pixels, measure=parts["lower"].measure)
    arrays = parts_at(path, reading)
    if not {"lower", "upper"} <= arrays.keys():
        held = ", ".join(name or "one array" for name in arrays)
        raise ValueError(f"{path} holds {held}, not lower and upper; give intervals, or bands and --calibration")
    state = stated_by(path).get("measure")
    return Interval(arrays["lower"], arrays["upper"], measure=None if state is None else Measure.from_state(state))


def open_marks(path: FilePath, n: int) -> Array:
    """Which images a store of intervals has, (n,) bool: all but those that were skipped."""
    node = Arrays(path) if stated_by(path) else {}
    return np.asarray(node[MARKS][:]) != BAD if MARKS in node else np.ones(n, bool)
