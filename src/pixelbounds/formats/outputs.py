"""Names that may be written, and how a finished store gets its name."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zarr

INTERVALS = (".zarr", ".npz", ".nii.gz", ".nii", ".dcm")
_MAPS = (".nii.gz", ".nii", ".dcm")  # become NAME_lower, NAME_upper and NAME_length
_PARTS = ("lower", "upper", "length")


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
    """A folder that may be replaced: an empty one, a store of intervals or bands, or maps as DICOM."""
    names = {x.name for x in path.iterdir()}
    if names <= set(_PARTS):
        return True
    try:
        about: Any = zarr.open_group(path, mode="r").attrs.get("pixelbounds")
    except Exception:  # no store; zarr raises what it likes
        return False
    return isinstance(about, dict) and about.get("kind") in ("interval", "bands")


def settle(part: Path, path: Path) -> None:
    """Give a finished store its name; what had the name before is removed."""
    old = path.with_name(f".{path.name}.old")
    if path.is_dir():  # a folder does not replace another in one step
        path.rename(old)
    try:
        os.rename(part, path)
    except OSError:
        if old.exists():
            old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)
