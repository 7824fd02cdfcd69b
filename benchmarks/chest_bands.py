"""Bands of chest CT for `benchmarks.chest`, made on a CPU in minutes: boosted quantile regression of filtered slices.

    python -m benchmarks.chest_bands chest_128.zip bands.npz

Slices are averaged to 64 x 64 and get Gaussian noise of deviation 0.3. Trees (LightGBM) learn the 5% and 95% quantiles
of a pixel from filters of the noisy slice, on some patients; the bands of all others are written, with the truth, the
true labels and the patients. No segmentation network is at hand: `labels` stand in for what one would give. They are
the true ones moved by up to a pixel in each direction, and missing in one slice of twenty.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from pathlib import Path

import lightgbm
import numpy as np
from PIL import Image
from scipy import ndimage

Array = np.ndarray
SIGMA = 0.3
SIZE = 64
CLASSES = 4  # none, trachea, heart, lung
LEARNING = 30  # patients
ROWS = 250_000  # pixels that are learned from
TREES = 40


def slices(path: Path) -> tuple[Array, Array, Array]:
    """Images and labels (n, size, size), and the patient of each, from the zip."""
    images = []
    labels = []
    patients = []
    with zipfile.ZipFile(path) as zipped:
        for name in sorted(x for x in zipped.namelist() if "/images/" in x and x.endswith(".png")):
            image = np.asarray(Image.open(io.BytesIO(zipped.read(name))), np.float32) / 255
            label = np.asarray(Image.open(io.BytesIO(zipped.read(name.replace("/images/", "/labels/")))), np.uint8)
            f = image.shape[0] // SIZE
            images.append(image.reshape(SIZE, f, SIZE, f).mean(axis=(1, 3)))
            parts = [(label == c).reshape(SIZE, f, SIZE, f).mean(axis=(1, 3)) for c in range(CLASSES)]
            labels.append(np.argmax(parts, axis=0).astype(np.uint8))
            patients.append(int(name.split("/")[-2].removeprefix("patient")))
    return np.stack(images), np.stack(labels), np.array(patients)


def filters(noisy: Array) -> Array:
    """What the trees see of each pixel: (n, h, w) -> (n * h * w, features)."""
    smooth = [ndimage.gaussian_filter(noisy, (0, s, s)) for s in (0.6, 1.0, 1.6, 2.5, 4.0, 7.0)]
    slopes = []
    for s in (1.2, 2.5):
        down = ndimage.gaussian_filter(noisy, (0, s, s), order=(0, 1, 0))
        across = ndimage.gaussian_filter(noisy, (0, s, s), order=(0, 0, 1))
        slopes.append(np.hypot(down, across))
    place = np.mgrid[:SIZE, :SIZE].astype(np.float32) / SIZE
    places = [np.broadcast_to(x, noisy.shape) for x in place]
    parts = [*smooth, *slopes, ndimage.median_filter(noisy, (1, 3, 3)), *places]
    return np.stack(parts, axis=-1).reshape(-1, len(parts)).astype(np.float32)


def quantile(known: Array, truth: Array, level: float, new: Array) -> Array:
    """The quantile of a pixel: learned from some rows, predicted for others."""
    how = {"objective": "quantile", "alpha": level, "num_leaves": 31, "learning_rate": 0.15, "max_bin": 63}
    data = lightgbm.Dataset(known, truth)
    booster = lightgbm.train({**how, "verbose": -1, "num_threads": 1, "seed": 0}, data, num_boost_round=TREES)
    return np.asarray(booster.predict(new, num_threads=1), np.float32).reshape(-1, SIZE, SIZE)


def stand_in(labels: Array, rng: np.random.Generator) -> Array:
    """Labels that are somewhat wrong."""
    moved = np.stack([np.roll(x, rng.integers(-1, 2, 2), (0, 1)) for x in labels])
    moved[rng.random(len(moved)) < 0.05] = 0
    return moved


def main() -> None:
    """Learn, and write what `benchmarks.chest` reads."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("zip", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    images, labels, patients = slices(given.zip)
    everyone = np.random.default_rng(0).permutation(np.unique(patients))
    learns = np.isin(patients, everyone[:LEARNING])
    rng = np.random.default_rng(1)
    noisy = images + np.float32(SIGMA) * rng.standard_normal(images.shape, np.float32)
    known = filters(noisy[learns])
    rows = rng.choice(len(known), ROWS, replace=False)
    new = filters(noisy[~learns])
    ends = [quantile(known[rows], images[learns].reshape(-1)[rows], level, new) for level in (0.05, 0.95)]
    truth = images[~learns]
    lower, upper = np.minimum(*ends), np.maximum(*ends)
    print(f"{np.mean((truth < lower) | (truth > upper)):.1%} missed, mean length {np.mean(upper - lower):.4f}")
    organs = labels[~learns]
    found = stand_in(organs, rng)
    for c in range(1, CLASSES):
        both = ((found == c) & (organs == c)).sum()
        print(f"label {c}: Dice {2 * both / ((found == c).sum() + (organs == c).sum()):.2f}")
    np.savez(given.out, truth=truth, lower=lower, upper=upper, organs=organs, labels=found, patients=patients[~learns])


if __name__ == "__main__":
    main()
