"""A store that is written block by block and goes on where it stopped.

It grows as NAME.part: a block's arrays are written first and its marks last, each chunk aside and then renamed, so
whenever a process dies a block is finished and whole, or is made again. When all are finished the store gets its name.
Chunks carry a checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from ..images import Array
from .chunks import damaged
from .files import exclusive
from .plain import put_rows

DONE, BAD = 1, 2  # marks of an image: finished; its input was damaged and is left out
MARKS = "done"


@dataclass(frozen=True)
class Blocks:
    """A store under way: n images in blocks of `rows`."""

    path: str
    n: int
    rows: int
    made: str  # which of the stores that had this name

    def cut(self, block: int) -> tuple[int, int]:
        """Images of a block, start and stop."""
        return block * self.rows, min(self.n, (block + 1) * self.rows)

    def write(self, block: int, parts: Mapping[str, Array], marks: Array) -> None:
        """Put a block's arrays, then its marks."""
        start, _ = self.cut(block)
        for name, value in (*parts.items(), (MARKS, marks)):
            put_rows(_array(self.path, self.made, name), start, value)

    def marks(self) -> Array:
        """0, DONE or BAD of every image."""
        return np.asarray(_array(self.path, self.made, MARKS)[:])

    def unfinished(self) -> list[int]:
        """Blocks to be made, among them finished ones whose chunks were damaged since."""
        marks = self.marks()
        blocks = range(-(-self.n // self.rows))
        todo = [block for block in blocks if not marks[block * self.rows]]
        if len(todo) < len(blocks):
            for name in (x for x in zarr.open_group(self.path, mode="r").array_keys() if x != MARKS):
                array = _array(self.path, self.made, name)
                spoilt = {first // self.rows for first, _, _ in damaged(array, 0, self.n)} - set(todo)
                todo += [block for block in spoilt if (marks[slice(*self.cut(block))] == DONE).any()]
        return sorted(todo)


@lru_cache(maxsize=64)
def _array(path: str, made: str, name: str) -> Any:
    return zarr.open_array(path, path=name, mode="r+")


@contextmanager
def growing(
    path: Path,
    arrays: Mapping[str, tuple[tuple[int, ...], Any]],
    *,
    rows: int,
    about: Mapping[str, Any],
    request: Mapping[str, Any],
    compress: bool = True,
    settle: Callable[[Path, Path], None] = os.rename,
) -> Iterator[Blocks]:
    """The store NAME.part of some arrays (shape, dtype), new or as an earlier run of the same `request` left it.

    `about` becomes attributes. At the end `settle` gives it its name; of a run that fails before it has finished a
    block nothing is left.
    """
    part = path.with_name(path.name + ".part").absolute()
    asked = digest_of(request)
    n = next(iter(arrays.values()))[0][0]
    if not part.exists():
        _create(part, arrays, n, rows, {**about, "request": asked, "rows": rows, "made": uuid4().hex}, compress)
    try:
        known: dict[str, Any] = dict(zarr.open_group(part, mode="r").attrs)
    except Exception as error:  # what zarr raises depends on what is missing
        raise ValueError(f"{part} is no store that can be gone on with ({error}); remove it") from error
    if known.get("request") != asked:
        raise ValueError(f"{part} was begun with other inputs or options; run that command again, or remove the folder")
    blocks = Blocks(str(part), n, int(known["rows"]), str(known["made"]))
    with exclusive(part):
        for stale in part.rglob("*.partial"):  # of a process that was killed
            stale.unlink(missing_ok=True)
        try:
            yield blocks
            settle(part, path)
        except BaseException:
            if part.exists() and not blocks.marks().any():
                shutil.rmtree(part, ignore_errors=True)
            raise


def digest_of(request: Mapping[str, Any]) -> str:
    """A hash of what a run was asked."""
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=str).encode()).hexdigest()


def _create(
    part: Path,
    arrays: Mapping[str, tuple[tuple[int, ...], Any]],
    n: int,
    rows: int,
    about: Mapping[str, Any],
    compress: bool,
) -> None:
    """An empty store, all or nothing."""
    aside = part.with_name(f".{part.name}")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        group = zarr.create_group(aside, attributes=dict(about))
        for name, (shape, dtype) in arrays.items():
            group.create_array(
                name,
                shape=shape,
                chunks=(min(n, rows), *shape[1:]),
                dtype=dtype,
                compressors=(ZstdCodec(level=1), Crc32cCodec()) if compress else (Crc32cCodec(),),
                fill_value=np.nan,
            )
        group.create_array(MARKS, shape=(n,), chunks=(min(n, rows),), dtype="uint8", compressors=None, fill_value=0)
        os.rename(aside, part)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
