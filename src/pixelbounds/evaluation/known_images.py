"""Images that calibrated are not held out: a calibration knows its images again by their prints.

A print is a digest of one true image, so it tells the same image and nothing less: another slice of a patient whose
slices calibrated passes, and images of one value (air) are not compared.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from ..calibration.calibration import Calibration
from ..calibration.provenance import count_duplicates, hash_images, is_known_image
from ..calibration.text import VALIDITY_DOC
from ..images.library import Array, Runner

_NAMED = 8  # images in a message


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


def refuse_calibrated(
    truth: object, calibration: Calibration, runner: Runner, unit_of: Array | None = None
) -> str | None:
    """Refuse images that calibrated; the digest of the calibration images, or None where it cannot be told.

    With the unit of each image, (n,) in whole numbers, one truth in several units is told.
    """
    known: Array = calibration.record.image_hashes
    if not known.any():
        return None
    own = hash_images(truth, runner)
    again = np.flatnonzero(is_known_image(own, known))
    if len(again):
        raise CalibrationImages(again.tolist(), len(truth))  # type: ignore[arg-type]
    doubles = 0 if unit_of is None else count_duplicates(own, unit_of)
    if doubles:
        warnings.warn(
            f"{doubles} of {len(own)} images have the truth of another one (of another unit), so they are not "
            "independent, and the confidence intervals of this evaluation are too narrow: leave them out, or give "
            f"units= the same name for images of one truth ({VALIDITY_DOC})",
            stacklevel=3,
        )
    return calibration.record.digest
