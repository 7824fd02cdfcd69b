"""Names that may be written, and outputs that are whole or not there: written aside, then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

INTERVALS = (".zarr", ".npz", ".nii.gz", ".nii", ".dcm")
_MAPS = (".nii.gz", ".nii", ".dcm")  # become NAME_lower, NAME_upper and NAME_length
_PARTS = ("lower", "upper", "length")
_CHUNK_BYTES = 2**22


def check_target(path: str | os.PathLike[str], kinds: Sequence[str], *, replace: bool, folder: bool = False) -> Path:
    """A name of a known kind (or of a folder), in a folder that is there, which is free or may be replaced."""
    path = Path(path)
    if not path.name.endswith(tuple(kinds)) and not (folder and not path.suffix):
        also = ", or in nothing for a folder of DICOM files" if folder else ""
        raise ValueError(f"the name {path} says no kind of file; end it in {', '.join(kinds)}{also}")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.absolute().parent} to write {path.name} in; make it first")
    taken = [x for x in (maps_of(path, "*") if path.name.endswith(_MAPS) else [path]) if x.exists()]
    if taken and not replace:
        raise FileExistsError(f"{taken[0]} exists; choose another name, or replace it with --force")
    if path.is_dir() and not _is_ours(path):
        raise FileExistsError(f"{path} is a folder that pixelbounds did not write; choose another name")
    return path


def maps_of(path: Path, part: str) -> list[Path]:
    """The files of a part of an interval (lower, upper or length) that was written under one name, scan by scan."""
    suffix = next(x for x in _MAPS if path.name.endswith(x))
    name = path.name.removesuffix(suffix)
    parts = _PARTS if part == "*" else (part,)
    return sorted(x for part in parts for x in path.absolute().parent.glob(f"{name}*_{part}{suffix}"))


def _is_ours(path: Path) -> bool:
    """A folder that may be replaced: an empty one, a store of intervals, or maps as DICOM."""
    names = {x.name for x in path.iterdir()}
    if names <= set(_PARTS):
        return True
    try:
        about: Any = zarr.open_group(path, mode="r").attrs.get("pixelbounds")
    except Exception:  # no store; zarr raises what it likes
        return False
    return isinstance(about, dict) and about.get("kind") == "interval"


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A name in a hidden folder beside the path, moved into place at the end; nothing is left of a failure."""
    folder = Path(tempfile.mkdtemp(prefix=".pixelbounds.", suffix=".part", dir=path.absolute().parent))
    try:
        yield folder / path.name
        old = folder / ".old"
        if path.is_dir():  # a folder does not replace another in one step
            path.rename(old)
        try:
            os.replace(folder / path.name, path)
        except OSError:
            if old.exists():
                old.rename(path)
            raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_store(path: Path, shape: tuple[int, ...], dtype: Any, about: dict[str, Any], most: int) -> tuple[Any, Any]:
    """Empty zarr arrays `lower` and `upper` (n, *pixels) in a group that says what they are; what is missing is NaN.

    A chunk holds whole images, `most` of them at most.
    """
    group = zarr.create_group(path, attributes={"pixelbounds": {"kind": "interval", **about}})
    rows = max(1, min(shape[0], most, _CHUNK_BYTES // (prod(shape[1:]) * np.dtype(dtype).itemsize)))
    lower, upper = (
        group.create_array(
            name,
            shape=shape,
            chunks=(rows, *shape[1:]),
            dtype=dtype,
            compressors=(ZstdCodec(level=1), Crc32cCodec()),
            fill_value=np.nan,
        )
        for name in ("lower", "upper")
    )
    return lower, upper


def put(array: Any, start: int, rows: Any) -> None:
    """Write images from `start` on into an array, chunk by chunk: when that fails, zarr has nothing else under way."""
    step = array.chunks[0] if hasattr(array, "chunks") else len(rows)
    for i in range(0, len(rows), step):
        array[start + i : start + i + step] = rows[i : i + step]
