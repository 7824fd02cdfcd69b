"""DICOM segmentations (SEG) as labels of the images that they were drawn on.

A SEG holds frames of segments, each with its place in the patient; slices without a segment are mostly left out. A
frame is laid on the slice of a scan whose voxels lie where its own lie, whichever way rows and columns are counted, so
a SEG serves images from NIfTI as well. What lies between voxels, on no slice or in two segments at once is an error.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..images.library import Array
from .dicom import TO_RAS, check_frames, dicom_files, is_dicom
from .nifti import NIFTI_SUFFIXES
from .scans import FormatError, Images, Scan, check_allowed, format_errors, needed

_KINDS = ("1.2.840.10008.5.1.4.1.1.66.4", "1.2.840.10008.5.1.4.1.1.66.7")  # segmentations, and label maps
_LABEL_MAP = _KINDS[1]
_OFF = 0.05  # of a voxel by which a frame may lie beside those of a scan


def is_segmentation(path: Path) -> bool:
    """Whether a path is a DICOM segmentation, or a folder of nothing else."""
    if path.name.endswith(NIFTI_SUFFIXES) or not path.exists() or (path.is_file() and not is_dicom(path)):
        return False
    try:
        read = needed("pydicom").dcmread
        return any(
            str(read(x, specific_tags=["SOPClassUID"]).get("SOPClassUID")) in _KINDS for x in dicom_files(path)[:1]
        )
    except Exception:  # no DICOM, of which its reader will tell
        return False


def read_segmentation(path: Path, images: Images | None) -> Array:
    """Labels (n, h, w) of images, the number of the segment at each pixel and 0 elsewhere: a file, or one per scan."""
    if images is None or images.geometry is None:
        raise FormatError(f"{path} is a DICOM segmentation: give the images it was drawn on (--like), or an array")
    scans = images.geometry.scans
    check_allowed(4 * prod(images.pixels.shape), f"{path} unpacks")
    labels = np.zeros(images.pixels.shape, np.int32)
    seen: set[str] = set()
    for file in dicom_files(path):
        data = _opened(file)
        scan = _scan_of(file, data, scans)
        if scan.name in seen:
            raise FormatError(f"{file} is the second segmentation of one scan; keep one of them")
        seen.add(scan.name)
        _lay(file, data, scan, labels[scan.start : scan.stop])
    missing = [scan.name for scan in scans if scan.name not in seen]
    if missing:
        raise FormatError(f"{path} holds no segmentation of the scan {missing[0]}; add it, or leave the scan out")
    return labels


def segment_names(path: Path) -> dict[int, str]:
    """What a segmentation calls its segments, by number."""
    names: dict[int, str] = {}
    for file in dicom_files(path):
        for one in _opened(file).get("SegmentSequence", ()):
            names.setdefault(int(one.SegmentNumber), str(one.get("SegmentLabel", "")) or f"label {one.SegmentNumber}")
    return names


def _opened(file: Path) -> Any:
    with format_errors(f"{file} cannot be read as a DICOM segmentation", "use another copy"):
        data = needed("pydicom").dcmread(file)
        size = int(data.NumberOfFrames) * int(data.Rows) * int(data.Columns)
    if str(data.get("SOPClassUID")) not in _KINDS:
        raise FormatError(f"{file} is no DICOM segmentation; give a folder that holds one kind")
    check_allowed(size, f"{file} unpacks")
    check_frames(file, data)
    return data


def _scan_of(file: Path, data: Any, scans: tuple[Scan, ...]) -> Scan:
    """The scan of a segmentation: the only one, that of its frame of reference, or of its name."""
    if len(scans) == 1:
        return scans[0]
    frame = str(data.get("FrameOfReferenceUID", ""))
    by_frame = [x for x in scans if x.kind == "dicom" and str(x.header[0].get("FrameOfReferenceUID", "")) == frame]
    named = [x for x in scans if x.name in (file.stem, file.parent.name)]
    series = [str(x.SeriesInstanceUID) for x in data.get("ReferencedSeriesSequence", ())]
    for fitting in ([x for x in scans if x.name in series], by_frame, named):
        if len(fitting) == 1:
            return fitting[0]
    raise FormatError(f"{file}: it does not say which of {len(scans)} scans it was drawn on; name it as its scan")


def _lay(file: Path, data: Any, scan: Scan, labels: Array) -> None:
    with format_errors(f"{file}: its frames cannot be read", "export it again"):
        shared = data.SharedFunctionalGroupsSequence[0] if "SharedFunctionalGroupsSequence" in data else {}
        groups = data.PerFrameFunctionalGroupsSequence
        frames = np.asarray(data.pixel_array).reshape(len(groups), int(data.Rows), int(data.Columns))
        placed = [_placed(data, group, shared) for group in groups]
    frames = _whole(file, data, frames)
    for k, (segment, affine) in enumerate(placed):
        if not frames[k].any():
            continue
        at = _where(file, k, affine, scan, frames.shape[1:])
        before = labels[at]
        new = frames[k] if segment is None else np.where(frames[k] != 0, segment, 0)
        both = (before != 0) & (new != 0) & (before != new)
        if both.any():
            one, other = int(before[both][0]), int(new[both][0])
            count = int(both.sum())
            raise FormatError(
                f"{file}: segments {one} and {other} overlap at {count} voxels of a slice; export them apart"
            )
        labels[at] = np.where(new != 0, new, before)


def _whole(file: Path, data: Any, frames: Array) -> Array:
    """Frames of a mask or of labels; shares are taken where they are all or nothing."""
    if str(data.get("SegmentationType", "")) != "FRACTIONAL":
        return frames.astype(np.int32)
    most = int(data.get("MaximumFractionalValue") or 255)
    if not np.isin(frames, (0, most)).all():
        raise FormatError(f"{file} holds shares of voxels between 0 and {most}; export a binary segmentation")
    return (frames == most).astype(np.int32)


def _placed(data: Any, group: Any, shared: Any) -> tuple[int | None, Array]:
    """The segment of a frame, None where its values are segments; and (row, column, 1) -> millimetres R, A, S."""

    def item(sequence: str) -> Any:
        return (group.get(sequence) or shared.get(sequence))[0]

    labels = str(data.SOPClassUID) == _LABEL_MAP or str(data.get("SegmentationType", "")) == "LABELMAP"
    segment = None if labels else int(item("SegmentIdentificationSequence").ReferencedSegmentNumber)
    row, column = np.array(item("PlaneOrientationSequence").ImageOrientationPatient, float).reshape(2, 3)
    down, across = map(float, item("PixelMeasuresSequence").PixelSpacing)
    start = np.array(item("PlanePositionSequence").ImagePositionPatient, float)
    return segment, TO_RAS @ np.column_stack([column * down, row * across, start])


def _where(file: Path, k: int, affine: Array, scan: Scan, shape: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """The voxels of a scan on which those of a frame lie: slice, row and column of each, (h, w) each."""
    exact = np.linalg.solve(scan.affine, np.vstack([affine, [0, 0, 1]]))[:3]  # (row, column, 1) -> slice, row, column
    whole = np.rint(exact).astype(int)
    apart = np.abs(exact - whole) @ [shape[0] - 1, shape[1] - 1, 1]
    if apart.max() > _OFF or (np.abs(whole[:, :2]).sum(axis=0) != 1).any() or whole[0, :2].any():
        raise FormatError(f"{file}: frame {k} does not lie on the voxels of {scan.name}; export it on their grid")
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    at = [down * rows + across * columns + start for down, across, start in whole]
    size = (scan.stop - scan.start, *scan.plane)
    if any(x.min() < 0 or x.max() >= most for x, most in zip(at, size, strict=True)):
        raise FormatError(f"{file}: frame {k} lies beyond the scan {scan.name}; is it the segmentation of this scan?")
    return at[0], at[1], at[2]
