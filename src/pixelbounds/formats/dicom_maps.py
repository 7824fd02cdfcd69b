"""Maps of a scan as DICOM objects, all made by highdicom.

Secondary captures, a series for each part of an interval, serve every viewer: values in 16 bits with a rescale slope
that is a power of two and a whole intercept, so that both are exact as decimal strings; lower ends are rounded down and
upper ends up to the next step. Parametric Maps, a file for each part and a frame for each slice, hold single precision
and say by a real world value mapping what they measure in. A trust mask is a segmentation as well.

Study and place in space are those of the scan; whom it is of is said as `maps.py` has it. Each object says what
it was made by. Identifiers of objects depend on all that is written: the same input and settings give the same ones.
"""

from __future__ import annotations

import hashlib
import math
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..images.library import Array
from ..images.measure import Measure
from ..storage.version import VERSION
from .scans import FormatError, Scan, needed

PARAMETRIC = "parametric"  # the folder of Parametric Maps beside those of secondary captures
SCHEME = "99PIXELBOUNDS"  # of codes of our own
SEPARATOR = " | "  # between what maps say that they were made by
_MOST = 2**16 - 1
_FINEST = -15  # 2**-15 is the finest power of two that fits into 16 characters
_STUDY = ("StudyInstanceUID", "Laterality", "PatientPosition", "FrameOfReferenceUID")
_WHO = """
PatientName PatientID IssuerOfPatientID PatientBirthDate PatientSex PatientAge StudyDate StudyTime StudyID
StudyDescription AccessionNumber ReferringPhysicianName PositionReferenceIndicator
""".split()  # noqa: SIM905
_MAY_BE_EMPTY = """
PatientName PatientID PatientBirthDate PatientSex StudyDate StudyTime StudyID AccessionNumber ReferringPhysicianName
PositionReferenceIndicator Laterality
""".split()  # noqa: SIM905 - required, but may be empty
_PLACE = ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness", "SliceLocation")
_REFERENCES = ("ReferencedSeriesSequence", "SourceImageSequence", "StudiesContainingOtherReferencedInstancesSequence")
REMOVED = "pixelbounds: identifiers left out, UIDs kept"
_NO_UNIT = "US"  # as DICOM says unspecified
MASKS = ("trusted", "outer", "inner")  # parts that are segmentations
_UCUM = {"HU": ("[hnsf'U]", "Hounsfield unit"), "": ("1", "no units")}
_WINDOW = "window of the images"
_GIVEN = ("SEMIAUTOMATIC", "not known: structures as they were given", "not known")  # who drew a segment, and how
_CUT = " ... CUT: the whole text is in ImageComments, or in the algorithm of the report"
_PARAMETRIC_SERIES = 100  # series of Parametric Maps are numbered from here on, ten times the source's further


class Part(NamedTuple):
    """A part of an interval: values (n, h, w) in the measure of the scan, or whole numbers of labels (uint8)."""

    name: str
    values: Array
    unit: str = ""
    shown: tuple[float, float] | None = None  # values that a viewer shows from black to white; None: all
    comment: str = ""
    open: Array | None = None  # (n, h, w) bool: where a value stands for an open end

    @property
    def is_end(self) -> bool:
        """Whether it is lower or upper ends."""
        return self.name in ("lower", "upper")

    @property
    def window(self) -> tuple[float, float]:
        """Width and level that a viewer shows."""
        low, high = self.shown or (float(self.values.min()), float(self.values.max()))
        return (high - low) or 1.0, (low + high) / 2

    def padding(self, stored: Array) -> dict[str, Any]:
        """The least and greatest stored value of open ends, by the ends of DICOM's words for them: viewers leave these
        out. Nothing where closed ends have such values, too.
        """
        if self.open is None or not self.open.any():
            return {}
        least, most = stored[self.open].min().item(), stored[self.open].max().item()
        closed = stored[~self.open]
        if ((closed >= least) & (closed <= most)).any():
            return {}
        return {"PixelPaddingValue": least, "PixelPaddingRangeLimit": most}


@dataclass(frozen=True, eq=False)
class MapsOfScan:
    """The parts of an interval of a scan, and what all objects that hold them share.

    key            stands for the scan in identifiers: that of its series, or a digest of its values
    patient        stands for the patient; None where identifiers are kept
    about          what the maps were made by, in words
    """

    scan: Scan
    parts: list[Part]
    key: str
    patient: str | None
    about: str

    @cached_property
    def sources(self) -> list[Any]:
        """What the objects take over from each slice: study, whom it is of, and place."""
        return [self._source(k) for k in range(self.scan.stop - self.scan.start)]

    def _source(self, k: int) -> Any:
        header, shape = header_of(self.scan, k), self.parts[0].values.shape[1:]
        data = needed("pydicom").Dataset()
        data.SpecificCharacterSet = "ISO_IR 192"  # UTF-8: highdicom takes no code extensions, and structures have names
        for word in (*_STUDY, *(_WHO if self.patient is None else ())):
            if word in header:
                value = header[word].value
                setattr(data, word, str(value) if header[word].VR == "PN" else value)  # names are encoded anew
        if self.patient is not None or self.scan.kind != "dicom":
            data.PatientID = self.scan.name[:60] if self.patient is None else self.patient
            data.PatientName = f"{data.PatientID}^" if data.PatientID else ""
        for word in _MAY_BE_EMPTY:
            if data.get(word) is None or (word == "PatientSex" and data.PatientSex not in ("M", "F", "O")):
                setattr(data, word, "")
        _put_in_place(data, self.scan, k, shape)
        data.StudyInstanceUID = header.get("StudyInstanceUID") or uid_of(self.key, "study")
        data.FrameOfReferenceUID = header.get("FrameOfReferenceUID") or uid_of(self.key, "frame")
        data.SOPClassUID = header.get("SOPClassUID") or needed("pydicom.uid").SecondaryCaptureImageStorage
        data.SOPInstanceUID = header.get("SOPInstanceUID") or uid_of(self.key, "slice", str(k))
        data.SeriesInstanceUID = header.get("SeriesInstanceUID") or uid_of(self.key, "source")
        data.SeriesNumber = int(header.get("SeriesNumber") or 0)
        data.Modality = header.get("Modality") or "OT"
        data.Rows, data.Columns = map(int, shape)
        return data

    def common(self, kind: str, part: Part, order: int) -> dict[str, Any]:
        """Arguments of highdicom for every object of a part: its series and its equipment."""
        settings = repr((VERSION, kind, self.patient, self.about, *part[:1], *part[2:5]))
        content = hashlib.sha256(part.values.tobytes()).hexdigest()
        equipment = needed("highdicom").ContributingEquipment(
            "pixelbounds", concept("109102", "DCM", "Processing Equipment"), manufacturer_model_name="pixelbounds",
            software_versions=VERSION, contribution_description=_shortened(self.about, 1024) or None,
        )  # fmt: skip
        return {
            "series_instance_uid": uid_of(self.key, self.sources[0].to_json(), settings, content),
            "series_number": 10 * self.sources[0].SeriesNumber + order,
            "series_description": f"pixelbounds {part.name}{', parametric' * (kind == PARAMETRIC)}",
            "manufacturer": "pixelbounds",
            "manufacturer_model_name": "pixelbounds",
            "software_versions": VERSION,
            "device_serial_number": "none",
            "transfer_syntax_uid": needed("pydicom.uid").ExplicitVRLittleEndian,
            "contributing_equipment": [equipment],
        }

    def save(self, data: Any, part: Part, file: Path) -> None:
        """Write an object: the same bytes for the same maps, so without the day of work."""
        for element in data:
            if element.VR in ("DA", "TM") and not element.keyword.startswith(("Study", "Patient")):
                element.value = "19000101" if element.VR == "DA" else "000000"
        for item in data.ContributingEquipmentSequence:
            item.pop("ContributionDateTime", None)
        if "Rows" in data and (part.comment or self.about):
            data.ImageComments = _shortened(". ".join(filter(None, (part.comment, self.about))), 10240)
        if self.patient is not None:
            data.PatientIdentityRemoved, data.DeidentificationMethod = "YES", REMOVED
        data.save_as(file, enforce_file_format=True)


def _shortened(text: str, most: int) -> str:
    """A text of at most so many characters, which says where it was cut: half a guarantee reads like another one."""
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT


def header_of(scan: Scan, k: int) -> Any:
    """The header of slice k of a scan from DICOM; of others an empty one."""
    return scan.header[k] if scan.kind == "dicom" else {}


def _put_in_place(data: Any, scan: Scan, k: int, shape: tuple[int, ...]) -> None:
    """Position, orientation and spacing of slice k: word for word those of the source, or from the affine."""
    header = header_of(scan, k)
    for word in _PLACE:
        if word in header:
            data[word] = copy(header[word])
    lps = np.diag([-1.0, -1.0, 1.0]) @ scan.affine[:3]
    steps = np.linalg.norm(lps[:, :3], axis=0)  # between slices, rows and columns
    if "ImagePositionPatient" not in data or "ImageOrientationPatient" not in data:
        data.ImagePositionPatient = _decimals(lps @ [k, 0, 0, 1])
        data.ImageOrientationPatient = _decimals([*lps[:, 2] / steps[2], *lps[:, 1] / steps[1]])
    if "PixelSpacing" not in data:
        data.PixelSpacing = _decimals(steps[1:])
    if not data.get("SliceThickness"):
        (data.SliceThickness,) = _decimals(steps[:1])


def _decimals(values: Any) -> list[Any]:
    decimal = needed("pydicom.valuerep").DSfloat
    return [decimal(float(x), auto_format=True) for x in values]


def uid_of(*about: str) -> Any:
    """A unique identifier that the same content always gets."""
    return needed("pydicom.uid").generate_uid(entropy_srcs=["pixelbounds", *about])


def ucum(unit: str) -> tuple[str, str, str]:
    """Value, scheme and meaning of a unit of measure, for `concept`."""
    value, meaning = _UCUM.get(unit, (unit[:16], unit))
    return value, "UCUM", meaning


def concept(value: str, scheme: str, meaning: str) -> Any:
    """A coded concept."""
    return needed("highdicom.sr").CodedConcept(value, scheme, meaning)


# ---------------------------------------------------------------- secondary captures


def write_captures(folder: Path, maps: MapsOfScan) -> None:
    """Write the parts as folder/lower/lower_001.dcm and so on, a series each."""
    values = {part.name: part.values for part in maps.parts}
    slope, intercept = scale(float(values["lower"].min()), float(values["upper"].max()))
    low, high = ((values[name].astype(np.float64) - intercept) / slope for name in ("lower", "upper"))
    stored = {"lower": np.floor(low), "upper": np.ceil(high)}
    stored["length"] = stored["upper"] - stored["lower"]
    for order, part in enumerate(maps.parts, 1):
        is_label = part.name not in stored
        planes = stored.get(part.name, part.values).astype(np.uint16)
        common = maps.common("capture", part, order)
        padding = part.padding(planes)  # of all slices together
        (folder / part.name).mkdir(parents=True)
        for k, plane in enumerate(planes):
            image = _capture(maps, part, k, plane, common)
            start = 0 if is_label or part.name == "length" else intercept
            image.RescaleSlope, image.RescaleIntercept = _decimals([1 if is_label else slope, start])
            image.RescaleType = part.unit or _NO_UNIT
            for word, value in padding.items():
                setattr(image, word, value)
            maps.save(image, part, folder / part.name / f"{part.name}_{k + 1:0{max(3, len(str(len(planes))))}}.dcm")


def _capture(maps: MapsOfScan, part: Part, k: int, plane: Array, common: dict[str, Any]) -> Any:
    source, header = maps.sources[k], header_of(maps.scan, k)
    directions = np.array(source.ImageOrientationPatient, float).reshape(2, 3)
    axes = np.abs(directions).argmax(axis=1)
    image = needed("highdicom").sc.SCImage.from_ref_dataset(
        source, np.ascontiguousarray(plane), "MONOCHROME1" if maps.scan.inverted and part.is_end else "MONOCHROME2",
        bits_allocated=16, coordinate_system="PATIENT", instance_number=k + 1,
        sop_instance_uid=uid_of(common["series_instance_uid"], str(k)),
        patient_orientation=tuple("RAF"[a] if d[a] < 0 else "LPH"[a] for d, a in zip(directions, axes, strict=True)),
        **common,
    )  # fmt: skip
    for element in source:  # nothing is said of place that the scan does not say
        if header and element.keyword in _PLACE and element.keyword not in header:
            continue
        if element.tag not in image or element.keyword == "Modality":
            image[element.tag] = copy(element)
    if "ImageOrientationPatient" not in image:
        image.PatientOrientation = ""
    image.ConversionType = "WSD"
    image.BurnedInAnnotation = "YES" if header.get("BurnedInAnnotation") == "YES" else "NO"
    image.DerivationDescription = f"{part.name} of calibrated intervals per pixel"
    image.WindowWidth, image.WindowCenter = _decimals(part.window)
    if part.is_end and part.shown is not None:
        image.WindowCenterWidthExplanation = _WINDOW
    if header:
        reference = needed("pydicom").Dataset()
        reference.ReferencedSOPClassUID, reference.ReferencedSOPInstanceUID = source.SOPClassUID, source.SOPInstanceUID
        image.SourceImageSequence = [reference]
    return image


def captured_measure(file: Path) -> Measure | None:
    """The window within which a map of ends that we wrote is shown, or values as stored; None for another file."""
    header = needed("pydicom").dcmread(file, stop_before_pixels=True)
    if header.get("SeriesDescription") not in ("pixelbounds lower", "pixelbounds upper"):
        return None
    if header.get("WindowCenterWidthExplanation") != _WINDOW:
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


# ---------------------------------------------------------------- Parametric Maps and segmentations


def write_parametric(folder: Path, maps: MapsOfScan) -> dict[str, Any]:
    """Write each part as a Parametric Map, folder/lower.dcm and so on, and masks as segmentations: objects by
    the names of their parts.
    """
    folder.mkdir(parents=True)
    objects = {}
    for order, part in enumerate(maps.parts, _PARAMETRIC_SERIES + 1):
        try:
            data = (
                segmentation(maps, part, [part.name], order) if part.name in MASKS else _parametric(maps, part, order)
            )
        except AttributeError as error:  # highdicom looks for frames wherever a kind may have some
            kind = maps.sources[0].SOPClassUID.name
            raise FormatError(f"maps of {kind} cannot be parametric; leave --parametric and --report out") from error
        maps.save(data, part, folder / f"{part.name}.dcm")
        objects[part.name] = data
    return objects


def _of_frames(maps: MapsOfScan, part: Part, order: int) -> dict[str, Any]:
    common = maps.common(PARAMETRIC, part, order)
    return common | {
        "source_images": maps.sources,
        "sop_instance_uid": uid_of(common["series_instance_uid"], "0"),
        "instance_number": 1,
        "content_label": part.name.upper(),
        "content_description": f"{part.name} of calibrated intervals",
    }


def _without_chance(data: Any, maps: MapsOfScan) -> Any:
    """An object of many frames without a random identifier, and without a source that nobody has."""
    uid = uid_of(data.SOPInstanceUID, "dimension")
    for item in (*data.DimensionOrganizationSequence, *data.DimensionIndexSequence):
        item.DimensionOrganizationUID = uid
    if maps.scan.kind != "dicom":
        for word in _REFERENCES:
            data.pop(word, None)
        for frame in data.PerFrameFunctionalGroupsSequence:
            frame.pop("DerivationImageSequence", None)
    return data


def _parametric(maps: MapsOfScan, part: Part, order: int) -> Any:
    highdicom, common = needed("highdicom"), _of_frames(maps, part, order)
    frames = part.values.astype(np.float32)
    mapping = highdicom.pm.RealWorldValueMapping(
        part.name.upper(), common["content_description"], concept(*ucum(part.unit)),
        (float(frames.min()), float(frames.max())), slope=1.0, intercept=0.0,
        quantity_definition=concept(part.name, SCHEME, common["content_description"]),  # which 3D Slicer asks for
    )  # fmt: skip
    width, level = part.window
    data = highdicom.pm.ParametricMap(
        pixel_array=frames,
        contains_recognizable_visual_features=False,
        real_world_value_mappings=[mapping],
        voi_lut_transformations=[highdicom.VOILUTTransformation(window_center=level, window_width=width)],
        **common,
    )
    data.Laterality = maps.sources[0].Laterality
    for word, value in part.padding(frames).items():
        setattr(data, f"Float{word}", value)
    return _without_chance(data, maps)


def segmentation(maps: MapsOfScan, part: Part, names: list[str], order: int) -> Any:
    """The segmentation of masks (n, h, w) or (n, h, w, segments), one segment for each name."""
    highdicom = needed("highdicom")
    how, *algorithm = ("AUTOMATIC", "pixelbounds", VERSION) if part.name in MASKS else _GIVEN
    made_by = highdicom.AlgorithmIdentificationSequence(
        algorithm[0], concept("113076", "DCM", "Segmentation"), algorithm[1]
    )
    category = concept("309825002", "SCT", "Spatial and Relational Concept")
    kind = concept("111030", "DCM", "Image Region")
    segments = []
    for number, name in enumerate(names, 1):
        segments.append(highdicom.seg.SegmentDescription(number, name[:64], category, kind, how, made_by))
        if part.comment:
            segments[-1].SegmentDescription = part.comment[:1024]
    data = highdicom.seg.Segmentation(
        pixel_array=part.values, segmentation_type="BINARY", segment_descriptions=segments,
        omit_empty_frames=part.values.ndim > 3, **_of_frames(maps, part, order),
    )  # fmt: skip
    return _without_chance(data, maps)
