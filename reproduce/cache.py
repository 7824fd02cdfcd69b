"""A large array that is made once, part by part (scans, blocks of pictures), and kept as a zarr store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from PIL import Image

from pixelbounds.execution.runner import Progress, silent
from pixelbounds.formats.scans import FormatError
from pixelbounds.images.library import Array
from pixelbounds.storage.store import DONE, resumable

_ATTRIBUTE = "pixelbounds"


def cached(
    path: Path,
    about: Mapping[str, Any],
    counts: Sequence[int],
    pixels: tuple[int, ...],
    dtype: str,
    read: Callable[[int], Array],
    progress: Progress = silent,
) -> Any:
    """The zarr array (sum(counts), *pixels) at a path, made of `read(part)` of shape (counts[part], *pixels).

    `about` is JSON that says what the images are; a store that was made of something else is refused. A call that is
    cut off goes on with the parts that are missing.
    """
    if path.exists():
        return _opened(path, about)
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {"images": ((sum(counts), *pixels), dtype)}
    ends = [int(end) for end in np.cumsum(counts)]
    with resumable(path, arrays, about={_ATTRIBUTE: dict(about)}, request=about, ends=ends, anew=True) as store:
        todo = set(store.unfinished())
        for part, count in enumerate(counts):
            if part in todo:
                images = read(part)
                if images.shape != (count, *pixels):
                    raise FormatError(f"part {part} of {path} has shape {images.shape}, not {(count, *pixels)}")
                store.write(part, {"images": images}, np.full(count, DONE, np.uint8))
            progress(part + 1, len(counts))
    return _opened(path, about)


def _opened(path: Path, about: Mapping[str, Any]) -> Any:
    try:
        group = zarr.open_group(path, mode="r")
        stored: Any = group.attrs[_ATTRIBUTE]
        images = group["images"]
    except Exception as error:  # no store, or a damaged one
        raise FormatError(f"{path} is no cache that can be read ({error}); delete it, or name another") from error
    wrong = [name for name in {**stored, **about} if stored.get(name) != about.get(name)]
    if wrong:
        raise FormatError(
            f"{path} was made of other images or settings ({', '.join(wrong)}); delete it, or name another"
        )
    return images


def central(pixels: Array, size: int | None, crop: int | None = None) -> Array:
    """The central square (of side `crop`, the largest by default) as (..., size, size): bilinear, with antialiasing."""
    if size is None:
        return pixels
    extent = pixels.shape[-2:]
    side = min(extent) if crop is None else crop
    if side > min(extent):
        raise FormatError(f"an image of {extent[0]} x {extent[1]} has no square of {side}; crop less")
    top, left = ((x - side) // 2 for x in extent)
    cut = np.ascontiguousarray(pixels[..., top : top + side, left : left + side])
    if side == size:
        return cut
    planes = (Image.fromarray(x).resize((size, size), Image.Resampling.BILINEAR) for x in cut.reshape(-1, side, side))
    return np.stack([np.asarray(x) for x in planes]).reshape(*pixels.shape[:-2], size, size)
