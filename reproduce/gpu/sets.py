"""The sets of pictures that travel to a GPU: python -m reproduce.gpu.sets FOLDER [SOURCES] writes an npz of each.

Their split is that of `python -m reproduce`: measured are held-out scans, which tuned nothing.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reproduce.splits import split_images

Array = np.ndarray


@dataclass(frozen=True)
class Set:
    """What is known of a set of images; sigma_0 is a deviation."""

    key: str
    limits: tuple[float, float]
    sigma_max: float
    sigma_0: float
    size: int = 64


SETS = {
    "ct64": Set("ct", (0.0, 1.0), 1.0, 0.4),
    "faces64": Set("faces", (-1.0, 1.0), 90.0, 1.0),
}


# ---------------------------------------------------------------- images


def pack(path: Path, sources: Path) -> None:
    """Pictures and the scan of each into an npz of 8 bits: a folder is a scan, faces stand alone."""
    from pixelbounds.formats.opener import open_images

    for name, file in (("ct64", "ct_64.zip"), ("faces64", "faces_64.zip")):
        images = open_images(str(sources / file))
        units = np.arange(len(images)) if images.units is None else np.unique(images.units, return_inverse=True)[1]
        target = path / f"{name}.npz"
        arrays: dict[str, Any] = {SETS[name].key: np.asarray(images.pixels[:]), "scan": units.astype(np.int32)}
        np.savez_compressed(target, **arrays)
        print(target, len(images), "images of", len(np.unique(units)), "units")


@dataclass(frozen=True)
class Parts:
    """Numbers of the images that train, that choose the average, and whose bands are measured."""

    train: Array
    validation: Array
    measured: Array


def parts(scan: Array, count: int) -> Parts:
    """The split; `count` of the held-out images, at least 768 or all, are measured."""
    alone = len(np.unique(scan)) == len(scan)
    units = None if alone else scan
    usual = split_images(len(scan), held_out=max(768, count), tune=1000 if alone else 564, units=units)
    chosen = np.random.default_rng(4).permutation(usual["held_out"])[:count]
    return Parts(usual["train"], usual["tune"], np.sort(chosen))


if __name__ == "__main__":
    pack(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "/work/shared/data"))
