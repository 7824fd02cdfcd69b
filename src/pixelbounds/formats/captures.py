"""Maps of a scan as DICOM secondary captures: a series each for lower, upper, length, open ends and a trust mask.

Values are stored in 16 bits with a rescale slope that is a power of two and a whole intercept, so that both are exact
as decimal strings of 16 characters and as floats; lower ends are rounded down and upper ends up to the next step.
Study and place in space are those of the scan; its patient goes along only where that is asked for (`identifiers.py`).
"""

from __future__ import annotations

import hashlib
import math
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..images.library import Array
from ..images.measure import Measure
from .scans import Geometry, Scan, needed

_MOST = 2**16 - 1
_FINEST = -15  # 2**-15 is the finest power of two that fits into 16 characters
_KEPT = """
SpecificCharacterSet StudyInstanceUID Modality BodyPartExamined PatientPosition FrameOfReferenceUID RescaleType
""".split()  # noqa: SIM905
_WHO = """
PatientName PatientID IssuerOfPatientID PatientBirthDate PatientSex PatientAge StudyDate StudyTime StudyID
StudyDescription AccessionNumber ReferringPhysicianName PositionReferenceIndicator
""".split()  # noqa: SIM905
_MAY_BE_EMPTY = """
PatientName PatientID PatientBirthDate PatientSex StudyDate StudyTime StudyID AccessionNumber ReferringPhysicianName
PositionReferenceIndicator Laterality
""".split()  # noqa: SIM905 - required, but may be empty
REMOVED = "pixelbounds: identifiers left out, UIDs kept"
_LABELS = ("open", "trusted")  # series of labels
_NO_UNIT = "US"  # as DICOM says unspecified
TRUSTED = "1: the interval is within the tolerance. It is short, which does not say that it holds the truth"
_PLACE = ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness", "SliceLocation")


def write_captures(
    folder: Path, maps: dict[str, Array], scan: Scan, geometry: Geometry, name: str, *, who: bool = False
) -> None:
    """Write lower and upper ends (n, h, w), in the measure of the scan, and which are open, as the series of a folder.

    Series are folder/lower, folder/upper, folder/length and, where values were seen through a window, folder/open; and
    folder/trusted, where there is a map of it.

    name           of the scan, or what stands for it (`map_name`)
    who            whether patient and study go along
    """
    lower, upper = maps["lower"], maps["upper"]
    slope, intercept = scale(float(lower.min()), float(upper.max()))
    low = np.floor((lower - intercept) / slope).astype(np.uint16)
    high = np.ceil((upper - intercept) / slope).astype(np.uint16)
    series = [
        _Series("lower", low, slope, intercept),
        _Series("upper", high, slope, intercept),
        _Series("length", high - low, slope, 0),
    ]
    series += [_Series(part, maps[part].astype(np.uint16), 1.0, 0) for part in _LABELS if part in maps]
    comments = {} if geometry.window is None else comments_of(geometry, *scan.beyond(geometry.window))
    comments["trusted"] = TRUSTED
    for order, one in enumerate(series, 1):
        content = hashlib.sha256(one.stored.tobytes()).hexdigest()
        shown = geometry.window if one.ends and geometry.window is not None else one.span(maps.get("open"))
        for k, plane in enumerate(one.stored):
            data = _dataset(scan, k, plane.shape, name, who=who)
            data.SeriesInstanceUID = own_uid(name, one.part, content)
            data.SOPInstanceUID = own_uid(name, one.part, content, str(k))
            data.SeriesNumber = 10 * int(source_of_slice(scan, k).get("SeriesNumber") or 0) + order
            data.SeriesDescription = f"pixelbounds {one.part}"
            data.DerivationDescription = f"{one.part} of calibrated intervals per pixel"
            data.PhotometricInterpretation = "MONOCHROME1" if scan.inverted and one.ends else "MONOCHROME2"
            data.RescaleSlope, data.RescaleIntercept = decimals([one.slope, one.intercept])
            data.WindowWidth, data.WindowCenter = decimals(shown)
            if one.part in comments:
                data.ImageComments = comments[one.part]
            data.RescaleType = _NO_UNIT if one.part in _LABELS else geometry.unit or _NO_UNIT
            data.PixelData = plane.astype("<u2").tobytes()
            data.save_as(folder / one.part / f"{scan.start + k + 1:05d}.dcm", enforce_file_format=True)


@dataclass(frozen=True, eq=False)
class _Series:
    """Stored values (n, h, w) of a part, and how they become values."""

    part: str
    stored: Array
    slope: float
    intercept: int

    @property
    def ends(self) -> bool:
        return self.part in ("lower", "upper")

    def span(self, ends: Array | None) -> tuple[float, float]:
        """Width and level that show all values, of lengths those of closed intervals."""
        stored = self.stored[ends == 0] if self.part == "length" and ends is not None else self.stored
        if not stored.size:
            return 1.0, 0.5
        width = float(np.ptp(stored)) * self.slope or 1.0
        return width, self.intercept + float(stored.min()) * self.slope + width / 2


def comments_of(geometry: Geometry, least: float, most: float) -> dict[str, str]:
    """What a person should know of open ends, by series."""
    measure = geometry.measure
    unit = f" {measure.unit}" if measure.unit else ""
    below = f"below {measure.low:g}{unit}"
    above = f"above {measure.high:g}{unit}"
    return {
        "lower": f"{least:g} stands for an open end: the value may lie anywhere {below}, beyond the window",
        "upper": f"{most:g} stands for an open end: the value may lie anywhere {above}, beyond the window",
        "length": "of intervals whose ends both lie within the window; where one is open, far longer",
        "open": f"0: both ends within the window; 1: open {below}; 2: open {above}; 3: both, nothing is known",
    }


def captured_measure(file: Path) -> Measure | None:
    """The window within which a map of ends that we wrote is shown, or values as stored; None for another file."""
    header = needed("pydicom").dcmread(file, stop_before_pixels=True)
    if header.get("SeriesDescription") not in ("pixelbounds lower", "pixelbounds upper"):
        return None
    if "ImageComments" not in header:
        return Measure()
    unit = str(header.get("RescaleType", ""))
    return Measure.of_window((float(header.WindowWidth), float(header.WindowCenter)), "" if unit == _NO_UNIT else unit)


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
    source = source_of_slice(scan, k)
    data = study_of(scan, k, name, who=who)
    put_in_place(data, scan, k, shape)
    if "SOPInstanceUID" in source:
        reference = pydicom.Dataset()
        reference.ReferencedSOPClassUID = source.SOPClassUID
        reference.ReferencedSOPInstanceUID = source.SOPInstanceUID
        data.SourceImageSequence = [reference]
    data.SOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    data.ConversionType, data.ImageType, data.Manufacturer = "WSD", ["DERIVED", "SECONDARY"], "pixelbounds"
    data.PatientOrientation = ""
    data.InstanceNumber = k + 1
    data.BurnedInAnnotation = "YES" if source.get("BurnedInAnnotation") == "YES" else "NO"
    data.Rows, data.Columns, data.SamplesPerPixel = shape[0], shape[1], 1
    data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 16, 16, 15, 0
    data.file_meta = pydicom.dataset.FileMetaDataset()
    data.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    return data


def study_of(scan: Scan, k: int, name: str, *, who: bool) -> Any:
    """Study and frame of reference of a scan, as its slice k says them, and its patient where that is asked for."""
    source = source_of_slice(scan, k)
    data = needed("pydicom").Dataset()
    for word in (*_KEPT, *(_WHO if who else ())):
        if word in source:
            data[word] = copy(source[word])  # what is written later must not change the source
    if scan.kind != "dicom":
        data.StudyInstanceUID = own_uid(name, "study")
        data.FrameOfReferenceUID = own_uid(name, "frame")
        if who:
            data.PatientID = data.PatientName = name[:64]
    if not who:
        data.PatientIdentityRemoved = "YES"
        data.DeidentificationMethod = REMOVED
    for word in _MAY_BE_EMPTY:
        if data.get(word) is None:
            setattr(data, word, "")
    return data


def map_name(scan: Scan, lower: Array, upper: Array, *, who: bool) -> str:
    """The name of a scan, or what stands for it where it is the name of a file and shall not be told."""
    if scan.kind == "dicom" or who:
        return scan.name
    return hashlib.sha256(lower.tobytes() + upper.tobytes() + scan.affine.tobytes()).hexdigest()


def source_of_slice(scan: Scan, k: int) -> Any:
    """The header of slice k of a scan from DICOM; of others an empty one."""
    return scan.header[k] if scan.kind == "dicom" else {}


def put_in_place(data: Any, scan: Scan, k: int, shape: tuple[int, ...]) -> None:
    """Position, orientation and spacing of slice k: word for word those of the source, or from the affine."""
    source = source_of_slice(scan, k)
    if shape == scan.plane and scan.kind == "dicom":
        for word in _PLACE:
            if word in source:
                data[word] = source[word]
        return
    lps = np.diag([-1.0, -1.0, 1.0]) @ scan.affine[:3]
    steps = np.linalg.norm(lps[:, :3], axis=0)  # between slices, rows and columns
    data.ImagePositionPatient = decimals(lps @ [k, 0, 0, 1])
    data.ImageOrientationPatient = decimals([*lps[:, 2] / steps[2], *lps[:, 1] / steps[1]])
    data.PixelSpacing = decimals(steps[1:])
    (data.SliceThickness,) = decimals(steps[:1])


def decimals(values: Any) -> list[Any]:
    """Numbers as decimal strings of at most 16 characters."""
    decimal = needed("pydicom.valuerep").DSfloat
    return [decimal(float(x), auto_format=True) for x in values]


def own_uid(*about: str) -> Any:
    """A unique identifier that the same content always gets."""
    return needed("pydicom.uid").generate_uid(entropy_srcs=["pixelbounds", *about])
