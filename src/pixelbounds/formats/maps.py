"""Intervals into files: .zarr, .npz, NIfTI maps, DICOM maps.

Every output is written aside and then renamed, so that a full disk or an interrupt leaves nothing behind. Where a file
holds fewer digits than the interval, lower ends are rounded down and upper ends up: what was covered stays covered.
Maps of medical images are in the measure of their file (for CT Hounsfield units); an end at the edge of the window says
nothing about values beyond it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from ..images.checks import check_same_shape, check_values
from ..images.ends import Interval, outward
from ..images.library import Array, rows_of, to_numpy
from ..storage.folders import aside, swap_folder
from .arrays import Arrays, FilePath, about_of
from .captures import write_captures
from .identifiers import keeps, numbered_units
from .nifti import NIFTI_SUFFIXES, stem, write_volume
from .scans import Geometry, Images, Scan, Window

INTERVAL_SUFFIXES = (".zarr", ".npz", ".nii.gz", ".nii", ".dcm")
MAP_PARTS = ("lower", "upper", "length")
MAP_SUFFIXES = (*NIFTI_SUFFIXES, ".dcm")  # become NAME_lower, NAME_upper and NAME_length
_SLACK = 2.0**-22  # of the window: more than float32 images lose when they are windowed and inverted
_BLOCK_BYTES = 2**26


def write_interval(
    path: FilePath, interval: Interval, *, like: Images | None = None, identifiers: str = "drop"
) -> Path:
    """Write an interval under a name whose suffix says the kind: .zarr, .npz, .nii, .nii.gz, or a folder for DICOM.

    NIfTI and DICOM need `like`, the images that the interval is about: its maps lie where they lie, in their measure.
    With identifiers="keep" what the images' files say of people and names goes along, see `identifiers.py`.
    Returns what was written; for .nii.gz and .dcm, which become NAME_lower, NAME_upper and NAME_length, the first.
    """
    path = Path(path)
    who = keeps(identifiers)
    if not isinstance(interval, Interval):
        raise TypeError(f"interval is a {type(interval).__name__}; give what Calibration.apply returns")
    if like is not None:
        check_same_shape(interval=interval.lower, like=like.pixels)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; make it first")
    if path.suffix == ".zarr":
        return _write_zarr(path, interval, _labels(like, who))
    if path.suffix == ".npz":
        return _write_npz(path, interval, _labels(like, who))
    if path.name.endswith(NIFTI_SUFFIXES):
        return _write_nifti(path, interval, _space(path, like), who)
    if path.suffix == ".dcm" or path.is_dir() or not path.suffix:
        return _write_dicom(path, interval, _space(path, like), who)
    raise ValueError(f"{path} is of no known kind; end it in .zarr, .npz, .nii.gz or .dcm, or name a folder for DICOM")


def _space(path: Path, like: Images | None) -> Geometry:
    if like is None or like.geometry is None:
        raise ValueError(
            f"{path} needs to know where the images lie; read them from NIfTI or DICOM and give them as like, "
            "or write .zarr or .npz"
        )
    return like.geometry


def _labels(like: Images | None, who: bool) -> dict[str, Array]:
    """Names and units of images; without identifiers numbers of the units alone."""
    labels = {"names": np.array(like.names)} if like is not None and who else {}
    if like is not None and like.units is not None:
        labels["units"] = np.asarray(like.units) if who else numbered_units(like.units)
    return labels


# ---------------------------------------------------------------- what is there already


def maps_of(path: Path, part: str | None = None) -> list[Path]:
    """The files of a part of an interval (or of all) that was written under one name, scan by scan."""
    suffix = next(x for x in MAP_SUFFIXES if path.name.endswith(x))
    name = path.name.removesuffix(suffix)
    parts = MAP_PARTS if part is None else (part,)
    return sorted(x for part in parts for x in path.absolute().parent.glob(f"{name}*_{part}{suffix}"))


def is_ours(folder: Path, *kinds: str) -> bool:
    """Whether a folder may be replaced: an empty one, or what we wrote of these kinds (interval, bands, maps)."""
    names = {x.name for x in folder.iterdir()}
    if not names:
        return True
    if names <= set(MAP_PARTS):
        return "maps" in kinds
    try:
        return about_of(Arrays(folder)).get("kind") in kinds
    except Exception:  # no store; zarr raises what it likes
        return False


def _check_free(path: Path, kind: str) -> None:
    if path.exists() and not (path.is_dir() and is_ours(path, kind)):
        raise FileExistsError(f"{path} holds something else already; remove it, or choose another name")


def _replace(new: Path, path: Path) -> None:
    """Give a finished file its name."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(new, path)


# ---------------------------------------------------------------- arrays


def _write_zarr(path: Path, interval: Interval, labels: dict[str, Array]) -> Path:
    _check_free(path, "interval")
    about: dict[str, Any] = {"kind": "interval", **{name: x.tolist() for name, x in labels.items()}}
    with aside(path) as folder:
        group = zarr.create_group(folder / "new", attributes={"pixelbounds": about})
        for name in ("lower", "upper"):
            end = getattr(interval, name)
            array = group.create_array(
                name,
                shape=tuple(end.shape),
                chunks=(1, *end.shape[1:]),
                dtype=str(rows_of(end, 0, 1).dtype),
                compressors=(ZstdCodec(level=3), Crc32cCodec()),
                fill_value=np.nan,
            )
            step = max(1, _BLOCK_BYTES // rows_of(end, 0, 1).nbytes)
            for start in range(0, len(interval), step):
                rows = rows_of(end, start, min(start + step, len(interval)))
                check_values(f"interval.{name}", rows, start)
                for image, row in enumerate(rows, start):  # one chunk at a time: a failure leaves no other under way
                    array[image] = row
        swap_folder(folder / "new", path)
    return path


def _write_npz(path: Path, interval: Interval, labels: dict[str, Array]) -> Path:
    arrays = {name: to_numpy(getattr(interval, name)) for name in ("lower", "upper")}
    for name, x in arrays.items():
        check_values(f"interval.{name}", x, 0)
    with aside(path) as folder:
        np.savez(folder / "new.npz", allow_pickle=False, **arrays, **labels)
        _replace(folder / "new.npz", path)
    return path


# ---------------------------------------------------------------- maps in the space of the images


def measured(lower: Array, upper: Array, window: Window | None, inverted: bool = False) -> tuple[Array, Array]:
    """Ends in the measure of the file, float64, a hair wider than given so that windowing loses nothing."""
    lower = lower.astype(np.float64)
    upper = upper.astype(np.float64)
    if window is None:
        return lower, upper
    if inverted:
        return measured(1 - upper, 1 - lower, window)
    width, level = window
    least = level - width / 2
    return least + width * np.clip(lower - _SLACK, 0, 1), least + width * np.clip(upper + _SLACK, 0, 1)


def _ends(interval: Interval, scan: Scan, window: Window | None) -> tuple[Array, Array]:
    lower = rows_of(interval.lower, scan.start, scan.stop)
    upper = rows_of(interval.upper, scan.start, scan.stop)
    check_values("interval.lower", lower, scan.start)
    check_values("interval.upper", upper, scan.start)
    return measured(lower, upper, window, scan.inverted)


def _write_nifti(path: Path, interval: Interval, geometry: Geometry, who: bool) -> Path:
    """One file each for lower, upper and length: NAME_lower.nii.gz, or NAME_SCAN_lower.nii.gz for several scans, which
    have numbers in their order where names are left out.
    """
    suffix = path.name.removeprefix(stem(path.name))
    names: dict[str, dict[str, str]] = {part: {} for part in MAP_PARTS}
    with aside(path) as folder:
        for number, scan in enumerate(geometry.scans):
            lower, upper = outward(*_ends(interval, scan, geometry.window), np.float32)
            length = upper.astype(np.float64) - lower
            maps = {"lower": lower, "upper": upper, "length": outward(length, length, np.float32)[1]}
            called = scan.name.replace("/", "_") if who else f"{number:0{len(str(len(geometry.scans)))}}"
            own = f"_{called}" if len(geometry.scans) > 1 else ""
            for part, x in maps.items():
                names[part][scan.name] = f"{stem(path.name)}{own}_{part}{suffix}"
                write_volume(folder / names[part][scan.name], x, scan, who=who)
        finished = [name for part in MAP_PARTS for name in names[part].values()]
        for name in finished:
            _replace(folder / name, path.with_name(name))
    return path.with_name(finished[0])


def _write_dicom(path: Path, interval: Interval, geometry: Geometry, who: bool) -> Path:
    """A folder with one folder each for lower, upper and length; a single image may also become three .dcm files."""
    single = path.suffix == ".dcm"
    if single and len(interval) > 1:
        raise ValueError(f"{path} is one file, but there are {len(interval)} images; name a folder for the series")
    if not single:
        _check_free(path, "maps")
    with aside(path) as folder:
        for part in MAP_PARTS:
            (folder / "new" / part).mkdir(parents=True)
        for scan in geometry.scans:
            write_captures(folder / "new", *_ends(interval, scan, geometry.window), scan, geometry.window, who=who)
        if not single:
            swap_folder(folder / "new", path)
            return path
        for part in MAP_PARTS:
            (file,) = (folder / "new" / part).iterdir()
            _replace(file, path.with_name(f"{path.stem}_{part}.dcm"))
    return path.with_name(f"{path.stem}_lower.dcm")
