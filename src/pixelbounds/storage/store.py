"""The one resumable store: arrays of n images that grow as NAME.part and get their name when they are whole.

A store is written in blocks of images. A block's arrays are written first and its marks last, each chunk aside and
then renamed, so whenever a process dies a block is finished and whole, or is made again. An interrupted run resumes
where its `request` is the same; what differs is named. One process holds the part from before it is made. Chunks carry
a checksum: a finished block that was damaged since is made again. Beside its images a store may keep a digest of what
each was made of (`SEEN`): that, and no file's name, decides whether a finished block is kept.

Images that differ in size lie one after the other in `NAME/values`, (pixels of all images,), with `NAME/shapes`, (n,
axes). Neighbouring blocks share chunks there, so one process writes such a store, in order.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any
from uuid import uuid4

import google_crc32c
import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from .chunks import damaged
from .files import exclusive, lock, swap_folder, sweep

Array = np.ndarray
_ODD = np.uint64(0x9E3779B97F4A7C15)  # multiplies digests
# an array by its name: its shape (n, ...), or the shapes (n, axes) of images that differ in size; and its dtype
Specs = Mapping[str, tuple[Any, Any]]

DONE, BAD = 1, 2  # marks of an image: finished; its input was damaged and is left out
MARKS = "done"
SEEN = "seen"  # digest of what each image was made of, (n,) uint64
_FLAT: Any = {"name": "default", "separator": "."}  # a file per chunk, not folders in folders
_NEW = ".new"  # in a part: what is not made yet
_ROOT = "zarr.json"
_PIXELS = 2**16  # of images that differ in size, at least so many in a chunk and a block


# ---------------------------------------------------------------- digests of what was read

# They tell content that was drawn anew, edited or damaged from content that is the same, whatever its file is called.
# They are fast (some 10 GB/s, so that they hide behind reading) and no defence against somebody who seeks a collision.


def row_digests(rows: Array) -> Array:
    """A digest of each image of an array, of its shape and its type: (n, ...) -> (n,) uint64, never 0.

    >>> a, b, c = row_digests(np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]]))
    >>> bool(a == c), bool(a == b)
    (True, False)
    """
    rows = np.ascontiguousarray(rows)
    n = len(rows)
    kind = google_crc32c.value(f"{rows.dtype.str} {rows.shape[1:]}".encode())
    size = prod(rows.shape[1:]) * rows.dtype.itemsize
    flat = rows.reshape(n, -1).view(np.uint8).reshape(n, size)
    # a checksum of 32 bits for each half: a changed value never has the old one, and what is drawn anew has neither
    first = np.array([google_crc32c.extend(kind, row[: size // 2]) for row in flat], np.uint64)
    second = np.array([google_crc32c.extend(kind, row[size // 2 :]) for row in flat], np.uint64)
    return joined_digests(first, second)


def joined_digests(*parts: Array) -> Array:
    """One digest of several of each image, in this order: (n,) uint64 each -> (n,) uint64, never 0."""
    total = np.zeros_like(parts[0])
    with np.errstate(over="ignore"):
        for part in parts:
            total = (total ^ part) * _ODD
            total ^= total >> np.uint64(29)
    return np.where(total == 0, _ODD, total)


# ---------------------------------------------------------------- a store under way


@dataclass(frozen=True)
class Store:
    """A store under way: n images in blocks of `rows`, or, where they are given, in blocks that end at `ends`.

    `firsts` says for arrays of images that differ in size where each image begins, (n + 1,).
    """

    path: str
    n: int
    rows: int
    made: str  # which of the stores that had this name
    ends: tuple[int, ...] = ()
    firsts: Mapping[str, Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ends) or -(-self.n // self.rows)

    def cut(self, block: int) -> tuple[int, int]:
        """Images of a block, start and stop."""
        if self.ends:
            return (self.ends[block - 1] if block else 0), self.ends[block]
        return block * self.rows, min(self.n, (block + 1) * self.rows)

    def write(self, block: int, parts: Mapping[str, Any], marks: Array) -> None:
        """Put a block's arrays, then its marks; of images that differ in size a list of arrays."""
        start, _ = self.cut(block)
        for name, images in parts.items():
            values, at, place = images, start, name
            if name in self.firsts:
                values = np.concatenate([np.asarray(image).reshape(-1) for image in images])
                at, place = int(self.firsts[name][start]), f"{name}/values"
            self.array(place)[at : at + len(values)] = values
        self.array(MARKS)[start : start + len(marks)] = marks

    def array(self, name: str) -> Any:
        """An array of the store, opened once."""
        return _array(self.path, self.made, name)

    def marks(self) -> Array:
        """0, DONE or BAD of every image."""
        return read_marks(self.array(MARKS), 0, self.n)

    def seen(self) -> Array:
        """The digest of what each image was made of, (n,) uint64; 0 where there is none."""
        return np.asarray(self.array(SEEN)[:])

    def unfinished(self) -> list[int]:
        """Blocks to be made, among them finished ones whose chunks were damaged since: these lose their marks."""
        marks = self.marks()
        starts = np.array([self.cut(block)[0] for block in range(len(self))])
        if marks.any():
            names = [name for name in zarr.open_group(self.path, mode="r").array_keys() if name != MARKS]
            places = {name: np.arange(self.n + 1) for name in names}
            for name, firsts in (places | {f"{name}/values": x for name, x in self.firsts.items()}).items():
                self._unmark_damaged(self.array(name), firsts, starts, marks)
        return np.flatnonzero(marks[starts] == 0).tolist()

    def _unmark_damaged(self, x: Any, firsts: Array, starts: Array, marks: Array) -> None:
        """Take the marks of finished blocks in damaged chunks of an array, in which image i begins at `firsts[i]`."""
        for start, stop, _ in damaged(x, 0, x.shape[0]):
            images = np.searchsorted(firsts, [start, stop - 1], side="right") - 1
            first, last = np.searchsorted(starts, images, side="right") - 1
            spoilt = [block for block in range(first, last + 1) if (marks[slice(*self.cut(block))] == DONE).any()]
            for block in spoilt:
                marks[slice(*self.cut(block))] = 0
                self.array(MARKS)[slice(*self.cut(block))] = 0
            if spoilt and self.firsts:  # neighbours are written into the same chunk, which must be read for that
                x[start:stop] = x.fill_value

    def update(self, **attributes: Any) -> None:
        """Put attributes."""
        zarr.open_group(self.path, mode="r+").update_attributes(attributes)


@lru_cache(maxsize=64)
def _array(path: str, made: str, name: str) -> Any:
    x = zarr.open_array(path, path=name, mode="r+")
    return x.with_config({"write_empty_chunks": x.dtype.kind != "f"})  # an open array does not remember it


def read_marks(marks: Any, start: int, stop: int) -> Array:
    """Marks of images start..stop; 0 of one whose mark cannot be read."""
    try:
        return np.asarray(marks[start:stop])
    except Exception:  # zarr raises what it likes
        if stop - start == 1:
            return np.zeros(1, np.uint8)
        return np.concatenate([read_marks(marks, image, image + 1) for image in range(start, stop)])


@contextmanager
def resumable(
    path: Path, arrays: Specs, *, request: Mapping[str, Any], about: Mapping[str, Any] | None = None, rows: int = 1,
    ends: Sequence[int] = (), pack: bool = True, flat: bool = False, anew: bool = False, replace: bool = False,
) -> Iterator[Store]:  # fmt: skip
    """The store NAME.part of some arrays, new or as an earlier run of the same `request` left it; its name in the end.

    `about` becomes attributes. What another request left is refused, or with `anew` removed. Of a run that fails before
    it has finished a block nothing is left. A store that has the name is refused, or with `replace` goes in the end.
    """
    path = path.absolute()
    part, handle = _claimed(path)
    try:
        if path.exists() and not replace:
            if _unmade(part):
                shutil.rmtree(part, ignore_errors=True)
            raise FileExistsError(f"{path} exists, or came into being meanwhile; choose another name")
        asked = stored_request(request)
        if not _unmade(part):
            differences = _differences(part, asked)
            if differences and not anew:
                raise ValueError(
                    f"{part} was begun with other inputs or options ({'; '.join(differences)}); run that command "
                    "again, say --force, or remove the folder"
                )
        if _unmade(part) or differences:
            attributes = {**(about or {}), "request": asked, "made": uuid4().hex}
            _make_within(part, lambda new: _make(new, arrays, attributes, rows=rows, pack=pack, flat=flat))
        for stale in (*part.rglob("*.partial"), part / _NEW):  # of a process that was killed
            stale.rmdir() if stale.is_dir() else stale.unlink(missing_ok=True)
        try:
            yield _opened(part, ends)
            swap_folder(part, path) if replace else os.rename(part, path)
        except BaseException:
            if part.exists() and not _has_finished(part):
                shutil.rmtree(part, ignore_errors=True)
            raise
    finally:
        os.close(handle)


def reopen(path: Path) -> None:
    """Move a finished store back to NAME.part, where it can be resumed."""
    with exclusive(path):
        os.rename(path, part_of(path))


def attributes_of(path: Path) -> dict[str, Any]:
    """What a store says of itself; nothing where there is none, or one that cannot be read."""
    try:
        return dict(zarr.open_group(path, mode="r").attrs)
    except Exception:  # zarr raises what it likes
        return {}


def stored_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request as it comes back from a store."""
    return dict(json.loads(json.dumps(request, default=str)))


def request_differences(stored: Mapping[str, Any], request: Mapping[str, Any]) -> list[str]:
    """What differs between the request of a store and another.

    >>> request_differences({"seed": 0, "shape": [3, 3]}, {"seed": 1, "shape": (3, 3)})
    ['seed is 0 there and 1 here']
    """
    asked = stored_request(request)
    names = [name for name in {**stored, **asked} if stored.get(name) != asked.get(name)]
    return [f"{name} is {_short(stored.get(name))} there and {_short(asked.get(name))} here" for name in names]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _differences(part: Path, asked: Mapping[str, Any]) -> list[str]:
    """What differs between the request of a part and another; a part that is none of ours is refused."""
    stored = attributes_of(part).get("request")
    if not isinstance(stored, dict) or not (part / _ROOT).exists():
        raise ValueError(f"{part} is no store that can be resumed; remove it")
    return request_differences(stored, asked)


def _has_finished(part: Path) -> bool:
    try:
        return bool(np.asarray(zarr.open_array(part, path=MARKS, mode="r")[:]).any())
    except Exception:  # no store of ours, or a damaged one: whoever put it there may want it
        return True


def part_of(path: Path) -> Path:
    """Where a store lies until it is finished."""
    path = path.absolute()
    return path.with_name(f"{path.name}.part")


def _add_array(
    group: Any, name: str, shape: tuple[int, ...], dtype: Any, chunk: int, *, pack: bool = True, flat: bool = False
) -> None:
    """A new array in chunks of so many rows: with a checksum, packed or plain; a missing float is NaN.

    Of other numbers every chunk is written: one that is not there is missing, not 0.
    """
    floats = np.dtype(dtype).kind in "fc"
    group.create_array(
        name,
        shape=shape,
        chunks=(min(chunk, shape[0]), *shape[1:]),
        dtype=dtype,
        compressors=(ZstdCodec(level=1), Crc32cCodec()) if pack else (Crc32cCodec(),),
        fill_value=np.dtype(dtype).type(np.nan) if floats else 0,
        config={"write_empty_chunks": not floats},
        **({"chunk_key_encoding": _FLAT} if flat else {}),
    )


def _make(folder: Path, arrays: Specs, attributes: Mapping[str, Any], *, rows: int, pack: bool, flat: bool) -> None:
    group = zarr.create_group(folder, attributes={**attributes, "rows": rows})
    shapes = {name: shape for name, (shape, _) in arrays.items() if isinstance(shape, np.ndarray)}
    n = next(len(x) if isinstance(x, np.ndarray) else x[0] for x, _ in arrays.values())
    if any(len(x) != n for x in shapes.values()):
        raise ValueError(f"sets have {', '.join(str(len(x)) for x in shapes.values())} images; they must agree")
    for name, (shape, dtype) in arrays.items():
        if name in shapes:
            total = int(shape.prod(axis=1).sum())
            one = group.create_group(name)
            one.create_array("shapes", data=np.asarray(shape, np.int64))
            _add_array(one, "values", (total,), dtype, max(_PIXELS, total // n))
        else:
            _add_array(group, name, shape, dtype, n if shapes else rows, pack=pack, flat=flat)
    marks = {"chunk_key_encoding": _FLAT} if flat else {}
    chunk = n if shapes else min(n, rows)
    group.create_array(MARKS, shape=(n,), chunks=(chunk,), dtype="uint8", compressors=None, fill_value=0, **marks)


def _opened(part: Path, ends: Sequence[int]) -> Store:
    group = zarr.open_group(part, mode="r")
    attributes: Any = dict(group.attrs)
    firsts = {name: _firsts(np.asarray(one["shapes"][:])) for name, one in group.groups()}
    n = int(group[MARKS].shape[0])
    if firsts and not ends:
        ends = _pixel_ends(np.max(list(firsts.values()), axis=0))
    return Store(str(part), n, int(attributes["rows"]), str(attributes["made"]), tuple(ends), firsts)


def _firsts(shapes: Array) -> Array:
    return np.append(0, np.cumsum(shapes.astype(np.int64).prod(axis=1)))


def _pixel_ends(firsts: Array) -> list[int]:
    """Ends of blocks of images that have about as many pixels as a chunk."""
    block = np.maximum(firsts[1:] - 1, 0) // max(_PIXELS, int(firsts[-1]) // max(1, len(firsts) - 1))
    return [*(np.flatnonzero(np.diff(block)) + 1).tolist(), len(block)]


def _claimed(path: Path) -> tuple[Path, int]:
    """The folder NAME.part, made where it is not there, and held."""
    part = part_of(path)
    sweep(path.parent)
    for _ in range(9):
        with suppress(FileExistsError):
            part.mkdir()
        with suppress(FileNotFoundError):  # whoever held it gave it its name, or removed it, just now
            return part, lock(part)
    raise BlockingIOError(f"{part} comes and goes: other processes write it; wait for them or end them")


def _unmade(part: Path) -> bool:
    """Whether a part is empty, or its maker was killed."""
    return not (part / _ROOT).exists() and ((part / _NEW).exists() or not any(part.iterdir()))


def _make_within(part: Path, make: Callable[[Path], None]) -> None:
    """Make the content of a held folder, all or nothing: what says that it is a store moves in last."""
    try:
        for old in part.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        make(part / _NEW)
        for name in sorted(os.listdir(part / _NEW), key=lambda name: name == _ROOT):
            os.rename(part / _NEW / name, part / name)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
