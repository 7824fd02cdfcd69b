"""DICOM series as slices in their order in space, patient by patient.

Files are told apart by SeriesInstanceUID and sorted along the normal of their planes (ImageOrientationPatient and
ImagePositionPatient), never by name or number. Rescale slope and intercept are applied; MONOCHROME1, where large
values are dark, is inverted after windowing. A gap or a double slice is an error: a volume with a hole is not what
the scanner saw.

Series come in the order of their PatientIDs (P2 before P10), those of a patient in that of their files: so two folders
of the same patients, a truth and what a model sees, belong together image by image. UIDs have no order with a meaning.
"""

from __future__ import annotations

import re
import struct
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..images.library import Array
from .nifti import images_of_scans
from .scans import FormatError, Images, Scan, Window, check_allowed, format_errors, needed, usual_window

_FLAT = 1e-9  # cubic millimetres of a voxel that has none
_GAP = 1.5  # distances between slices beyond this many spacings mean that slices are missing
TO_RAS = np.diag([-1.0, -1.0, 1.0])  # DICOM counts towards left, posterior, superior


def is_dicom(path: Path) -> bool:
    """Whether a file begins as DICOM files do."""
    try:
        with path.open("rb") as file:
            return path.name != "DICOMDIR" and file.read(132)[128:] == b"DICM"
    except OSError:
        return False


def dicom_files(path: Path, part: str | None = None) -> list[Path]:
    """DICOM files at a path, by name: the file itself, or all those in a folder, or of a `part` of maps."""
    if path.is_file():
        return [path]
    files = path.rglob("*" if part is None else f"{part}/*")
    return sorted(x for x in files if x.is_file() and not x.name.startswith(".") and is_dicom(x))


def read_dicom(path: Path, *, window: Window | str | None, clip: bool = True, part: str | None = None) -> Images:
    """Slices (n, h, w) of all series at a path; the patient is the unit, or the series where no patient is named."""
    files = dicom_files(path, part)
    series: dict[str, list[tuple[Path, Any]]] = {}
    for file in files:
        header = _header(file)
        series.setdefault(str(header.get("SeriesInstanceUID", file)), []).append((file, header))
    scans: list[Scan] = []
    ordered: list[Path] = []
    for uid in sorted(series, key=lambda uid: _place(series[uid])):
        slices = _sorted(series[uid])
        start = len(ordered)
        ordered += [file for file, _ in slices]
        headers = tuple(header for _, header in slices)
        plane = int(headers[0].Rows), int(headers[0].Columns)
        affine = _affine(headers)
        if not np.isfinite(affine).all() or abs(np.linalg.det(affine)) < _FLAT:
            raise FormatError(f"{slices[0][0]}: how the slices lie in space is not stated; correct the header")
        inverted = window is not None and headers[0].PhotometricInterpretation == "MONOCHROME1"
        scans.append(Scan(uid, start, len(ordered), affine, "dicom", headers, plane, inverted, _reach(headers)))
    unit = _unit(scans)
    modality = str(scans[0].header[0].get("Modality", "") or "without a Modality")
    window = usual_window(path, window, unit, f"DICOM {modality}, not CT in Hounsfield units")
    patients = [str(scan.header[0].get("PatientID", "") or "") for scan in scans]
    owners = [patient or scan.name for patient, scan in zip(patients, scans, strict=True)]
    unit_name = "patient" if all(patients) else "unit" if any(patients) else "scan"
    planes = enumerate(map(_values, ordered))
    return images_of_scans(path, scans, planes, owners, unit_name, window, unit, clip=clip)


def _unit(scans: list[Scan]) -> str:
    """What all series measure in: Hounsfield units where they are CT or say so, else what they say."""
    said = {str(scan.header[0].get("RescaleType", "") or "") for scan in scans}
    kinds = {str(scan.header[0].get("Modality", "") or "") for scan in scans}
    if said == {"HU"} or (said <= {"HU", "", "US"} and kinds == {"CT"}):  # US is "unspecified"
        return "HU"
    (one,) = said if len(said) == 1 else ("",)
    return "" if one == "US" else one


def _reach(headers: tuple[Any, ...]) -> tuple[float, float] | None:
    """The least and greatest value that a pixel of a series can hold, from bits, slope and intercept."""
    ends: list[float] = []
    for header in headers:
        bits = int(header.get("BitsStored") or 0)
        if not 0 < bits <= 32 or "ModalityLUTSequence" in header:
            return None
        signed = int(header.get("PixelRepresentation") or 0) == 1
        least = -(2 ** (bits - 1)) if signed else 0
        slope = float(1 if header.get("RescaleSlope") is None else header.RescaleSlope)
        intercept = float(header.get("RescaleIntercept") or 0)
        ends += [intercept + slope * least, intercept + slope * (least + 2**bits - 1)]
    return min(ends), max(ends)


def _place(slices: list[tuple[Path, Any]]) -> tuple[Any, ...]:
    """Where a series stands among others: by its patient as people count, P2 before P10, those of nobody last, then by
    the first of its files; maps that were written here by their files alone, which have the order of their scans.
    """
    file, header = slices[0]
    patient = str(header.get("PatientID", "") or "")
    counted = re.sub("[0-9]+", lambda digits: digits[0].zfill(64), patient)
    ours = header.get("Manufacturer") == "pixelbounds"
    return (False, "", "", file) if ours else (not patient, counted, patient, file)


def _header(file: Path) -> Any:
    pydicom = needed("pydicom")
    with format_errors(f"{file} cannot be read as DICOM", "remove or replace it"):
        syntax = pydicom.filereader.read_file_meta_info(file).get("TransferSyntaxUID")
        if syntax == pydicom.uid.DeflatedExplicitVRLittleEndian:  # which is unpacked whole before all else
            raise FormatError(f"{file} is deflated, so its unpacked size is unknown; convert it to an uncompressed one")
        header = pydicom.dcmread(file, stop_before_pixels=True)
        _check_header(file, header)
    return header


def _check_header(file: Path, header: Any) -> None:
    if "Rows" not in header or "Columns" not in header:
        modality = header.get("Modality", "no modality")
        raise FormatError(f"{file} is DICOM without an image ({modality}); move it elsewhere")
    if int(header.get("NumberOfFrames", 1) or 1) > 1:
        raise FormatError(f"{file} holds {header.NumberOfFrames} frames; convert it to one file per slice")
    if "SharedFunctionalGroupsSequence" in header or "DoseGridScaling" in header:  # place and rescaling stand elsewhere
        raise FormatError(f"{file} is {header.SOPClassUID.name}; convert it to one plain file per slice")
    if not str(header.get("PhotometricInterpretation", "")).startswith("MONOCHROME"):
        raise FormatError(f"{file} is {header.get('PhotometricInterpretation')}; only grey images are read: convert it")
    extent = (header.Rows, header.Columns)
    if not all(isinstance(x, int) and x > 0 for x in extent) or int(header.get("SamplesPerPixel", 1)) != 1:
        values = header.get("SamplesPerPixel")
        raise FormatError(f"{file} has {extent[0]} rows, {extent[1]} columns of {values} values; correct it")
    slope = header.get("RescaleSlope")
    if slope is not None and float(slope) == 0:
        raise FormatError(f"{file} has a rescale slope of 0, which makes all its values the same; correct its header")
    check_allowed(8 * prod(extent), f"{file} unpacks")


def _values(file: Path) -> Array:
    """Pixels of a file in its own measure, for CT Hounsfield units."""
    pydicom = needed("pydicom")
    with format_errors(f"{file}: pixels cannot be read", "use another copy, or an uncompressed one"):
        data = pydicom.dcmread(file)
        check_frames(file, data)
        values = np.asarray(pydicom.pixels.apply_modality_lut(data.pixel_array, data))
    if values.shape != (int(data.Rows), int(data.Columns)) or not np.isfinite(values).all():
        raise FormatError(f"{file} holds values of shape {values.shape}, NaN or infinite ones; correct or remove it")
    return values


def check_frames(file: Path, data: Any) -> None:
    """Packed frames have the extent that the header of the file says: whoever unpacks a frame believes the frame."""
    pydicom = needed("pydicom")
    syntax = data.file_meta.TransferSyntaxUID
    if not syntax.is_compressed or syntax == pydicom.uid.RLELossless:  # which grows to 64 times its size at most
        return
    count = int(data.get("NumberOfFrames", 1) or 1)
    for frame in pydicom.encaps.generate_frames(data.PixelData, number_of_frames=count):
        extent = _extent(frame)
        if extent != (data.Rows, data.Columns, 1):
            raise FormatError(
                f"{file}: a packed frame has rows, columns and values {extent}, but the file says {data.Rows} x "
                f"{data.Columns}; convert it to an uncompressed one"
            )


def _extent(frame: bytes) -> tuple[int, int, int] | None:
    """Rows, columns and values of a pixel that a frame in JPEG 2000, JPEG or JPEG-LS declares; None in any other."""
    if frame[:4] == b"\xff\x4f\xff\x51":
        right, bottom, left, top = struct.unpack_from(">4I", frame, 8)
        return bottom - top, right - left, *struct.unpack_from(">H", frame, 40)
    at = 2
    while frame[:2] == b"\xff\xd8" and at + 10 <= len(frame):
        kind, length = struct.unpack_from(">HH", frame, at)
        if kind == 0xFFF7 or (0xFFC0 <= kind <= 0xFFCF and kind not in (0xFFC4, 0xFFC8, 0xFFCC)):
            return struct.unpack_from(">HHB", frame, at + 5)
        at += 2 + length
    return None


def _sorted(series: list[tuple[Path, Any]]) -> list[tuple[Path, Any]]:
    """Files of one series along the normal of their planes; they must be parallel, equal in size, and complete."""
    first_file, first = series[0]
    if len(series) == 1:
        return series
    for file, header in series:
        for name in ("ImageOrientationPatient", "ImagePositionPatient"):
            if header.get(name) is None:
                raise FormatError(f"{file} has no {name}, by which a series is put in order; remove or read it alone")
        if (header.Rows, header.Columns) != (first.Rows, first.Columns):
            other = f"{first_file} of the same series is {first.Rows} x {first.Columns}"
            raise FormatError(f"{file} is {header.Rows} x {header.Columns}, {other}; remove what does not belong")
        if not np.allclose(header.ImageOrientationPatient, first.ImageOrientationPatient, atol=1e-3):
            raise FormatError(f"{file} is not parallel to {first_file} of the same series (a scout?); remove one")
        if header.PhotometricInterpretation != first.PhotometricInterpretation:
            raise FormatError(f"{file} and {first_file} of one series differ in PhotometricInterpretation; remove one")
    normal = np.cross(*np.array(first.ImageOrientationPatient, float).reshape(2, 3))
    place = {file: float(normal @ np.array(header.ImagePositionPatient, float)) for file, header in series}
    series = sorted(series, key=lambda item: place[item[0]])
    steps = [(place[b] - place[a], a, b) for (a, _), (b, _) in pairwise(series)]
    spacing = sorted(step for step, _, _ in steps)[(len(steps) - 1) // 2]
    for step, a, b in steps:
        if step <= max(1e-3, spacing / 100):
            raise FormatError(f"{a} and {b} lie at the same place, {place[a]:g} mm; keep one, or part them into series")
    for step, a, b in steps:
        if step > _GAP * spacing:
            few = max(1, round(step / spacing) - 1)
            raise FormatError(
                f"slices are missing between {a} and {b}, {step:g} mm apart: bring {few}, or part the series"
            )
    return series


def _affine(headers: tuple[Any, ...]) -> Array:
    """(slice, row, column, 1) -> millimetres R, A, S; a file that says nothing lies at the origin, axially."""
    first = headers[0]
    row, column = np.array(first.get("ImageOrientationPatient") or [1, 0, 0, 0, 1, 0], float).reshape(2, 3)
    down, across = map(float, first.get("PixelSpacing") or (1, 1))
    start = np.array(first.get("ImagePositionPatient") or [0, 0, 0], float)
    end = np.array(headers[-1].get("ImagePositionPatient") or [0, 0, 0], float)
    thickness = float(first.get("SpacingBetweenSlices") or first.get("SliceThickness") or 1)
    step = (end - start) / (len(headers) - 1) if len(headers) > 1 else np.cross(row, column) * thickness
    affine = np.eye(4)
    # ImageOrientationPatient's first vector is the direction in which columns are counted
    affine[:3] = TO_RAS @ np.column_stack([step, column * down, row * across, start])
    return affine
