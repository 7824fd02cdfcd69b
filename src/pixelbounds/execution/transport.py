"""How a pass travels to a worker.

Arrays in files never travel: a worker opens them by path. Arrays in memory do, so they must be small.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from zarr.storage import LocalStore

from ..images.library import Array, in_file, library_of, size_of
from ..storage.chunks import is_mapped, offset_of

MOST_IN_MEMORY = 2**24  # bytes of an array that may travel with a function


def pack(function: Callable[..., Any], reads: Sequence[Any] = ()) -> bytes:
    """A function, and the arrays that it reads, as bytes for Dask's transport; files go by path."""
    for x in reads:
        if library_of(x) and not in_file(x) and size_of(x) > MOST_IN_MEMORY:
            raise ValueError(
                f"an array of shape {tuple(x.shape)}, {x.dtype}, lies in memory, but workers read files: save it as "
                ".npy or .zarr where all of them see it, and give that"
            )
    out = io.BytesIO()
    _Packer(out).dump(function)
    packed = out.getvalue()
    if len(packed) > 4 * MOST_IN_MEMORY:
        raise ValueError(f"{len(packed) / 1e6:.0f} MB would travel to every worker; give arrays as .npy or .zarr files")
    return packed


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
    return np.memmap(_seen(path), dtype, "r", offset, shape)


def _opened(path: str, read_only: bool) -> LocalStore:
    return LocalStore(_seen(path), read_only=read_only)


def _seen(path: str) -> str:
    if not Path(path).exists():
        raise FileNotFoundError(f"a worker does not see {path}; put it where all of them do")
    return path
