"""Images that are arrays already: .npy (mapped), .npz, .zarr (read where they are used)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import zarr

from ..images import Array
from .scans import Images, Told, slice_name

_EXTRA = ("names", "units")  # one entry per image, beside the images themselves


def read_arrays(path: Path, key: str | None = None) -> Images:
    """Images (n, *pixels) of an .npy, .npz or .zarr file; `names` and `units` (n,) beside them are taken along."""
    extra: dict[str, Any] = {}
    if path.suffix == ".npy":
        pixels = _supported(np.load(path, mmap_mode="r", allow_pickle=False), path)
    elif path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            pixels = _supported(file[_key(file.files, key, path)], path)
            extra = {name: file[name] for name in _EXTRA if name in file.files}
    else:
        node: Any = zarr.open(path, mode="r")
        if hasattr(node, "array_keys"):
            names = sorted(node.array_keys())
            pixels = _supported(node[_key([x for x in names if node[x].ndim > 1], key, path)], path)
            extra = {name: np.asarray(node[name][:]) for name in _EXTRA if name in names} | _told(node)
        else:
            pixels = _supported(node, path)
    n = int(pixels.shape[0])
    extra = {name: x for name, x in extra.items() if x.shape == (n,)}
    labels = tuple(str(x) for x in extra.get("names", range(n)))
    return Images(pixels, labels, extra.get("units"))


def _told(group: Any) -> dict[str, Array]:
    """Names and units that our own stores keep as attributes."""
    about = group.attrs.get("pixelbounds")
    if not isinstance(about, dict):
        return {}
    if "scans" in about:  # a cache: name and number of slices of each scan
        scans = [(str(name), int(count)) for name, count, *_ in about["scans"]]
        labels = [slice_name(name, k) for name, count in scans for k in range(count)]
        return {"names": np.array(labels), "units": np.repeat([x[0] for x in scans], [x[1] for x in scans])}
    return {name: np.array(about[name]) for name in _EXTRA if about.get(name)}


def _supported(x: Array | Any, path: Path) -> Any:
    if x.ndim < 2 or 0 in x.shape:
        raise Told(f"{path} holds an array of shape {tuple(x.shape)}; images must be (n, *pixels), e.g. (n, h, w)")
    if str(x.dtype) not in ("uint8", "float16", "float32", "float64"):
        raise Told(f"{path} holds {x.dtype}; convert the images to uint8, or to float32 within the limits")
    return x


def _key(names: list[str], key: str | None, path: Path) -> str:
    images = [name for name in names if name not in _EXTRA]
    if key is None and len(images) == 1:
        return images[0]
    if key not in names:
        raise Told(
            f"{path} holds the arrays {', '.join(images)}; name one of them as key" + (f", not {key!r}" * bool(key))
        )
    return key
