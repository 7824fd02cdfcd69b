"""8-bit images as numbers: 0 is the least possible value and 255 the greatest, wherever images come from."""

from __future__ import annotations

from math import isfinite, prod
from typing import Any

import numpy as np

from ..storage.chunks import FileRows
from .checks import Limits
from .library import Array, in_memory, library_of

_AT_ONCE = 2**26  # bytes that are converted when they are asked for; more, or those in files, when they are read


def spanning(images: Any, limits: Limits) -> Any:
    """8-bit images as float32 between the limits, many, or those in files, as they are read; others as they are.

    >>> spanning(np.array([[0, 51, 255]], np.uint8), (0.0, 1.0))
    array([[0. , 0.2, 1. ]], dtype=float32)
    """
    if isinstance(images, list | tuple):
        return [spanning(image, limits) if library_of(image) else image for image in images]
    if str(getattr(images, "dtype", "")).removeprefix("torch.") != "uint8" or not library_of(images):
        return images
    if not all(isfinite(limit) for limit in limits):
        raise ValueError(
            f"8-bit images span the limits, and these are {limits[0]:g} and {limits[1]:g}; set limits, for example "
            "(0, 255), or convert the images to float32"
        )
    least = np.float32(limits[0])
    most = np.float32(limits[1])

    def convert(x: Array) -> Array:
        return np.asarray(np.clip(least + (x / np.float32(255)) * (most - least), least, most), np.float32)

    if library_of(images) == "torch":
        import torch

        return torch.from_numpy(convert(images.detach().cpu().numpy())).to(images.device)
    if library_of(images) == "dask":
        return images.map_blocks(convert, dtype=np.float32)
    if in_memory(images) and not isinstance(images, np.memmap) and 4 * images.size <= _AT_ONCE:
        return convert(images)
    import dask.array as da

    rows = max(1, _AT_ONCE // (4 * prod(int(x) for x in images.shape[1:])))
    return da.from_array(FileRows(images), chunks=(rows, *images.shape[1:])).map_blocks(convert, dtype=np.float32)
