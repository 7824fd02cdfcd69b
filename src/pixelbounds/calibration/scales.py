"""Truth and band on one scale: a band of numbers in 0..1 about a truth in 0..255 certifies, with useless lengths."""

from __future__ import annotations

import warnings

import numpy as np

from ..images.library import Array, alike
from .pairs import Pairs

_SLIVER = 0.05  # of the spread of the truth
_IMAGES = 16
_VALUES = 2**15  # of each image
_PIXELS = 2**23  # that are read at most, beyond the first image


def check_scales(pairs: Pairs, images: Array) -> None:
    """Warn where all values of the band lie within a sliver of those of the truth, on some of these images.

    Ends are compared from their 0.1% to their 99.9% quantile, the truth from 1% to 99%: a few bright pixels that a
    band misses, or a band about a blurred image, are no other scale.
    """
    count = int(np.clip(_PIXELS // max(1, int(pairs.sizes.mean())), 1, min(_IMAGES, len(images))))
    some = images[np.unique(np.linspace(0, len(images) - 1, count).round().astype(int))]
    truths: list[Array] = []
    ends: list[Array] = []
    for run in alike(pairs.band.lower, some):
        truth, block = pairs.gather(run)
        for part, kept in ((truth, truths), (block.band.lower, ends), (block.band.upper, ends)):
            flat = part.reshape(len(part), -1)
            kept.append(flat[:, :: -(-flat.shape[1] // _VALUES)].reshape(-1))
    least, most = np.quantile(np.concatenate(truths), (0.01, 0.99)).tolist()
    low, high = np.quantile(np.concatenate(ends), (0.001, 0.999)).tolist()
    if high - low < _SLIVER * (most - least):
        warnings.warn(
            f"the band's values lie between {low:.4g} and {high:.4g}, a sliver of the truth's, {least:.4g} to "
            f"{most:.4g}: are they on one scale? Intervals are valid, but far longer than they need be: bring band and "
            "truth to one scale",
            stacklevel=3,
        )
