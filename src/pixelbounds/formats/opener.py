"""Images from files, and intervals back into them.

`open_images` looks at what lies at a path: arrays (.npy, .npz, .zarr), folders and zips of pictures, NIfTI volumes,
DICOM series. Every reader returns `Images`; `write_interval` puts an interval of the same shape back into the same
space.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path

from ..images import Interval
from . import dicom, nifti, pictures
from .arrays import read_arrays
from .dicom import read_dicom
from .maps import write_any
from .nifti import read_nifti
from .pictures import read_pictures
from .scans import (
    ABDOMEN,
    Images,
    Progress,
    Told,
    Window,
    check_window,
    silent,
    unclipped,
)

_KINDS = "an .npy, .npz or .zarr file, a folder or zip of pictures, NIfTI (.nii, .nii.gz) or DICOM"


def open_images(
    path: str | os.PathLike[str],
    *,
    key: str | None = None,
    window: Window | None = ABDOMEN,
    clip: bool = True,
    size: int | None = None,
    progress: Progress = silent,
) -> Images:
    """Images (n, h, w) or (n, c, h, w) of whatever lies at a path.

    `key` names an array inside an .npz or .zarr file. `window` (width, level) maps the values of NIfTI and DICOM files
    to [0, 1]; None leaves them. Without `clip` what lies beyond the window lies beyond [0, 1], as it must in noisy
    observations. `size` crops each picture or slice to its central square and resizes it.
    """
    path, window = Path(path), check_window(window)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give {_KINDS}")
    kind = _kind(path)
    try:
        if kind == "arrays":
            if size is not None:
                raise Told(f"{path} holds arrays; they are not resized: leave size out, or resize them yourself")
            return read_arrays(path, key)
        if kind == "pictures":
            return read_pictures(path, size=size, progress=progress)
        read: Callable[..., Images] = read_nifti if kind == "NIfTI" else read_dicom
        if clip:
            return read(path, window=window, size=size, progress=progress)
        return unclipped(read(path, window=None, size=size, progress=progress), window)
    except (EOFError, zipfile.BadZipFile, OSError, ValueError) as error:
        if isinstance(error, Told):
            raise
        raise ValueError(f"{path} cannot be read as {kind}: {error}; use another copy") from error


def _kind(path: Path) -> str:
    """What lies at a path: arrays, pictures, NIfTI or DICOM."""
    if path.suffix in (".npy", ".npz", ".zarr") or (path / "zarr.json").exists():
        return "arrays"
    if path.is_dir():
        names = [x for x in path.rglob("*") if x.is_file() and not x.name.startswith(".")]
        found = sorted({_kind_of_file(x) for x in names} - {""})
        if len(found) > 1:
            raise ValueError(f"{path} holds {' and '.join(found)}; give a folder that holds one kind")
        if not found:
            raise ValueError(f"{path} holds no images ({', '.join(pictures.SUFFIXES + nifti.SUFFIXES)}, DICOM)")
        return found[0]
    if path.suffix.lower() == ".zip":
        return "pictures"
    found_here = _kind_of_file(path)
    if not found_here:
        raise ValueError(f"{path} is of no known kind; give {_KINDS}")
    return found_here


def _kind_of_file(path: Path) -> str:
    if path.suffix.lower() in pictures.SUFFIXES:
        return "pictures"
    if path.name.endswith(nifti.SUFFIXES):
        return "NIfTI"
    return "DICOM" if path.suffix.lower() == ".dcm" or dicom.is_dicom(path) else ""


def write_interval(path: str | os.PathLike[str], interval: Interval, *, like: Images | None = None) -> Path:
    """Write an interval under a name whose suffix says the kind: .zarr, .npz, .nii, .nii.gz, or a folder for DICOM.

    NIfTI and DICOM need `like`, the images that the interval is about: its maps lie where they lie, in their measure.
    Returns what was written; for .nii.gz and .dcm, which become NAME_lower, NAME_upper and NAME_length, the first.
    """
    return write_any(Path(path), interval, like)
