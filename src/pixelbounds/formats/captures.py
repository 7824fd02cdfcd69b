"""Maps of a scan as DICOM secondary captures: one series each for lower, upper and length.

Values are stored in 16 bits with a rescale slope that is a power of two and a whole intercept, so that both are exact
as decimal strings of 16 characters and as floats; lower ends are rounded down and upper ends up to the next step.
Study and place in space are those of the scan; its patient goes along only where that is asked for (`identifiers.py`).
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np

from ..images.library import Array
from .scans import Scan, Window, needed

_MOST = 2**16 - 1
_FINEST = -15  # 2**-15 is the finest power of two that fits into 16 characters
_KEPT = """
SpecificCharacterSet StudyInstanceUID Modality BodyPartExamined PatientPosition FrameOfReferenceUID RescaleType
""".split()  # noqa: SIM905
_WHO = """
PatientName PatientID IssuerOfPatientID PatientBirthDate PatientSex PatientAge StudyDate StudyTime StudyID
StudyDescription AccessionNumber ReferringPhysicianName PositionReferenceIndicator
""".split()  # noqa: SIM905
_REMOVED = "pixelbounds: identifiers left out, UIDs kept"
_PLACE = ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness", "SliceLocation")


def write_captures(
    folder: Path, lower: Array, upper: Array, scan: Scan, window: Window | None, *, who: bool = False
) -> None:
    """Write ends (n, h, w), in the measure of the scan, into folder/lower, folder/upper and folder/length.

    who            whether patient and study go along
    """
    slope, intercept = scale(float(lower.min()), float(upper.max()))
    low = np.floor((lower - intercept) / slope).astype(np.uint16)
    high = np.ceil((upper - intercept) / slope).astype(np.uint16)
    maps = {"lower": (low, intercept), "upper": (high, intercept), "length": (high - low, 0)}
    name = scan.name
    if scan.kind != "dicom" and not who:  # the name of a file
        name = hashlib.sha256(low.tobytes() + high.tobytes() + scan.affine.tobytes()).hexdigest()
    for order, (part, (stored, offset)) in enumerate(maps.items(), 1):
        content = hashlib.sha256(stored.tobytes()).hexdigest()
        width = float(np.ptp(stored)) * slope or 1.0
        shown = (width, offset + float(stored.min()) * slope + width / 2)
        shown = shown if window is None or part == "length" else window
        for k, plane in enumerate(stored):
            data = _dataset(scan, k, plane.shape, name, who=who)
            data.SeriesInstanceUID = _uid(name, part, content)
            data.SOPInstanceUID = _uid(name, part, content, str(k))
            data.SeriesNumber = 10 * int(_source(scan, k).get("SeriesNumber") or 0) + order
            data.SeriesDescription = f"pixelbounds {part}"
            data.DerivationDescription = f"{part} of calibrated intervals per pixel"
            data.PhotometricInterpretation = "MONOCHROME1" if scan.inverted and part != "length" else "MONOCHROME2"
            data.RescaleSlope, data.RescaleIntercept = _decimals([slope, offset])
            data.WindowWidth, data.WindowCenter = _decimals(shown)
            data.PixelData = plane.astype("<u2").tobytes()
            data.save_as(folder / part / f"{scan.start + k + 1:05d}.dcm", enforce_file_format=True)


def scale(least: float, most: float) -> tuple[float, int]:
    """Slope and intercept with which 16 bits hold all values between least and most.

    >>> scale(-160.0, 240.0)
    (0.0078125, -160)
    """
    intercept = math.floor(least)
    if len(str(intercept)) > 16:
        raise ValueError(f"values reach {least:g}, which DICOM cannot hold; write .nii.gz, .npz or .zarr")
    exponent = max(_FINEST, math.ceil(math.log2(max(most - intercept, 1e-9) / _MOST)))
    return 2.0**exponent, intercept


def _dataset(scan: Scan, k: int, shape: tuple[int, ...], name: str, *, who: bool) -> Any:
    """Everything about slice k of a map apart from its values; `name` is that of the scan, or stands for it."""
    pydicom = needed("pydicom")
    source = _source(scan, k)
    data = pydicom.Dataset()
    place = _PLACE if shape == scan.plane and scan.kind == "dicom" else ()
    for word in (*_KEPT, *place, *(_WHO if who else ())):
        if word in source:
            data[word] = source[word]
    if scan.kind != "dicom":
        data.StudyInstanceUID = _uid(name, "study")
        data.FrameOfReferenceUID = _uid(name, "frame")
        if who:
            data.PatientID = data.PatientName = name[:64]
    if not who:
        data.PatientIdentityRemoved = "YES"
        data.DeidentificationMethod = _REMOVED
    if shape != scan.plane or scan.kind != "dicom":
        _place(data, scan.affine, k)
    if "SOPInstanceUID" in source:
        reference = pydicom.Dataset()
        reference.ReferencedSOPClassUID, reference.ReferencedSOPInstanceUID = source.SOPClassUID, source.SOPInstanceUID
        data.SourceImageSequence = [reference]
    for word in ("PatientName", "PatientID", "PatientBirthDate", "PatientSex", "StudyDate", "StudyTime", "StudyID"):
        if word not in data:
            setattr(data, word, "")  # required, but may be empty
    data.SOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    data.ConversionType, data.ImageType, data.Manufacturer = "WSD", ["DERIVED", "SECONDARY"], "pixelbounds"
    data.InstanceNumber = k + 1
    data.BurnedInAnnotation = "YES" if source.get("BurnedInAnnotation") == "YES" else "NO"
    data.Rows, data.Columns, data.SamplesPerPixel = shape[0], shape[1], 1
    data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 16, 15, 0
    data.file_meta = pydicom.dataset.FileMetaDataset()
    data.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    return data


def _source(scan: Scan, k: int) -> Any:
    return scan.header[k] if scan.kind == "dicom" else {}


def _place(data: Any, affine: Array, k: int) -> None:
    """Position, orientation and spacing of slice k from an affine (slice, row, column, 1) -> R, A, S."""
    lps = np.diag([-1.0, -1.0, 1.0]) @ affine[:3]
    steps = np.linalg.norm(lps[:, :3], axis=0)  # between slices, rows and columns
    data.ImagePositionPatient = _decimals(lps @ [k, 0, 0, 1])
    data.ImageOrientationPatient = _decimals([*lps[:, 2] / steps[2], *lps[:, 1] / steps[1]])
    data.PixelSpacing = _decimals(steps[1:])
    (data.SliceThickness,) = _decimals(steps[:1])


def _decimals(values: Any) -> list[Any]:
    decimal = needed("pydicom.valuerep").DSfloat
    return [decimal(float(x), auto_format=True) for x in values]


def _uid(*about: str) -> Any:
    """A unique identifier that the same content always gets."""
    return needed("pydicom.uid").generate_uid(entropy_srcs=["pixelbounds", *about])
