"""DICOM objects of many frames: Parametric Maps of the ends of intervals, and segmentations of trust masks.

A map is one file for a scan, a frame for each slice. A Parametric Map holds floating numbers, and its real world value
mapping says that they are Hounsfield units (or whatever the scan measures in), so that a viewer shows the value under
the cursor. Lower ends were rounded down and upper ends up to single precision: no voxel that was covered is lost.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from ..images.ends import outward
from ..images.library import Array
from ..images.tolerance import Tolerance
from ..storage.version import VERSION
from .captures import (
    TRUSTED,
    comments_of,
    decimals,
    own_uid,
    put_in_place,
    reference_to,
    source_of_slice,
    study_of,
)
from .scans import Geometry, Scan, needed

FOLDER = "parametric"  # beside the secondary captures
_NUMBER = 100  # series are numbered from here on, ten times the source's further
_EVEN = 1e-3  # millimetres by which the distances of slices may differ
_UNITS = {"HU": ("[hnsf'U]", "Hounsfield unit"), "": ("1", "no units")}
_NO_DATE, _NO_TIME = "19000101", "000000"  # where nothing shall tell of people, not even the day of work


@dataclass(frozen=True, eq=False)
class _Part:
    """Frames (n, h, w) of one map, and the words for it."""

    name: str
    frames: Array
    unit: str
    order: int
    comment: str = ""
    shown: tuple[float, float] | None = None  # width and level


def write_multiframe(
    folder: Path,
    maps: dict[str, Array],
    scan: Scan,
    geometry: Geometry,
    name: str,
    *,
    number: int,
    tolerance: Tolerance | None = None,
    who: bool = False,
) -> None:
    """Write lower, upper, length and open ends (n, h, w) as Parametric Maps, and a trust mask as a segmentation.

    Files are folder/00001_lower.dcm and so on, by the `number` of the scan.
    """
    lower, upper = outward(maps["lower"], maps["upper"], np.float32)
    exact = upper.astype(np.float64) - lower
    length = outward(exact, exact, np.float32)[1]
    unit = geometry.measure.unit
    comments = {} if geometry.window is None else comments_of(geometry, *scan.beyond(geometry.window))
    closed = length if "open" not in maps else length[maps["open"] == 0]
    longest = float(closed.max(initial=0)) or 1.0
    parts = [
        _Part("lower", lower, unit, 1, comments.get("lower", ""), geometry.window),
        _Part("upper", upper, unit, 2, comments.get("upper", ""), geometry.window),
        _Part("length", length, unit, 3, comments.get("length", ""), (longest, longest / 2)),
    ]
    if "open" in maps:
        parts.append(_Part("open", maps["open"].astype(np.float32), "", 4, comments["open"], (3.0, 1.5)))
    for part in parts:
        data = _object(scan, part, name, who=who)
        _make_parametric(data, part)
        data.save_as(folder / f"{number + 1:05d}_{part.name}.dcm", enforce_file_format=True)
    if "trusted" in maps and tolerance is not None:
        mask = _Part("trusted", maps["trusted"].astype(np.uint8), "", 5, TRUSTED)
        data = _object(scan, mask, name, who=who)
        _make_segmentation(data, mask, tolerance)
        data.save_as(folder / f"{number + 1:05d}_trusted.dcm", enforce_file_format=True)


# ---------------------------------------------------------------- what both kinds have


def _object(scan: Scan, part: _Part, name: str, *, who: bool) -> Any:
    """Everything but what the frames hold: patient, study, series, equipment, and where each frame lies."""
    pydicom = needed("pydicom")
    first = source_of_slice(scan, 0)
    data = study_of(scan, 0, name, who=who)
    data.pop("RescaleType", None)
    content = hashlib.sha256(part.frames.tobytes()).hexdigest()
    data.SeriesInstanceUID = own_uid(name, FOLDER, part.name, content)
    data.SOPInstanceUID = own_uid(name, FOLDER, part.name, content, "0")
    data.SeriesNumber = 10 * int(first.get("SeriesNumber") or 0) + _NUMBER + part.order
    data.SeriesDescription = f"pixelbounds {part.name}, parametric"
    data.Manufacturer = data.ManufacturerModelName = "pixelbounds"
    data.SoftwareVersions, data.DeviceSerialNumber = VERSION, "none"
    data.AccessionNumber = data.get("AccessionNumber", "")
    data.ReferringPhysicianName = data.get("ReferringPhysicianName", "")
    data.PositionReferenceIndicator = data.get("PositionReferenceIndicator", "")
    now = datetime.now()
    data.ContentDate = now.strftime("%Y%m%d") if who else _NO_DATE
    data.ContentTime = now.strftime("%H%M%S") if who else _NO_TIME
    data.InstanceNumber = 1
    data.ContentLabel = part.name.upper()
    data.ContentDescription = f"{part.name} of calibrated intervals"
    data.ContentCreatorName = ""
    if part.comment:
        data.ImageComments = part.comment
    data.BurnedInAnnotation = "YES" if first.get("BurnedInAnnotation") == "YES" else "NO"
    data.LossyImageCompression = "00"
    count, data.Rows, data.Columns = (int(size) for size in part.frames.shape)
    data.NumberOfFrames, data.SamplesPerPixel, data.PhotometricInterpretation = count, 1, "MONOCHROME2"
    _put_frames(data, scan, part)
    if "SOPInstanceUID" in first:
        series = pydicom.Dataset()
        series.SeriesInstanceUID = first.SeriesInstanceUID
        series.ReferencedInstanceSequence = [reference_to(source_of_slice(scan, k)) for k in range(count)]
        data.ReferencedSeriesSequence = [series]
    data.file_meta = pydicom.dataset.FileMetaDataset()
    data.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    return data


def _put_frames(data: Any, scan: Scan, part: _Part) -> None:
    """The functional groups: where the frames lie, in the order of the slices."""
    pydicom = needed("pydicom")
    places = []
    for k in range(len(part.frames)):
        place = pydicom.Dataset()
        put_in_place(place, scan, k, part.frames.shape[1:])
        places.append(place)
    shared = pydicom.Dataset()
    measures = pydicom.Dataset()
    measures.PixelSpacing = places[0].get("PixelSpacing") or decimals([1, 1])
    spacing = _spacing(places)
    measures.SliceThickness = places[0].get("SliceThickness") or decimals([spacing or 1])[0]
    if spacing is not None:
        (measures.SpacingBetweenSlices,) = decimals([spacing])
    orientation = pydicom.Dataset()
    orientation.ImageOrientationPatient = places[0].get("ImageOrientationPatient") or decimals([1, 0, 0, 0, 1, 0])
    shared.PixelMeasuresSequence = [measures]
    shared.PlaneOrientationSequence = [orientation]
    data.SharedFunctionalGroupsSequence = [shared]
    how = _code("113076", "DCM", "Segmentation") if part.name == "trusted" else _code("121401", "DCM", "Derivation")
    data.PerFrameFunctionalGroupsSequence = [_frame(scan, k, place, how) for k, place in enumerate(places)]
    organisation = pydicom.Dataset()
    organisation.DimensionOrganizationUID = own_uid(str(data.SOPInstanceUID), "dimension")
    index = pydicom.Dataset()
    index.DimensionOrganizationUID = organisation.DimensionOrganizationUID
    index.DimensionIndexPointer = pydicom.tag.Tag("ImagePositionPatient")
    index.FunctionalGroupPointer = pydicom.tag.Tag("PlanePositionSequence")
    index.DimensionDescriptionLabel = "ImagePositionPatient"
    data.DimensionOrganizationSequence = [organisation]
    data.DimensionIndexSequence = [index]
    if spacing is not None:
        data.DimensionOrganizationType = "3D"


def _spacing(places: list[Any]) -> float | None:
    """Millimetres between slices, where all are as far apart; None where they are not, or there is one."""
    at = np.array([place.get("ImagePositionPatient") or [0, 0, 0] for place in places], float)
    if len(at) < 2:
        return None
    steps = np.diff(at, axis=0)
    even = np.allclose(steps, steps[0], rtol=0, atol=_EVEN)
    return float(np.linalg.norm(steps.mean(axis=0))) if even else None


def _frame(scan: Scan, k: int, place: Any, how: Any) -> Any:
    """What is known of frame k, and `how` it was derived from its slice."""
    pydicom = needed("pydicom")
    source = source_of_slice(scan, k)
    frame = pydicom.Dataset()
    content = pydicom.Dataset()
    content.StackID, content.InStackPositionNumber, content.DimensionIndexValues = "1", k + 1, [k + 1]
    position = pydicom.Dataset()
    position.ImagePositionPatient = place.get("ImagePositionPatient") or decimals([0, 0, 0])
    frame.FrameContentSequence = [content]
    frame.PlanePositionSequence = [position]
    if "SOPInstanceUID" in source:
        reference = reference_to(source)
        why = _code("121322", "DCM", "Source image for image processing operation")
        reference.PurposeOfReferenceCodeSequence = [why]
        derivation = pydicom.Dataset()
        derivation.SourceImageSequence = [reference]
        derivation.DerivationCodeSequence = [how]
        frame.DerivationImageSequence = [derivation]
    return frame


def _code(value: str, scheme: str, meaning: str) -> Any:
    code = needed("pydicom").Dataset()
    code.CodeValue, code.CodingSchemeDesignator, code.CodeMeaning = value, scheme, meaning
    return code


# ---------------------------------------------------------------- floating numbers


def _make_parametric(data: Any, part: _Part) -> None:
    pydicom = needed("pydicom")
    data.SOPClassUID = pydicom.uid.ParametricMapStorage
    data.Modality = data.get("Modality") or "OT"
    data.ImageType = ["DERIVED", "PRIMARY", "VOLUME", "QUANTITY"]
    data.ContentQualification, data.PresentationLUTShape = "RESEARCH", "IDENTITY"
    data.AcquisitionContextSequence = []
    (shared,) = data.SharedFunctionalGroupsSequence
    kind = pydicom.Dataset()
    kind.FrameType = data.ImageType
    shared.ParametricMapFrameTypeSequence = [kind]
    identity = pydicom.Dataset()
    identity.RescaleIntercept, identity.RescaleSlope, identity.RescaleType = "0", "1", "US"
    shared.PixelValueTransformationSequence = [identity]
    window = pydicom.Dataset()
    window.WindowWidth, window.WindowCenter = decimals(part.shown or _span(part.frames))
    shared.FrameVOILUTSequence = [window]
    mapping = pydicom.Dataset()
    mapping.LUTLabel, mapping.LUTExplanation = part.name.upper()[:16], f"{part.name} of calibrated intervals"
    mapping.RealWorldValueIntercept, mapping.RealWorldValueSlope = 0.0, 1.0
    mapping.DoubleFloatRealWorldValueFirstValueMapped = float(part.frames.min())
    mapping.DoubleFloatRealWorldValueLastValueMapped = float(part.frames.max())
    value, meaning = _UNITS.get(part.unit, (part.unit[:16], part.unit))
    mapping.MeasurementUnitsCodeSequence = [_code(value, "UCUM", meaning)]
    shared.RealWorldValueMappingSequence = [mapping]
    data.BitsAllocated = 32
    data.FloatPixelData = part.frames.astype("<f4").tobytes()


def _span(frames: Array) -> tuple[float, float]:
    low, high = float(frames.min()), float(frames.max())
    return (high - low) or 1.0, (low + high) / 2


# ---------------------------------------------------------------- a mask


def _make_segmentation(data: Any, part: _Part, tolerance: Tolerance) -> None:
    pydicom = needed("pydicom")
    data.SOPClassUID, data.Modality = pydicom.uid.SegmentationStorage, "SEG"
    data.ImageType = ["DERIVED", "PRIMARY"]
    data.SegmentationType = "BINARY"
    segment = pydicom.Dataset()
    segment.SegmentNumber, segment.SegmentLabel = 1, "trusted"
    segment.SegmentDescription = f"intervals {tolerance}"[:1024]
    segment.SegmentAlgorithmType, segment.SegmentAlgorithmName = "AUTOMATIC", "pixelbounds"
    segment.SegmentedPropertyCategoryCodeSequence = [_code("309825002", "SCT", "Spatial and Relational Concept")]
    segment.SegmentedPropertyTypeCodeSequence = [_code("111030", "DCM", "Image Region")]
    data.SegmentSequence = [segment]
    for frame in data.PerFrameFunctionalGroupsSequence:
        which = pydicom.Dataset()
        which.ReferencedSegmentNumber = 1
        frame.SegmentIdentificationSequence = [which]
    data.BitsAllocated, data.BitsStored, data.HighBit, data.PixelRepresentation = 1, 1, 0, 0
    packed = np.packbits(part.frames.reshape(-1), bitorder="little").tobytes()
    data.PixelData = packed + b"\0" * (len(packed) % 2)
