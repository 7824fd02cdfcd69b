"""Label maps and masks in files, beside the images that they are about: where an organ, a lesion, a subgroup is.

A map comes in any format that images come in: arrays (.npy, .npz, .zarr, an array inside by its name: maps.npz/heart),
NIfTI, DICOM (segmentations, too), pictures. It is cut into slices as the images are, is never resized, and, where both
are several files, belongs to the images by the names of these. Arrays in .npy and .zarr files are read when needed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from ..images.checks import check_same_shape
from ..images.library import Array, differ_in_size, library_of, to_numpy
from ..images.regions import region_as_read
from .arrays import ARRAY_SUFFIXES, FilePath, Reading, existing, is_ragged, is_store, only, parts_at
from .opener import open_images
from .pictures import PICTURE_SUFFIXES
from .scans import Images
from .segmentations import is_segmentation, read_segmentation, segment_names

_NAMES = ("labels", "label", "groups", "mask", "region", "segmentation")  # of the map among several arrays
_IN_A_MASK = (0, 1, 255)  # 255 in pictures
_APART = 0.01  # millimetres by which the places of one voxel may differ between two files


def open_label_map(path: FilePath, images: Images, reading: Reading = Reading()) -> Any:
    """The numbers of a map, (n, *pixels) as the images have it, or (n,), one for each image."""
    path = Path(path)
    array, name = _member_of(path)
    existing(array, "a label map or a mask: .npy, .npz, .zarr, NIfTI, DICOM or a folder of pictures")
    arrays = parts_at(array, reading) if _of_arrays(array) else {}
    if name is not None and name not in arrays:
        raise ValueError(f"{array} holds the arrays {', '.join(arrays)}, and no {name!r}; name one of them")
    if name is None and len(arrays) > 1 and not set(_NAMES) & arrays.keys():
        held = ", ".join(arrays)
        raise ValueError(f"{array} holds the arrays {held}; say which, such as {array}/{next(iter(arrays))}")
    values = _numbers(array, arrays if name is None else {"": arrays[name]}, images)
    _check_shape(path, values, images.pixels)
    return values


def open_masks(path: FilePath, space: Images | None, shape: tuple[int, ...]) -> Images:
    """True masks of 0 and 1, (n, *pixels): a map of such numbers, or labels of one, FILE:2 or FILE:2+3.

    `space` are the images beside them, which say where a DICOM segmentation lies.
    """
    named = re.fullmatch(r"(.+?):(\d{1,9}(?:\+\d{1,9})*)", str(path))
    file = Path(named[1] if named else path)
    if space is None:
        space = Images(np.empty(shape, bool), tuple(map(str, range(shape[0]))))
    values = open_label_map(file, space)
    mask = region_of_map(file, values, [int(x) for x in named[2].split("+")] if named else [])
    return replace(space, pixels=np.asarray(mask[:] if library_of(mask) is None else to_numpy(mask), np.float32))


def open_labels(path: FilePath, images: Images | None = None) -> Any:
    """Whole numbers of an array file or a NIfTI file, (*pixels) or (n, *pixels); of images of different sizes too."""
    path = existing(path, "the name of a grouping (learned, band, loss, otsu) or a file of labels")
    return whole_labels(path, _numbers(path, parts_at(path, Reading()) if _of_arrays(path) else {}, images))


def label_names(path: FilePath) -> dict[int, str]:
    """What a DICOM segmentation calls its labels, of which two that are alike get their numbers; {} for other maps."""
    words = segment_names(Path(path)) if is_segmentation(Path(path)) else {}
    names = list(words.values())
    return {label: name if names.count(name) == 1 else f"{name} {label}" for label, name in words.items()}


def whole_labels(path: FilePath, labels: Any) -> Any:
    """Numbers of a map that are labels: as they are stored, or whole ones that a format gives as floats, NIfTI."""
    if differ_in_size(labels) or labels.dtype.kind in "iub":
        return labels
    whole = np.rint(labels[...])
    if not np.array_equal(whole, labels[...]) or np.abs(whole).max(initial=0) >= 2**31:
        raise ValueError(f"{path} holds {labels.dtype} values that are not whole, or too large, to be labels")
    return whole.astype(np.int32)


def _numbers(path: Path, arrays: dict[str, Any], images: Images | None) -> Any:
    """The map among some arrays, or what another file holds; a DICOM segmentation is laid on the images."""
    if arrays:
        return only(arrays, path, _NAMES)
    if is_segmentation(path):
        return read_segmentation(path, images)
    maps = open_images(path, window=None, labels=True)
    if images is not None:
        _check_files(path, maps, images)
    return maps.pixels


def _member_of(path: Path) -> tuple[Path, str | None]:
    """A file of arrays, and the name of one of them, where a path goes on behind the file."""
    if not path.exists() and path.parent.suffix == ".npz" and path.parent.is_file():
        return path.parent, path.name
    if path.is_dir() and is_ragged(path.parent):
        return path.parent, path.name
    return path, None


def _check_shape(path: Path, values: Any, truth: Any) -> None:
    if tuple(values.shape) == tuple(truth.shape[:1]) and not differ_in_size(values):
        return  # a number for each image
    try:
        check_same_shape(truth=truth, map=values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; a map is never resized: bring it to the grid of the truth") from error


def _check_files(path: Path, maps: Images, images: Images) -> None:
    """Several files belong to those of the images by name, and slices of a scan to as many slices."""
    ours = _file_names(maps)
    theirs = _file_names(images)
    if ours is not None and theirs is not None and ours != theirs:
        odd = next((name for name in theirs if name not in ours), None) or next(x for x in ours if x not in theirs)
        where = "has no file" if odd in theirs else "has one file too many"
        raise ValueError(f"{path} {where} for {odd!r}; name the files of a map as those of the images, and no others")
    if maps.geometry is None or images.geometry is None:
        return
    for one, other in zip(maps.geometry.scans, images.geometry.scans, strict=False):
        if one.stop != other.stop:
            counts = f"{one.stop - one.start} slices, but its image {other.name} has {other.stop - other.start}"
            raise ValueError(f"{path}: {one.name} has {counts}; bring it to the grid of the image")
        corner = np.array([one.stop - one.start - 1, one.plane[0] - 1, one.plane[1] - 1, 1.0])
        apart = np.abs(np.stack([(one.affine - other.affine) @ at for at in (corner, [0, 0, 0, 1.0])])).max()
        if apart > _APART:
            warnings.warn(
                f"{path}: {one.name} lies up to {apart:.3g} mm from its image {other.name}, by their headers; is it "
                "the map of this image?",
                stacklevel=2,
            )


def _file_names(images: Images) -> list[str] | None:
    """Names of the files that several scans or pictures came from, without their endings; None where none are known."""
    if images.geometry is not None:
        scans = images.geometry.scans
        return None if len(scans) == 1 or scans[0].kind == "dicom" else [scan.name for scan in scans]
    files = [name.split("[")[0] for name in images.names]
    if len(set(files)) < 2 or not all(name.lower().endswith(PICTURE_SUFFIXES) for name in files):
        return None
    return sorted({str(PurePosixPath(name).with_suffix("")) for name in files})


def region_of_map(path: FilePath, values: Any, labels: Sequence[int]) -> Any:
    """Where a map has one of some labels, or, without labels, what a mask says; weights stay as they are.

    A map (n,) is a subgroup of whole images.
    """
    if not labels and values.dtype.kind == "f" and any(map(_of_arrays, (Path(path), Path(path).parent))):
        return values  # weights
    inside = partial(_inside, str(path), tuple(labels))
    if len(values.shape) == 1 and not differ_in_size(values):
        return inside(np.asarray(values[:]))
    return region_as_read(values, inside)


def _of_arrays(path: Path) -> bool:
    return path.suffix in ARRAY_SUFFIXES or is_store(path)


def _inside(path: str, labels: tuple[int, ...], numbers: Array) -> Array:
    if labels:
        if numbers.dtype.kind not in "iub" and not np.array_equal(numbers, np.rint(numbers)):
            raise ValueError(f"{path} holds numbers that are not whole; labels must be whole numbers")
        return np.isin(numbers, labels)
    if numbers.dtype != bool and not np.isin(numbers, _IN_A_MASK).all():
        odd = numbers[~np.isin(numbers, _IN_A_MASK)].flat[0]
        label = max(1, int(odd)) if np.isfinite(odd) else 1
        raise ValueError(
            f"{path} holds {odd:g}, so it is no mask; of a label map say which label, such as {path}:{label}"
        )
    return numbers != 0
