"""Digests of images: of a whole set, and of each image, by which it is known again.

The digest of a set is the sum of its images' digests, so neither cuts nor order matter, and no image can be told from
it. The print of one image is a digest of its truth alone, kept where the image may be known again: a calibration file
tells by prints that an image which is to judge it, or to certify with its groups, had a part in it.
"""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np

from ..images.checks import VALIDITY_DOC
from ..images.library import Array, Runner, over_images, rows_of
from ..kernels.values import fingerprint
from .block import Block
from .data import HERE, ROWS, Statistic
from .families import Family


def _fingerprints(truth: Array, block: Block, family: Family) -> tuple[Array, ...]:
    return _all_hashes(truth, block, family)[:1]


def _all_hashes(truth: Array, block: Block, family: Family) -> tuple[Array, ...]:
    """The sum of the digests of truth and band, and one print of each truth."""
    total = np.zeros(8, np.int64)
    own = np.zeros(len(block), np.uint64)
    kind = _kind_of(truth)
    single = _kind_of(truth, np.dtype(np.float32))
    for i in range(len(block)):
        state = _words_of(truth[i])
        own[i] = _hash_of(truth[i], single, state if truth.dtype == np.float32 else None)
        for part in block.band.arrays:
            fingerprint(part[i].reshape(-1).view(np.uint32), state)
        total += np.frombuffer(hashlib.sha256(kind + state.tobytes()).digest(), "<u4")
    return total, own


# the sum of digests, in which no image can be told; the same with a print of each truth, which stays where it is made
fingerprints = Statistic("fingerprints", _fingerprints, (np.add,))
image_hashes = Statistic("image_hashes", _all_hashes, (np.add, ROWS))


def region_digests(block: Block) -> Array:
    """The sum over images of the digests of each of their regions, in which no image can be told: (regions, 8)."""
    total = np.zeros((len(block.regions), 8), np.int64)
    for r, region in enumerate(block.regions):
        kind = _kind_of(region)
        for image in region:
            content = np.packbits(image) if image.dtype == bool else np.ascontiguousarray(image)
            total[r] += np.frombuffer(hashlib.sha256(kind + content.tobytes()).digest(), "<u4")
    return total


def _words_of(image: Array) -> Array:
    state = np.full(256, 2166136261, np.uint32)
    fingerprint(np.ascontiguousarray(image).reshape(-1).view(np.uint32), state)
    return state


def _kind_of(images: Array, dtype: Any = None) -> bytes:
    """What a digest says of images beside their values."""
    return f"{images.dtype if dtype is None else dtype} {images.shape[1:]}".encode()


def _hash_of(image: Array, kind: bytes, state: Array | None = None) -> int:
    """Digest of one true image in single precision; 0 where all of its values are one, as in many slices of air."""
    first = image.reshape(-1)[0]
    if first == image.reshape(-1)[-1] and (image == first).all():
        return 0
    if state is None:
        state = _words_of(image.astype(np.float32))
    return int.from_bytes(hashlib.sha256(kind + state.tobytes()).digest()[:8], "little")


def hash_images(truth: Any, runner: Runner = HERE) -> Array:
    """A print of each true image, by which it is known again: (n, *pixels) -> (n,) uint64."""

    def work(start: int, stop: int) -> Array:
        images = rows_of(truth, start, stop)
        kind = _kind_of(images, np.dtype(np.float32))
        return np.array([_hash_of(x, kind) for x in images], np.uint64)

    return np.concatenate(list(over_images(work, truth, runner, [truth])))


def is_known_image(image_hashes: Array, known: Array) -> Array:
    """Which images, (n,) bool, are among those of some other prints."""
    return np.isin(image_hashes, known) & (image_hashes != 0)


def check_not_certifying(fitted_on: Array, image_hashes: Array, certifying: Array) -> None:
    """Groups that were shaped by images which now certify make the certificate worthless."""
    if not len(image_hashes) or not len(fitted_on):
        return
    if np.array_equal(np.sort(fitted_on), np.sort(image_hashes[~certifying])):
        return  # they were fitted here and now, on the fitting images; duplicates of these are reported elsewhere
    again = np.flatnonzero(is_known_image(image_hashes, fitted_on) & certifying)
    if len(again):
        raise ValueError(
            f"the groups were fitted on {len(again)} of the images that would certify now (image {again[0]} is the "
            "first), and a promise made so fails far more often than asked: give other images, or let calibrate fit "
            f"groups on the fitting images ({VALIDITY_DOC})"
        )


def count_duplicates(image_hashes: Array, unit_of: Array) -> int:
    """How many images have the truth of another one of another unit; images of one value (hash 0) are not compared."""
    hashed = np.flatnonzero(image_hashes)
    kept = np.unique(np.stack([image_hashes[hashed], unit_of[hashed].astype(np.uint64)]), axis=1)[0]
    return len(kept) - len(np.unique(kept))


def warn_duplicates(image_hashes: Array, unit_of: Array) -> None:
    """Warn where images of different units have one truth, as several noisy views of one image do, or a patient who
    has two names: these units are not independent.
    """
    doubles = count_duplicates(image_hashes, unit_of)
    if doubles:
        warnings.warn(
            f"{doubles} of {len(image_hashes)} images have the truth of another one (of another unit), so they are not "
            "independent and the promise does not hold: leave them out, or give units= the same name for images of one "
            f"truth ({VALIDITY_DOC})",
            stacklevel=4,
        )


def digest_of(total: Array) -> str:
    """Digest of a set from the sum of its images' digests: neither cuts nor order matter, and no image can be told."""
    return f"{sum(int(word) << (32 * i) for i, word in enumerate(total)) % 2**256:064x}"
