"""Pictures in folders and zips."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps, ImageSequence

from ..images.library import Array
from .scans import FormatError, Images, check_allowed, checked_member, folder_units, format_errors

PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")
_FORMATS = ("PNG", "JPEG", "TIFF", "BMP")  # Pillow knows many more, whatever a file is called
_PER_PIXEL = {"1": 1, "L": 1, "I;16": 4, "I": 4, "F": 4}  # bytes, as images and while they are read; of colours 4


def read_pictures(path: Path, *, labels: bool = False) -> Images:
    """Pictures of a folder or zip by name, or one file: (n, h, w) grey, (n, 3, h, w) colour; a sub-folder is a unit.

    8-bit pictures stay uint8; 16-bit ones come as float32 in [0, 1]; as `labels` all are numbers as they are stored,
    those of a palette its entries. Each page of a TIFF is an image.
    """
    unpack = _stored if labels else _pixels
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive:
            pictures = (x for x in archive.namelist() if x.lower().endswith(PICTURE_SUFFIXES) and "__MACOSX" not in x)
            return _stacked(sorted(pictures), lambda name: _member(archive, name, path), path, unpack)
    if path.is_file():
        return _stacked([path.name], lambda name: path, path, unpack)
    files = (x for x in path.rglob("*") if x.suffix.lower() in PICTURE_SUFFIXES and x.is_file())
    return _stacked(sorted(x.relative_to(path).as_posix() for x in files), lambda name: path / name, path, unpack)


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> io.BytesIO:
    check_allowed(checked_member(archive, name, path).file_size, f"{path}: {name} unpacks")
    with format_errors(f"{path}: {name} cannot be unpacked", "remove or replace it"):  # locked, odd or damaged
        return io.BytesIO(archive.read(name))


def _stacked(names: list[str], opened: Callable[[str], Any], path: Path, unpack: Callable[[Any], Array]) -> Images:
    if not names:
        raise FormatError(f"{path} holds no images ({', '.join(PICTURE_SUFFIXES)}); give another folder")
    images: Array | None = None  # grown in place where a TIFF has several pages, so that all are held once
    labels: list[str] = []
    files: list[str] = []
    for number, name in enumerate(names):
        for page, pixels in pages(opened(name), f"{path}: {name}", unpack):
            label = name if page is None else f"{name}[{page}]"
            least = len(labels) + len(names) - number  # with a page of each file that follows
            check_allowed(least * pixels.nbytes, f"the pictures of {path}, at least {least}, add up")
            if images is None:
                images = np.empty((least, *pixels.shape), pixels.dtype)
            elif pixels.shape != images.shape[1:] or pixels.dtype != images.dtype:
                raise FormatError(
                    f"{path}: {label} is {pixels.dtype} of shape {pixels.shape}, {labels[0]} is {images.dtype} of "
                    f"shape {images.shape[1:]}; bring all images to one size and mode"
                )
            elif least > len(images):
                images.resize((least + least // 8, *pixels.shape), refcheck=False)
            images[len(labels)] = pixels
            labels.append(label)
            files.append(name)
    assert images is not None
    images.resize((len(labels), *images.shape[1:]), refcheck=False)
    return Images(images, tuple(labels), folder_units(files))


def pages(source: Any, name: str, unpack: Callable[[Any], Array] | None = None) -> Iterator[tuple[int | None, Array]]:
    """Page number (None where there is one) and pixels of a picture, upright.

    `unpack` makes numbers of an upright picture; by default, grey values or three channels.
    """
    image = format_errors(f"{name} is no image that can be read", "remove or replace it")
    with image, Image.open(source, formats=_FORMATS) as picture:
        frames = getattr(picture, "n_frames", 1)
        several = picture.format == "TIFF" and frames > 1
        if frames > 1 and not several:
            raise FormatError(f"{name} is animated ({frames} frames); save its frames as pictures")
        for page, frame in enumerate(ImageSequence.Iterator(picture) if several else [picture]):
            width, height = frame.size
            check_allowed(width * height * _PER_PIXEL.get(frame.mode, 4), f"{name} unpacks")
            yield page if several else None, (unpack or _pixels)(ImageOps.exif_transpose(frame))


def _pixels(picture: Any) -> Array:
    """(h, w) of a grey picture, (3, h, w) of any other; transparency is left out."""
    if picture.mode.startswith("I"):
        return (np.asarray(picture, np.float32) / np.float32(65535)).astype(np.float32)
    if picture.mode == "F":
        return np.asarray(picture, np.float32)
    if picture.mode in ("1", "L", "LA"):
        return np.asarray(picture.convert("L"))
    return np.ascontiguousarray(np.moveaxis(np.asarray(picture.convert("RGB")), -1, 0))


def _stored(picture: Any) -> Array:
    """(h, w) numbers of a grey picture or of a palette, as they are stored; labels have no colours."""
    if picture.mode not in ("1", "L", "P", "F") and not picture.mode.startswith("I"):
        raise ValueError(f"its mode is {picture.mode}: colours, not labels; save labels as grey values or a palette")
    return np.asarray(picture)
