"""What digests are taken of, and how: the bytes of a value, the book of digests, the images of `benchmarks.digests`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import torch
import zarr

import pixelbounds as pb

Array = np.ndarray
Data = tuple[Any, pb.Band, Any, pb.Band]  # truth and band to calibrate on, and of new images

PACKAGE = Path(pb.__file__).resolve().parent
N, NEW, M, SIZE = 160, 40, 19, 12
METHODS, FAMILIES = ("frontier", "krcps", "rcps"), ("additive", "scaled", "multiplicative")
GROUPS = (None, "band", "learned", "loss", "squared", "otsu", "partition", "labels")
BOUNDS = ("betting", "hoeffding_bentkus")
KINDS = ("float32", "float64", "torch", "zarr", "dask", "ragged")
LIBRARIES = ("numpy", "scipy", "numba", "lightgbm", "scikit-image", "zarr", "dask", "torch", "nibabel", "matplotlib")
UNITS, NEW_UNITS = np.arange(N) // 2, np.arange(NEW) // 2
PARTITION = np.add.outer(np.arange(SIZE) // 5, np.arange(SIZE) // 5)


# ---------------------------------------------------------------- digests


def content(value: Any) -> Iterator[bytes]:
    """The bytes that make up a value: of arrays their library, dtype, shape and elements."""
    if isinstance(value, bytes | str | int | None):
        yield value if isinstance(value, bytes) else str(value).encode()
    elif isinstance(value, pb.Band):  # of which later versions know more
        yield from content({name: getattr(value, name) for name in ("lower", "upper", "centre", "source")})
    elif isinstance(value, pb.Interval | dict):
        for name, part in sorted((value if isinstance(value, dict) else vars(value)).items()):
            yield f"<{name}>".encode()
            yield from content(part)
    elif isinstance(value, pb.Ragged | list | tuple):
        yield f"<{type(value).__name__} of {len(value)}>".encode()
        for part in value:
            yield digest(part).encode()
    else:
        yield f"<{type(value).__module__.split('.')[0]} {value.dtype} {tuple(value.shape)}>".encode()
        yield np.ascontiguousarray(value).tobytes()


def digest(value: Any) -> str:
    return hashlib.sha256(b"".join(content(value))).hexdigest()


class Book:
    """Digests by name, and the folder whose name must not get into them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.digests = folder, dict[str, str]()

    def plain(self, text: str) -> str:
        """Text without the names of folders, places in memory, and the random names that stores get."""
        text = text.replace(str(self.folder), "FOLDER").replace(str(PACKAGE), "PACKAGE")
        return re.sub(r"0x[0-9a-f]{6,}|\b[0-9a-f]{32}\b", "SOME", text)

    def note(self, name: str, make: Callable[[], Any], show: Callable[[Any], Any] = lambda made: made) -> Any:
        """Keep the digest of what is shown of something, or the error; return it, or None."""
        if name in self.digests:
            raise ValueError(f"{name!r} is there twice; give another name")
        try:
            made = make()
            self.digests[name] = digest(show(made))
        except Exception as error:
            self.digests[name] = self.plain(f"{type(error).__name__}: {error}")
            return None
        return made


# ---------------------------------------------------------------- images


def images() -> tuple[Array, Array]:
    """Truth (n, size, size) and samples (n, m, size, size) of a sampler that is too sure of itself."""
    rng = np.random.default_rng(0)
    level = rng.uniform(0.1, 0.9, (N + NEW, SIZE, SIZE))
    deviation = np.exp(rng.normal(-3, 0.6, level.shape)) * (0.5 + PARTITION / 4)
    truth = np.clip(level + deviation * rng.standard_normal(level.shape), 0.02, 1).astype(np.float32)
    draws = rng.standard_normal((N + NEW, M, SIZE, SIZE))
    return truth, (level[:, None] + 0.5 * deviation[:, None] * draws).astype(np.float32)


def band_for(family: str, samples: Array) -> pb.Band:
    if family == "scaled":
        return pb.mean_and_std(samples)
    band = pb.calibrated_quantiles(samples, 0.1)
    return band if family == "additive" else band.map(lambda x: np.maximum(x, np.float32(0.05)))


def segmentation(samples: Array) -> Array:
    return np.digitize(samples.mean(axis=1), [0.3, 0.6]) + 1


def cropped(stack: Array) -> list[Array]:
    """Images of different sizes."""
    return [np.ascontiguousarray(x[..., : 8 + i % 4, : 9 + i % 3]) for i, x in enumerate(stack)]


def as_kind(kind: str, x: Array, folder: Path) -> Any:
    """An array as a user may have it; a zarr array gets the next free name in the folder."""
    if kind == "zarr":
        path = folder / f"array-{len(list(folder.glob('array-*')))}.zarr"
        return zarr.create_array(path, data=x, chunks=(90, *x.shape[1:]))
    if kind == "dask":
        return da.from_array(x, chunks=(90, *x.shape[1:]))
    if kind == "torch":
        return torch.from_numpy(np.ascontiguousarray(x))
    return cropped(x) if kind == "ragged" else x.astype(kind)


def data_of(kind: str, truth: Array, band: pb.Band, folder: Path) -> Data:
    turn = partial(as_kind, kind, folder=folder)
    return turn(truth[:N]), band[:N].map(turn), turn(truth[N:]), band[N:].map(turn)
