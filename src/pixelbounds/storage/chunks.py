"""Arrays in files, read whole or refused by name, and written a chunk at a time.

zarr takes a chunk that is not there for one that holds the fill value alone, and tells of a damaged one in the words of
whatever codec stumbled over it. Here a missing chunk is an error where that is asked for (`guarded`), and whatever goes
wrong inside a chunk is a `BadChunk` that names its file.

Chunks whose files hold images just as they lie in memory, and perhaps a checksum, are read straight into place, a few
MB at a time where that serves, so that what is read is still in the processor's cache when it is used. Memory is used
again: the system clears new pages at about the speed of reading.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from math import prod
from pathlib import Path
from typing import Any
from uuid import uuid4

import google_crc32c
import numpy as np
import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.codecs import BytesCodec, Crc32cCodec
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

from .expansion import expands_beyond

Array = np.ndarray
_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
_PIECE = 2**23  # bytes that are read at a time where images are small
_SLACK = 2  # of what a chunk unpacks to: filters may keep values in more bytes than they have in memory


# codecs that leave the size of a chunk as it is, or nearly
_LEVEL = {"crc32c", "adler32", "crc32", "fletcher32", "jenkins_lookup3", "shuffle", "bitshuffle"}


class BadChunk(ValueError):
    """A chunk that is missing or cannot be read."""


class GuardedStore(WrapperStore[Store]):
    """A store in which a chunk that is not there is an error, unless it may be filled, and one that unpacks to far more
    than it should is one too, before it is unpacked.

    most           bytes of a chunk, of which `packer` is the codec
    """

    def __init__(self, store: Store, *, fill: bool = False, most: int = 0, packer: str | None = None) -> None:
        super().__init__(store)
        self.fill = fill
        self.most = most
        self.packer = packer

    def _with_store(self, store: Store) -> GuardedStore:
        return GuardedStore(store, fill=self.fill, most=self.most, packer=self.packer)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """The bytes under a key."""
        if key.endswith(_METADATA):
            return await self._store.get(key, prototype, byte_range)
        name = f"{getattr(self._store, 'root', self._store)}/{key}"
        if isinstance(self._store, LocalStore) and _is_odd(Path(name)):
            raise BadChunk(_spoilt(name, "it is no file"))
        found = await self._store.get(key, prototype, byte_range)
        if found is None and not self.fill:
            raise BadChunk(_missing(name))
        if found is not None and self.packer is not None and expands_beyond(self.packer, found.to_bytes(), self.most):
            raise BadChunk(_spoilt(name, f"it unpacks to more than the {self.most} bytes that a chunk has"))
        return found


def guarded(x: Any, *, fill: bool = False) -> Any:
    """A zarr array whose missing chunks are errors (or with `fill` hold the fill value), as are chunks that unpack to
    more than they should; any other array as it is.
    """
    if not _is_zarr(x):
        return x
    inner = x.store
    if isinstance(inner, GuardedStore):
        if inner.fill == fill:
            return x
        inner = inner._store
    packed = _packers(x.compressors)
    if len(packed) > 1:
        raise ValueError(f"{x.name} is packed twice, by {' and '.join(packed)}; write it again, packed once")
    most = _SLACK * prod(x.shards or x.chunks) * int(x.dtype.itemsize)
    store = GuardedStore(inner, fill=fill, most=most, packer=packed[0] if packed else None)
    return zarr.open_array(store, path=x.path, mode="r")


def _codec_name(codec: Any) -> str:
    """What a codec of zarr, of either format, is called: zstd, gzip, blosc, ..."""
    named = codec.to_dict() if hasattr(codec, "to_dict") else codec.get_config()
    name = named.get("name") or named.get("id") or type(codec).__name__
    return str(name).removeprefix("numcodecs.")


def _packers(codecs: Any) -> list[str]:
    """The names of those codecs that may pack a chunk."""
    return [name for name in map(_codec_name, codecs) if name not in _LEVEL]


def _is_odd(path: Path) -> bool:
    """Whether something other than a file has a chunk's name: a pipe would be read for ever."""
    return not path.is_file() and path.exists()


def _is_zarr(x: Any) -> bool:
    return isinstance(x, zarr.Array)


def _missing(name: Any) -> str:
    return (
        f"chunk {name} is missing; write it again, skip its images with --skip-bad, or, where zarr left it out because "
        "it holds only the fill value, say --fill-missing"
    )


def _spoilt(name: Any, why: str) -> str:
    return f"chunk {name} is damaged ({why}); write it again, or skip its images with --skip-bad"


# ---------------------------------------------------------------- chunks of a zarr array


def _folder(x: Any) -> Path | None:
    """The folder in which a zarr array keeps its chunks, None where that is no folder."""
    store = x.store._store if isinstance(x.store, GuardedStore) else x.store
    return Path(store.root) / x.path if isinstance(store, LocalStore) else None


def _chunk_name(x: Any, at: tuple[int, ...]) -> str:
    return f"{_folder(x) or x.name}/{x.metadata.encode_chunk_key(at)}"


def chunk_rows(x: Any) -> int:
    """Images in a chunk of a zarr or Dask array; 1 elsewhere."""
    if _is_zarr(x):
        return int((x.shards or x.chunks)[0])
    return int(x.chunksize[0]) if hasattr(x, "chunksize") else 1


def first_missing(x: Any) -> str:
    """The first chunk that is not there."""
    folder = _folder(x)
    for at in product(*(range(-(-n // c)) for n, c in zip(x.shape, x.shards or x.chunks, strict=True))):
        if folder is not None and not (folder / x.metadata.encode_chunk_key(at)).is_file():
            return _chunk_name(x, at)
    return str(x.name)


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
                yield part[0].start, part[0].stop, _spoilt(_chunk_name(x, at), why)


# ---------------------------------------------------------------- files that are mapped


def is_mapped(x: Any) -> bool:
    """Whether an array is a stretch of a file, as np.load(mmap_mode="r") gives it."""
    return isinstance(x, np.memmap) and x.filename is not None and bool(x.flags.c_contiguous)


def offset_of(x: Any) -> int:
    """Where in its file a mapped array begins; a part of an array remembers only where the whole begins."""
    whole = x
    while isinstance(whole.base, np.memmap):
        whole = whole.base
    return int(whole.offset) + int(x.__array_interface__["data"][0] - whole.__array_interface__["data"][0])


# ---------------------------------------------------------------- reading


def is_plain(x: Any) -> bool:
    """Whether x is a zarr array in a folder whose chunks are whole images as in memory, perhaps with a checksum."""
    if not _is_zarr(x) or _folder(x) is None:
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


def rows_at(x: Any, start: int, stop: int, *, reuse: bool = False) -> Array:
    """Images start..stop of a zarr or NumPy array as they are stored; mapped files, plain chunks straight from disk.

    With `reuse` the array is good until this thread reads again.
    """
    plain = is_plain(x)
    if not plain and not is_mapped(x):
        return _unpacked(x, start, stop) if _is_zarr(x) else np.asarray(x[start:stop])
    out = (_own if reuse else np.empty)((stop - start, *x.shape[1:]), x.dtype)
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


class FileRows:
    """An array in files under the few names that Dask asks for; every read is one of `rows_at`."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.shape = tuple(int(size) for size in x.shape)
        self.ndim = len(self.shape)
        self.dtype = x.dtype

    def __getitem__(self, index: Any) -> Array:
        rows, *rest = index if isinstance(index, tuple) else (index,)
        start, stop, step = rows.indices(self.shape[0])
        return rows_at(self.x, start, max(start, stop))[(slice(None, None, step), *rest)]


def _unpacked(x: Any, start: int, stop: int) -> Array:
    """What zarr reads; where it fails, the chunk is named."""
    try:
        return np.asarray(x[start:stop])
    except BadChunk:
        raise
    except Exception as error:  # codecs raise what they like
        if not (isinstance(error, OSError) and error.errno is not None):  # a disk that fails is another matter
            for _, _, what in damaged(x, start, stop):
                raise BadChunk(what) from error
        raise


def _row_bytes(x: Any) -> int:
    return prod(x.shape[1:]) * int(x.dtype.itemsize)


def _plain_path(x: Any, row: int) -> Path:
    folder = _folder(x)
    assert folder is not None
    return folder / x.metadata.encode_chunk_key((row, *[0] * (x.ndim - 1)))


def _plain_chunk(x: Any, row: int) -> Path | None:
    """The file of a plain chunk, of the right size; None where it is not there and may be missing."""
    path = _plain_path(x, row)
    wanted = prod(x.chunks) * x.dtype.itemsize + 4 * len(x.compressors)
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        if isinstance(x.store, GuardedStore) and not x.store.fill:
            raise BadChunk(_missing(path)) from None
        return None
    if size != wanted:
        raise BadChunk(_spoilt(path, f"it has {size} bytes instead of {wanted}"))
    return path


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
        raise BadChunk(_spoilt(path, "it was cut short meanwhile"))
    if x.compressors and told.tobytes() != _checksum(whole):
        raise BadChunk(_spoilt(path, "its checksum is wrong"))
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


def _own(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of this thread's, as it was left."""
    held: Array | None = getattr(_OWN, "held", None)
    size = prod(shape) * dtype.itemsize
    if held is None or len(held) < size:
        held = _OWN.held = np.empty(size, np.uint8)
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
    path = _plain_path(x, start // chunk)
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
