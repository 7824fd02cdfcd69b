"""Paths at the front door: what lies at one, and whether another may be written.

`open_images` looks at what lies at a path: arrays (.npy, .npz, .zarr), folders and zips of pictures, NIfTI volumes,
DICOM series. Every reader returns `Images`. `check_target` is asked before any work is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..execution.runner import current
from ..storage.files import check_regular
from .arrays import ARRAY_SUFFIXES, FilePath, is_store, near, open_arrays
from .dicom import is_dicom, read_dicom
from .dicomweb import address_of, fetch_series
from .maps import is_ours, maps_of
from .nifti import NIFTI_SUFFIXES, read_nifti
from .pictures import PICTURE_SUFFIXES, read_pictures
from .scans import USUAL, Images, Window, check_window, format_errors

_NO_IMAGES = (".safetensors", ".html")  # are never among the images of a folder
_KINDS = "an .npy, .npz or .zarr file, a folder or zip of pictures, NIfTI (.nii, .nii.gz) or DICOM"


def open_images(
    path: FilePath, *, key: str | None = None, window: Window | str | None = USUAL, clip: bool = True,
    labels: bool = False, spectra: bool = False, part: str | None = None,
) -> Images:  # fmt: skip
    """Images (n, h, w) or (n, c, h, w) of whatever lies at a path.

    `key` names an array inside an .npz or .zarr file. `window` (width, level) maps the values of NIfTI and DICOM files
    to [0, 1]; None leaves them; by default CT in Hounsfield units is seen through that of the abdomen, (400, 40), and
    other values need a window. Without `clip` what lies beyond the window lies beyond [0, 1], as it must in noisy
    observations. `labels` are whole numbers: pictures give them as they are stored. Arrays of complex numbers are taken
    only where `spectra` are asked for. Of a folder of DICOM maps that `apply` wrote, a `part` is read, such as lower.
    The address of a series in an archive that speaks DICOMweb, https://HOST/dicom-web/studies/UID/series/UID, is
    fetched.
    """
    path = Path(path)
    window = window if window == USUAL else check_window(window)
    if path.parts[:1] in (("http:",), ("https:",)):
        with current().folder() as folder:
            fetch_series(address_of(path), folder / "series")
            return read_dicom(folder / "series", window=window, clip=clip)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist{near(path)}; give {_KINDS}")
    check_regular(path)
    kind = _kind(path)
    with format_errors(f"{path} cannot be read as {kind}", "use another copy"):
        if kind == "arrays":
            return open_arrays(path, key, spectra=spectra)
        if kind == "pictures":
            return read_pictures(path, labels=labels)
        if kind == "NIfTI":
            return read_nifti(path, window=window, clip=clip)
        return read_dicom(path, window=window, clip=clip, part=part)


def _kind(path: Path) -> str:
    if path.suffix in ARRAY_SUFFIXES or is_store(path):
        return "arrays"
    if path.is_dir():
        files = (x for x in path.rglob("*") if x.is_file() and not x.name.startswith("."))
        kinds = sorted({kind_of_file(x) for x in files} - {""})
        if len(kinds) > 1:
            raise ValueError(f"{path} holds {' and '.join(kinds)}; give a folder that holds one kind")
        if not kinds:
            raise ValueError(f"{path} holds no images ({', '.join(PICTURE_SUFFIXES + NIFTI_SUFFIXES)}, DICOM)")
        return kinds[0]
    if path.suffix.lower() == ".zip":
        return "pictures"
    kind = kind_of_file(path)
    if not kind:
        raise ValueError(f"{path} is of no known kind; give {_KINDS}")
    return kind


def kind_of_file(path: Path) -> str:
    """Pictures, NIfTI or DICOM; "" for any other file."""
    if path.suffix.lower() in PICTURE_SUFFIXES:
        return "pictures"
    if path.name.endswith(NIFTI_SUFFIXES):
        return "NIfTI"
    return "DICOM" if path.suffix.lower() == ".dcm" or is_dicom(path) else ""


def check_target(
    path: FilePath, kinds: Sequence[str], *, replace: bool, folder: bool = False,
    inputs: Sequence[FilePath | None] = (),
) -> Path:  # fmt: skip
    """A name of a known kind (or of a folder), in a folder that is there, which is free or may be replaced.

    What is read (`inputs`) is never replaced, by whatever name it is called.
    """
    path = Path(path)
    if not path.name.endswith(tuple(kinds)) and not (folder and not path.suffix):
        also = ", or in nothing for a folder of DICOM files" if folder else ""
        raise ValueError(f"the name {path} says no kind of file; end it in {', '.join(kinds)}{also}")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.absolute().parent} to write {path.name} in; make it first")
    taken = [x for x in (maps_of(path) if path.name.endswith(NIFTI_SUFFIXES) else [path]) if x.exists()]
    if taken and not replace:
        raise FileExistsError(f"{taken[0]} exists; choose another name, or replace it with --force")
    if path.is_dir() and not is_ours(path, "interval", "bands", "maps"):
        raise FileExistsError(f"{path} is a folder that pixelbounds did not write; choose another name")
    for target in {path, *taken}:
        check_not_read(target, inputs)
    return path


def check_not_read(target: Path, inputs: Sequence[FilePath | None]) -> None:
    """A target is none of what is read, nor around it, nor a part of it."""
    place, there = target.resolve(), target.exists()
    for given in (x for x in inputs if x is not None and Path(x).exists()):
        source = Path(given).resolve()
        same = place == source or (there and place.samefile(source))
        if same or (place in source.parents and there):
            how = "is" if same else "holds"
            raise FileExistsError(f"{target} {how} {given}, which is read: it would be lost; choose another name")
        a_part = is_store(source) or (there and not place.name.endswith(_NO_IMAGES))
        if source in place.parents and a_part:
            raise FileExistsError(f"{target} is a part of {given}, which is read; choose another name")
