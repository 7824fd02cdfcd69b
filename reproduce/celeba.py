"""CelebA as published: img_align_celeba/000001.jpg, ... (178 x 218) and list_eval_partition.txt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from pixelbounds.execution.runner import Progress, silent
from pixelbounds.formats.pictures import pages
from pixelbounds.formats.scans import FormatError, Images
from pixelbounds.images.checks import check_choice, check_count
from pixelbounds.images.library import Array

from .cache import cached, central

_PARTS = {"train": "0", "valid": "1", "test": "2"}
_BLOCK = 512  # pictures that are read and cached together


def celeba(
    folder: str | os.PathLike[str],
    part: str = "train",
    size: int = 128,
    *,
    crop: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Progress = silent,
) -> Images:
    """Faces (n, 3, size, size) of one part of the published partition, uint8.

    The central square of side `crop` is cut out and resized to `size`. As in the paper, crop is size by default: 128
    of 178 x 218. score_sde's 64 x 64 faces are crop=140, size=64. With `cache`, a zarr store, faces are read once and
    need not fit into memory. CelebA's identities are not in this layout, so there are no units.
    """
    folder = Path(folder)
    size = check_count(size, "size")
    crop = size if crop is None else check_count(crop, "crop")
    names = _names(folder, _PARTS[check_choice(part, _PARTS, "part")], part)
    counts = [min(_BLOCK, len(names) - start) for start in range(0, len(names), _BLOCK)]

    def read(block: int) -> Array:
        chosen = names[block * _BLOCK : (block + 1) * _BLOCK]
        return np.stack([_face(folder / "img_align_celeba" / name, size, crop) for name in chosen])

    pixels: Any
    if cache is None:
        pixels = np.empty((len(names), 3, size, size), np.uint8)
        for block, count in enumerate(counts):
            pixels[block * _BLOCK : block * _BLOCK + count] = read(block)
            progress(block + 1, len(counts))
    else:
        about = {"kind": "celeba", "part": part, "names": names, "size": size, "crop": crop}
        pixels = cached(Path(cache), about, counts, (3, size, size), "uint8", read, progress)
    return Images(pixels, tuple(names))


def _names(folder: Path, code: str, part: str) -> list[str]:
    listing = folder / "list_eval_partition.txt"
    if not listing.is_file() or not (folder / "img_align_celeba").is_dir():
        raise FileNotFoundError(f"{folder} must hold list_eval_partition.txt and the folder img_align_celeba")
    names = []
    for number, line in enumerate(listing.read_text().splitlines(), 1):
        words = line.split()
        if words and (len(words) != 2 or words[1] not in _PARTS.values() or "/" in words[0]):
            raise FormatError(
                f"{listing}, line {number}: {line!r} is not a file name and 0, 1 or 2; use the published file"
            )
        if words and words[1] == code:
            names.append(words[0])
    if not names:
        raise FormatError(f"{listing} names no image of part {part}; use the published file")
    return names


def _face(file: Path, size: int, crop: int) -> Array:
    if not file.is_file():
        raise FormatError(f"{file} is in the partition but not in the folder; unpack img_align_celeba.zip again")
    ((_, pixels),) = pages(file, str(file))
    if pixels.shape[0] != 3 or pixels.ndim != 3:
        raise FormatError(f"{file} is grey; CelebA is in colour: use the published images")
    return central(pixels, size, crop)
