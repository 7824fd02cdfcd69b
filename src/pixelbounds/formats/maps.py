"""Intervals into files: .zarr, .npz, NIfTI maps, DICOM maps.

Every output is written aside and then renamed, so that a full disk or an interrupt leaves nothing behind. Where a file
holds fewer digits than the interval, lower ends are rounded down and upper ends up: what was covered stays covered.

Maps of medical images are in the measure of their file (for CT Hounsfield units). What lay beyond the window was seen
as its edge, so an end at the edge is open: the value may lie anywhere beyond. Such an end is written as the least or
greatest value that the scan's file can hold, and a map of its own says which ends are open. Everything is finite, since
viewers of medical images fail on values that are not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from ..images.checks import check_same_shape, check_values
from ..images.ends import Interval, outward
from ..images.library import Array, rows_of, to_numpy
from ..images.measure import Measure
from ..images.tolerance import OPEN_ABOVE, OPEN_BELOW, SLACK, Tolerance, open_ends
from ..storage.files import aside, swap_folder
from .arrays import ABOUT, Arrays, FilePath, about_of
from .captures import captured_measure, map_name, write_captures
from .dicom import dicom_files
from .identifiers import keeps, numbered_units
from .multiframe import FOLDER, write_multiframe
from .nifti import NIFTI_SUFFIXES, stem, write_volume, written_measure
from .scans import Geometry, Images, Scan, Window

INTERVAL_SUFFIXES = (".zarr", ".npz", ".nii.gz", ".nii", ".dcm")
MAP_PARTS = ("lower", "upper", "length", "open", "trusted")  # and, of DICOM, the folder of Parametric Maps
MAP_SUFFIXES = (*NIFTI_SUFFIXES, ".dcm")  # become NAME_lower, NAME_upper, NAME_length, NAME_open and NAME_trusted
_BLOCK_BYTES = 2**26


def write_interval(
    path: FilePath,
    interval: Interval,
    *,
    like: Images | None = None,
    identifiers: str = "drop",
    about: Mapping[str, Any] | None = None,
    tolerance: Tolerance | None = None,
    parametric: bool = False,
) -> Path:
    """Write an interval under a name whose suffix says the kind: .zarr, .npz, .nii, .nii.gz, or a folder for DICOM.

    NIfTI and DICOM need `like`, the images that the interval is about: its maps lie where they lie, in their measure.
    With identifiers="keep" what the images' files say of people and names goes along, see `identifiers.py`. An .npz
    keeps what the interval is `about` (plain values by name, such as its guarantee). With a `tolerance` the mask of the
    pixels whose interval is within it is written as well (`Interval.trust_mask`), as `trusted`. With `parametric` a
    folder of DICOM gets Parametric Maps beside the secondary captures, and the mask as a segmentation (`multiframe`).
    Returns what was written; for .nii.gz and .dcm, which become NAME_lower, NAME_upper, NAME_length and, where values
    were seen through a window, NAME_open (with a tolerance NAME_trusted), the first.
    """
    path = Path(path)
    who = keeps(identifiers)
    if not isinstance(interval, Interval):
        raise TypeError(f"interval is a {type(interval).__name__}; give what Calibration.apply returns")
    if like is not None:
        check_same_shape(interval=interval.lower, like=like.pixels)
        _check_measure(path, interval, like)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; make it first")
    if parametric and path.suffix:
        raise ValueError(
            f"{path} is one file, and Parametric Maps lie in a folder of DICOM; name a folder without ending"
        )
    if path.suffix == ".zarr":
        return _write_zarr(path, interval, _labels(like, who), tolerance)
    if path.suffix == ".npz":
        return _write_npz(path, interval, _labels(like, who), about, tolerance)
    if path.name.endswith(NIFTI_SUFFIXES):
        return _write_nifti(path, interval, _space(path, like), who, tolerance)
    if path.suffix == ".dcm" or path.is_dir() or not path.suffix:
        return _write_dicom(path, interval, _space(path, like), who, tolerance, parametric)
    raise ValueError(f"{path} is of no known kind; end it in .zarr, .npz, .nii.gz or .dcm, or name a folder for DICOM")


def _check_measure(path: Path, interval: Interval, like: Images) -> None:
    """An interval between 0 and 1 is not written as values of another window than its numbers came through."""
    if interval.measure is not None and like.measure is not None and not interval.measure.same_as(like.measure):
        raise ValueError(
            f"{path} would hold wrong values: the interval is about {interval.measure}, but like was read as "
            f"{like.measure}; read it as the calibration's images were, window={interval.measure.window}"
        )


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
    return sorted(x for part in parts for x in path.parent.glob(f"{name}*_{part}{suffix}"))


def is_ours(folder: Path, *kinds: str) -> bool:
    """Whether a folder may be replaced: an empty one, or what we wrote of these kinds (interval, bands, maps)."""
    names = {x.name for x in folder.iterdir()}
    if not names:
        return True
    if names <= {*MAP_PARTS, FOLDER}:
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


def _write_zarr(path: Path, interval: Interval, labels: dict[str, Array], tolerance: Tolerance | None) -> Path:
    _check_free(path, "interval")
    about: dict[str, Any] = {"kind": "interval", **{name: x.tolist() for name, x in labels.items()}}
    with aside(path) as folder:
        group = zarr.create_group(folder / "new", attributes={"pixelbounds": about})
        step = max(1, _BLOCK_BYTES // rows_of(interval.lower, 0, 1).nbytes)
        for name in ("lower", "upper", *(() if tolerance is None else ("trusted",))):
            first = _rows(interval, name, 0, 1, tolerance)
            array = group.create_array(
                name,
                shape=tuple(interval.lower.shape),
                chunks=(1, *interval.lower.shape[1:]),
                dtype=str(first.dtype),
                compressors=(ZstdCodec(level=3), Crc32cCodec()),
                fill_value=np.nan if first.dtype.kind == "f" else 0,
                config={"write_empty_chunks": first.dtype.kind == "b"},
            )
            for start in range(0, len(interval), step):
                rows = _rows(interval, name, start, min(start + step, len(interval)), tolerance)
                for image, row in enumerate(rows, start):  # one chunk at a time: a failure leaves no other under way
                    array[image] = row
        swap_folder(folder / "new", path)
    return path


def _rows(interval: Interval, name: str, start: int, stop: int, tolerance: Tolerance | None) -> Array:
    """Images start..stop of a part of an interval, checked."""
    if name == "trusted" and tolerance is not None:
        return tolerance.holds(rows_of(interval.lower, start, stop), rows_of(interval.upper, start, stop))
    rows = rows_of(getattr(interval, name), start, stop)
    check_values(f"interval.{name}", rows, start)
    return rows


def _write_npz(
    path: Path,
    interval: Interval,
    labels: dict[str, Array],
    about: Mapping[str, Any] | None,
    tolerance: Tolerance | None,
) -> Path:
    arrays = {name: to_numpy(getattr(interval, name)) for name in ("lower", "upper")}
    for name, x in arrays.items():
        check_values(f"interval.{name}", x, 0)
    if tolerance is not None:
        arrays["trusted"] = tolerance.holds(arrays["lower"], arrays["upper"])
    if about is not None:
        arrays[ABOUT] = np.array(json.dumps({"kind": "interval", **about}))
    with aside(path) as folder:
        np.savez(folder / "new.npz", allow_pickle=False, **arrays, **labels)
        _replace(folder / "new.npz", path)
    return path


# ---------------------------------------------------------------- maps in the space of the images


def measure_of_maps(path: Path) -> Measure | None:
    """What the values of maps stood for between 0 and 1 when we wrote them; None for anything else."""
    if path.name.endswith(NIFTI_SUFFIXES) and not path.exists():
        found = [written_measure(file) for file in maps_of(path, "lower")]
    elif path.is_dir() and (path / "lower").is_dir():
        found = [captured_measure(file) for file in dicom_files(path / "lower")]
    else:
        return None
    return found[0] if found and None not in found and len(set(found)) == 1 else None


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
    return least + width * np.clip(lower - SLACK, 0, 1), least + width * np.clip(upper + SLACK, 0, 1)


def _maps(interval: Interval, scan: Scan, window: Window | None, tolerance: Tolerance | None) -> dict[str, Array]:
    """Lower and upper ends of a scan in its measure, float64; where there is a window, which of them are open; with a
    tolerance, which intervals are within it.
    """
    lower = rows_of(interval.lower, scan.start, scan.stop)
    upper = rows_of(interval.upper, scan.start, scan.stop)
    check_values("interval.lower", lower, scan.start)
    check_values("interval.upper", upper, scan.start)
    low, high = measured(lower, upper, window, scan.inverted)
    mask = {} if tolerance is None else {"trusted": tolerance.holds(lower, upper).astype(np.uint8)}
    if window is None:
        return {"lower": low, "upper": high, **mask}
    ends = open_ends(1 - upper, 1 - lower) if scan.inverted else open_ends(lower, upper)
    least, most = scan.beyond(window)
    low[(ends & OPEN_BELOW) > 0] = least
    high[(ends & OPEN_ABOVE) > 0] = most
    return {"lower": low, "upper": high, "open": ends, **mask}


def _write_nifti(path: Path, interval: Interval, geometry: Geometry, who: bool, tolerance: Tolerance | None) -> Path:
    """One file each for lower, upper, length, open and trusted: NAME_lower.nii.gz, or NAME_SCAN_lower.nii.gz for
    several scans, which have numbers in their order where names are left out.
    """
    suffix = path.name.removeprefix(stem(path.name))
    finished: dict[str, list[str]] = {part: [] for part in MAP_PARTS}
    with aside(path) as folder:
        for number, scan in enumerate(geometry.scans):
            maps = _maps(interval, scan, geometry.window, tolerance)
            maps["lower"], maps["upper"] = outward(maps["lower"], maps["upper"], np.float32)
            length = maps["upper"].astype(np.float64) - maps["lower"]
            maps["length"] = outward(length, length, np.float32)[1]
            closed = maps["length"][maps["open"] == 0] if "open" in maps else maps["length"]
            shown = {"length": (0.0, float(closed.max(initial=0)))}
            if geometry.window is not None:
                width, level = geometry.window
                shown |= dict.fromkeys(("lower", "upper"), (level - width / 2, level + width / 2))
            called = scan.name.replace("/", "_") if who else f"{number:0{len(str(len(geometry.scans)))}}"
            own = f"_{called}" if len(geometry.scans) > 1 else ""
            for part, x in maps.items():
                name = f"{stem(path.name)}{own}_{part}{suffix}"
                write_volume(folder / name, x, scan, part, shown.get(part, (0.0, 0.0)), who=who)
                finished[part].append(name)
        names = [name for part in MAP_PARTS for name in finished[part]]
        for name in names:
            _replace(folder / name, path.with_name(name))
    return path.with_name(names[0])


def _write_dicom(
    path: Path, interval: Interval, geometry: Geometry, who: bool, tolerance: Tolerance | None, parametric: bool
) -> Path:
    """A folder with a folder each for lower, upper, length, open and trusted; of a single image as many .dcm files."""
    single = path.suffix == ".dcm"
    if single and len(interval) > 1:
        raise ValueError(f"{path} is one file, but there are {len(interval)} images; name a folder for the series")
    if not single:
        _check_free(path, "maps")
    without = {"open": geometry.window is None, "trusted": tolerance is None}
    parts = [part for part in MAP_PARTS if not without.get(part)]
    with aside(path) as folder:
        for part in parts:
            (folder / "new" / part).mkdir(parents=True)
        if parametric:
            (folder / "new" / FOLDER).mkdir()
        for number, scan in enumerate(geometry.scans):
            maps = _maps(interval, scan, geometry.window, tolerance)
            name = map_name(scan, maps["lower"], maps["upper"], who=who)
            write_captures(folder / "new", maps, scan, geometry, name, who=who)
            if parametric:
                there = folder / "new" / FOLDER
                write_multiframe(there, maps, scan, geometry, name, number=number, tolerance=tolerance, who=who)
        if not single:
            swap_folder(folder / "new", path)
            return path
        for part in parts:
            (file,) = (folder / "new" / part).iterdir()
            _replace(file, path.with_name(f"{path.stem}_{part}.dcm"))
    return path.with_name(f"{path.stem}_lower.dcm")
