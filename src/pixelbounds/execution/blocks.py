"""What is made of images in files, block by block: into a store that goes on where it stopped, or into memory.

Samples become bands here. The same loop serves whatever else maps a range of images to arrays of as many images. An
image whose chunks are missing or damaged stops it, or is marked and left out where that is allowed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from ..bands import calibrated_quantiles
from ..images import Array, Band, as_array, library_of, outward, trusted_band
from ..storage.chunks import BadChunk, chunk_rows, damaged, guarded, is_unreadable
from ..storage.growth import BAD, DONE, MARKS, Blocks, digest_of, growing
from ..storage.plain import pieces
from .runner import PER_PIXEL, current
from .transport import size_of

Parts = Mapping[str, Array]
Maker = Callable[[int, int], Parts]  # images start..stop -> arrays of as many images
_READ_BYTES = 2**26  # of a block, so that many images of few pixels do not become as many files
_CHUNK_BYTES = 2**24  # of an array of a block


# ---------------------------------------------------------------- the loop


def block_rows(reads: Sequence[Any], pixels: int) -> int:
    """Images in a block: whole chunks of what is read, as many as memory allows."""
    per_chunk = max(chunk_rows(x) for x in reads)
    row_bytes = sum(size_of(x) // int(x.shape[0]) for x in reads)
    wanted = max(1, min(_READ_BYTES // row_bytes, _CHUNK_BYTES // (4 * pixels)))
    rows = -(-wanted // per_chunk) * per_chunk
    while rows > 1 and 2 * _cost(reads, pixels, rows) > current().memory:
        rows = -(-rows // 2)
    return min(rows, int(reads[0].shape[0]))


def _cost(reads: Sequence[Any], pixels: int, rows: int) -> int:
    return rows * (2 * sum(size_of(x) // int(x.shape[0]) for x in reads) + PER_PIXEL * pixels)


def fill(blocks: Blocks, make: Maker, reads: Sequence[Any], pixels: int, *, skip_bad: bool = False) -> Array:
    """Make every block of a store that is not finished; the marks of all images, (n,)."""

    def job(block: int) -> None:
        parts, marks = _attempt(make, skip_bad, *blocks.cut(block))
        blocks.write(block, parts, marks)

    todo = [(block,) for block in blocks.unfinished()]
    size = blocks.rows * sum(size_of(x) // int(x.shape[0]) for x in reads)
    for _ in current().each(job, todo, _cost(reads, pixels, blocks.rows), size):
        pass
    return blocks.marks()


def gather(make: Maker, reads: Sequence[Any], n: int, pixels: int, *, skip_bad: bool = False) -> tuple[Parts, Array]:
    """The same into memory: the arrays and marks of all images."""
    rows = block_rows(reads, pixels)
    cuts = [(start, min(n, start + rows)) for start in range(0, n, rows)]
    size = rows * sum(size_of(x) // int(x.shape[0]) for x in reads)
    job = partial(_attempt, make, skip_bad)
    done = list(current().each(job, cuts, _cost(reads, pixels, rows), size))
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
    """Arrays and marks of images start..stop; after an error image by image, to leave out or to name the bad one."""
    try:
        return make(start, stop), np.full(stop - start, DONE, np.uint8)
    except Exception as error:
        if not (skip_bad and is_unreadable(error)):
            raise
    rows: list[Parts | None] = []
    for i in range(start, stop):
        try:
            rows.append(make(i, i + 1))
        except Exception as error:
            if not is_unreadable(error):
                raise
            rows.append(None)
    marks = np.array([BAD if row is None else DONE for row in rows], np.uint8)
    whole = next((row for row in rows if row is not None), None)
    if whole is None:
        return {}, marks
    blank = {name: np.full_like(x, np.nan) for name, x in whole.items()}
    return {name: np.concatenate([(row or blank)[name] for row in rows]) for name in whole}, marks


@contextmanager
def numbered(first: int) -> Iterator[None]:
    """Errors about an image of a block name it by its number in the whole."""
    try:
        yield
    except BadChunk:
        raise
    except ValueError as error:
        text = re.sub(r"\bimage (\d+)", lambda found: f"image {first + int(found[1])}", str(error))
        raise type(error)(text).with_traceback(error.__traceback__) from error


# ---------------------------------------------------------------- samples to bands


def bands_to(
    samples: Any,
    out: str | os.PathLike[str],
    miscoverage: float | Fraction = 0.1,
    *,
    half: bool = False,
    skip_bad: bool = False,
) -> tuple[Band, Array]:
    """Calibrated quantiles of samples (n, m, *pixels) into a zarr store, going on where an earlier call stopped.

    The band, of zarr arrays, and for each image whether it is there: with `skip_bad` images whose chunks are missing or
    damaged are left out. `half` rounds outward to float16.
    """
    samples = guarded(as_array(samples, "samples"))
    n, m, *pixels = (int(x) for x in samples.shape)
    source = calibrated_quantiles(np.broadcast_to(np.float32(0), (1, m, 1)), miscoverage).source  # checks m, too
    dtype = np.dtype("float16" if half else str(samples.dtype))
    request = {"samples": where(samples), "shape": samples.shape, "dtype": str(dtype), "source": source}
    ends = dict.fromkeys(("lower", "upper"), ((n, *pixels), dtype))
    rows = block_rows([samples], prod(pixels))
    about = {"pixelbounds": {"kind": "bands"}, "source": source}
    path = Path(out)
    if not path.exists():
        with growing(path, ends, rows=rows, about=about, request=request, compress=False) as blocks:
            fill(blocks, quantiles(samples, miscoverage, half=half), [samples], prod(pixels), skip_bad=skip_bad)
    elif dict(zarr.open_group(path, mode="r").attrs).get("request") != digest_of(request):
        raise FileExistsError(f"{path} exists and holds something else; choose another name")
    return open_stored(path)


def open_stored(path: Path) -> tuple[Band, Array]:
    """A band that `bands_to` wrote, and which of its images are there, (n,) bool."""
    group = zarr.open_group(path, mode="r")
    parts = [watched(group[name]) for name in ("lower", "upper")]
    return Band(parts[0], parts[1], source=str(group.attrs["source"])), np.asarray(group[MARKS][:]) != BAD


def quantiles(samples: Any, miscoverage: float | Fraction, *, half: bool = False) -> Maker:
    """What makes the calibrated quantiles of images start..stop."""

    def make(start: int, stop: int) -> Parts:
        with numbered(start):
            band = band_at(samples, miscoverage, start, stop)
        lower, upper = outward(band.lower, band.upper, np.float16) if half else (band.lower, band.upper)
        return {"lower": lower, "upper": upper}

    return make


def band_at(samples: Any, miscoverage: float | Fraction, start: int, stop: int) -> Band:
    """Calibrated quantiles of the samples of images start..stop, in NumPy."""
    bands = []
    for first, part in pieces(samples, start, stop):
        with numbered(first - start):
            bands.append(calibrated_quantiles(part, miscoverage))
    lower, upper = (np.concatenate([getattr(band, end) for band in bands]) for end in ("lower", "upper"))
    return trusted_band(lower, upper, None, bands[0].source)


# ---------------------------------------------------------------- images that can be read


def watched(x: Any) -> Any:
    """An array whose missing chunks are errors, and in which a damaged one is looked for after an error."""
    x = guarded(x)
    if library_of(x) == "zarr":
        current().arrays.append(x)
    return x


def readable(*arrays: Any) -> Array:
    """Which images can be read in all of some arrays (n, ...): one read of those in zarr; (n,) bool."""
    good = np.ones(int(arrays[0].shape[0]), bool)
    for x in arrays:
        if library_of(x) != "zarr":
            continue
        rows = block_rows([x], prod(x.shape[1:]))
        cuts = [(start, min(len(good), start + rows)) for start in range(0, len(good), rows)]
        size = rows * size_of(x) // len(good)
        for found in current().each(partial(_damaged, x), cuts, 2 * size, size):
            for start, stop in found:
                good[start:stop] = False
    return good


def _damaged(x: Any, start: int, stop: int) -> list[tuple[int, int]]:
    return [(a, b) for a, b, _ in damaged(x, start, stop)]


def pick(x: Any, good: Array) -> Any:
    """Some images of an array, still where it lies: `good` is (n,) bool."""
    if not good.any():
        raise ValueError(f"none of the {len(good)} images can be read")
    if x is None or good.all():
        return x
    if library_of(x) == "numpy" and not isinstance(x, np.memmap):
        return x[good]
    import dask.array as da

    rows = block_rows([x], prod(x.shape[1:]))
    changes = np.flatnonzero(np.diff(good)) + 1  # so that blocks are all good or all bad
    starts = np.unique([*changes, *range(0, len(good), rows)])
    sizes = tuple(np.diff([*starts, len(good)]).tolist())
    lazy = x.rechunk({0: sizes}) if library_of(x) == "dask" else da.from_array(x, chunks=(sizes, *x.shape[1:]))
    return lazy.blocks[np.flatnonzero(good[starts])]


def where(x: Any) -> str:
    """What an array in a file is called, for telling whether a run is the same."""
    if library_of(x) == "zarr":
        return f"{x.store} {x.path}"
    return str(getattr(x, "filename", "memory"))
