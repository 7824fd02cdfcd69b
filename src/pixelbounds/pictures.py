"""Images of a file or folder as one array: .npy, .npz, .zarr, and pictures in a folder or zip."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from PIL import Image, UnidentifiedImageError

from .arrays import Array

_IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")


def read_images(path: str | os.PathLike[str], key: str | None = None) -> Any:
    """Images (n, h, w) or (n, c, h, w) of an .npy, .npz or .zarr file, or of a folder or zip of pictures by name.

    8-bit images stay uint8 and span the limits from 0 to 255 wherever they are used; 16-bit ones come as float32 in
    [0, 1]. An .npy file is mapped, not read.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"{path} does not exist; give an .npy, .npz or .zarr file, or a folder or zip of images"
        )
    try:
        if path.suffix == ".npy":
            return _supported(np.load(path, mmap_mode="r", allow_pickle=False), path)
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                return _supported(file[_key(file.files, key, path)], path)
        if path.suffix == ".zarr":
            node: Any = zarr.open(path, mode="r")
            return _supported(
                node[_key(sorted(node.array_keys()), key, path)] if hasattr(node, "array_keys") else node, path
            )
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                names = [x for x in archive.namelist() if x.lower().endswith(_IMAGES) and "__MACOSX" not in x]
                return _pictures(sorted(names), lambda name: io.BytesIO(archive.read(name)), path)
    except (EOFError, zipfile.BadZipFile, OSError, ValueError) as error:
        if isinstance(error, _Told):
            raise
        raise ValueError(f"{path} cannot be read as {path.suffix}: {error}; use another copy") from error
    if path.is_dir():
        files = sorted(str(x.relative_to(path)) for x in path.rglob("*") if x.suffix.lower() in _IMAGES)
        return _pictures(files, lambda name: path / name, path)
    raise ValueError(f"{path} is of no known kind; give an .npy, .npz or .zarr file, or a folder or zip of images")


class _Told(ValueError):
    """An error whose message is complete."""


def _supported(x: Any, path: Path) -> Any:
    if x.ndim not in (3, 4) or 0 in x.shape:
        raise _Told(f"{path} holds an array of shape {tuple(x.shape)}; images must be (n, h, w) or (n, c, h, w)")
    if str(x.dtype) not in ("uint8", "float16", "float32", "float64"):
        raise _Told(f"{path} holds {x.dtype}; convert the images to uint8, or to float32 within the limits")
    return x


def _key(names: list[str], key: str | None, path: Path) -> str:
    if key is None and len(names) == 1:
        return names[0]
    if key not in names:
        raise _Told(
            f"{path} holds the arrays {', '.join(names)}; name one of them as key" + (f", not {key!r}" * bool(key))
        )
    return key


def _pictures(names: list[str], opened: Callable[[str], Any], path: Path) -> Array:
    if not names:
        raise _Told(f"{path} holds no images ({', '.join(_IMAGES)}); give another folder")
    images: list[Array] = []
    for name in names:
        try:
            with Image.open(opened(name)) as picture:
                pixels = _pixels(picture)
        except (UnidentifiedImageError, OSError, SyntaxError) as error:
            raise _Told(f"{path}: {name} is no image that can be read ({error}); remove or replace it") from error
        if images and (pixels.shape != images[0].shape or pixels.dtype != images[0].dtype):
            raise _Told(
                f"{path}: {name} is {pixels.dtype} of shape {pixels.shape}, {names[0]} is {images[0].dtype} of shape "
                f"{images[0].shape}; bring all images to one size and mode"
            )
        images.append(pixels)
    return np.stack(images)


def _pixels(picture: Any) -> Array:
    """(h, w) of a grey picture, (3, h, w) of any other; transparency is left out."""
    if picture.mode.startswith("I"):
        return (np.asarray(picture, np.float32) / np.float32(65535)).astype(np.float32)
    if picture.mode == "F":
        return np.asarray(picture, np.float32)
    if picture.mode in ("1", "L", "LA"):
        return np.asarray(picture.convert("L"))
    return np.ascontiguousarray(np.moveaxis(np.asarray(picture.convert("RGB")), -1, 0))
