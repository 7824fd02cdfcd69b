"""What comes with the package: phantoms, noisy views of them, and the bands that a trained network made of these.

The phantoms and the noise are made anew from their seeds; only bands and further samples are stored, in 8 bits or
fewer within [0, 1], ends rounded outward. The network never saw these phantoms. How the files are made:
`reproduce/gpu/package.py`.
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ..images.ends import outward
from ..images.library import Array
from .phantom import Phantoms, phantoms

SEED = 2023
SIZE = 64
SIGMA_0 = 0.2  # deviation of the noise
NOISE_SEED = 2
NEW = 300_000  # phantoms from this number on were seen by nobody: not trained on, not packaged
CALIBRATION = 256  # phantoms that calibrate; the others are held out, and come with a further sample each
STEPS = 255  # of gray values between 0 and 1
COARSE = 127  # the same of further samples


def network_file() -> Path:
    """The score network that drew the samples; the bands lie beside it."""
    return Path(str(files(__package__).joinpath("embedded", "score.safetensors")))


def some_phantoms(count: int, first: int = 0) -> Phantoms:
    """Phantoms of the packaged series; those from `NEW` on are new to the networks and to every calibration."""
    return phantoms(count, SIZE, SEED, first=first)


def observe(truth: Array, seed: int = NOISE_SEED) -> Array:
    """Noisy views of all phantoms of one call: (n, h, w) float32."""
    noise = np.random.default_rng(seed).standard_normal(truth.shape, dtype=np.float32)
    return truth + np.float32(SIGMA_0) * noise


def in_8_bits(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Ends within [0, 1] as the package keeps them: whole multiples of 1/255, rounded outward."""
    down, up = band_codes(lower, upper)
    return outward(down / STEPS, up / STEPS, np.float32)


def band_codes(lower: Array, upper: Array) -> tuple[Array, Array]:
    """The numbers of both ends in steps of 1/255."""
    down = np.floor(np.clip(lower, 0, 1).astype(np.float64) * STEPS)
    up = np.ceil(np.clip(upper, 0, 1).astype(np.float64) * STEPS)
    return down.astype(np.int16), up.astype(np.int16)


@cache
def stored_bands() -> tuple[dict[str, Array], dict[str, Any]]:
    """Both ends and the further samples, in float32, and the figures."""
    return unpack_bands(network_file().with_name("bands.xz").read_bytes())


def figures() -> dict[str, Any]:
    """How samples were drawn: samples, steps, miscoverage, sigma_0."""
    return dict(stored_bands()[1])


def material() -> dict[str, Array]:
    """Truth, organs, lower and upper end (n, h, w), and a further sample of those held out, (n - CALIBRATION, h, w).

    >>> arrays = material()
    >>> arrays["lower"].shape == arrays["truth"].shape, bool((arrays["lower"] <= arrays["upper"]).all())
    (True, True)
    """
    arrays = stored_bands()[0]
    made = some_phantoms(len(arrays["lower"]))
    return {"truth": made.images, "organs": made.organs, **arrays}


# ---------------------------------------------------------------- how it is stored


def unpack_bands(data: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
    """Lower, upper and fresh as float32, ends rounded outward once more, and the figures."""
    head, _, rest = lzma.decompress(data).partition(b"\n")
    header = json.loads(head)
    planes = np.frombuffer(rest, np.uint8).astype(np.int16)
    count, pixels = header["shape"][0], header["shape"][1:]
    ends = np.cumsum([n * pixels[0] * pixels[1] for n in (count, count, header["fresh"])])
    width = grown(planes[: ends[0]].reshape(count, *pixels))
    down = grown(_in_place(planes[ends[0] : ends[1]], width))
    last = slice(count - header["fresh"], None)
    sample = (_in_place(planes[ends[1] : ends[2]], width[last]) + (2 * down + width)[last] // 4) & 255
    lower, upper = outward(down / np.float64(STEPS), (down + width) / np.float64(STEPS), np.float32)
    return {"lower": lower, "upper": upper, "fresh": (sample / COARSE).astype(np.float32)}, header["figures"]


def width_order(width: Array) -> Array:
    """Pixels by the width of their band: those alike lie together, which an adaptive coder likes."""
    return np.argsort(width.reshape(-1), kind="stable")


def _in_place(plane: Array, width: Array) -> Array:
    """The inverse of ordering by width."""
    out = np.empty(plane.size, np.int16)
    out[width_order(width)] = plane
    return out.reshape(width.shape)


def neighbours(code: Array) -> Array:
    """The median edge detector of LOCO-I: a pixel from those to the left, above, and above left."""
    around = np.pad(code, ((0, 0), (1, 0), (1, 0)))
    return _median(around[:, 1:, :-1], around[:, :-1, 1:], around[:, :-1, :-1])


def _median(left: Array, above: Array, corner: Array) -> Array:
    return np.clip(left + above - corner, np.minimum(left, above), np.maximum(left, above))


def grown(residual: Array) -> Array:
    """The inverse of subtracting `neighbours`, pixel by pixel, all images at once."""
    n, h, w = residual.shape
    code = np.zeros((h + 1, w + 1, n), np.int16)
    parts = np.ascontiguousarray(np.moveaxis(residual, 0, -1))
    for i in range(h):
        for j in range(w):
            guess = _median(code[i + 1, j], code[i, j + 1], code[i, j])
            code[i + 1, j + 1] = (parts[i, j] + guess) & 255
    return np.moveaxis(code[1:, 1:], -1, 0)
