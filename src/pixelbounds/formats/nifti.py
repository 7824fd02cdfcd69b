"""NIfTI volumes as axial slices, and back.

Whatever order and direction the axes of a file have, slices come as a radiologist sees them: from the feet to the head,
rows from front to back, columns from the patient's right to the left (the axes L, P, S of the affine). The way back
undoes that, so a map lies voxel for voxel on the file that was read.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..images.library import Array
from ..images.measure import Measure
from .dicom_maps import Part
from .scans import (
    FormatError,
    Geometry,
    Images,
    Scan,
    Window,
    check_allowed,
    first_folders,
    format_errors,
    needed,
    slice_name,
    usual_window,
    windowed,
)

NIFTI_SUFFIXES = (".nii", ".nii.gz")
_OURS = "interval: "  # begins the intent of a part of an interval
_FREE_TEXT = ("descrip", "aux_file", "db_name", "intent_name", "data_type")
_SLAB = 2**24  # bytes of slices that are read at a time
_MOST_HEADER = 2**26  # bytes of a header with its extensions


def stem(name: str) -> str:
    """A file name without .nii or .nii.gz."""
    return name.removesuffix(".gz").removesuffix(".nii")


def nifti_files(path: Path) -> list[Path]:
    """NIfTI files at a path: the file itself, or all those in a folder, by name."""
    if path.is_file():
        return [path]
    files = (x for x in path.rglob("*") if x.name.endswith(NIFTI_SUFFIXES) and not x.name.startswith("."))
    return sorted(x for x in files if x.is_file())


def read_nifti(path: Path, *, window: Window | str | None, clip: bool = True) -> Images:
    """Axial slices (n, h, w) of a volume, or of all volumes in a folder; a volume, or its sub-folder, is a unit."""
    files = nifti_files(path)
    shown = [x.relative_to(path).as_posix() if path.is_dir() else x.name for x in files]
    scans = find_scans(files, [stem(x) for x in shown])
    owners = [stem(x) for x in first_folders(shown)]
    unit_name = "scan" if len(set(owners)) == len(owners) else "folder"
    window = usual_window(path, window, "", "NIfTI, which names no unit")
    planes = chain.from_iterable(_planes(file, scan) for file, scan in zip(files, scans, strict=True))
    return images_of_scans(path, scans, planes, owners, unit_name, window, clip=clip)


def images_of_scans(
    path: Path, scans: Sequence[Scan], planes: Iterable[tuple[int, Array]], owners: Sequence[str], unit_name: str,
    window: Window | None, unit: str = "", *, clip: bool,
) -> Images:  # fmt: skip
    """Slices (n, h, w) of some scans, float32, through a window; their numbers and values come as `planes`, and
    `owners` says whom each scan belongs to.
    """
    for scan in scans:
        if scan.plane != scans[0].plane:
            here, first = (f"{height} x {width}" for height, width in (scan.plane, scans[0].plane))
            raise FormatError(f"{scan.name} has slices of {here}, {scans[0].name} of {first}; read them apart")
    counts = [scan.stop - scan.start for scan in scans]
    shape = (sum(counts), *scans[0].plane)
    check_allowed(4 * prod(shape), f"the slices of {path} add up")
    inverted = np.repeat([scan.inverted for scan in scans], counts)
    pixels = np.empty(shape, np.float32)
    clipped = 0
    for number, values in planes:
        if window is not None and clip:
            clipped += int(np.count_nonzero(np.abs(values.astype(np.float64) - window[1]) > window[0] / 2))
        pixels[number] = windowed(values, window, bool(inverted[number]), clip=clip)
    share = clipped / pixels.size if window is not None and clip else None
    names = tuple(slice_name(scan.name, k) for scan, count in zip(scans, counts, strict=True) for k in range(count))
    return Images(pixels, names, np.repeat(owners, counts), Geometry(tuple(scans), window, unit, share), unit_name)


def find_scans(files: Sequence[Path], names: Sequence[str]) -> tuple[Scan, ...]:
    """The scans of some files from their headers alone."""
    scans: list[Scan] = []
    for file, name in zip(files, names, strict=True):
        image = _loaded(file)
        to_lps = _to_lps(image.affine)
        extent = (*image.shape, 1)[:3]
        width, height, depth = [extent[int(np.argmax(to_lps[:, 0] == axis))] for axis in range(3)]
        affine = image.affine @ needed("nibabel").orientations.inv_ornt_aff(to_lps, extent)
        affine, header = affine[:, [2, 1, 0, 3]], image.header.copy()
        start = scans[-1].stop if scans else 0
        scans.append(Scan(name, start, start + depth, affine, "nifti", header, (height, width), reach=_reach(image)))
    return tuple(scans)


def _planes(file: Path, scan: Scan) -> Iterator[tuple[int, Array]]:
    """Number and values of the slices of a volume, read some at a time; all at once where they are not stored so."""
    image = _loaded(file, keep_file_open=True)
    axis, direction = _to_lps(image.affine)[-1]
    count, plane = image.shape[-1], 4 * prod(image.shape[:-1])
    each = min(count, max(1, _SLAB // plane)) if axis == 2 and len(image.shape) == 3 else count
    check_allowed(each * plane, f"{file} unpacks")
    for at in range(0, count, each):
        end = min(at + each, count)
        with format_errors(f"{file} is cut off or damaged", "use another copy"):
            values = np.asarray(image.dataobj[..., at:end], np.float32)
        volume = values.reshape((*values.shape, 1)[:3])
        turned = needed("nibabel").orientations.apply_orientation(volume, _to_lps(image.affine))
        first = scan.start + (at if direction > 0 else count - end)
        for number, plane in enumerate(turned.transpose(2, 1, 0), first):
            if not np.isfinite(plane).all():
                raise FormatError(f"{file}: slice {number - scan.start} holds NaN or infinite values; fix or drop it")
            yield number, plane


def _reach(image: Any) -> tuple[float, float] | None:
    """The least and greatest value that a file of whole numbers can hold; of floating ones there are none."""
    dtype = image.header.get_data_dtype()
    if dtype.kind not in "iu":
        return None
    held = np.iinfo(dtype)
    ends = [image.dataobj.inter + image.dataobj.slope * end for end in (float(held.min), float(held.max))]
    return min(ends), max(ends)


def _loaded(file: Path, **how: Any) -> Any:
    nibabel = needed("nibabel")
    _check_start(file)
    with format_errors(f"{file} cannot be read as NIfTI", "use another copy"):
        image = nibabel.load(file, **how)
    if not isinstance(image, nibabel.Nifti1Pair):
        raise FormatError(f"{file} is {type(image).__name__}, not NIfTI; convert it")
    if image.get_data_dtype().kind not in "iuf":
        raise FormatError(f"{file} holds {image.get_data_dtype()}; convert its values to real numbers")
    shape = image.shape
    if len(shape) < 2 or any(extent != 1 for extent in shape[3:]) or 0 in shape:
        raise FormatError(f"{file} has shape {shape}; give a volume of 3 axes, e.g. one time point of a series")
    if not np.isfinite(image.affine).all() or np.isnan(nibabel.io_orientation(image.affine)).any():
        raise FormatError(f"{file} does not say how its axes lie (its affine is singular); correct its header")
    return image


def _check_start(file: Path) -> None:
    """Voxels begin soon after the header: whatever lies before them is read whole."""
    try:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as opened:
            head = opened.read(540)
    except (OSError, EOFError, zlib.error):
        return  # nibabel will say what is wrong
    for size, kind, at in ((348, "f", 108), (540, "q", 168)):  # NIfTI-1 and 2
        for order in "<>":
            if len(head) >= at + 8 and struct.unpack_from(f"{order}i", head)[0] == size:
                start = struct.unpack_from(order + kind, head, at)[0]
                if not 0 <= start <= _MOST_HEADER:
                    raise FormatError(f"{file} says that its voxels begin at byte {start:g}; correct its header")


def _to_lps(affine: Array) -> Array:
    """The orientation transform of nibabel from a file's axes to L, P, S."""
    orientations = needed("nibabel").orientations
    return orientations.ornt_transform(orientations.io_orientation(affine), orientations.axcodes2ornt("LPS"))


def write_volume(file: Path, part: Part, scan: Scan, about: str, *, who: bool) -> None:
    """Write a part of an interval as a volume in the axes, and with the header, that the scan's file had.

    A viewer shows from black to white what the part says; what maps are `about` is a comment in an extension. With
    `who` the header's free text and extensions go along.
    """
    nibabel = needed("nibabel")
    slices = part.values
    volume = slices.transpose(2, 1, 0)  # axes L, P, S
    affine = scan.affine[:, [2, 1, 0, 3]]
    header = None
    if scan.kind == "nifti":
        header = scan.header.copy()
        original = header.get_best_affine()
        back = nibabel.orientations.ornt_transform(
            nibabel.orientations.axcodes2ornt("LPS"), nibabel.orientations.io_orientation(original)
        )
        affine = original
        volume = nibabel.orientations.apply_orientation(volume, back).reshape(header.get_data_shape())
        if not who:
            header.extensions[:] = []
            for name in (x for x in _FREE_TEXT if x in header):
                header[name] = b""
        header.set_data_dtype(slices.dtype)
    kind = nibabel.Nifti2Image if isinstance(header, nibabel.Nifti2Header) else nibabel.Nifti1Image
    image = kind(np.ascontiguousarray(volume), affine, header)
    image.header["cal_min"], image.header["cal_max"] = part.shown or (0, 0)
    if slices.dtype.kind == "u":
        image.header.set_intent("label")
    image.header["intent_name"] = f"{_OURS}{part.name}".encode()
    if header is None:
        image.set_sform(affine, code="scanner")
        image.set_qform(affine, code="scanner")
        image.header.set_xyzt_units("mm")
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", about.encode()))
    nibabel.save(image, file)


def written_measure(file: Path) -> Measure | None:
    """The window within which a map of ends that we wrote is shown, or values as stored; None for another file."""
    header = _loaded(file).header
    if header["intent_name"].item().decode("latin-1") not in (f"{_OURS}lower", f"{_OURS}upper"):
        return None
    low, high = float(header["cal_min"]), float(header["cal_max"])
    return Measure(low, high) if low < high else Measure()
