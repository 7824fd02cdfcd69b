"""What a pass reads, and how its function travels to a worker.

Arrays in files never travel: a worker opens them by path. Arrays in memory do, so they must be small.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from zarr.storage import LocalStore, MemoryStore

from ..images import Array, library_of
from ..images.ragged import Ragged
from ..storage.chunks import is_mapped, offset_of

MOST_IN_MEMORY = 2**24  # bytes of an array that may travel with a function


@dataclass
class Reads:
    """The arrays that a function refers to: those that lie in files (or are lazy; also `Ragged`), those in memory."""

    files: list[Any] = field(default_factory=list)
    memory: list[Any] = field(default_factory=list)


def reads(function: Callable[..., Any]) -> Reads:
    """The arrays within reach of a function."""
    found, seen = Reads(), set()
    todo: list[Any] = [function]
    while todo:
        x = todo.pop()
        if id(x) in seen or isinstance(x, str | bytes | int | float | type | None):
            continue
        seen.add(id(x))
        library = library_of(x)
        if _in_file(x) or (isinstance(x, Ragged) and any(map(_in_file, x.storage))):
            found.files.append(x)
        elif library:
            found.memory.append(x)
        elif isinstance(x, FunctionType):
            todo += [cell.cell_contents for cell in x.__closure__ or ()]
            todo += x.__defaults__ or ()
        elif isinstance(x, MethodType):
            todo.append(x.__self__)
        elif isinstance(x, partial):
            todo += [x.func, *x.args, *x.keywords.values()]
        elif isinstance(x, dict):
            todo += x.values()
        elif isinstance(x, list | tuple | set):
            todo += x
        elif type(x).__module__.startswith("pixelbounds."):
            todo += vars(x).values() if hasattr(x, "__dict__") else ()
    return found


def _in_file(x: Any) -> bool:
    library = library_of(x)
    return library == "dask" or isinstance(x, np.memmap) or (library == "zarr" and not isinstance(x.store, MemoryStore))


def size_of(x: Any) -> int:
    """Bytes of an array."""
    return prod(x.shape) * itemsize(x)


def itemsize(x: Any) -> int:
    """Bytes of a value."""
    return int(x.element_size() if library_of(x) == "torch" else x.dtype.itemsize)


def pack(function: Callable[..., Any]) -> bytes:
    """A function as bytes for Dask's transport; files go by path."""
    for x in reads(function).memory:
        if size_of(x) > MOST_IN_MEMORY:
            raise ValueError(
                f"an array of shape {tuple(x.shape)}, {x.dtype}, lies in memory, but workers read files: save it as "
                ".npy or .zarr where all of them see it, and give that"
            )
    out = io.BytesIO()
    _Packer(out).dump(function)
    if len(out.getvalue()) > 4 * MOST_IN_MEMORY:
        raise ValueError(
            f"{len(out.getvalue()) / 1e6:.0f} MB would have to travel to every worker; give arrays as .npy or .zarr "
            "files"
        )
    return out.getvalue()


@lru_cache(maxsize=4)
def unpack(packed: bytes) -> Callable[..., Any]:
    """The function again, once per process."""
    function: Callable[..., Any] = cloudpickle.loads(packed)
    return function


class _Packer(cloudpickle.Pickler):
    def reducer_override(self, x: Any) -> Any:
        if is_mapped(x):
            return _mapped, (str(x.filename), x.dtype.str, x.shape, offset_of(x))
        if isinstance(x, LocalStore):
            return _opened, (str(Path(x.root).resolve()), x.read_only)
        return super().reducer_override(x)


def _mapped(path: str, dtype: str, shape: tuple[int, ...], offset: int) -> Array:
    try:
        return np.memmap(path, dtype, "r", offset, shape)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"a worker does not see {path}; put it where all of them do") from error


def _opened(path: str, read_only: bool) -> LocalStore:
    if not Path(path).exists():
        raise FileNotFoundError(f"a worker does not see {path}; put it where all of them do")
    return LocalStore(path, read_only=read_only)
