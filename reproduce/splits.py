"""Which images train, which fine-tune and which are held out: one rule for `reproduce` and for the GPU script.

A unit (scan, patient) is never cut: it trains, fine-tunes or is held out, whole. Some units are for development: those
of the real images on which this project's own defaults were settled. They may train, but are never held out, so that
a table speaks of images that no choice has seen.
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray

# shares for development, and set aside to be held out: of images that stand alone (7,000 faces), and of scans
_ALONE = (768 / 7000, 1500 / 7000)
_SCANS = (0.4, 0.4)


def split_images(
    count: int, *, held_out: int, tune: int, units: Array | None = None, seed: int = 1
) -> dict[str, Array]:
    """Numbers of the images `held_out`, `tune`, `train` and `development`, ascending; the first three are disjoint.

    `units` (count,) is the scan of each image; without it every image stands alone. Of the scans set aside one image
    each is held out, then a second one, until there are `held_out`; their other images are in no part. Whole scans are
    fine-tuned on, until there are `tune` images; the rest trains.

    >>> parts = split_images(7000, held_out=768, tune=1000)
    >>> {name: len(numbers) for name, numbers in parts.items()}
    {'held_out': 768, 'tune': 1000, 'train': 4500, 'development': 768}
    """
    unit_of = np.arange(count) if units is None else np.unique(units, return_inverse=True)[1]
    if unit_of.shape != (count,):
        raise ValueError(f"units have shape {unit_of.shape}; give the scan of each of the {count} images")
    sizes = np.bincount(unit_of)
    total, alone, rng = len(sizes), bool(sizes.max() == 1), np.random.default_rng(seed)
    first, aside = (round(share * total) for share in (_ALONE if alone else _SCANS))
    development = np.random.default_rng(0).permutation(total)[:first]
    others = rng.permutation(np.setdiff1d(np.arange(total), development))
    out = others[: max(aside, _filling(sizes[others], held_out))]
    rest = others[len(out) :] if alone else rng.permutation(np.setdiff1d(np.arange(total), out))
    tuned = rest[: _filling(sizes[rest], tune)]
    if sizes[out].sum() < held_out or sizes[tuned].sum() < tune or len(out) + len(tuned) == total:
        raise ValueError(
            f"{count} images of {total} units are too few to hold out {held_out}, none of them for development, "
            f"fine-tune on {tune} and train on others; give more images, or hold out fewer"
        )
    if alone:
        kept = out[:held_out]
    else:
        shuffled = (rng.permutation(np.flatnonzero(unit_of == unit)) for unit in out)
        turns = sorted((turn, int(image)) for images in shuffled for turn, image in enumerate(images))
        kept = np.array([image for _, image in turns[:held_out]])
    return {
        "held_out": np.sort(kept),
        "tune": np.flatnonzero(np.isin(unit_of, tuned)),
        "train": np.flatnonzero(~np.isin(unit_of, np.concatenate([out, tuned]))),
        "development": np.flatnonzero(np.isin(unit_of, development)),
    }


def _filling(sizes: Array, images: int) -> int:
    """How many of the units of these sizes it takes to have so many images."""
    return int(np.searchsorted(np.cumsum(sizes), images)) + 1
