"""Apply a calibration on files: new bands in, intervals out.

Bands become intervals in a store that resumes after an interrupt, in memory, or (for `evaluate` and `report`) in a
temporary store. Images of different sizes are widened one by one and written in order.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from ..calibration.calibration import Calibration
from ..calibration.calibration_file import load_calibration
from ..calibration.masks import SEGMENTATION, is_of_masks
from ..calibration.trust import load_trust
from ..execution.blocks import InputHash, Maker, block_rows, fill, gather
from ..execution.runner import Execution, running
from ..formats.arrays import FilePath, Reading
from ..formats.dicom import dicom_files
from ..formats.dicomweb import store_files
from ..formats.inputs import KEPT, Bands, check_pair, open_bands, open_interval, open_truth
from ..formats.label_maps import label_names, open_label_map
from ..formats.maps import INTERVAL_SUFFIXES, keeps, maps_of, provenance_of, write_interval
from ..formats.nifti import NIFTI_SUFFIXES
from ..formats.opener import check_target, open_images
from ..formats.scans import Images, check_patients
from ..images.checks import numbered
from ..images.ends import Interval
from ..images.library import Array, rows_of
from ..images.measure import Measure, open_ends
from ..monitoring.drift import conformal_p_values
from ..samplers.sample_bands import shape_request
from ..storage.chunks import BadChunk
from ..storage.store import BAD, DONE, SEEN, joined_digests, resumable, row_digests
from .agreement import check_bands, check_images, reading_for
from .calibrate import known_of
from .mask_rules import MaskRules
from .request import ApplyOptions, Resources

P_VALUES = "conformal_p_values"  # p-value of each image among those of the calibration
CLOSED = ("open_share", "closed_length")  # of each image seen through a window
TRUSTED_SHARE = "trusted_share"  # of each image, where some pixels are trusted


@dataclass(frozen=True)
class Applied:
    """Where intervals were written (`files`: all of them), their shape, mean length, and the images that were skipped.

    Of values seen through a window also the share of pixels with an open end, at its edge, and the mean length of the
    other intervals, NaN where there are none. `masks` says which pixels are trusted, if any, beside their share.
    `conformal_p_values` are images farther out than all of the calibration's reference; None where it has none. `sent`
    are the objects that an archive took.
    """

    path: Path
    shape: tuple[int, ...]
    mean_length: float
    calibration: Calibration
    skipped: tuple[int, ...] = ()
    open_share: float | None = None
    closed_length: float | None = None
    masks: MaskRules = MaskRules()  # noqa: RUF009 - frozen
    trusted_share: float | None = None
    conformal_p_values: tuple[int, ...] | None = None
    files: tuple[Path, ...] = ()
    measure: Measure | None = None
    sent: int | None = None

    @property
    def expected_unusual(self) -> float | None:
        """How many independent images of the same source would be so unusual, in the mean; None where units are not."""
        images = self.shape[0] - len(self.skipped)
        return None if self.calibration.record.units else images / (1 + len(self.calibration.reference))


def apply_files(
    calibration: FilePath, bands: FilePath, out: FilePath, options: ApplyOptions = ApplyOptions(), *,
    reading: Reading = Reading(), replace: bool = False, resources: Resources = Resources(),
) -> Applied:  # fmt: skip
    """Write the intervals of new bands: a zarr store block by block, resuming an interrupted call; .npz,
    NIfTI and DICOM through memory.
    """
    keeps(options.identifiers)
    reads = (options.like, options.features, options.labels, options.structures, options.trust)
    report = options.report or options.structures is not None
    target = check_target(out, INTERVAL_SUFFIXES, replace=replace, folder=True, inputs=(calibration, bands, *reads))
    if (options.parametric or report or options.send) and target.suffix:
        asked = "--report" if report else "--parametric" if options.parametric else "--send"
        raise ValueError(f"{asked} is for a folder of DICOM, but --out is {target}; name a folder, such as maps")
    loaded = load_calibration(calibration)
    with running(**vars(resources)) as execution:
        made = bands_for(loaded, bands, reading, execution)
        space = _space(target, made, options.like, loaded, reading)
        measure = loaded.measure or made.measure or (None if space is None else space.measure)
        masks = MaskRules(is_of_masks(loaded), None if options.trust is None else load_trust(options.trust))
        known = known_of(options.features, options.labels, space)
        widening = Widening(loaded, made, known, reading.skip_bad, masks, flagged=True)
        digest = hashlib.sha256(Path(calibration).read_bytes()).hexdigest()
        about = _about(loaded, digest, measure, masks, made.patients)
        if target.suffix == ".zarr":
            lengths, marks = widening.into(execution, target, about, digest, replace=replace)
        elif made.ragged:
            raise ValueError(f"{bands} holds images of different sizes, which only a .zarr can hold: end --out so")
        else:
            interval, parts, marks = widening.in_memory(execution)
            lengths = {name: parts[name] for name in widening.columns}
            bad = int((marks == BAD).sum())
            if bad:
                raise ValueError(
                    f"{bad} images cannot be read, and only a .zarr store can leave some out: end --out so"
                )
            target = write_interval(
                target, interval, like=space, identifiers=options.identifiers, about=about,
                masks={name: (parts[name], said) for name, said in masks.said.items()},
                parametric=options.parametric, report=_structures(options.structures, space) if report else None,
            )  # fmt: skip
    done = _applied(loaded, target, made.shape, lengths, marks, masks, measure, _files(Path(out), target))
    if options.send is None:
        return done
    return dataclasses.replace(done, sent=store_files(options.send, dicom_files(target)))


def _structures(path: FilePath | None, space: Images | None) -> dict[str, Any]:
    """Where each structure of a label map is, by its name; {} without one."""
    if path is None or space is None:
        return {}
    labels = np.asarray(open_label_map(path, space)[:])
    names = label_names(path)
    return {names.get(label, f"label {label}"): labels == label for label in np.unique(labels).tolist() if label}


def _applied(
    calibration: Calibration, target: Path, shape: tuple[int, ...], lengths: dict[str, Array], marks: Array,
    masks: MaskRules, measure: Measure | None, files: tuple[Path, ...],
) -> Applied:  # fmt: skip
    there = {name: x[marks == DONE] for name, x in lengths.items()}
    open_share = closed_length = unusual = None
    if CLOSED[0] in there:
        share, mean = (there[name] for name in CLOSED)
        total = float((1 - share).sum())
        open_share = float(share.mean())
        closed_length = float(((1 - share) * mean).sum()) / total if total else float("nan")
    if P_VALUES in lengths:  # farther out than all of the reference: the p-value 1 of n + 1, not 2
        few = lengths[P_VALUES] < 1.5 / (1 + len(calibration.reference))
        unusual = tuple(np.flatnonzero((marks == DONE) & few).tolist())
    trusted_share = float(there[TRUSTED_SHARE].mean()) if TRUSTED_SHARE in there else None
    skipped = tuple(np.flatnonzero(marks == BAD).tolist())
    return Applied(
        target, shape, float(there["length"].mean()), calibration, skipped, open_share, closed_length, masks,
        trusted_share, unusual, files, measure,
    )  # fmt: skip


def _about(
    calibration: Calibration, digest: str, measure: Measure | None, masks: MaskRules, patients: str | None
) -> dict[str, Any]:
    of_files = {"measure": None if measure is None else measure.state(), "calibration": digest}
    about = provenance_of(calibration) | of_files | masks.state()
    return about | ({} if patients is None else {"patients": patients})


def _files(out: Path, written: Path) -> tuple[Path, ...]:
    if out.name.endswith(NIFTI_SUFFIXES):
        return tuple(maps_of(out))
    return tuple(sorted(written.iterdir())) if written.is_dir() and written.suffix != ".zarr" else (written,)


def _space(
    target: Path, bands: Bands, like: FilePath | None, calibration: Calibration, reading: Reading
) -> Images | None:
    """The images in whose space the intervals are written, in their measure."""
    space = bands.images
    if like is not None:
        reading = reading_for(calibration, reading, bands)
        space = open_images(like, window=reading.mapping)
        check_images(calibration, like, space, reading)
        if tuple(space.pixels.shape) != bands.shape:
            raise ValueError(
                f"{like} has shape {tuple(space.pixels.shape)}, but the bands have {bands.shape}; they must agree"
            )
        if reading.units is None:
            check_patients(str(like), space, bands.patients)
    if space is not None and space.geometry is not None and is_of_masks(calibration):
        space = dataclasses.replace(space, geometry=dataclasses.replace(space.geometry, unit=""))  # probabilities
    if target.suffix not in (".zarr", ".npz") and (space is None or space.geometry is None):
        raise ValueError(f"{target} needs the geometry of a scan; give the NIfTI file or DICOM folder with --like")
    return space


def bands_for(calibration: Calibration, path: FilePath, reading: Reading, execution: Execution) -> Bands:
    """Bands of the kind that was calibrated: samples get the miscoverage that they had then, values their window."""
    source = calibration.record.source
    level = source.miscoverage if source.kind == "calibrated quantiles" else None
    usual: dict[str, Any] = {} if level is None else {"miscoverage": level}
    seen = reading_for(calibration, reading)
    if source.kind == f"calibrated quantiles of {KEPT} samples" and source.miscoverage is not None:
        seen = dataclasses.replace(seen, kind=KEPT, miscoverage=float(source.miscoverage))
    if source.kind == SEGMENTATION:
        seen = dataclasses.replace(seen, kind=SEGMENTATION)
    made = open_bands(path, seen, execution=execution, **usual)
    check_bands(calibration, path, made, reading)
    return made


def open_beside(
    calibration: Calibration, truth: FilePath, bands: FilePath, reading: Reading, execution: Execution
) -> tuple[Images, Bands, Reading]:
    """True images and their bands, read as those of a calibration were, and how that is."""
    made = bands_for(calibration, bands, reading, execution)
    reading = reading_for(calibration, reading, made)
    images = open_truth(truth, reading, made)
    check_images(calibration, truth, images, reading)
    check_pair(images, made, reading)
    return images, made, reading


@dataclass(frozen=True, eq=False)
class Widening:
    """Bands in files that a calibration turns into intervals; `known` is what `known_of` reads of the images."""

    calibration: Calibration
    bands: Bands
    known: dict[str, Any]
    skip_bad: bool = False
    masks: MaskRules = MaskRules()  # noqa: RUF009 - frozen
    flagged: bool = False  # whether each image gets its p-value, where the calibration has a reference

    @property
    def columns(self) -> tuple[str, ...]:
        """Numbers of each image beside its intervals: mean length, how much lies beyond a window and is trusted, its
        p-value.
        """
        measure, reference = self.calibration.measure, self.calibration.reference
        windowed = CLOSED if measure is not None and measure.window is not None else ()
        trusted = (TRUSTED_SHARE,) if "trusted" in self.masks.said else ()
        return ("length", *windowed, *trusted, *((P_VALUES,) if self.flagged and len(reference) else ()))

    def maker(self, *, input_hash: bool = False) -> Maker:
        """What makes the intervals of images start..stop, with the mean length of each and a hash of what it read."""
        calibration, known, rules, columns = self.calibration, self.known, self.masks, self.columns
        read, there = self.bands.reader(input_hash=input_hash), self.bands.there

        def make(start: int, stop: int) -> dict[str, Array]:
            _check_there(there, start, stop)
            now = _known_at(known, start, stop)
            band, seen = read(start, stop)
            with numbered(start):
                interval = calibration.apply(band, threads=False, **now)
            length = _means(interval.upper) - _means(interval.lower)
            parts = {"lower": interval.lower, "upper": interval.upper, "length": length}
            if P_VALUES in columns:
                parts[P_VALUES] = conformal_p_values(calibration, band, threads=False, **now)
            parts |= _beyond_the_window(interval) if CLOSED[0] in columns else {}
            parts |= (masks := rules.of(band, interval))
            if "trusted" in masks:
                parts[TRUSTED_SHARE] = masks["trusted"].reshape(len(band), -1).mean(axis=1)
            return parts | ({SEEN: joined_digests(*seen, *_digests(now))} if input_hash else {})

        return make

    def input_hash(self) -> InputHash:
        """What returns the digests of all that a maker reads of images start..stop."""
        known, see, there = self.known, self.bands.input_hash(), self.bands.there

        def digests(start: int, stop: int) -> Array:
            _check_there(there, start, stop)
            return joined_digests(*see(start, stop), *_digests(_known_at(known, start, stop)))

        return digests

    def in_memory(self, execution: Execution) -> tuple[Interval, dict[str, Array], Array]:
        """The intervals of all images, with lengths (`columns`), masks, and the mark of each image."""
        bands = self.bands
        pixels = prod(bands.shape[1:])
        parts, marks = gather(execution, self.maker(), bands.reads, len(bands), pixels, skip_bad=self.skip_bad)
        interval = Interval(parts["lower"], parts["upper"], measure=self.calibration.measure or bands.measure)
        return interval, parts, marks

    def into(
        self, execution: Execution, path: Path, about: dict[str, Any], digest: str | None = None, *,
        replace: bool = False,
    ) -> tuple[dict[str, Array], Array]:  # fmt: skip
        """Write the intervals of all images into a store; lengths (`columns`) and mark of each image.

        An interrupted run resumes where its `digest` of the calibration is the same; a finished block stays where
        its input is the same, whatever the files are called.
        """
        bands = self.bands
        shapes = bands.shapes
        known = sorted(name for name, x in self.known.items() if x is not None)
        reads = [[str(x.dtype), *x.shape] for x in bands.reads]
        request: dict[str, Any] = {"calibration": digest, "reads": reads, "known": known}
        if bands.ragged:
            if self.known["features"] is not None:
                raise ValueError("features are for images of one size, and these differ: leave them out")
            request["pixels"] = shape_request(shapes)
        request |= self.masks.state()
        pixels: Any = np.array([prod(shape) for shape in shapes]) if bands.ragged else prod(bands.shape[1:])
        images = np.array(shapes) if bands.ragged else bands.shape
        arrays: dict[str, Any] = dict.fromkeys(("lower", "upper"), (images, bands.dtype))
        arrays |= dict.fromkeys(self.masks.said, (images, np.bool_))
        arrays |= dict.fromkeys(self.columns, (bands.shape[:1], np.float64))
        arrays[SEEN] = bands.shape[:1], np.uint64
        rows = 1 if bands.ragged else block_rows(execution, bands.reads, pixels)
        attributes = {"pixelbounds": {"kind": "interval", **about}}
        with resumable(
            path, arrays, rows=rows, about=attributes, request=request, anew=replace, replace=replace
        ) as store:
            make = self.maker(input_hash=True)
            marks = fill(execution, store, make, self.input_hash(), bands.reads, pixels, skip_bad=self.skip_bad)
        written = zarr.open_group(path, mode="r")
        return {name: np.asarray(written[name][:]) for name in self.columns}, marks

    @contextmanager
    def intervals(self, execution: Execution) -> Iterator[tuple[Interval, Array]]:
        """Intervals in memory, or in a temporary store where they are many; and which images they have."""
        if not self.bands.ragged and self.bands.fit_in_memory(execution):
            interval, _, marks = self.in_memory(execution)
            yield interval, marks == DONE
            return
        with execution.folder() as folder:
            path = folder / "interval.zarr"
            _, marks = self.into(execution, path, {})
            yield open_interval(path, Reading(skip_bad=self.skip_bad)), marks == DONE


def _beyond_the_window(interval: Interval) -> dict[str, Array]:
    """Of intervals (n, *pixels) between 0 and 1: share of pixels with an open end, and mean length of the others."""
    closed = (open_ends(interval.lower, interval.upper) == 0).reshape(len(interval), -1)
    length = (interval.upper.astype(np.float64) - interval.lower).reshape(closed.shape)
    held = closed.sum(axis=1)
    values = 1 - held / closed.shape[1], (length * closed).sum(axis=1) / np.maximum(held, 1)
    return dict(zip(CLOSED, values, strict=True))


def _check_there(there: Array | None, start: int, stop: int) -> None:
    if there is not None and not there[start:stop].all():
        raise BadChunk(f"the bands of images {start} to {stop - 1} lack some that were skipped")


def _known_at(known: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    return {name: None if x is None else rows_of(x, start, stop) for name, x in known.items()}


def _digests(known: dict[str, Any]) -> list[Array]:
    return [row_digests(x) for _, x in sorted(known.items()) if x is not None]


def _means(x: Array) -> Array:
    return np.asarray(np.mean(x.reshape(len(x), -1), axis=1, dtype=np.float64))
