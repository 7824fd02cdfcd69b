"""What is made of images in files, block by block: into a resumable store, or into memory.

The same loop serves whatever maps a range of images to arrays of as many. An image whose chunks are missing or damaged
stops it, or is marked and left out. Images of different sizes are made one by one, and stored in order by this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from ..images.library import Array, cut_rows, differ_in_size, itemsize, library_of, size_of, sizes_of
from ..storage.chunks import BadChunk, FileRows, chunk_rows, damaged
from ..storage.store import BAD, DONE, SEEN, Store
from .runner import PER_PIXEL, Execution

Parts = Mapping[str, Any]
Maker = Callable[[int, int], Parts]  # images start..stop -> arrays of as many images
InputHash = Callable[[int, int], Array]  # images start..stop -> digests (n,) of all that a maker reads of them
_READ_BYTES = 2**26  # of a block, so that many images of few pixels do not become as many files
_CHUNK_BYTES = 2**24  # of an array of a block, and read at a time of images that differ in size


def block_rows(execution: Execution, reads: Sequence[Any], pixels: int) -> int:
    """Images in a block: whole chunks of what is read, as many as memory allows."""
    per_chunk = max(chunk_rows(x) for x in reads)
    row_bytes = sum(size_of(x) // int(x.shape[0]) for x in reads)
    wanted = max(1, min(_READ_BYTES // row_bytes, _CHUNK_BYTES // (4 * pixels)))
    rows = -(-wanted // per_chunk) * per_chunk
    while rows > 1 and 2 * _costs(reads, pixels, rows)[0] > execution.memory:
        rows = -(-rows // 2)
    return min(rows, int(reads[0].shape[0]))


def _costs(reads: Sequence[Any], pixels: Any, rows: int) -> tuple[int, int]:
    """Bytes of memory that a block of so many images takes, and bytes that it reads; `pixels` of an image, or (n,)."""
    size = np.sum([sizes_of(x) * itemsize(x) for x in reads], axis=0)
    image = int((2 * size + PER_PIXEL * np.asarray(pixels)).max())
    return image * (1 if _one_by_one(reads) else rows), int(rows * size.mean())


def _one_by_one(reads: Sequence[Any]) -> bool:
    return any(differ_in_size(x) for x in reads)


def fill(
    execution: Execution, store: Store, make: Maker, see: InputHash, reads: Sequence[Any], pixels: Any, *,
    skip_bad: bool = False,
) -> Array:  # fmt: skip
    """Make every block of a store that is not finished, or was made of something else; the marks of all images, (n,).

    `make` returns beside the arrays the digests of what it read (`SEEN`), as `see` does alone. `pixels` are those of an
    image, or (n,) of each.
    """
    todo = store.unfinished()
    finished = sorted(set(range(len(store))) - set(todo))
    if finished:
        cuts = [store.cut(block) for block in finished]
        other = other_images(execution, cuts, store.seen(), store.marks(), see, reads, pixels, skip_bad=skip_bad)
        todo = sorted({*todo, *(block for block in finished if other[slice(*store.cut(block))].any())})
    attempt = partial(_attempt, make, skip_bad, _one_by_one(reads))

    def job(block: int) -> tuple[Parts, Array] | None:
        made = attempt(*store.cut(block))
        if store.firsts:  # blocks share chunks, so one process writes
            return made
        store.write(block, *made)
        return None

    rows = max((stop - start for start, stop in map(store.cut, todo)), default=1)
    jobs = [(block,) for block in todo]
    for block, made in zip(todo, execution.each(job, jobs, *_costs(reads, pixels, rows), reads), strict=True):
        if made is not None:
            store.write(block, *made)
    return store.marks()


def other_images(
    execution: Execution, cuts: Sequence[tuple[int, int]], seen: Array, marks: Array, see: InputHash,
    reads: Sequence[Any], pixels: Any, *, skip_bad: bool,
) -> Array:  # fmt: skip
    """Which of the images within some cuts were made of something else than lies there now, (n,) bool: one read."""
    job = partial(_seen_now, see, skip_bad, _one_by_one(reads))
    rows = max(stop - start for start, stop in cuts)
    other = np.zeros(len(marks), bool)
    digests = execution.each(job, cuts, *_costs(reads, pixels, rows), reads)
    for (start, stop), now in zip(cuts, digests, strict=True):
        before = np.where(marks[start:stop] == DONE, seen[start:stop], 0)
        other[start:stop] = before != now
    return other


def _seen_now(see: InputHash, skip_bad: bool, singly: bool, start: int, stop: int) -> Array:
    """Digests of images start..stop; 0 of one that cannot be read, where such are left out."""
    parts, _ = _attempt(lambda first, last: {SEEN: see(first, last)}, skip_bad, singly, start, stop)
    return np.asarray(parts.get(SEEN, np.zeros(stop - start, np.uint64)))


def gather(
    execution: Execution, make: Maker, reads: Sequence[Any], n: int, pixels: Any, *, skip_bad: bool = False
) -> tuple[dict[str, Any], Array]:
    """The same into memory: the arrays and marks of all images; a list of arrays where these differ in size."""
    singly = _one_by_one(reads)
    if singly:
        cost, size = _costs(reads, pixels, 1)
        rows = max(1, min(_CHUNK_BYTES // max(1, size), execution.memory // (2 * cost)))
    else:
        rows = block_rows(execution, reads, pixels)
    cuts = cut_rows(n, rows)
    job = partial(_attempt, make, skip_bad, singly)
    made = list(execution.each(job, cuts, *_costs(reads, pixels, rows), reads))
    whole = next((part for part, _ in made if part), None)
    if whole is None:
        raise ValueError(f"none of the {n} images can be read")
    marks = np.concatenate([each for _, each in made])
    parts: dict[str, Any] = {}
    for name, first in whole.items():
        if isinstance(first, list):
            parts[name] = list(chain.from_iterable(part[name] for part, _ in made))
            continue
        blank = np.full_like(first[:1], np.nan)
        parts[name] = np.concatenate([part[name] if part else blank.repeat(len(x), axis=0) for part, x in made])
    return parts, marks


def _attempt(make: Maker, skip_bad: bool, singly: bool, start: int, stop: int) -> tuple[Parts, Array]:
    """Arrays and marks of images start..stop; after a bad chunk image by image, to leave out or to name the bad one."""
    if singly:
        images = [make(i, i + 1) for i in range(start, stop)]
        joined = {name: _together([image[name] for image in images]) for name in images[0]}
        return joined, np.full(stop - start, DONE, np.uint8)
    try:
        return make(start, stop), np.full(stop - start, DONE, np.uint8)
    except BadChunk:
        if not skip_bad:
            raise
    rows: list[Parts | None] = [None] * (stop - start)
    for i in range(start, stop):
        with suppress(BadChunk):
            rows[i - start] = make(i, i + 1)
    marks = np.array([BAD if row is None else DONE for row in rows], np.uint8)
    whole = next((row for row in rows if row is not None), None)
    if whole is None:
        return {}, marks
    blank = {name: np.full_like(x, 0 if x.dtype.kind == "u" else np.nan) for name, x in whole.items()}
    return {name: np.concatenate([(row or blank)[name] for row in rows]) for name in whole}, marks


def _together(images: Sequence[Array]) -> Any:
    """Numbers (1,) of images as one array, images (1, *pixels) that differ in size as a list."""
    return np.concatenate(images) if images[0].ndim == 1 else [image[0] for image in images]


def readable(execution: Execution, *arrays: Any) -> Array:
    """Which images can be read in all of some arrays (n, ...): one read of those in zarr; (n,) bool."""
    good = np.ones(int(arrays[0].shape[0]), bool)
    for x in arrays:
        if library_of(x) != "zarr":
            continue
        rows = block_rows(execution, [x], prod(x.shape[1:]))
        size = rows * size_of(x) // len(good)
        for found in execution.each(partial(_damaged, x), cut_rows(len(good), rows), 2 * size, size, [x]):
            for start, stop in found:
                good[start:stop] = False
    return good


def _damaged(x: Any, start: int, stop: int) -> list[tuple[int, int]]:
    return [(a, b) for a, b, _ in damaged(x, start, stop)]


def pick(execution: Execution, x: Any, good: Array) -> Any:
    """Some images of an array, still where it lies: `good` is (n,) bool."""
    if not good.any():
        raise ValueError(f"none of the {len(good)} images can be read")
    if x is None or good.all():
        return x
    if library_of(x) == "numpy" and not isinstance(x, np.memmap):
        return x[good]
    import dask.array as da

    rows = block_rows(execution, [x], prod(x.shape[1:]))
    changes = np.flatnonzero(np.diff(good)) + 1  # so that blocks are all good or all bad
    starts = np.unique([*changes, *range(0, len(good), rows)])
    sizes = tuple(np.diff([*starts, len(good)]).tolist())
    is_dask = library_of(x) == "dask"
    lazy = x.rechunk({0: sizes}) if is_dask else da.from_array(FileRows(x), chunks=(sizes, *x.shape[1:]))
    return lazy.blocks[np.flatnonzero(good[starts])]
