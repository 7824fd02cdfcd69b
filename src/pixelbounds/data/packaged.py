"""What comes with the package: phantoms, noisy views of them, and what trained networks made of these.

The phantoms and the noise are made anew from their seeds; only the networks' outputs are stored, in 8 bits within
[0, 1], ends rounded outward, each array as differences from one that it resembles. The networks never saw these
phantoms. How the file is made: `benchmarks/gpu/package.py`.
"""

from __future__ import annotations

import json
import lzma
import os
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Array, outward
from ..files import replace_file
from .phantom import Phantoms, phantoms

SEED, SIZE = 2023, 64
SIGMA_0 = 0.2  # deviation of the noise
NOISE_SEED = 2
NEW = 300_000  # phantoms from this number on were seen by nobody: not trained on, not packaged
STEPS = 255  # of gray values between 0 and 1
FINE = 4  # deviations are small: so many more steps for them

# stored arrays, each with the one it is predicted from; ends are rounded outward, the others to the nearest
_FROM = {
    "mean": None, "deviation": None, "lower": "mean", "upper": "mean", "naive_lower": "lower", "naive_upper": "upper",
    "fresh": "mean", "qr_estimate": "mean", "qr_lower": "qr_estimate", "qr_upper": "qr_estimate",
    "dropout_mean": "qr_estimate", "dropout_deviation": None, "conffusion_lower": "lower", "conffusion_upper": "upper",
}  # fmt: skip


def network_file() -> Path:
    """The score network that drew the samples."""
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
    down = np.floor(np.clip(lower, 0, 1).astype(np.float64) * STEPS)
    up = np.ceil(np.clip(upper, 0, 1).astype(np.float64) * STEPS)
    return outward(down / STEPS, up / STEPS, np.float32)


@cache
def _stored() -> tuple[dict[str, Any], dict[str, Array]]:
    data = lzma.decompress(files(__package__).joinpath("embedded", "phantoms.xz").read_bytes())
    end = data.index(b"\n")
    header = json.loads(data[:end])
    shape = tuple(header["shape"])
    codes = np.frombuffer(data, np.uint8, offset=end + 1).reshape(len(header["arrays"]), *shape)
    decoded: dict[str, Array] = {}
    for name, code in zip(header["arrays"], codes, strict=True):
        decoded[name] = _undo(code, decoded.get(_FROM[name] or ""))
    return header, decoded


def figures() -> dict[str, Any]:
    """How the networks were trained and what was measured of them."""
    return dict(_stored()[0]["figures"])


def material() -> dict[str, Any]:
    """Truth, observation, unit, and every stored array as float32 in [0, 1], by name; and `figures`.

    >>> arrays = material()
    >>> arrays["lower"].shape == arrays["truth"].shape, bool((arrays["lower"] <= arrays["upper"]).all())
    (True, True)
    """
    header, codes = _stored()
    arrays: dict[str, Any] = {}
    for name, code in codes.items():
        steps = STEPS * (FINE if "deviation" in name else 1)
        exact = code / np.float64(steps)
        side = name.rpartition("_")[2]
        down, up = outward(exact, exact, np.float32)
        arrays[name] = down if side == "lower" else up if side == "upper" else exact.astype(np.float32)
    made = some_phantoms(header["shape"][0])
    return {
        "truth": made.images, "observation": observe(made.images), "unit": made.units, **arrays, "figures": figures(),
    }  # fmt: skip


# ---------------------------------------------------------------- how it is stored


def write(path: str | os.PathLike[str], arrays: dict[str, Array], about: dict[str, Any]) -> int:
    """Store the networks' outputs (n, h, w) in [0, 1], with figures about them; the size of the file in bytes."""
    missing = [name for name in _FROM if name not in arrays]
    if missing:
        raise ValueError(f"the packaged set lacks {', '.join(missing)}; give every array")
    codes: dict[str, Array] = {}
    for name in _FROM:
        x = np.clip(arrays[name], 0, 1).astype(np.float64) * (STEPS * (FINE if "deviation" in name else 1))
        side = name.rpartition("_")[2]
        x = np.floor(x) if side == "lower" else np.ceil(x) if side == "upper" else np.rint(x)
        codes[name] = np.minimum(x, 255).astype(np.uint8)
    header = {"shape": codes["mean"].shape, "arrays": list(_FROM), "figures": about}
    planes = b"".join(_do(code, codes.get(_FROM[name] or "")).tobytes() for name, code in codes.items())
    data = lzma.compress(json.dumps(header).encode() + b"\n" + planes, preset=9 | lzma.PRESET_EXTREME)
    replace_file(Path(path), data)
    return len(data)


def _do(code: Array, like: Array | None) -> Array:
    """Differences modulo 256, from an array alike or from the pixel to the left."""
    if like is not None:
        return code - like
    return np.diff(code, axis=-1, prepend=np.uint8(0))


def _undo(difference: Array, like: Array | None) -> Array:
    if like is not None:
        return difference + like
    return np.cumsum(difference, axis=-1, dtype=np.uint8)
