"""Chunks whose files hold images just as they lie in memory, and perhaps a checksum: read and written without zarr.

Such files are read straight into place, a few MB at a time where that serves, so that what is read is still in the
processor's cache when it is used. Memory is used again: the system clears new pages at about the speed of reading.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any
from uuid import uuid4

import google_crc32c
import numpy as np
from zarr.codecs import BytesCodec, Crc32cCodec

from ..images import Array, library_of, to_numpy
from .chunks import BadChunk, GuardedStore, is_mapped, local, missing, offset_of, spoilt

_PIECE = 2**23  # bytes that are read at a time where images are small


def is_plain(x: Any) -> bool:
    """Whether x is a zarr array in a folder whose chunks are whole images as in memory, perhaps with a checksum."""
    if library_of(x) != "zarr" or local(x) is None:
        return False
    one = x.dtype.itemsize == 1  # such a codec has no order of bytes
    return (
        x.metadata.zarr_format == 3
        and x.shards is None
        and x.compressors in ((), (Crc32cCodec(),))
        and not x.filters
        and x.serializer == BytesCodec(endian=None if one else "little")
        and tuple(x.chunks[1:]) == tuple(x.shape[1:])
        and (one or (x.dtype.isnative and np.little_endian))
    )


def _row_bytes(x: Any) -> int:
    return prod(x.shape[1:]) * int(x.dtype.itemsize)


# ---------------------------------------------------------------- reading


def rows_at(x: Any, start: int, stop: int, *, reuse: bool = False) -> Array:
    """Images start..stop, in the precision that they are stored in; mapped files and plain chunks straight from disk.

    With `reuse` the array is good until this thread reads again.
    """
    plain = is_plain(x)
    if not plain and not is_mapped(x):
        rows = x[start:stop]
        return np.asarray(rows) if library_of(x) in ("zarr", "numpy") else to_numpy(rows)
    out = (_room if reuse else np.empty)((stop - start, *x.shape[1:]), x.dtype)
    if not plain:  # read, since mapped pages would stay resident
        with open(x.filename, "rb", buffering=0) as file:
            if not _read(file, offset_of(x) + start * _row_bytes(x), out):
                raise ValueError(f"{x.filename} ends before image {stop}; it was changed meanwhile")
        return out
    chunk = x.chunks[0]
    for i in range(start // chunk, -(-stop // chunk)):
        first, last = max(start, i * chunk), min(stop, (i + 1) * chunk)
        _read_chunk(x, i, first - i * chunk, out[first - start : last - start])
    return out


def pieces(x: Any, start: int, stop: int) -> Iterator[tuple[int, Array]]:
    """Images start..stop a few at a time, so that they stay in the cache: the first's number, and the images.

    Arrays are good until this thread reads again. Chunks that are packed, or have a checksum, are not cut.
    """
    loose = is_mapped(x) or (is_plain(x) and not x.compressors)
    rows = max(1, _PIECE // _row_bytes(x)) if loose else stop - start
    for first in range(start, stop, rows):
        yield first, rows_at(x, first, min(stop, first + rows), reuse=True)


def _plain_chunk(x: Any, row: int) -> Path | None:
    """The file of a plain chunk, of the right size; None where it is not there and may be missing."""
    path = _path(x, row)
    wanted = prod(x.chunks) * x.dtype.itemsize + 4 * len(x.compressors)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        if isinstance(x.store, GuardedStore):
            raise BadChunk(missing(path)) from None
        return None
    if size != wanted:
        raise BadChunk(spoilt(path, f"it has {size} bytes instead of {wanted}"))
    return path


def _path(x: Any, row: int) -> Path:
    folder = local(x)
    assert folder is not None
    return folder / x.metadata.encode_chunk_key((row, *[0] * (x.ndim - 1)))


def _read_chunk(x: Any, row: int, first: int, out: Array) -> None:
    """Images of a chunk, from its first-th; where there is a checksum, all of it is read."""
    path = _plain_chunk(x, row)
    if path is None:
        out[...] = x.fill_value
        return
    whole = out if not x.compressors or len(out) == x.chunks[0] else np.empty(x.chunks, x.dtype)
    told = np.empty(4 * len(x.compressors), np.uint8)
    with open(path, "rb", buffering=0) as file:
        good = _read(file, first * _row_bytes(x) if whole is out else 0, whole) and _read(file, None, told)
    if not good:
        raise BadChunk(spoilt(path, "it was cut short meanwhile"))
    if x.compressors and told.tobytes() != _checksum(whole):
        raise BadChunk(spoilt(path, "its checksum is wrong"))
    if whole is not out:
        out[...] = whole[first : first + len(out)]


def _read(file: Any, offset: int | None, out: Array) -> bool:
    """Fill an array from a file, from where it is unless told; False where the file is too short."""
    place = _bytes_of(out)
    if offset is not None:
        file.seek(offset)
    while len(place):
        got = file.readinto(place)
        if not got:
            return False
        place = place[got:]
    return True


def _bytes_of(x: Array) -> memoryview:
    return memoryview(x.reshape(-1).view(np.uint8).data)


def _checksum(x: Array) -> bytes:
    return int(google_crc32c.value(x.reshape(-1).view(np.uint8))).to_bytes(4, "little")


_OWN = threading.local()


def _room(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of this thread's, as it was left."""
    held: Array | None = getattr(_OWN, "room", None)
    size = prod(shape) * dtype.itemsize
    if held is None or len(held) < size:
        held = _OWN.room = np.empty(size, np.uint8)
    return held[:size].view(dtype).reshape(shape)


# ---------------------------------------------------------------- writing


def put_rows(x: Any, start: int, rows: Array) -> None:
    """Put the images of a chunk, which begins at `start`, into an array of a store: aside, then renamed."""
    chunk = x.chunks[0]
    if not is_plain(x) or start % chunk or len(rows) != min(chunk, x.shape[0] - start):
        x[start : start + len(rows)] = rows
        return
    whole = np.ascontiguousarray(rows, x.dtype)
    if len(rows) < chunk:
        whole = np.concatenate([whole, np.full((chunk - len(rows), *x.shape[1:]), x.fill_value, x.dtype)])
    path = _path(x, start // chunk)
    aside = path.with_name(f"{path.name}.{uuid4().hex}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(aside, "wb", buffering=0) as file:
            _write(file, _bytes_of(whole))
            _write(file, memoryview(_checksum(whole) if x.compressors else b""))
        os.replace(aside, path)
    except BaseException:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise


def _write(file: Any, content: memoryview) -> None:
    while len(content):
        content = content[file.write(content) :]
