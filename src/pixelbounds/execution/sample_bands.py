"""Samples in files to bands: calibrated quantiles, in a store that goes on where it stopped, or in memory."""

from __future__ import annotations

import os
from fractions import Fraction
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from ..bands import calibrated_miscoverage, calibrated_quantiles, calibrated_ranks, quantile_source
from ..images import Array, Band, Ragged, as_array, library_of, numbered, outward, trusted_band
from ..images.ragged import read_ragged
from ..storage.chunks import guarded, pieces
from ..storage.growth import BAD, MARKS, attributes_of, digest_of, growing
from .blocks import Maker, Parts, block_rows, each_image, fill, ragged_to
from .runner import Execution, current


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
    source = quantile_source("calibrated", miscoverage)
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
    elif attributes_of(path).get("request") != digest_of(request):
        raise FileExistsError(f"{path} exists and holds something else; choose another name")
    return open_stored(path)


def open_stored(path: Path) -> tuple[Band, Array]:
    """A band that `bands_to` wrote, and which of its images are there, (n,) bool."""
    group = zarr.open_group(path, mode="r")
    source = str(group.attrs["source"])
    lower = guarded(group["lower"])
    upper = guarded(group["upper"])
    band = Band(lower, upper, source=source, miscoverage=calibrated_miscoverage(source))
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
    return trusted_band(lower, upper, None, bands[0].source, bands[0].miscoverage)


def ragged_bands(execution: Execution, samples: Ragged, out: Path | None, miscoverage: float | Fraction = 0.1) -> Band:
    """Calibrated quantiles of the samples (m, *pixels) of each image: in a store, or in memory where `out` is None."""

    def make(image: int) -> dict[str, Array]:
        with numbered(image):
            band = calibrated_quantiles(samples[image][None], miscoverage, threads=False)
        return {"lower": band.lower[0], "upper": band.upper[0]}

    shapes = [shape[1:] for shape in samples.shapes]
    pixels = np.array([np.prod(shape, dtype=np.int64) for shape in shapes])
    first = calibrated_quantiles(samples[0][None], miscoverage)
    if out is None:
        parts = list(each_image(execution, make, [samples], pixels))
        lower = Ragged([part["lower"] for part in parts])
        upper = Ragged([part["upper"] for part in parts])
        return Band(lower, upper, source=first.source, miscoverage=first.miscoverage)
    request = {"samples": where(getattr(samples.images, "values", None)), "shapes": shapes, "source": first.source}
    about = {"source": first.source, "request": digest_of(request)}
    if not out.exists():
        ragged_to(out, shapes, first.lower.dtype, each_image(execution, make, [samples], pixels), about)
    elif attributes_of(out).get("request") != about["request"]:
        raise FileExistsError(f"{out} exists and holds something else; choose another name")
    found = read_ragged(out, guarded)
    return Band(found["lower"], found["upper"], source=first.source, miscoverage=first.miscoverage)


def where(x: Any) -> str:
    """What an array in a file is called, for telling whether a run is the same."""
    if library_of(x) == "zarr":
        return f"{x.store} {x.path}"
    return str(getattr(x, "filename", "memory"))
