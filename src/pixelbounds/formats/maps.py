"""Intervals into files: .zarr, .npz, NIfTI maps, DICOM maps.

Every output is written aside and then renamed, so that a full disk or an interrupt leaves nothing behind. Where a file
holds fewer digits than the interval, lower ends are rounded down and upper ends up: what was covered stays covered.

Maps of medical images are in the measure of their file (for CT Hounsfield units). What lay beyond the window was seen
as its edge, so an end at the edge is open: the value may lie anywhere beyond. Such an end is written as the least or
greatest value that the scan's file can hold, and a map of its own says which ends are open. Everything is finite, since
viewers of medical images fail on values that are not.

What the files say of people is left out: names and numbers of patients, their dates, sex and age, physicians,
institutions, descriptions and other free text, names of files and folders, and what units are called. What stays is
what a map needs to lie on its scan: geometry, and for DICOM the unique identifiers of study, frame of reference and
source images, which name nobody but lead back to the source for whoever holds it. Pixels are never changed. A pseudonym
keeps patients apart in an archive. It is made of the identifiers of the patient's studies among the images (of other
files, of their values), so it tells no more than these do, and other studies give another one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from ..calibration.calibration import Calibration
from ..evaluation.guarantee_check import StoredGuarantee
from ..images.checks import check_choice, check_same_shape, check_values, distinct_in_order
from ..images.ends import Interval, outward
from ..images.library import Array, rows_of
from ..images.measure import OPEN_ABOVE, OPEN_BELOW, SLACK, Measure, open_ends
from ..storage.files import aside, swap_folder
from ..storage.version import VERSION
from .arrays import ABOUT, Arrays, FilePath, about_of
from .dicom import dicom_files
from .dicom_maps import (
    MASKS,
    PARAMETRIC,
    SEPARATOR,
    MapsOfScan,
    Part,
    captured_measure,
    write_captures,
    write_parametric,
)
from .dicom_report import write_structured_report
from .nifti import NIFTI_SUFFIXES, stem, write_volume, written_measure
from .scans import Images, Scan, Window

INTERVAL_SUFFIXES = (".zarr", ".npz", *NIFTI_SUFFIXES)
MAP_PARTS = ("lower", "upper", "length", "open", *MASKS)  # NIfTI becomes NAME_lower, NAME_upper and so on
_SCAN = "scan_"  # begins the name of the folder of a scan
_BLOCK_BYTES = 2**26

Masks = Mapping[str, tuple[Any, str]]  # by name (trusted, outer, inner): bool (n, *pixels), and what it says


def write_interval(
    path: FilePath, interval: Interval, *, like: Images | None = None, identifiers: str = "pseudonym",
    about: Calibration | Mapping[str, Any] | None = None, masks: Masks | None = None, parametric: bool = False,
    report: Mapping[str, Any] | None = None,
) -> Path:  # fmt: skip
    """Write an interval under a name whose suffix says the kind: .zarr, .npz, .nii, .nii.gz, or a folder for DICOM.

    NIfTI and DICOM need `like`, the images that the interval is about: its maps lie where they lie, in their measure.
    What the images' files say of people is left out, unless `identifiers` are kept. What the interval is `about` goes
    along: the calibration that made it, with its guarantee and checksum, or plain values by name; and so do `masks`. A
    folder of DICOM has a folder for each scan, and in it one for each part; with `parametric` another of Parametric
    Maps, and masks as segmentations; a `report` of structures, masks (n, h, w) by name, adds a structured report to
    these. Returns what was written; for NIfTI, of several files, the first.
    """
    path = Path(path)
    who = keeps(identifiers)
    if not isinstance(interval, Interval):
        raise TypeError(f"interval is a {type(interval).__name__}; give what Calibration.apply returns")
    labels: dict[str, Array] = {}  # names and units of images; without identifiers numbers of the units alone
    if like is not None:
        check_same_shape(interval=interval.lower, like=like.pixels)
        if interval.measure is not None and like.measure is not None and not interval.measure.same_as(like.measure):
            raise ValueError(
                f"{path} would hold wrong values: the interval is about {interval.measure}, but like was read as "
                f"{like.measure}; read it as the calibration's images were, window={interval.measure.window}"
            )
        labels |= {"names": np.array(like.names)} if who else {}
        if like.units is not None:
            labels["units"] = np.asarray(like.units) if who else distinct_in_order(like.units)[1]
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; make it first")
    parametric = parametric or report is not None
    if parametric and path.suffix:
        raise ValueError(f"{path} is one file, and Parametric Maps lie in a folder; name one without ending")
    stated = provenance_of(about) if isinstance(about, Calibration) else about or {}
    shown = _Shown(interval, stated, masks or {}, like, identifiers)
    if path.suffix in (".zarr", ".npz"):
        return (_write_zarr if path.suffix == ".zarr" else _write_npz)(path, shown, labels)
    nifti = path.name.endswith(NIFTI_SUFFIXES)
    if path.suffix and not nifti and not path.is_dir():
        raise ValueError(f"{path} is of no known kind; end it in {', '.join(INTERVAL_SUFFIXES)}, or name a folder")
    if like is None or like.geometry is None:
        raise ValueError(f"{path} needs the place of the images: give like, read from NIfTI or DICOM, or write .npz")
    return _write_nifti(path, shown, who) if nifti else _write_dicom(path, shown, parametric, report)


@dataclass(frozen=True, eq=False)
class _Shown:
    """An interval and what goes along with it."""

    interval: Interval
    about: Mapping[str, Any]
    masks: Masks
    like: Any  # the images, with the space they lie in
    identifiers: str

    def rows(self, name: str, start: int, stop: int) -> Array:
        """Images start..stop of an end, checked, or of a mask."""
        if name in self.masks:
            return rows_of(self.masks[name][0], start, stop)
        rows = rows_of(getattr(self.interval, name), start, stop)
        check_values(f"interval.{name}", rows, start)
        return rows


def provenance_of(calibration: Calibration) -> dict[str, Any]:
    """What files of intervals say of the calibration that made them."""
    measure, bounded = calibration.measure, all(map(math.isfinite, calibration.limits))
    return {
        "guarantee": calibration.guarantee, "risk_level": calibration.risk_level,
        "claim": asdict(StoredGuarantee.of(calibration)), "limits": calibration.limits if bounded else None,
        "measure": None if measure is None else measure.state(),
        "calibration": hashlib.sha256(calibration.to_bytes()).hexdigest(), "source": str(calibration.record.source),
        "version": VERSION,
    }  # fmt: skip


def keeps(identifiers: str) -> bool:
    """Whether identifiers go along: `keep`, or not: `pseudonym` or `drop`."""
    return check_choice(identifiers, ("pseudonym", "keep", "drop"), "identifiers") == "keep"


def _scan_key(images: Images, scan: Scan) -> str:
    """What stands for a scan in identifiers: its series, or a digest of its values and place."""
    if scan.kind == "dicom":
        return scan.name
    values = np.ascontiguousarray(images.pixels[scan.start : scan.stop])
    return hashlib.sha256(values.tobytes() + scan.affine.tobytes()).hexdigest()


def _patients_of(images: Images, identifiers: str) -> list[str | None]:
    """What stands for the patient of each scan: nothing, a pseudonym, or None where identifiers are kept."""
    scans = () if images.geometry is None else images.geometry.scans
    if identifiers != "pseudonym":
        return [None if identifiers == "keep" else ""] * len(scans)
    units = range(len(images)) if images.units is None else images.units
    studies: dict[Any, set[str]] = {}
    for scan in scans:
        study = scan.header[0].get("StudyInstanceUID") if scan.kind == "dicom" else None
        studies.setdefault(units[scan.start], set()).add(str(study or _scan_key(images, scan)))
    texts = (" ".join(sorted(studies[units[scan.start]])) for scan in scans)
    return [f"PB-{hashlib.sha256(text.encode()).hexdigest()[:12].upper()}" for text in texts]


# ---------------------------------------------------------------- what is there already


def maps_of(path: Path, part: str | None = None) -> list[Path]:
    """The files of a part of an interval (or of all) that was written under one name, scan by scan."""
    suffix = next(x for x in NIFTI_SUFFIXES if path.name.endswith(x))
    name = path.name.removesuffix(suffix)
    parts = MAP_PARTS if part is None else (part,)
    return sorted(x for part in parts for x in path.parent.glob(f"{name}*_{part}{suffix}"))


def is_ours(folder: Path, *kinds: str) -> bool:
    """Whether a folder may be replaced: an empty one, or what we wrote of these kinds (interval, bands, maps)."""
    names = {x.name for x in folder.iterdir()}
    if not names:
        return True
    if all(name.startswith(_SCAN) and (folder / name / "lower").is_dir() for name in names):
        parts = {x.name for name in names for x in (folder / name).iterdir()}
        return "maps" in kinds and parts <= {*MAP_PARTS, PARAMETRIC, "report.dcm"}
    try:
        return about_of(Arrays(folder)).get("kind") in kinds
    except Exception:  # no store; zarr raises what it likes
        return False


def _check_free(path: Path, kind: str) -> None:
    if path.exists() and not (path.is_dir() and is_ours(path, kind)):
        raise FileExistsError(f"{path} holds something else already; remove it, or choose another name")


def _replace(new: Path, path: Path) -> None:
    with new.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(new, path)


def _write_zarr(path: Path, shown: _Shown, labels: dict[str, Array]) -> Path:
    interval = shown.interval
    _check_free(path, "interval")
    stated = {"kind": "interval", **shown.about, **{name: x.tolist() for name, x in labels.items()}}
    with aside(path) as folder:
        group = zarr.create_group(folder / "new", attributes={"pixelbounds": stated})
        step = max(1, _BLOCK_BYTES // rows_of(interval.lower, 0, 1).nbytes)
        for name in ("lower", "upper", *shown.masks):
            first = shown.rows(name, 0, 1)
            array = group.create_array(
                name, shape=interval.shape, chunks=(1, *interval.pixels), dtype=str(first.dtype),
                compressors=(ZstdCodec(level=3), Crc32cCodec()), fill_value=np.nan if first.dtype.kind == "f" else 0,
                config={"write_empty_chunks": first.dtype.kind == "b"},
            )  # fmt: skip
            for start in range(0, len(interval), step):
                rows = shown.rows(name, start, min(start + step, len(interval)))
                for image, row in enumerate(rows, start):  # one chunk at a time: a failure leaves no other under way
                    array[image] = row
        swap_folder(folder / "new", path)
    return path


def _write_npz(path: Path, shown: _Shown, labels: dict[str, Array]) -> Path:
    arrays = {name: shown.rows(name, 0, len(shown.interval)) for name in ("lower", "upper", *shown.masks)}
    if shown.about:
        arrays[ABOUT] = np.array(json.dumps({"kind": "interval", **shown.about}))
    with aside(path) as folder:
        np.savez(folder / "new.npz", allow_pickle=False, **arrays, **labels)
        _replace(folder / "new.npz", path)
    return path


# ---------------------------------------------------------------- maps in the space of the images


def written_scans(path: Path, part: str) -> list[Path]:
    """The folders of a part in a folder of DICOM maps that we wrote, scan by scan."""
    return sorted(path.glob(f"{_SCAN}*/{part}")) if path.is_dir() else []


def measure_of_maps(path: Path) -> Measure | None:
    """What the values of maps stood for between 0 and 1 when we wrote them; None for anything else."""
    if path.name.endswith(NIFTI_SUFFIXES) and not path.exists():
        measures = [written_measure(file) for file in maps_of(path, "lower")]
    else:
        measures = [captured_measure(x) for folder in written_scans(path, "lower") for x in dicom_files(folder)]
    return measures[0] if measures and None not in measures and len(set(measures)) == 1 else None


def measured(lower: Array, upper: Array, window: Window | None, inverted: bool = False) -> tuple[Array, Array]:
    """Ends in the measure of the file, float64, a hair wider than given so that windowing loses nothing."""
    lower = lower.astype(np.float64)
    upper = upper.astype(np.float64)
    if window is None:
        return lower, upper
    if inverted:
        return measured(1 - upper, 1 - lower, window)
    width, level = window
    least = level - width / 2
    return least + width * np.clip(lower - SLACK, 0, 1), least + width * np.clip(upper + SLACK, 0, 1)


def _parts(shown: _Shown, scan: Scan) -> list[Part]:
    """The parts of an interval of a scan, in its measure: ends and lengths in single precision, rounded outward; where
    there is a window, which ends are open; and its masks.
    """
    geometry = shown.like.geometry
    lower, upper = (shown.rows(name, scan.start, scan.stop) for name in ("lower", "upper"))
    window, measure = geometry.window, geometry.measure
    low, high = measured(lower, upper, window, scan.inverted)
    ends = np.zeros(low.shape, np.uint8)
    comments = {"lower": "", "upper": "", "length": ""}
    if window is not None:
        ends = open_ends(1 - upper, 1 - lower) if scan.inverted else open_ends(lower, upper)
        least, most = scan.beyond(window)
        low[(ends & OPEN_BELOW) > 0] = least
        high[(ends & OPEN_ABOVE) > 0] = most
        below = f"below {measure.low:g} {measure.unit}".rstrip()
        above = f"above {measure.high:g} {measure.unit}".rstrip()
        stands = "stands for an open end: the value may lie anywhere"
        comments = {
            "lower": f"{least:g} {stands} {below}, beyond the window",
            "upper": f"{most:g} {stands} {above}, beyond the window",
            "length": "of intervals whose ends both lie within the window; where one is open, far longer",
            "open": f"0: both ends within the window; 1: open {below}; 2: open {above}; 3: both, nothing is known",
        }
    low, high = outward(low, high, np.float32)
    exact = high.astype(np.float64) - low
    length = outward(exact, exact, np.float32)[1]
    ends_of_window = None if measure.low is None or measure.high is None else (measure.low, measure.high)
    longest = float(length[ends == 0].max(initial=0)) or 1.0
    parts = [
        Part("lower", low, measure.unit, ends_of_window, comments["lower"], (ends & OPEN_BELOW) > 0),
        Part("upper", high, measure.unit, ends_of_window, comments["upper"], (ends & OPEN_ABOVE) > 0),
        Part("length", length, measure.unit, (0.0, longest), comments["length"], ends > 0),
    ]
    if window is not None:
        parts.append(Part("open", ends, "", (0.0, 3.0), comments["open"]))
    for name, (mask, said) in shown.masks.items():
        parts.append(Part(name, rows_of(mask, scan.start, scan.stop).astype(np.uint8), "", (0.0, 1.0), said))
    return parts


def _provenance(about: Mapping[str, Any]) -> str:
    stated = {"written by": f"pixelbounds {VERSION}", **about}
    words = {"calibration": "calibration SHA-256", "source": "bands", "guarantee": "guarantee"}
    said = [f"{words.get(name, name)}: {stated[name]}" for name in ("written by", *words) if stated.get(name)]
    return SEPARATOR.join(said)


def _write_nifti(path: Path, shown: _Shown, who: bool) -> Path:
    """A file for each part, NAME_lower.nii.gz; for several scans NAME_SCAN_lower.nii.gz, scans called by their numbers,
    scan_1, unless names are kept.
    """
    suffix = path.name.removeprefix(stem(path.name))
    scans = shown.like.geometry.scans
    finished: dict[str, list[str]] = {part: [] for part in MAP_PARTS}
    about = _provenance(shown.about).encode("ascii", "replace").decode()
    with aside(path) as folder:
        for number, scan in enumerate(scans, 1):
            called = scan.name.replace("/", "_") if who else f"{_SCAN}{number:0{len(str(len(scans)))}}"
            of_scan = f"_{called}" if len(scans) > 1 else ""
            for part in _parts(shown, scan):
                name = f"{stem(path.name)}{of_scan}_{part.name}{suffix}"
                write_volume(folder / name, part, scan, about, who=who)
                finished[part.name].append(name)
        names = [name for part in MAP_PARTS for name in finished[part]]
        for name in names:
            _replace(folder / name, path.with_name(name))
    return path.with_name(names[0])


def _write_dicom(path: Path, shown: _Shown, parametric: bool, report: Mapping[str, Any] | None) -> Path:
    """A folder for each scan, scan_1 or, with what stands for its patient, scan_1_PATIENT; in it one for each part."""
    like = shown.like
    _check_free(path, "maps")
    patients = _patients_of(like, shown.identifiers)
    stored = StoredGuarantee.from_state(shown.about.get("claim"))
    with aside(path) as folder:
        for number, (scan, patient) in enumerate(zip(like.geometry.scans, patients, strict=True), 1):
            maps = MapsOfScan(scan, _parts(shown, scan), _scan_key(like, scan), patient, _provenance(shown.about))
            called = re.sub(r"[^A-Za-z0-9.-]+", "_", str(maps.sources[0].PatientID))
            place = folder / "new" / f"{_SCAN}{number:0{len(str(len(patients)))}}{f'_{called}' * bool(called)}"
            write_captures(place, maps)
            objects = write_parametric(place / PARAMETRIC, maps) if parametric else {}
            if report is not None:
                drawn = {name: np.asarray(mask[scan.start : scan.stop]) for name, mask in report.items()}
                promises = () if stored is None else stored.promises
                write_structured_report(place / PARAMETRIC, maps, drawn, objects, promises)
        swap_folder(folder / "new", path)
    return path
