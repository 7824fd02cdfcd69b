"""Samples in files to bands: into a resumable store, or a few images at a time.

A finished store of bands, and every finished block of one that is not, is used again where it was made of the very
samples that lie there now: digests of what was read decide, whatever the files are called.
"""

from __future__ import annotations

import hashlib
import os
from fractions import Fraction
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from ..bands import calibrated_quantiles, calibrated_ranks, quantile_source
from ..execution.blocks import InputHash, Maker, Parts, block_rows, fill, gather, other_images
from ..execution.runner import Execution, current
from ..images.checks import numbered
from ..images.ends import Band, trusted_band
from ..images.library import Array, as_array, cut_rows, differ_in_size
from ..images.ragged import Ragged, read_ragged
from ..images.source import Source
from ..storage.chunks import guarded, pieces
from ..storage.store import BAD, DONE, MARKS, SEEN, attributes_of, request_differences, resumable, row_digests


def bands_to(
    samples: Any,
    out: str | os.PathLike[str],
    miscoverage: float | Fraction = 0.1,
    *,
    skip_bad: bool = False,
    replace: bool = False,
    execution: Execution | None = None,
) -> tuple[Band, Array]:
    """Calibrated quantiles of samples (n, m, *pixels) into a zarr store; an interrupted call resumes.

    The band, of zarr arrays, and for each image whether it is there: with `skip_bad` images whose chunks are missing or
    damaged are left out. Bands that lie there already are taken where they were made of the same samples, which are
    read to know; others are refused, or with `replace` made anew. Samples of images of different sizes, a `Ragged` of
    (m, *pixels), are taken, too.
    """
    samples = guarded(as_array(samples, "samples"))
    n = int(samples.shape[0])
    m, shapes = samples_of(samples)
    source = quantile_source("calibrated", m, miscoverage).state()
    calibrated_ranks(m, miscoverage)  # m must suffice
    dtype = np.dtype(str(samples.dtype))
    request = {"images": n, "samples": m, "pixels": shape_request(shapes), "dtype": str(dtype), "source": source}
    ragged = differ_in_size(samples)
    ends = np.array(shapes) if ragged else (n, *shapes[0])
    arrays = {"lower": (ends, dtype), "upper": (ends, dtype), SEEN: ((n,), np.uint64)}
    execution = execution or current()
    pixels: Any = np.array([prod(shape) for shape in shapes]) if ragged else prod(shapes[0])
    rows = 1 if ragged else block_rows(execution, [samples], pixels)
    path = Path(out)
    see = partial(sample_digests, samples)
    if path.exists():
        about = attributes_of(path)
        ours = isinstance(about.get("pixelbounds"), dict) and about["pixelbounds"].get("kind") == "bands"
        same = ours and not request_differences(about.get("request") or {}, request)
        if same and not _made_of_others(execution, path, see, samples, pixels, skip_bad):
            return open_stored(path)
        if not replace or not ours:
            what = "the bands of other samples" if same else "something else"
            remedy = "choose another name" + (", or replace it with --force" if ours else "")
            raise FileExistsError(f"{path} exists and holds {what}; {remedy}")
    about = {"pixelbounds": {"kind": "bands"}, "source": source}
    with resumable(
        path, arrays, rows=rows, about=about, request=request, pack=ragged, anew=replace, replace=replace
    ) as store:
        make = quantiles(samples, miscoverage, input_hash=True)
        fill(execution, store, make, see, [samples], pixels, skip_bad=skip_bad)
    return open_stored(path)


def bands_in_memory(
    samples: Any, miscoverage: float | Fraction, *, skip_bad: bool, execution: Execution
) -> tuple[Band, Array]:
    """The same band in memory, and which of its images are there."""
    m, shapes = samples_of(samples)
    ragged = differ_in_size(samples)
    pixels = [prod(shape) for shape in shapes] if ragged else prod(shapes[0])
    make = quantiles(samples, miscoverage)
    parts, marks = gather(execution, make, [samples], int(samples.shape[0]), pixels, skip_bad=skip_bad)
    lower, upper = (Ragged(parts[name]) if ragged else parts[name] for name in ("lower", "upper"))
    return Band(lower, upper, source=quantile_source("calibrated", m, miscoverage)), marks == DONE


def samples_of(samples: Any) -> tuple[int, list[tuple[int, ...]]]:
    """Number of samples of each image, and shape of each image; one shape where all images have one."""
    if not differ_in_size(samples):
        _, m, *pixels = (int(x) for x in samples.shape)
        return m, [tuple(pixels)]
    counts = sorted({int(shape[0]) for shape in samples.shapes})
    if len(counts) > 1:
        raise ValueError(
            f"images have from {counts[0]} to {counts[-1]} samples; a band of another number of samples is another "
            "band: give as many of each image"
        )
    return counts[0], [shape[1:] for shape in samples.shapes]


def shape_request(shapes: list[tuple[int, ...]]) -> Any:
    """Shapes of images as a request has them: the one shape, or a digest of many."""
    return shapes[0] if len(shapes) == 1 else hashlib.sha256(str(shapes).encode()).hexdigest()


def _made_of_others(
    execution: Execution, path: Path, see: InputHash, samples: Any, pixels: Any, skip_bad: bool
) -> bool:
    """Whether a finished store was made of other samples than these: one read of them."""
    group = zarr.open_group(path, mode="r")
    if any(name not in group or group[name].shape != samples.shape[:1] for name in (SEEN, MARKS)):
        return True
    seen = np.asarray(group[SEEN][:])
    marks = np.asarray(group[MARKS][:])
    rows = 1 if differ_in_size(samples) else block_rows(execution, [samples], pixels)
    cuts = cut_rows(len(marks), rows)
    return bool(other_images(execution, cuts, seen, marks, see, [samples], pixels, skip_bad=skip_bad).any())


def open_stored(path: Path) -> tuple[Band, Array]:
    """A band that `bands_to` wrote, and which of its images are there, (n,) bool."""
    group = zarr.open_group(path, mode="r")
    lacking = [name for name in ("lower", "upper", MARKS) if name not in group]
    if lacking or "source" not in group.attrs:
        raise ValueError(
            f"{path} is no whole store of bands: {', '.join(lacking) or 'source'} is not there; make it again"
        )
    source = Source.from_state(group.attrs["source"])
    ragged = isinstance(group["lower"], zarr.Group)
    ends = read_ragged(path, guarded) if ragged else {name: guarded(group[name]) for name in ("lower", "upper")}
    band = Band(ends["lower"], ends["upper"], source=source)
    if group[MARKS].shape != band.shape[:1]:
        raise ValueError(f"{path} has marks of {group[MARKS].shape} for {len(band)} images; make it again")
    return band, np.asarray(guarded(group[MARKS], fill=True)[:]) != BAD


def quantiles(samples: Any, miscoverage: float | Fraction, *, input_hash: bool = False) -> Maker:
    """What makes the calibrated quantiles of images start..stop, with `input_hash` the digests of what it read, too."""

    def make(start: int, stop: int) -> Parts:
        with numbered(start):
            band, seen = band_and_digests(samples, miscoverage, start, stop, input_hash=input_hash)
        return {"lower": band.lower, "upper": band.upper} | ({SEEN: seen} if input_hash else {})

    return make


def band_and_digests(
    samples: Any, miscoverage: float | Fraction, start: int, stop: int, *, input_hash: bool = True
) -> tuple[Band, Array]:
    """Calibrated quantiles of the samples of images start..stop, in NumPy, and the digests of these samples, taken
    while they are in the cache; zeros without `input_hash`. Images that differ in size are asked for one by one.
    """
    bands = []
    seen = np.zeros(stop - start, np.uint64)
    for first, part in _pieces(samples, start, stop):
        with numbered(first - start):
            bands.append(calibrated_quantiles(part, miscoverage, threads=False))
        if input_hash:
            seen[first - start : first - start + len(part)] = row_digests(part)
    lower = np.concatenate([band.lower for band in bands])
    upper = np.concatenate([band.upper for band in bands])
    return trusted_band(lower, upper, None, bands[0].source), seen


def sample_digests(samples: Any, start: int, stop: int) -> Array:
    """Digests of the samples of images start..stop, (n,)."""
    return np.concatenate([row_digests(part) for _, part in _pieces(samples, start, stop)])


def _pieces(samples: Any, start: int, stop: int) -> Any:
    return [(start, np.stack(list(samples[start:stop])))] if differ_in_size(samples) else pieces(samples, start, stop)
