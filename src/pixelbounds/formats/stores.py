"""What lies at a path, as arrays by name, and how files are read.

Arrays stay where they lie: an .npy file is mapped and a .zarr store is read block by block; an .npz file is read whole.
A chunk that a store lacks is an error, never silently a fill value.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from ..execution import MARKS, first_missing, watched
from ..images import Limits, library_of
from ..images.ragged import read_ragged
from .scans import ABDOMEN, Window

FilePath = str | os.PathLike[str]
SHAPES = "lower and upper of shape (n, *pixels), or samples of shape (n, m, *pixels)"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How files are read; None takes what the files say, or the usual."""

    key: str | None = None  # of the samples in an .npz or .zarr file
    truth_key: str | None = None
    kind: str | None = None  # of the band of a run
    miscoverage: float | None = None
    window: Window | None = ABDOMEN
    limits: Limits | None = None
    units: str | None = None
    skip_bad: bool = False  # leave out images in chunks that are missing or damaged
    fill_missing: bool = False  # a chunk that is not there holds the fill value


def existing(path: FilePath, what: str) -> Path:
    """A path that is there and finished; else `what` should be given."""
    path = Path(path)
    if path.name.endswith(".part"):
        raise ValueError(f"{path} was not finished; run the command that wrote it again")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; give {what}")
    return path


def is_store(path: Path) -> bool:
    """Whether a folder is a zarr store, or called so."""
    return path.is_dir() and (path.suffix == ".zarr" or any((path / x).exists() for x in ("zarr.json", ".zgroup")))


def store_at(path: Path) -> Any:
    """The zarr array or group at a path."""
    try:
        return zarr.open(path, mode="r")
    except Exception as error:  # what zarr raises depends on what is missing
        raise ValueError(f"{path} is no zarr store, or was not finished ({error}); write it again") from error


def arrays_at(path: Path, reading: Reading = Reading()) -> dict[str, Any]:  # noqa: B008 - frozen
    """The arrays of a file by name; a single one has the name ''."""
    if is_store(path):
        node = store_at(path)
        arrays = {name: node[name] for name in sorted(node.array_keys())} if hasattr(node, "array_keys") else {"": node}
        return {name: checked(x, f"{path}/{name}".rstrip("/"), reading) for name, x in arrays.items() if name != MARKS}
    try:
        if path.suffix == ".npy":
            return {"": np.load(path, mmap_mode="r", allow_pickle=False)}
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return {name: file[name] for name in file.files}
    except Exception as error:  # a cut zip, a cut header, an object array
        raise ValueError(f"{path} cannot be read as {path.suffix}: {error}; write it again") from error
    raise ValueError(f"{path} is of no known kind; give an .npy, .npz or .zarr file, or a folder, with {SHAPES}")


def checked(x: Any, name: str, reading: Reading) -> Any:
    """A zarr array whose missing chunks are errors, or, where that is asked for, hold the fill value."""
    if library_of(x) != "zarr":
        return x
    if reading.skip_bad:
        return watched(x)
    missing = x.nchunks - x.nchunks_initialized
    if missing and not reading.fill_missing:
        raise ValueError(
            f"{name} was not finished: {missing} of {x.nchunks} chunks are not there, the first of them "
            f"{first_missing(x)}; write it again, skip its images with --skip-bad, or, where zarr left chunks out "
            "because they hold only the fill value, say --fill-missing"
        )
    if missing:
        warnings.warn(f"{name}: {missing} of {x.nchunks} chunks are not there and read as {x.fill_value}", stacklevel=2)
        return x
    return watched(x)


def only(arrays: dict[str, Any], path: Path, names: tuple[str, ...]) -> Any:
    """The array of one of some names, or the only one."""
    for name in names:
        if name in arrays:
            return arrays[name]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise ValueError(f"{path} holds the arrays {', '.join(arrays)}; it needs {SHAPES} (name them with --key)")


def told(path: FilePath) -> dict[str, Any]:
    """What a store of ours says of itself."""
    about: Any = dict(store_at(Path(path)).attrs).get("pixelbounds") if is_store(Path(path)) else None
    return about if isinstance(about, dict) else {}


def source_of(path: Path) -> str:
    """How a band was made, where its store says so."""
    return str(dict(store_at(path).attrs).get("source", "")) if is_store(path) else ""


def sets_at(path: FilePath, reading: Reading, key: str | None = None) -> dict[str, Any]:
    """The sets of images of different sizes in a store; a `key` must be among them."""
    if reading.skip_bad:
        raise ValueError(f"{path} holds images of different sizes, of which none can be skipped; leave --skip-bad out")
    sets = dict(read_ragged(path, watched))
    if key is not None and key not in sets:
        raise ValueError(f"{path} holds the sets {', '.join(sets)}, and no {key!r}; name one of them")
    return sets
