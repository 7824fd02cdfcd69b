"""The data sets of `benchmarks.gpu.posterior`: their images, in parts, and noisy views of those held out."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np

from pixelbounds.diffusion.splits import split_images


@dataclass(frozen=True)
class Data:
    """What is known of a data set; sigma_0 is a deviation (the paper's text has 0.4 as a variance)."""

    limits: tuple[float, float]
    sigma_max: float
    sigma_0: float
    miscoverage: str
    deviation: float
    network: dict[str, Any]
    tune: int  # images to fine-tune on; of CT 24 scans


# faces live in [-1, 1], CT in [0, 1], as in the paper
DATA = {
    "faces": Data((-1.0, 1.0), 90.0, 1.0, "0.1", 0.5, {"name": "small", "blocks": 2}, 1000),
    "ct": Data((0.0, 1.0), 1.0, 0.4, "0.2", 0.25, {"name": "small", "blocks": 2}, 564),
    "phantom": Data((0.0, 1.0), 1.0, 0.2, "0.2", 0.25, {"name": "tiny"}, 1024),
}
PHANTOM_SEED = 2023  # numbers from 0 are held out, those from 100,000 train, those from 200,000 fine-tune
PHANTOM_FIRST = {"held_out": 0, "train": 100_000, "tune": 200_000}


def _some_phantoms(first: int, count: int, size: int) -> np.ndarray:
    from pixelbounds.demo.phantom import phantoms

    return phantoms(count, size, PHANTOM_SEED, first=first).images


def make_phantoms(options: argparse.Namespace) -> None:
    """Phantoms of every part into an npz, at home: the training images in 8 bits, the held-out ones as they are."""
    counts, out = {"held_out": options.images, "train": options.phantoms, "tune": DATA["phantom"].tune}, {}
    for part, count in counts.items():
        starts = range(PHANTOM_FIRST[part], PHANTOM_FIRST[part] + count, 128)
        sizes = [min(128, PHANTOM_FIRST[part] + count - start) for start in starts]
        with get_context("fork").Pool() as pool:
            made = pool.starmap(partial(_some_phantoms, size=options.size), zip(starts, sizes, strict=True))
        images = np.concatenate(made)
        out[part] = images if part == "held_out" else (images * 255).round().astype(np.uint8)
    np.savez_compressed(options.data, **out)


@dataclass(frozen=True)
class Pictures:
    """Images of each part, uint8 or float32 in [0, 1], the numbers of the held-out ones, and their units."""

    train: np.ndarray
    tune: np.ndarray
    held_out: np.ndarray
    numbers: dict[str, np.ndarray]
    unit: np.ndarray

    @property
    def truth(self) -> np.ndarray:
        """The held-out images as float32 in [0, 1]."""
        return self.held_out.astype(np.float32) / (255 if self.held_out.dtype == np.uint8 else 1)


def pictures(name: str, options: argparse.Namespace) -> Pictures:
    """The images of a data set."""
    data = np.load(options.data)
    if name == "phantom":
        made = {part: data[part] for part in PHANTOM_FIRST}
        return Pictures(**made, numbers={}, unit=np.arange(len(made["held_out"])))
    images, scan = data[name], data["scan"] if name == "ct" else None
    numbers = split_images(len(images), held_out=options.images, tune=DATA[name].tune, units=scan)
    unit = np.arange(options.images) if scan is None else scan[numbers["held_out"]]
    return Pictures(**{part: images[numbers[part]] for part in PHANTOM_FIRST}, numbers=numbers, unit=unit)


def observe(truth: np.ndarray, data: Data) -> np.ndarray:
    """Noisy views of images in [0, 1], in the limits of the data set, float32."""
    low, high = data.limits
    noise = np.random.default_rng(2).standard_normal(truth.shape, dtype=np.float32)
    return truth * np.float32(high - low) + np.float32(low) + np.float32(data.sigma_0) * noise
