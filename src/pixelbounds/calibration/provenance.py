"""Images that calibrated, recognised by their hashes: they must not judge the calibration.

The hash of one image is a digest of its truth alone, which reveals no image (`block.image_hashes`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..images.checks import VALIDITY_DOC
from ..images.library import Array, Runner, over_images, rows_of
from .block import _hash_of, _kind_of, is_known_image
from .certify import warn_duplicates
from .data import HERE

_NAMED = 8  # images in a message


def hash_images(truth: Any, runner: Runner = HERE) -> Array:
    """A print of each true image, by which it is known again: (n, *pixels) -> (n,) uint64."""

    def work(start: int, stop: int) -> Array:
        images = rows_of(truth, start, stop)
        kind = _kind_of(images, np.dtype(np.float32))
        return np.array([_hash_of(x, kind) for x in images], np.uint64)

    return np.concatenate(list(over_images(work, truth, runner, [truth])))


def all_known(image_hashes: Array, known: Array) -> bool:
    """Whether all images of a call, at least two different ones, are among others; a few may repeat honestly."""
    compared = image_hashes[image_hashes != 0]
    return len(np.unique(compared)) > 1 and bool(np.isin(compared, known).all())


class CalibrationImages(ValueError):
    """Some of the images calibrated: their numbers, of how many, and their names where they have some."""

    def __init__(self, images: Sequence[int], total: int, names: Sequence[str] = ()) -> None:
        few = ", ".join(str(names[i]) if names else str(i) for i in images[:_NAMED])
        more = f" and {len(images) - _NAMED} more" if len(images) > _NAMED else ""
        super().__init__(
            f"{len(images)} of {total} images calibrated ({few}{more}); they cannot judge intervals that were fitted "
            f"to them: leave them out, or give images that had no part in the calibration; see {VALIDITY_DOC}"
        )
        self.images = tuple(images)
        self.total = total


def refuse_calibrated(truth: Any, calibration: Any, runner: Runner, unit_of: Array | None = None) -> str | None:
    """Refuse images that calibrated; the digest of the calibration images, or None where it is unknown.

    Where truths repeat among the calibration images themselves (counts of a few lesions), some of these images may
    repeat them honestly: then only a call all of whose images are known is refused. With the unit of each image, (n,),
    images of different units that have one truth are reported.
    """
    known: Array = calibration.record.image_hashes
    if not known.any():
        return None
    hashes = hash_images(truth, runner)
    again, compared = np.flatnonzero(is_known_image(hashes, known)), known[known != 0]
    repeat = len(np.unique(compared)) < len(compared)
    if len(again) and (not repeat or all_known(hashes, known)):
        raise CalibrationImages(again.tolist(), len(truth))
    if len(again):
        warnings.warn(
            f"{len(again)} of {len(truth)} images have the truth of one that calibrated, as some of these have of each "
            f"other. Truths that repeat honestly stay in; images that calibrated must not judge ({VALIDITY_DOC})",
            stacklevel=4,
        )
    if unit_of is not None:
        warn_duplicates(hashes, unit_of, ", and the confidence intervals of this evaluation are too narrow")
    return None if len(again) else str(calibration.record.digest)
