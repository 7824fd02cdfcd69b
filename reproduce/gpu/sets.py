"""The sets of pictures that travel to a GPU: python -m reproduce.gpu.sets FOLDER [SOURCES] writes an npz of each.

Their split is that of `python -m reproduce`: measured are held-out scans, which tuned nothing.
"""

from __future__ import annotations

import io
import sys
import zipfile
from dataclasses import dataclass, field
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
    channels: int = 1
    shape: dict[str, Any] = field(default_factory=dict)  # of the network, where it is not that of its name

    @property
    def image(self) -> tuple[int, ...]:
        """Shape of an image: colours come first."""
        return (self.size,) * 2 if self.channels == 1 else (self.channels, self.size, self.size)


SETS = {
    "ct64": Set("ct", (0.0, 1.0), 1.0, 0.4),
    "faces64": Set("faces", (-1.0, 1.0), 90.0, 1.0),
    "faces128": Set("faces", (-1.0, 1.0), 90.0, 1.0, 128, 3, {"multipliers": (1, 1, 2, 4, 4)}),
    "chest128": Set("images", (0.0, 1.0), 1.0, 0.3, 128),
    "chest512": Set("images", (0.0, 1.0), 1.0, 0.4, 512, 1, {"multipliers": (1, 1, 2, 4, 4), "patch": 2}),
    "faces16": Set("faces", (-1.0, 1.0), 90.0, 1.0, 16, 3, {"base": 8, "multipliers": (1, 2)}),  # to try a session with
    "chest16": Set("images", (0.0, 1.0), 1.0, 0.4, 16, 1, {"base": 8, "multipliers": (1, 2)}),
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


def unpacked(path: Path, channels: int) -> tuple[Array, Array]:
    """Pictures of a zip in 8 bits, colours first, and the folder (patient) of each, or a number where there is one."""
    from PIL import Image

    mode = "L" if channels == 1 else "RGB"  # WebP has no grey
    with zipfile.ZipFile(path) as zipped:
        names = [x for x in sorted(zipped.namelist()) if not x.endswith("/") and "/labels/" not in x]
        images = np.stack([np.asarray(Image.open(io.BytesIO(zipped.read(x))).convert(mode)) for x in names])
    folders = [x.rsplit("/", 1)[0] for x in names]
    units = np.unique(folders, return_inverse=True)[1] if len(set(folders)) > 1 else np.arange(len(names))
    return (images if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))), units


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
