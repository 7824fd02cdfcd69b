"""What is made of images in files, block by block: into a store that goes on where it stopped, or into memory.

The same loop serves whatever maps a range of images to arrays of as many images. An image whose chunks are missing or
damaged stops it, or is marked and left out where that is allowed. Images of different sizes are made one by one, and
put in a store in order by this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..images.library import Array, cut_rows, library_of, size_of
from ..images.ragged import Ragged, growing_ragged
from ..storage.chunks import BadChunk, FileRows, chunk_rows, damaged
from ..storage.growth import BAD, DONE, SEEN, Blocks
from .runner import PER_PIXEL, Execution

T = TypeVar("T")
Parts = Mapping[str, Array]
Maker = Callable[[int, int], Parts]  # images start..stop -> arrays of as many images
InputHash = Callable[[int, int], Array]  # images start..stop -> digests (n,) of all that a maker reads of them
_READ_BYTES = 2**26  # of a block, so that many images of few pixels do not become as many files
_CHUNK_BYTES = 2**24  # of an array of a block, and read at a time of images that differ in size


# ---------------------------------------------------------------- the loop


def block_rows(execution: Execution, reads: Sequence[Any], pixels: int) -> int:
    """Images in a block: whole chunks of what is read, as many as memory allows."""
    per_chunk = max(chunk_rows(x) for x in reads)
    row_bytes = sum(size_of(x) // int(x.shape[0]) for x in reads)
    wanted = max(1, min(_READ_BYTES // row_bytes, _CHUNK_BYTES // (4 * pixels)))
    rows = -(-wanted // per_chunk) * per_chunk
    while rows > 1 and 2 * _cost(reads, pixels, rows) > execution.memory:
        rows = -(-rows // 2)
    return min(rows, int(reads[0].shape[0]))


def _cost(reads: Sequence[Any], pixels: int, rows: int) -> int:
    return rows * (2 * sum(size_of(x) // int(x.shape[0]) for x in reads) + PER_PIXEL * pixels)


def fill(
    execution: Execution,
    blocks: Blocks,
    make: Maker,
    see: InputHash,
    reads: Sequence[Any],
    pixels: int,
    *,
    skip_bad: bool = False,
) -> Array:
    """Make every block of a store that is not finished, or was made of something else; the marks of all images, (n,).

    `make` gives beside the arrays the digests of what it read (`SEEN`), as `see` does alone.
    """

    def job(block: int) -> None:
        parts, marks = _attempt(make, skip_bad, *blocks.cut(block))
        blocks.write(block, parts, marks)

    todo = blocks.unfinished()
    finished = sorted(set(range(len(blocks))) - set(todo))
    if finished:
        cuts = [blocks.cut(block) for block in finished]
        other = other_images(execution, cuts, blocks.seen(), blocks.marks(), see, reads, pixels, skip_bad=skip_bad)
        todo = sorted({*todo, *(block for block in finished if other[slice(*blocks.cut(block))].any())})
    size = blocks.rows * sum(size_of(x) // int(x.shape[0]) for x in reads)
    jobs = [(block,) for block in todo]
    for _ in execution.each(job, jobs, _cost(reads, pixels, blocks.rows), size, reads):
        pass
    return blocks.marks()


def other_images(
    execution: Execution,
    cuts: Sequence[tuple[int, int]],
    seen: Array,
    marks: Array,
    see: InputHash,
    reads: Sequence[Any],
    pixels: int,
    *,
    skip_bad: bool,
) -> Array:
    """Which of the images within some cuts were made of something else than lies there now, (n,) bool: one read."""
    rows = max(stop - start for start, stop in cuts)
    size = rows * sum(size_of(x) // int(x.shape[0]) for x in reads)
    found = execution.each(partial(_seen_now, see, skip_bad), cuts, _cost(reads, pixels, rows), size, reads)
    other = np.zeros(len(marks), bool)
    for (start, stop), now in zip(cuts, found, strict=True):
        before = np.where(marks[start:stop] == DONE, seen[start:stop], 0)
        other[start:stop] = before != now
    return other


def _seen_now(see: InputHash, skip_bad: bool, start: int, stop: int) -> Array:
    """Digests of images start..stop; 0 of one that cannot be read, where such are left out."""
    parts, _ = _attempt(lambda first, last: {SEEN: see(first, last)}, skip_bad, start, stop)
    return parts.get(SEEN, np.zeros(stop - start, np.uint64))


def gather(
    execution: Execution, make: Maker, reads: Sequence[Any], n: int, pixels: int, *, skip_bad: bool = False
) -> tuple[Parts, Array]:
    """The same into memory: the arrays and marks of all images."""
    rows = block_rows(execution, reads, pixels)
    cuts = cut_rows(n, rows)
    size = rows * sum(size_of(x) // int(x.shape[0]) for x in reads)
    job = partial(_attempt, make, skip_bad)
    done = list(execution.each(job, cuts, _cost(reads, pixels, rows), size, reads))
    whole = next((part for part, _ in done if part), None)
    if whole is None:
        raise ValueError(f"none of the {n} images can be read")
    blank = {name: np.full_like(x[:1], np.nan) for name, x in whole.items()}
    parts = {
        name: np.concatenate([part[name] if part else blank[name].repeat(len(marks), axis=0) for part, marks in done])
        for name in whole
    }
    return parts, np.concatenate([marks for _, marks in done])


def _attempt(make: Maker, skip_bad: bool, start: int, stop: int) -> tuple[Parts, Array]:
    """Arrays and marks of images start..stop; after a bad chunk image by image, to leave out or to name the bad one."""
    try:
        return make(start, stop), np.full(stop - start, DONE, np.uint8)
    except BadChunk:
        if not skip_bad:
            raise
    rows: list[Parts | None] = []
    for i in range(start, stop):
        try:
            rows.append(make(i, i + 1))
        except BadChunk:
            rows.append(None)
    marks = np.array([BAD if row is None else DONE for row in rows], np.uint8)
    whole = next((row for row in rows if row is not None), None)
    if whole is None:
        return {}, marks
    blank = {name: np.full_like(x, 0 if x.dtype.kind == "u" else np.nan) for name, x in whole.items()}
    return {name: np.concatenate([(row or blank)[name] for row in rows]) for name in whole}, marks


# ---------------------------------------------------------------- images of different sizes


def each_image(execution: Execution, make: Callable[[int], T], reads: Sequence[Ragged], pixels: Array) -> Iterator[T]:
    """`make(image)` for every image, in order; it reads that image of `reads` and works on so many `pixels`, (n,)."""
    size = np.sum([x.sizes * x.dtype.itemsize for x in reads], axis=0)
    cost = int((2 * size + PER_PIXEL * pixels).max())  # of the largest image
    rows = max(1, min(_CHUNK_BYTES // int(size.max()), execution.memory // (2 * cost)))
    jobs = cut_rows(len(pixels), rows)

    def several(start: int, stop: int) -> list[T]:
        return [make(i) for i in range(start, stop)]

    most = min(rows, len(pixels)) * cost
    return chain.from_iterable(execution.each(several, jobs, most, rows * int(size.mean()), reads))


def ragged_to(
    path: Path,
    shapes: Sequence[tuple[int, ...]],
    dtype: Any,
    made: Iterable[Mapping[str, Array]],
    about: Mapping[str, Any],
    *,
    replace: bool = False,
    also: Mapping[str, Any] | None = None,
) -> None:
    """Put the lower and upper ends of images, as they are made, in a store that `read_ragged` reads.

    Where images come with digests of what they were made of, the store keeps one of all. `also` holds the dtype of
    further arrays of each image, by name.
    """
    dtypes = {"lower": dtype, "upper": dtype, **(also or {})}
    sets = {name: (np.array(shapes, np.int64), held) for name, held in dtypes.items()}
    seen: list[Array] = []

    def told() -> dict[str, str]:
        return {SEEN: digest_of_all(seen)} if seen else {}

    with growing_ragged(path, sets, about, replace=replace, finally_about=told) as put:
        for part in made:
            for name in sets:
                put(name, part[name])
            seen += [part[SEEN]] if SEEN in part else []


def digest_of_all(seen: Sequence[Array]) -> str:
    """One digest of the digests of all images, in order."""
    return sha256(np.array(seen, np.uint64).tobytes()).hexdigest()


# ---------------------------------------------------------------- images that can be read


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
    lazy = (
        x.rechunk({0: sizes}) if library_of(x) == "dask" else da.from_array(FileRows(x), chunks=(sizes, *x.shape[1:]))
    )
    return lazy.blocks[np.flatnonzero(good[starts])]
