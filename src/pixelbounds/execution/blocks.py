"""What is made of images in files, block by block: into a store that goes on where it stopped, or into memory.

The same loop serves whatever maps a range of images to arrays of as many images. An image whose chunks are missing or
damaged stops it, or is marked and left out where that is allowed. Images of different sizes are made one by one, and
put in a store in order by this process. Samples become bands here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import zarr

from ..bands import calibrated_quantiles, calibrated_ranks, quantile_source
from ..images.checks import numbered
from ..images.ends import Band, outward, trusted_band
from ..images.library import Array, as_array, cut_rows, library_of, size_of
from ..images.ragged import Ragged, growing_ragged, read_ragged
from ..images.source import Source
from ..storage.chunks import BadChunk, FileRows, chunk_rows, damaged, guarded, pieces
from ..storage.growth import BAD, DONE, MARKS, Blocks, attributes_of, growing, request_digest
from .runner import PER_PIXEL, Execution, current

T = TypeVar("T")
Parts = Mapping[str, Array]
Maker = Callable[[int, int], Parts]  # images start..stop -> arrays of as many images
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
    execution: Execution, blocks: Blocks, make: Maker, reads: Sequence[Any], pixels: int, *, skip_bad: bool = False
) -> Array:
    """Make every block of a store that is not finished; the marks of all images, (n,)."""

    def job(block: int) -> None:
        parts, marks = _attempt(make, skip_bad, *blocks.cut(block))
        blocks.write(block, parts, marks)

    todo = [(block,) for block in blocks.unfinished()]
    size = blocks.rows * sum(size_of(x) // int(x.shape[0]) for x in reads)
    for _ in execution.each(job, todo, _cost(reads, pixels, blocks.rows), size, reads):
        pass
    return blocks.marks()


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
    blank = {name: np.full_like(x, np.nan) for name, x in whole.items()}
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
    settle: Callable[[Path, Path], None] | None = None,
) -> None:
    """Put the lower and upper ends of images, as they are made, in a store that `read_ragged` reads."""
    ends = "lower", "upper"
    sets = dict.fromkeys(ends, (np.array(shapes, np.int64), dtype))
    with growing_ragged(path, sets, about, **({} if settle is None else {"settle": settle})) as put:
        for part in made:
            for name in ends:
                put(name, part[name])


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


# ---------------------------------------------------------------- samples to bands


def bands_to(
    samples: Any,
    out: str | os.PathLike[str],
    miscoverage: float | Fraction = 0.1,
    *,
    half: bool = False,
    skip_bad: bool = False,
    execution: Execution | None = None,
) -> tuple[Band, Array]:
    """Calibrated quantiles of samples (n, m, *pixels) into a zarr store, going on where an earlier call stopped.

    The band, of zarr arrays, and for each image whether it is there: with `skip_bad` images whose chunks are missing or
    damaged are left out. `half` rounds outward to float16.
    """
    samples = guarded(as_array(samples, "samples"))
    n, m, *pixels = (int(x) for x in samples.shape)
    calibrated_ranks(m, miscoverage)  # m must suffice
    source = quantile_source("calibrated", m, miscoverage).state()
    dtype = np.dtype("float16" if half else str(samples.dtype))
    request = {"samples": where(samples), "shape": samples.shape, "dtype": str(dtype), "source": source}
    ends = dict.fromkeys(("lower", "upper"), ((n, *pixels), dtype))
    execution = execution or current()
    rows = block_rows(execution, [samples], prod(pixels))
    about = {"pixelbounds": {"kind": "bands"}, "source": source}
    path = Path(out)
    if not path.exists():
        with growing(path, ends, rows=rows, about=about, request=request, pack=False) as blocks:
            make = quantiles(samples, miscoverage, half=half)
            fill(execution, blocks, make, [samples], prod(pixels), skip_bad=skip_bad)
    elif attributes_of(path).get("request") != request_digest(request):
        raise FileExistsError(f"{path} exists and holds something else; choose another name")
    return open_stored(path)


def open_stored(path: Path) -> tuple[Band, Array]:
    """A band that `bands_to` wrote, and which of its images are there, (n,) bool."""
    group = zarr.open_group(path, mode="r")
    source = Source.from_state(group.attrs["source"])
    lower = guarded(group["lower"])
    upper = guarded(group["upper"])
    band = Band(lower, upper, source=source)
    return band, np.asarray(group[MARKS][:]) != BAD


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
            bands.append(calibrated_quantiles(part, miscoverage, threads=False))
    lower = np.concatenate([band.lower for band in bands])
    upper = np.concatenate([band.upper for band in bands])
    return trusted_band(lower, upper, None, bands[0].source)


def ragged_bands(execution: Execution, samples: Ragged, out: Path | None, miscoverage: float | Fraction = 0.1) -> Band:
    """Calibrated quantiles of the samples (m, *pixels) of each image: in a store, or in memory where `out` is None."""

    def make(image: int) -> dict[str, Array]:
        with numbered(image):
            band = calibrated_quantiles(samples[image][None], miscoverage, threads=False)
        return {"lower": band.lower[0], "upper": band.upper[0]}

    counts = sorted({int(shape[0]) for shape in samples.shapes})
    if len(counts) > 1:
        raise ValueError(
            f"images have from {counts[0]} to {counts[-1]} samples; a band of another number of samples is another "
            "band: give as many of each image"
        )
    shapes = [shape[1:] for shape in samples.shapes]
    pixels = np.array([np.prod(shape, dtype=np.int64) for shape in shapes])
    first = calibrated_quantiles(samples[0][None], miscoverage)
    source = first.source.state()
    if out is None:
        parts = list(each_image(execution, make, [samples], pixels))
        lower = Ragged([part["lower"] for part in parts])
        upper = Ragged([part["upper"] for part in parts])
        return Band(lower, upper, source=first.source)
    request = {"samples": where(getattr(samples.images, "values", None)), "shapes": shapes, "source": source}
    about = {"source": source, "request": request_digest(request)}
    if not out.exists():
        ragged_to(out, shapes, first.lower.dtype, each_image(execution, make, [samples], pixels), about)
    elif attributes_of(out).get("request") != about["request"]:
        raise FileExistsError(f"{out} exists and holds something else; choose another name")
    found = read_ragged(out, guarded)
    return Band(found["lower"], found["upper"], source=first.source)


def where(x: Any) -> str:
    """What an array in a file is called, for telling whether a run is the same."""
    if library_of(x) == "zarr":
        return f"{x.store} {x.path}"
    return str(getattr(x, "filename", "memory"))
