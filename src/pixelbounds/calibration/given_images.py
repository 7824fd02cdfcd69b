"""Images at the door: truth, band and all that is given with them, checked before anything is made of them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..images.checks import (
    check_limits,
    check_same_shape,
)
from ..images.ends import check_features, one_band
from ..images.library import (
    Array,
    alike,
    as_array,
    current_runner,
    differ_in_size,
    library_of,
    singly,
    spanning,
    to_numpy,
)
from .families import FAMILIES, check_nested, family_named
from .groups.positions import NO_GRID
from .pairs import Pairs
from .sentence import VOIDS

_SLIVER = 0.05  # of the spread of the truth: a band within it is on another scale
_TRIED_IMAGES = 16  # for that
_TRIED_VALUES = 2**12  # of each of them
_TRIED_PIXELS = 2**23  # that are read, beyond the first image


def pairs_of(truth: Any, band: Any, family: Any, limits: Any, features: Any = None, groups: Any = None) -> Pairs:
    """Truth and band, checked, as pairs."""
    limits = check_limits(limits)
    band = one_band(band)
    truth = as_array(spanning(truth, limits), "truth")
    if differ_in_size(truth) != differ_in_size(band.lower):
        truth = singly(truth)
        band = band.map(singly, checked=True)
    check_same_shape(band=band.lower, truth=truth)
    segmentation = None
    if differ_in_size(band.lower) and (library_of(groups) or isinstance(groups, list | tuple)):
        raise ValueError(f"groups are a map of pixels, {NO_GRID}")
    if library_of(groups) and tuple(groups.shape) == band.shape:
        segmentation = to_numpy(groups)
        if not np.issubdtype(segmentation.dtype, np.integer):
            raise ValueError(f"groups have dtype {segmentation.dtype}; a segmentation needs whole numbers")
    return Pairs(
        truth, band, family_named(family, band), limits, check_features(features, band), segmentation,
        current_runner(),
    )  # fmt: skip


def check_family(pairs: Pairs, images: Array) -> None:
    """A user's own family is tried on the data; ours are known to be nested."""
    if pairs.family.name in FAMILIES:
        if FAMILIES[pairs.family.name] is not pairs.family:
            raise ValueError(f"your family is called {pairs.family.name!r}, a name that is taken; give it another")
        return
    span = pairs.limits[1] - pairs.limits[0]
    for some in alike(pairs.band.lower, images):
        truth, block = pairs.gather(some)
        check_nested(pairs.family, truth, block.band, span if np.isfinite(span) else float(np.ptp(truth)) or 1.0)


def tell_doubles(prints: Array) -> None:
    """Warn where images have one truth, as several noisy views of one image do: they are not independent."""
    kept = prints[prints != 0]
    doubles = len(kept) - len(np.unique(kept))
    if doubles:
        warnings.warn(
            f"{doubles} of {len(prints)} images have the truth of another one, so they are not independent and the "
            f"promise does not hold: leave them out, or give units= the same name for images of one truth ({VOIDS})",
            stacklevel=4,
        )


def check_scales(pairs: Pairs, images: Array) -> None:
    """Warn where all values of the band lie within a sliver of those of the truth, on some of these images.

    Ends are compared from their 0.1% to their 99.9% quantile, the truth from 1% to 99%: a few bright pixels that a
    band misses, or a band about a blurred image, are no other scale.
    """
    count = int(np.clip(_TRIED_PIXELS // max(1, int(pairs.sizes.mean())), 1, min(_TRIED_IMAGES, len(images))))
    some = images[np.unique(np.linspace(0, len(images) - 1, count).round().astype(int))]
    truths: list[Array] = []
    ends: list[Array] = []
    for run in alike(pairs.band.lower, some):
        truth, block = pairs.gather(run)
        for part, kept in ((truth, truths), (block.band.lower, ends), (block.band.upper, ends)):
            flat = part.reshape(len(part), -1)
            kept.append(flat[:, :: -(-flat.shape[1] // _TRIED_VALUES)].reshape(-1))
    least, most = np.quantile(np.concatenate(truths), (0.01, 0.99)).tolist()
    low, high = np.quantile(np.concatenate(ends), (0.001, 0.999)).tolist()
    flat_band = all((x == ends[i % 2][0]).all() for i, x in enumerate(ends))  # it knows nothing, on any scale
    if high - low < _SLIVER * (most - least) and not flat_band:
        warnings.warn(
            f"the band's values lie between {low:.4g} and {high:.4g}, a sliver of the truth's, {least:.4g} to "
            f"{most:.4g}: are they on one scale? Intervals are valid, but far longer than they need be: bring band and "
            "truth to one scale",
            stacklevel=3,
        )
