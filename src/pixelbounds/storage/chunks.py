"""Chunks of arrays in files: read whole or refused by name.

zarr reads a chunk that is not there as the fill value, and reports a damaged one in the words of some codec. Here a
missing chunk is an error (`guarded`), and whatever is wrong with a chunk is a `BadChunk` that names its file. Few
codecs are allowed (`check_array`): those that run no code and whose size is known before they unpack.

Chunks that hold whole images as they lie in memory, perhaps with a checksum, are read straight into place. Calibrated
quantiles of 24 images of 79 samples of 128 x 128 took 0.067 s so and 0.168 s through zarr (2.5 times; 1.8 times where a
chunk holds four images): zarr copies, and the system clears new pages at about the speed of reading.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.codecs import BytesCodec, Crc32cCodec
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore, WrapperStore

from .files import size_in_words

Array = np.ndarray
_METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
_PIECE = 2**23  # bytes that are read at a time where images are small
_PER_CHUNK = 200  # bytes that the name of a chunk takes while a store is opened
_CODECS = {"bytes", "transpose", "sharding_indexed", "crc32c", "vlen-utf8"}  # beside one that packs
_WORD = 2**10  # bytes that a name may have, on average
_LIBRARY = "numcodecs"  # whose codecs zarr names numcodecs.NAME
_PACKERS = {"zstd", "blosc", "gzip", "zlib"}  # of which one may pack it


class BadChunk(ValueError):
    """A chunk that is missing or cannot be read."""


# ---------------------------------------------------------------- what is read at all


def check_array(x: Any, name: str, memory: float = float("inf")) -> Any:
    """A zarr array whose codecs are allowed, and whose chunks and list of chunks fit in `memory` bytes."""
    codecs = [*x.filters, *x.compressors]
    if x.metadata.zarr_format == 3:
        codecs.append(x.serializer)
    names = [_codec_name(codec) for codec in codecs]
    if x.shards is not None:
        names += [_codec_name(codec) for codec in x.metadata.codecs]
    odd = [each for each in names if each not in _CODECS | _PACKERS]
    if odd or len(_PACKERS.intersection(names)) > 1 or (x.metadata.zarr_format == 2 and x.filters):
        raise ValueError(
            f"{name} is packed by {', '.join(names)}, but nothing is read that runs code or hides its size: write it "
            f"again with one of {', '.join(sorted(_PACKERS))}, without filters"
        )
    chunk = x.shards or x.chunks
    if not all(chunk):
        raise ValueError(f"{name} has chunks of shape {tuple(chunk)}; write it again")
    sizes = {f"each chunk of {name} unpacks": prod(chunk) * int(x.dtype.itemsize)}
    counts = [-(-n // c) for n, c in zip(x.shape, chunk, strict=True)]
    sizes[f"the chunks of {name} add up"] = _PER_CHUNK * prod(counts)
    for what, size in sizes.items():
        if size > memory:
            raise ValueError(
                f"{what} to {size_in_words(size)}, more than the memory allowed, {size_in_words(memory)}; allow more "
                "with --memory (in Python: pixelbounds.execution.running), or leave it out"
            )
    return x


def _codec_name(codec: Any) -> str:
    """What a codec of zarr, of either format, is called: zstd, gzip, blosc, ..."""
    named = codec.to_dict() if hasattr(codec, "to_dict") else codec.get_config()
    return str(named.get("name") or named.get("id")).rpartition(f"{_LIBRARY}.")[2]


def _unpacks_beyond(codec: str, packed: bytes, limit: int) -> bool:
    """Whether a packed chunk unpacks to more bytes than a limit, or does not say to how many."""
    if codec == "blosc":
        return int.from_bytes(packed[4:8], "little") > limit
    if codec in ("gzip", "zlib"):
        stream = zlib.decompressobj(47)  # of either kind
        with suppress(zlib.error):  # whoever unpacks it reports what is wrong
            return len(stream.decompress(packed, limit + 1)) > limit or bool(stream.unused_data)
        return False
    flags = packed[4] if len(packed) > 4 else 0x20  # zstd: the first frame says how much is unpacked
    single = flags >> 5 & 1
    width = (single, 2, 4, 8)[flags >> 6]
    at = 5 + (1 - single) + (0, 1, 2, 4)[flags & 3]
    return not width or int.from_bytes(packed[at : at + width], "little") > limit


class GuardedStore(WrapperStore[Store]):
    """A store in which a missing chunk is an error, unless it may be filled (`fill`), and so is one that unpacks to
    more than `limit` bytes, before it is unpacked by the codec `packer`.
    """

    def __init__(self, store: Store, *, fill: bool = False, limit: int = 0, packer: str | None = None) -> None:
        super().__init__(store)
        self.fill = fill
        self.limit = limit
        self.packer = packer

    def _with_store(self, store: Store) -> GuardedStore:
        return GuardedStore(store, fill=self.fill, limit=self.limit, packer=self.packer)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """The bytes under a key."""
        name = f"{getattr(self._store, 'root', self._store)}/{key}"
        if isinstance(self._store, LocalStore) and Path(name).exists() and not Path(name).is_file():
            raise BadChunk(_damaged_message(name, "it is no file"))  # a pipe would be read for ever
        if key.endswith(_METADATA):
            return await self._store.get(key, prototype, byte_range)
        content = await self._store.get(key, prototype, byte_range)
        if content is None and not self.fill:
            raise BadChunk(_missing_message(name))
        if content is not None and self.packer and _unpacks_beyond(self.packer, content.to_bytes(), self.limit):
            raise BadChunk(_damaged_message(name, f"it does not say that it unpacks to at most {self.limit} bytes"))
        return content


def guarded(x: Any, *, fill: bool = False) -> Any:
    """A zarr array whose missing chunks are errors (or with `fill` hold the fill value), as are chunks that unpack to
    more than they should; any other array as it is.
    """
    if not isinstance(x, zarr.Array):
        return x
    inner = x.store
    if isinstance(inner, GuardedStore):
        if inner.fill == fill and inner.limit:
            return x
        inner = inner._store
    check_array(x, str(x.name))
    packers = [] if x.shards else [name for name in map(_codec_name, x.compressors) if name in _PACKERS]
    words = x.metadata.zarr_format == 3 and _codec_name(x.serializer) == "vlen-utf8"
    limit = prod(x.chunks) * (_WORD if words else int(x.dtype.itemsize)) + 4  # a checksum may be packed, too
    store = GuardedStore(inner, fill=fill, limit=limit, packer=packers[0] if packers else None)
    return zarr.open_array(store, path=x.path, mode="r")


def _missing_message(name: Any) -> str:
    return (
        f"chunk {name} is missing; write it again, skip its images with --skip-bad, or, where zarr left it out because "
        "it holds only the fill value, say --fill-missing"
    )


def _damaged_message(name: Any, why: str) -> str:
    return f"chunk {name} is damaged ({why}); write it again, or skip its images with --skip-bad"


def _folder(x: Any) -> Path | None:
    """The folder in which a zarr array keeps its chunks, None where that is no folder."""
    store = x.store._store if isinstance(x.store, GuardedStore) else x.store
    return Path(store.root) / x.path if isinstance(store, LocalStore) else None


def _chunk_name(x: Any, at: tuple[int, ...]) -> str:
    return f"{_folder(x) or x.name}/{x.metadata.encode_chunk_key(at)}"


def chunk_rows(x: Any) -> int:
    """Images in a chunk of a zarr or Dask array; 1 elsewhere."""
    if isinstance(x, zarr.Array):
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
    whole = guarded(x)
    grid = [range(-(-n // c)) for n, c in zip(x.shape, size, strict=True)]
    for row in range(start // size[0], -(-stop // size[0])):
        for at in product([row], *grid[1:]):
            part = tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(at, size, x.shape, strict=True))
            try:
                whole[part]
            except BadChunk as error:
                yield part[0].start, part[0].stop, str(error)
            except Exception as error:  # codecs raise what they like
                why = f"{type(error).__name__}: {error}".splitlines()[0]
                yield part[0].start, part[0].stop, _damaged_message(_chunk_name(x, at), why)


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


def has_plain_chunks(x: Any) -> bool:
    """Whether x is a zarr array in a folder whose chunks are whole images as in memory, perhaps with a checksum."""
    if not isinstance(x, zarr.Array) or _folder(x) is None:
        return False
    single_byte = x.dtype.itemsize == 1  # such a codec has no order of bytes
    return (
        x.metadata.zarr_format == 3
        and x.shards is None
        and x.compressors in ((), (Crc32cCodec(),))
        and not x.filters
        and x.serializer == BytesCodec(endian=None if single_byte else "little")
        and tuple(x.chunks[1:]) == tuple(x.shape[1:])
        and (single_byte or (x.dtype.isnative and np.little_endian))
    )


def rows_at(x: Any, start: int, stop: int, *, reuse: bool = False) -> Array:
    """Images start..stop of a zarr or NumPy array as they are stored; mapped files, plain chunks straight from disk.

    With `reuse` the array is good until this thread reads again.
    """
    plain = has_plain_chunks(x)
    if not plain and not is_mapped(x):
        return _unpacked(x, start, stop) if isinstance(x, zarr.Array) else np.asarray(x[start:stop])
    out = (_reused if reuse else np.empty)((stop - start, *x.shape[1:]), x.dtype)
    if not plain:  # read, since mapped pages would stay resident
        with open(x.filename, "rb") as file:
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
    loose = is_mapped(x) or (has_plain_chunks(x) and not x.compressors)
    rows = max(1, _PIECE // _row_bytes(x)) if loose else stop - start
    for first in range(start, stop, rows):
        yield first, rows_at(x, first, min(stop, first + rows), reuse=True)


class FileRows:
    """An array in files under the few names that Dask asks for; every read is one of `rows_at`.

    Images for which `there` (n,) is False are NaN and never read.
    """

    def __init__(self, x: Any, there: Array | None = None) -> None:
        self.x, self.there = x, there
        self.shape = tuple(int(size) for size in x.shape)
        self.ndim = len(self.shape)
        self.dtype = x.dtype

    def __getitem__(self, index: Any) -> Array:
        rows, *rest = index if isinstance(index, tuple) else (index,)
        start, stop, step = rows.indices(self.shape[0])
        if self.there is None:
            return rows_at(self.x, start, max(start, stop))[(slice(None, None, step), *rest)]
        out = np.full((max(0, stop - start), *self.shape[1:]), np.nan, self.dtype)
        for i in np.flatnonzero(self.there[start:stop]):
            out[i] = rows_at(self.x, start + i, start + i + 1)[0]
        return out[(slice(None, None, step), *rest)]


def _unpacked(x: Any, start: int, stop: int) -> Array:
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


def _read_chunk(x: Any, row: int, first: int, out: Array) -> None:
    """Images of a plain chunk, from its first-th; where there is a checksum, all of it is read."""
    path = _chunk_name(x, (row, *[0] * (x.ndim - 1)))
    checks = bool(x.compressors)
    whole = np.empty(x.chunks, x.dtype) if checks and len(out) < x.chunks[0] else out
    stored = np.empty(4 * checks, np.uint8)
    wanted = prod(x.chunks) * x.dtype.itemsize + 4 * checks
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            good = size == wanted and _read(file, 0 if checks else first * _row_bytes(x), whole)
            good = good and _read(file, None, stored)
    except FileNotFoundError:
        if isinstance(x.store, GuardedStore) and not x.store.fill:
            raise BadChunk(_missing_message(path)) from None
        out[...] = x.fill_value
        return
    if not good:
        raise BadChunk(_damaged_message(path, f"it has {size} bytes instead of {wanted}"))
    if checks and int.from_bytes(stored.tobytes(), "little") != google_crc32c.value(whole.reshape(-1).view(np.uint8)):
        raise BadChunk(_damaged_message(path, "its checksum is wrong"))
    if whole is not out:
        out[...] = whole[first : first + len(out)]


def _read(file: Any, offset: int | None, out: Array) -> bool:
    """Fill an array from a file, by default from where it is; False where the file is too short."""
    place = memoryview(out.reshape(-1).view(np.uint8).data)
    if offset is not None:
        file.seek(offset)
    return bool(file.readinto(place) == len(place))


_THREAD = threading.local()


def _reused(shape: tuple[int, ...], dtype: Any) -> Array:
    memory: Array | None = getattr(_THREAD, "memory", None)
    size = prod(shape) * dtype.itemsize
    if memory is None or len(memory) < size:
        memory = _THREAD.memory = np.empty(size, np.uint8)
    return memory[:size].view(dtype).reshape(shape)
