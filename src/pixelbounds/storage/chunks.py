"""Chunks of arrays in files: read whole, or refused by name.

zarr takes a chunk that is not there for one that holds the fill value alone, and tells of a damaged one in the words of
whatever codec stumbled over it. Here a missing chunk is an error, and every error names the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

from ..images import library_of

_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")


class BadChunk(ValueError):
    """A chunk that is missing or cannot be read."""


class GuardedStore(WrapperStore[Store]):
    """A store in which a chunk that is not there is an error."""

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """The bytes under a key."""
        found = await self._store.get(key, prototype, byte_range)
        if found is None and not key.endswith(_METADATA):
            raise BadChunk(missing(f"{getattr(self._store, 'root', self._store)}/{key}"))
        return found


def guarded(x: Any) -> Any:
    """A zarr array whose missing chunks are errors; any other array as it is."""
    if library_of(x) != "zarr" or isinstance(x.store, GuardedStore):
        return x
    return zarr.open_array(GuardedStore(x.store), path=x.path, mode="r")


def missing(name: Any) -> str:
    """What is said of a chunk that is not there."""
    return (
        f"chunk {name} is missing; write it again, skip its images with --skip-bad, or, where zarr left it out because "
        "it holds only the fill value, say --fill-missing"
    )


def spoilt(name: Any, why: str) -> str:
    """What is said of a chunk that cannot be read."""
    return f"chunk {name} is damaged ({why}); write it again, or skip its images with --skip-bad"


def local(x: Any) -> Path | None:
    """The folder in which a zarr array keeps its chunks, None where that is no folder."""
    store = x.store._store if isinstance(x.store, GuardedStore) else x.store
    return Path(store.root) / x.path if isinstance(store, LocalStore) else None


def chunk_name(x: Any, at: tuple[int, ...]) -> str:
    """Where a chunk lies."""
    return f"{local(x) or x.name}/{x.metadata.encode_chunk_key(at)}"


def first_missing(x: Any) -> str:
    """The first chunk that is not there."""
    folder, size = local(x), x.shards or x.chunks
    for at in product(*(range(-(-n // c)) for n, c in zip(x.shape, size, strict=True))):
        if folder is not None and not (folder / x.metadata.encode_chunk_key(at)).exists():
            return chunk_name(x, at)
    return str(x.name)


def chunk_rows(x: Any) -> int:
    """Images in a chunk."""
    if library_of(x) == "zarr":
        return int((x.shards or x.chunks)[0])
    return int(x.chunksize[0]) if library_of(x) == "dask" else 1


def damaged(x: Any, start: int, stop: int) -> Iterator[tuple[int, int, str]]:
    """Images (start, stop) of each chunk within start..stop that cannot be read, and what is wrong with it."""
    size = x.shards or x.chunks
    grid = [range(-(-n // c)) for n, c in zip(x.shape, size, strict=True)]
    for row in range(start // size[0], -(-stop // size[0])):
        for at in product([row], *grid[1:]):
            part = tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(at, size, x.shape, strict=True))
            try:
                guarded(x)[part]
            except BadChunk as error:
                yield part[0].start, part[0].stop, str(error)
            except Exception as error:  # codecs raise what they like
                why = f"{type(error).__name__}: {error}".splitlines()[0]
                yield part[0].start, part[0].stop, spoilt(chunk_name(x, at), why)


def is_unreadable(error: BaseException) -> bool:
    """Whether an error says that a chunk is missing or came out of zarr's reading."""
    at, inside = error.__traceback__, isinstance(error, BadChunk)
    while at is not None:
        inside |= f"{os.sep}zarr{os.sep}" in at.tb_frame.f_code.co_filename
        at = at.tb_next
    return inside and not (isinstance(error, OSError) and error.errno is not None)


def named(error: Exception, arrays: list[Any]) -> Exception:
    """An error that came out of zarr, as one that names the chunk; any other error as it is."""
    if not isinstance(error, BadChunk) and is_unreadable(error):
        for x in arrays:
            for _, _, what in damaged(x, 0, x.shape[0]):
                return BadChunk(what)
    return error


# ---------------------------------------------------------------- arrays in files


def is_mapped(x: Any) -> bool:
    """Whether an array is a stretch of a file, as np.load(mmap_mode="r") gives it."""
    return isinstance(x, np.memmap) and x.filename is not None and bool(x.flags.c_contiguous)


def offset_of(x: Any) -> int:
    """Where in its file a mapped array begins; a part of an array remembers only where the whole begins."""
    whole = x
    while isinstance(whole.base, np.memmap):
        whole = whole.base
    return int(whole.offset) + int(x.__array_interface__["data"][0] - whole.__array_interface__["data"][0])
