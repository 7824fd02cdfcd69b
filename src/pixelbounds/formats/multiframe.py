"""DICOM objects of many frames, by highdicom: Parametric Maps of intervals, segmentations of trust masks.

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
from .captures import REMOVED, TRUSTED, comments_of, own_uid, put_in_place, source_of_slice, study_of
from .scans import Geometry, Scan, needed

FOLDER = "parametric"  # beside the secondary captures
_NUMBER = 100  # series are numbered from here on, ten times the source's further
_UNITS = {"HU": ("[hnsf'U]", "Hounsfield unit"), "": ("1", "no units")}
_NO_DATE, _NO_TIME = "19000101", "000000"  # where nothing shall tell of people, not even the day of work
_REFERENCES = ("ReferencedSeriesSequence", "SourceImageSequence", "StudiesContainingOtherReferencedInstancesSequence")


@dataclass(frozen=True, eq=False)
class _Map:
    """Frames (n, h, w) of one map, what they measure in, its number, a comment, and the width and level to show."""

    name: str
    frames: Array
    unit: str
    order: int
    comment: str = ""
    shown: tuple[float, float] | None = None


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
        _Map("lower", lower, unit, 1, comments.get("lower", ""), geometry.window),
        _Map("upper", upper, unit, 2, comments.get("upper", ""), geometry.window),
        _Map("length", length, unit, 3, comments.get("length", ""), (longest, longest / 2)),
    ]
    if "open" in maps:
        parts.append(_Map("open", maps["open"].astype(np.float32), "", 4, comments["open"], (3.0, 1.5)))
    if "trusted" in maps and tolerance is not None:
        parts.append(_Map("trusted", maps["trusted"].astype(np.uint8), "", 5, TRUSTED))
    sources = [_source(scan, k, lower.shape[1:], name, who=who) for k in range(len(lower))]
    for part in parts:
        data = (
            _segmentation(sources, part, name, tolerance)
            if part.name == "trusted"
            else _parametric(sources, part, name)
        )
        _finish(data, scan, part, who=who)
        data.save_as(folder / f"{number + 1:05d}_{part.name}.dcm", enforce_file_format=True)


def _source(scan: Scan, k: int, shape: tuple[int, ...], name: str, *, who: bool) -> Any:
    """What a map takes over from slice k: study and place, its patient only where that is asked for."""
    source = source_of_slice(scan, k)
    data = study_of(scan, k, name, who=who)
    data.pop("RescaleType", None)
    put_in_place(data, scan, k, shape)
    data.SOPClassUID = source.get("SOPClassUID") or needed("pydicom.uid").SecondaryCaptureImageStorage
    data.SOPInstanceUID = source.get("SOPInstanceUID") or own_uid(name, "slice", str(k))
    data.SeriesInstanceUID = source.get("SeriesInstanceUID") or own_uid(name, "source")
    data.SeriesNumber = int(source.get("SeriesNumber") or 0)
    data.Rows, data.Columns = (int(size) for size in shape)
    if "PixelSpacing" not in data:
        data.PixelSpacing = [1, 1]
    if "ImagePositionPatient" not in data or "ImageOrientationPatient" not in data:
        data.ImagePositionPatient, data.ImageOrientationPatient = [0, 0, k], [1, 0, 0, 0, 1, 0]
    if not data.get("SliceThickness"):
        data.SliceThickness = 1
    return data


def _common(sources: list[Any], part: _Map, name: str) -> dict[str, Any]:
    """What both kinds of object are told: series, instance, equipment."""
    content = hashlib.sha256(part.frames.tobytes()).hexdigest()
    return {
        "source_images": sources,
        "pixel_array": part.frames,
        "series_instance_uid": own_uid(name, FOLDER, part.name, content),
        "series_number": 10 * sources[0].SeriesNumber + _NUMBER + part.order,
        "series_description": f"pixelbounds {part.name}, parametric",
        "sop_instance_uid": own_uid(name, FOLDER, part.name, content, "0"),
        "instance_number": 1,
        "manufacturer": "pixelbounds",
        "manufacturer_model_name": "pixelbounds",
        "software_versions": VERSION,
        "device_serial_number": "none",
        "content_label": part.name.upper(),
        "content_description": f"{part.name} of calibrated intervals",
        "transfer_syntax_uid": needed("pydicom.uid").ExplicitVRLittleEndian,
    }


def _parametric(sources: list[Any], part: _Map, name: str) -> Any:
    """The Parametric Map of a part."""
    highdicom = needed("highdicom")
    value, meaning = _UNITS.get(part.unit, (part.unit[:16], part.unit))
    low, high = float(part.frames.min()), float(part.frames.max())
    width, level = part.shown or ((high - low) or 1.0, (low + high) / 2)
    mapping = highdicom.pm.RealWorldValueMapping(
        part.name.upper(), f"{part.name} of calibrated intervals", highdicom.sr.CodedConcept(value, "UCUM", meaning),
        (low, high), slope=1.0, intercept=0.0,
    )  # fmt: skip
    return highdicom.pm.ParametricMap(
        **_common(sources, part, name),
        contains_recognizable_visual_features=False,
        real_world_value_mappings=[mapping],
        voi_lut_transformations=[highdicom.VOILUTTransformation(window_center=level, window_width=width)],
    )


def _segmentation(sources: list[Any], part: _Map, name: str, tolerance: Tolerance | None) -> Any:
    """The segmentation of a trust mask."""
    highdicom = needed("highdicom")
    codes = needed("highdicom.sr").CodedConcept
    algorithm = highdicom.AlgorithmIdentificationSequence(
        "pixelbounds", codes("113076", "DCM", "Segmentation"), VERSION
    )
    category = codes("309825002", "SCT", "Spatial and Relational Concept")
    kind = codes("111030", "DCM", "Image Region")
    segment = highdicom.seg.SegmentDescription(1, "trusted", category, kind, "AUTOMATIC", algorithm)
    segment.SegmentDescription = f"intervals {tolerance}"[:1024]
    return highdicom.seg.Segmentation(
        **_common(sources, part, name),
        segmentation_type="BINARY",
        segment_descriptions=[segment],
        omit_empty_frames=False,
    )


def _finish(data: Any, scan: Scan, part: _Map, *, who: bool) -> None:
    """The same bytes for the same map, no date of work where people are left out, no source that nobody has."""
    now = datetime.now()
    for word in [x for x in data.dir("Date") if x.startswith(("Content", "Instance", "Series"))]:
        setattr(data, word, now.strftime("%Y%m%d") if who else _NO_DATE)
    for word in [x for x in data.dir("Time") if x.startswith(("Content", "Instance", "Series"))]:
        setattr(data, word, now.strftime("%H%M%S") if who else _NO_TIME)
    for item in data.get("ContributingEquipmentSequence", ()):
        item.ContributionDateTime = data.ContentDate + data.ContentTime
    uid = own_uid(str(data.SOPInstanceUID), "dimension")
    for item in (*data.DimensionOrganizationSequence, *data.DimensionIndexSequence):
        item.DimensionOrganizationUID = uid
    if part.comment:
        data.ImageComments = part.comment
    if scan.kind != "dicom":
        for word in _REFERENCES:
            data.pop(word, None)
        for frame in data.PerFrameFunctionalGroupsSequence:
            frame.pop("DerivationImageSequence", None)
    if part.name != "trusted":
        data.Laterality = ""
    if not who:
        data.PatientIdentityRemoved, data.DeidentificationMethod = "YES", REMOVED
