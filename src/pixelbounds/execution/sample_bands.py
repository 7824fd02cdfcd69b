"""Samples in files to bands: into a store that goes on where it stopped, or into memory.

A finished store of bands, and every finished block of one that is not, is used again where it was made of the very
samples that lie there now: digests of what was read decide, whatever the files are called.
"""

from __future__ import annotations

import os
from fractions import Fraction
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from ..bands import calibrated_quantiles, calibrated_ranks, quantile_source
from ..images.checks import numbered
from ..images.ends import Band, outward, trusted_band
from ..images.library import Array, as_array, cut_rows
from ..images.ragged import Ragged, read_ragged
from ..images.source import Source
from ..storage.chunks import guarded, pieces
from ..storage.digests import row_digests
from ..storage.growth import BAD, MARKS, SEEN, attributes_of, growing, request_digest
from .blocks import (
    InputHash,
    Maker,
    Parts,
    block_rows,
    digest_of_all,
    each_image,
    fill,
    other_images,
    ragged_to,
)
from .runner import Execution, current


def bands_to(
    samples: Any,
    out: str | os.PathLike[str],
    miscoverage: float | Fraction = 0.1,
    *,
    half: bool = False,
    skip_bad: bool = False,
    replace: bool = False,
    execution: Execution | None = None,
) -> tuple[Band, Array]:
    """Calibrated quantiles of samples (n, m, *pixels) into a zarr store, going on where an earlier call stopped.

    The band, of zarr arrays, and for each image whether it is there: with `skip_bad` images whose chunks are missing or
    damaged are left out. `half` rounds outward to float16. Bands that lie there already are taken where they were made
    of the same samples, which are read to know; others are refused, or with `replace` made anew.
    """
    samples = guarded(as_array(samples, "samples"))
    n, m, *pixels = (int(x) for x in samples.shape)
    calibrated_ranks(m, miscoverage)  # m must suffice
    source = quantile_source("calibrated", m, miscoverage).state()
    dtype = np.dtype("float16" if half else str(samples.dtype))
    request = {"shape": samples.shape, "dtype": str(dtype), "source": source}
    arrays: dict[str, Any] = dict.fromkeys(("lower", "upper"), ((n, *pixels), dtype))
    arrays[SEEN] = (n,), np.uint64
    execution = execution or current()
    rows = block_rows(execution, [samples], prod(pixels))
    about = {"pixelbounds": {"kind": "bands"}, "source": source}
    path = Path(out)
    see = partial(sample_digests, samples)
    if path.exists():
        told = attributes_of(path)
        ours = isinstance(told.get("pixelbounds"), dict) and told["pixelbounds"].get("kind") == "bands"
        known = ours and told.get("request") == request_digest(request)
        if known and not _made_of_others(execution, path, see, samples, skip_bad):
            return open_stored(path)
        if not replace or not ours:
            what = "the bands of other samples" if known else "something else"
            remedy = "choose another name" + (", or replace it with --force" if ours else "")
            raise FileExistsError(f"{path} exists and holds {what}; {remedy}")
    with growing(
        path, arrays, rows=rows, about=about, request=request, pack=False, anew=replace, replace=replace
    ) as blocks:
        make = quantiles(samples, miscoverage, half=half, input_hash=True)
        fill(execution, blocks, make, see, [samples], prod(pixels), skip_bad=skip_bad)
    return open_stored(path)


def _made_of_others(execution: Execution, path: Path, see: InputHash, samples: Any, skip_bad: bool) -> bool:
    """Whether a finished store was made of other samples than these: one read of them."""
    group = zarr.open_group(path, mode="r")
    if any(name not in group or group[name].shape != samples.shape[:1] for name in (SEEN, MARKS)):
        return True
    seen = np.asarray(group[SEEN][:])
    marks = np.asarray(group[MARKS][:])
    pixels = prod(samples.shape[2:])
    cuts = cut_rows(len(marks), block_rows(execution, [samples], pixels))
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
    lower = guarded(group["lower"])
    upper = guarded(group["upper"])
    band = Band(lower, upper, source=source)
    if group[MARKS].shape != lower.shape[:1]:
        raise ValueError(f"{path} has marks of {group[MARKS].shape} for {lower.shape[0]} images; make it again")
    return band, np.asarray(group[MARKS][:]) != BAD


def quantiles(samples: Any, miscoverage: float | Fraction, *, half: bool = False, input_hash: bool = False) -> Maker:
    """What makes the calibrated quantiles of images start..stop; as a witness it tells what it read, too."""

    def make(start: int, stop: int) -> Parts:
        with numbered(start):
            band, seen = band_and_digests(samples, miscoverage, start, stop, input_hash=input_hash)
        lower, upper = outward(band.lower, band.upper, np.float16) if half else (band.lower, band.upper)
        return {"lower": lower, "upper": upper} | ({SEEN: seen} if input_hash else {})

    return make


def band_and_digests(
    samples: Any, miscoverage: float | Fraction, start: int, stop: int, *, input_hash: bool = True
) -> tuple[Band, Array]:
    """Calibrated quantiles of the samples of images start..stop, in NumPy, and the digests of these samples, taken
    while they are in the cache; zeros without `witness`.
    """
    bands = []
    seen = np.zeros(stop - start, np.uint64)
    for first, part in pieces(samples, start, stop):
        with numbered(first - start):
            bands.append(calibrated_quantiles(part, miscoverage, threads=False))
        if input_hash:
            seen[first - start : first - start + len(part)] = row_digests(part)
    lower = np.concatenate([band.lower for band in bands])
    upper = np.concatenate([band.upper for band in bands])
    return trusted_band(lower, upper, None, bands[0].source), seen


def sample_digests(samples: Any, start: int, stop: int) -> Array:
    """Digests of the samples of images start..stop, (n,)."""
    return np.concatenate([row_digests(part) for _, part in pieces(samples, start, stop)])


def ragged_bands(
    execution: Execution,
    samples: Ragged,
    out: Path | None,
    miscoverage: float | Fraction = 0.1,
    *,
    replace: bool = False,
) -> Band:
    """Calibrated quantiles of the samples (m, *pixels) of each image: in a store, or in memory where `out` is None."""

    def make(image: int) -> dict[str, Array]:
        one = samples[image][None]
        with numbered(image):
            band = calibrated_quantiles(one, miscoverage, threads=False)
        return {"lower": band.lower[0], "upper": band.upper[0], SEEN: row_digests(one)[0]}

    def see(image: int) -> Array:
        return row_digests(samples[image][None])[0]

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
    request = request_digest({"shapes": shapes, "source": source})
    same = False
    if out.exists():
        known = attributes_of(out)
        same = known.get("request") == request and SEEN in known
        same = same and known[SEEN] == digest_of_all(list(each_image(execution, see, [samples], pixels)))
        ours = "ragged" in known and "request" in known
        if not same and not (replace and ours):
            remedy = "choose another name" + (", or replace it with --force" if ours else "")
            raise FileExistsError(f"{out} exists and holds something else, or bands of other samples; {remedy}")
    if not same:
        about = {"source": source, "request": request}
        made = each_image(execution, make, [samples], pixels)
        ragged_to(out, shapes, first.lower.dtype, made, about, replace=replace)
    found = read_ragged(out, guarded)
    return Band(found["lower"], found["upper"], source=first.source)
