"""Stores that grow aside and get their name when they are whole.

A store grows as NAME.part, held by one process from before it is made. A block's arrays are written first and its
marks last, each chunk aside and then renamed, so whenever a process dies a block is finished and whole, or is made
again. When all are finished the store gets its name. Chunks carry a checksum. Beside its images a store may keep a
digest of what each was made of (`SEEN`): that, and no file's name, decides whether a finished block is gone on with.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from .chunks import damaged, put_rows
from .files import lock, sweep
from .folders import swap_folder

Array = np.ndarray
Specs = Mapping[str, tuple[tuple[int, ...], Any]]  # arrays by name: shape, dtype

DONE, BAD = 1, 2  # marks of an image: finished; its input was damaged and is left out
MARKS = "done"
SEEN = "seen"  # digest of what each image was made of, (n,) uint64
_FLAT: Any = {"name": "default", "separator": "."}  # a file per chunk, not folders in folders
_NEW = ".new"  # in a part: what is not made yet
_ROOT = "zarr.json"


# ---------------------------------------------------------------- parts of a store


def add_array(
    group: Any, name: str, shape: tuple[int, ...], dtype: Any, chunk: int, *, pack: bool = True, flat: bool = False
) -> Any:
    """A new array of a store in chunks of so many rows: with a checksum, packed or plain; what is missing is NaN.

    Of a mask every chunk is written: one that is not there is missing, not False.
    """
    return group.create_array(
        name,
        shape=shape,
        chunks=(min(chunk, shape[0]), *shape[1:]),
        dtype=dtype,
        compressors=(ZstdCodec(level=1), Crc32cCodec()) if pack else (Crc32cCodec(),),
        fill_value=np.dtype(dtype).type(np.nan) if np.dtype(dtype).kind in "fc" else 0,
        config={"write_empty_chunks": np.dtype(dtype).kind == "b"},
        **({"chunk_key_encoding": _FLAT} if flat else {}),
    )


def add_marks(group: Any, n: int, chunk: int, *, flat: bool = False) -> None:
    """The mark of every image, none of them finished."""
    more = {"chunk_key_encoding": _FLAT} if flat else {}
    group.create_array(
        MARKS, shape=(n,), chunks=(min(n, chunk),), dtype="uint8", compressors=None, fill_value=0, **more
    )


def attributes_of(path: Path) -> dict[str, Any]:
    """What a store says of itself; nothing where there is none, or one that cannot be read."""
    try:
        return dict(zarr.open_group(path, mode="r").attrs)
    except Exception:  # zarr raises what it likes
        return {}


def request_digest(request: Mapping[str, Any]) -> str:
    """A hash of what a run was asked."""
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=str).encode()).hexdigest()


# ---------------------------------------------------------------- a folder aside


@contextmanager
def staged(
    path: Path,
    make: Callable[[Path], None],
    *,
    go_on: Callable[[Path], bool],
    keep: Callable[[Path], bool],
    replace: bool = False,
) -> Iterator[Path]:
    """The folder NAME.part, held alone: as it is where `go_on` says so, else made by `make`; in the end it is renamed.

    The lock comes first, so that of two processes that start together one makes the folder and the other is told. After
    an error the folder is removed, unless `keep` says that it is worth going on with. What has the name already is
    refused, or with `replace` goes when the new one is whole.
    """
    path = path.absolute()
    part, handle = _claimed(path)
    try:
        if path.exists() and not replace:
            _clear_if_unmade(part)
            raise FileExistsError(f"{path} exists, or came into being meanwhile; choose another name")
        if _unmade(part):
            _make_within(part, make)
        elif not (part / _ROOT).exists():
            raise ValueError(f"{part} is no store that can be gone on with; remove it")
        elif not go_on(part):
            _make_within(part, make)
        for stale in (*part.rglob("*.partial"), part / _NEW):  # of a process that was killed
            stale.rmdir() if stale.is_dir() else stale.unlink(missing_ok=True)
        try:
            yield part
            swap_folder(part, path) if replace else os.rename(part, path)
        except BaseException:
            if part.exists() and not keep(part):
                shutil.rmtree(part, ignore_errors=True)
            raise
    finally:
        os.close(handle)


def part_of(path: Path) -> Path:
    """Where a store lies until it is finished."""
    path = path.absolute()
    return path.with_name(f"{path.name}.part")


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


def _clear_if_unmade(part: Path) -> None:
    if _unmade(part):
        shutil.rmtree(part, ignore_errors=True)


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


# ---------------------------------------------------------------- a store of blocks


@dataclass(frozen=True)
class Blocks:
    """A store under way: n images in blocks of `rows`, or, where they are given, in blocks that end at `ends`."""

    path: str
    n: int
    rows: int
    made: str  # which of the stores that had this name
    ends: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.ends) or -(-self.n // self.rows)

    def cut(self, block: int) -> tuple[int, int]:
        """Images of a block, start and stop."""
        if self.ends:
            return (self.ends[block - 1] if block else 0), self.ends[block]
        return block * self.rows, min(self.n, (block + 1) * self.rows)

    def write(self, block: int, parts: Mapping[str, Array], marks: Array) -> None:
        """Put a block's arrays, then its marks."""
        start, _ = self.cut(block)
        for name, value in (*parts.items(), (MARKS, marks)):
            put_rows(_array(self.path, self.made, name), start, value)

    def marks(self) -> Array:
        """0, DONE or BAD of every image."""
        return np.asarray(_array(self.path, self.made, MARKS)[:])

    def seen(self) -> Array:
        """The digest of what each image was made of, (n,) uint64; 0 where there is none."""
        return np.asarray(_array(self.path, self.made, SEEN)[:])

    def unfinished(self) -> list[int]:
        """Blocks to be made, among them finished ones whose chunks were damaged since."""
        marks = self.marks()
        starts = np.array([self.cut(block)[0] for block in range(len(self))])
        todo = set(np.flatnonzero(marks[starts] == 0).tolist())
        if len(todo) < len(self):
            for name in (x for x in zarr.open_group(self.path, mode="r").array_keys() if x != MARKS):
                spoilt = [first for first, _, _ in damaged(_array(self.path, self.made, name), 0, self.n)]
                found = set((np.searchsorted(starts, spoilt, side="right") - 1).tolist()) - todo
                todo |= {block for block in found if (marks[slice(*self.cut(block))] == DONE).any()}
        return sorted(todo)


@lru_cache(maxsize=64)
def _array(path: str, made: str, name: str) -> Any:
    return zarr.open_array(path, path=name, mode="r+")


@contextmanager
def growing(
    path: Path,
    arrays: Specs,
    *,
    rows: int,
    about: Mapping[str, Any],
    request: Mapping[str, Any],
    pack: bool = True,
    ends: Sequence[int] = (),
    anew: bool = False,
    replace: bool = False,
) -> Iterator[Blocks]:
    """The store NAME.part of some arrays, new or as an earlier run of the same `request` left it.

    `about` becomes attributes. What another request left is refused, or, with `anew`, replaced. Of a run that fails
    before it has finished a block nothing is left. With `replace` a store that has the name goes in the end.
    """
    asked = request_digest(request)
    n = next(iter(arrays.values()))[0][0]

    def make(folder: Path) -> None:
        group = zarr.create_group(folder, attributes={**about, "request": asked, "rows": rows, "made": uuid4().hex})
        for name, (shape, dtype) in arrays.items():
            add_array(group, name, shape, dtype, rows, pack=pack)
        add_marks(group, n, rows)

    def go_on(folder: Path) -> bool:
        return not anew or attributes_of(folder).get("request") == asked

    def keep(folder: Path) -> bool:
        try:
            return bool(np.asarray(zarr.open_group(folder, mode="r")[MARKS][:]).any())
        except Exception:  # no store of ours, or a damaged one: whoever put it there may want it
            return True

    with staged(path, make, go_on=go_on, keep=keep, replace=replace) as folder:
        known = _check_request(folder, asked)
        yield Blocks(str(folder), n, int(known["rows"]), str(known["made"]), tuple(ends))


def _check_request(part: Path, asked: str) -> dict[str, Any]:
    try:
        known: dict[str, Any] = dict(zarr.open_group(part, mode="r").attrs)
    except Exception as error:  # what zarr raises depends on what is missing
        raise ValueError(f"{part} is no store that can be gone on with ({error}); remove it") from error
    if known.get("request") != asked:
        raise ValueError(
            f"{part} was begun with other inputs or options; run that command again, say --force, or remove the folder"
        )
    return known
