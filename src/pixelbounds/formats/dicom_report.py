"""A structured report (TID 1500) of the maps of a DICOM series: what intervals come to in each structure.

Structures are the segments of a segmentation that is written beside the maps. A mean is taken over the voxels whose
ends both lie within the window, and the share of the others is said. No promise is made about a mean. Each promise
about all pixels, or about a structure by its name, is a row with its level, which is about future images (units); the
whole guarantee, calibration, network and version are said by the algorithm of each group of measurements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..calibration.promises import CertifiedPromise
from ..calibration.text import more_than
from ..calibration.words import level_in_words
from ..images.library import Array
from ..storage.version import VERSION
from .dicom_maps import SCHEME, SEPARATOR, MapsOfScan, Part, concept, segmentation, ucum, uid_of
from .scans import FormatError, needed

_MEANS = {"lower": "Mean lower end", "upper": "Mean upper end", "length": "Mean interval length"}
_PERCENT = ("%", "UCUM", "percent")
_SERIES = 200  # is numbered so, ten times the source's further


def write_structured_report(
    folder: Path, maps: MapsOfScan, structures: Mapping[str, Array], objects: Mapping[str, Any],
    promises: Sequence[CertifiedPromise],
) -> None:  # fmt: skip
    """Write folder/report.dcm about all voxels and about each structure, a mask (n, h, w), and the structures' SEG.

    objects        the Parametric Maps of the scan by the names of their parts
    promises       what the intervals say that was promised
    """
    highdicom, sr = needed("highdicom"), needed("highdicom.sr")
    if maps.scan.kind != "dicom":
        raise FormatError(f"{maps.scan.name}: a structured report is about DICOM images; give the series with --like")
    algorithm = sr.AlgorithmIdentification("pixelbounds", VERSION, parameters=maps.about.split(SEPARATOR))
    evidence = [*maps.sources, *objects.values()]
    groups: list[Any] = []
    if structures:
        part = Part("structures", np.stack(list(structures.values()), axis=-1).astype(np.uint8))
        drawn = segmentation(maps, part, list(structures), _SERIES + 1)
        maps.save(drawn, part, folder / "structures.dcm")
        evidence.append(drawn)
    for number, (name, mask) in enumerate(structures.items(), 1):
        groups.append(
            sr.VolumetricROIMeasurementsAndQualitativeEvaluations(
                sr.TrackingIdentifier(uid_of(maps.key, maps.about, "structure", str(number)), name[:64]),
                algorithm_id=algorithm, referenced_segment=sr.ReferencedSegment(
                    drawn.SOPClassUID, drawn.SOPInstanceUID, number,
                    source_series=sr.SourceSeriesForSegmentation(maps.sources[0].SeriesInstanceUID),
                ),
                measurements=[*_promised(promises, name), *_measurements(maps, mask.astype(bool), objects)],
            )
        )  # fmt: skip
    everywhere = np.ones(maps.parts[0].values.shape, bool)
    groups.append(  # last, as it lists all images
        sr.MeasurementsAndQualitativeEvaluations(
            sr.TrackingIdentifier(uid_of(maps.key, maps.about, "all"), "all voxels"), algorithm_id=algorithm,
            measurements=[*_promised(promises, None), *_measurements(maps, everywhere, objects)],
            source_images=[sr.SourceImageForMeasurementGroup.from_source_image(source) for source in maps.sources],
        )
    )  # fmt: skip
    observer = sr.ObserverContext(
        concept("121007", "DCM", "Device"),
        sr.DeviceObserverIdentifyingAttributes(uid_of("device", VERSION), "pixelbounds", "pixelbounds", "pixelbounds"),
    )
    content = sr.MeasurementReport(
        sr.ObservationContext(observer_device_context=observer),
        concept("363679005", "SCT", "Imaging procedure"), groups,
    )  # fmt: skip
    part = Part("report", np.array([str(item) for group in groups for item in group]))
    common = maps.common("report", part, _SERIES)
    data = highdicom.sr.Comprehensive3DSR(
        evidence=evidence, content=content, is_complete=True, instance_number=1,
        sop_instance_uid=uid_of(common["series_instance_uid"], "0"), **common,
    )  # fmt: skip
    data.walk(_separate)
    maps.save(data, part, folder.parent / "report.dcm")


def _separate(_: Any, element: Any) -> None:
    """Rows, not running text, in which viewers (DCMTK's) leave out what each number is called."""
    if element.keyword == "ContinuityOfContent":
        element.value = "SEPARATE"


def _promised(promises: Sequence[CertifiedPromise], structure: str | None) -> list[Any]:
    """The levels of promises about a structure, or about all pixels."""
    rows = []
    for promise in promises:
        if promise.place == ("all" if structure is None else "region") and structure in (None, promise.name):
            code, what = promise.kind, "share of voxels outside intervals"
            value, unit = float(level_in_words(promise.at_most).removesuffix("%")), _PERCENT  # rounded up
            if promise.kind == "tail":
                code, what = f"tail-{promise.above:g}"[:16], f"images that miss {more_than(promise.above)}"
            elif promise.kind == "loss":
                what, value, unit = "loss", promise.at_most, ucum("")
            rows.append(_row(code, f"Promised on average: {what}, at most", value, unit))
    return rows


def _measurements(maps: MapsOfScan, mask: Array, objects: Mapping[str, Any]) -> list[Any]:
    """How many voxels a mask has, how many of them have an open end, and means over the others."""
    parts = {part.name: part for part in maps.parts}
    closed = mask & ~np.asarray(parts["length"].open)
    voxels, inside = int(mask.sum()), int(closed.sum())
    rows = [_row("voxels", "Number of voxels", voxels, ("{voxels}", "UCUM", "voxels"))]
    if voxels:
        share = 100 * (voxels - inside) / voxels
        rows.append(_row("open", "Share of voxels with an end beyond the window", _digits(share), _PERCENT))
    for name, meaning in _MEANS.items() if inside else ():
        part, what = parts[name], f"{meaning} of closed intervals"
        mean = _digits(part.values[closed].mean(dtype=np.float64))
        rows.append(_row(f"mean-{name}", what, mean, ucum(part.unit), objects[name]))
    return rows


def _digits(value: float) -> float:
    return float(f"{value:.5g}")  # more of them would say what nobody measured


def _row(code: str, meaning: str, value: float, unit: tuple[str, str, str], *images: Any) -> Any:
    sr = needed("highdicom.sr")
    sources = [sr.SourceImageForMeasurement.from_source_image(image) for image in images]
    return sr.Measurement(concept(code, SCHEME, meaning), value, concept(*unit), referenced_images=sources or None)
