"""What comes with the package: phantoms, noisy views of them, and what trained networks made of these.

The phantoms and the noise are made anew from their seeds; only the networks' outputs are stored, in 8 bits within
[0, 1], ends rounded outward, each array as differences from one that it resembles. The networks never saw these
phantoms. How the file is made: `benchmarks/gpu/package.py`.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Array, outward
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
def _stored() -> tuple[dict[str, Array], dict[str, Any]]:
    return unpack(files(__package__).joinpath("embedded", "phantoms.xz").read_bytes())


def figures() -> dict[str, Any]:
    """How the networks were trained, how samples were drawn, and what was measured."""
    return dict(_stored()[1])


def material() -> dict[str, Any]:
    """Truth, observation, unit, and every stored array (n, h, w) as float32 in [0, 1], by name; and `figures`.

    >>> arrays = material()
    >>> arrays["lower"].shape == arrays["truth"].shape, bool((arrays["lower"] <= arrays["upper"]).all())
    (True, True)
    """
    arrays, about = _stored()
    made = some_phantoms(len(arrays["mean"]))
    return {"truth": made.images, "observation": observe(made.images), "unit": made.units, **arrays, "figures": about}


# ---------------------------------------------------------------- how it is stored


def pack(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> bytes:
    """The networks' outputs (n, h, w) in [0, 1], and figures about them, as bytes."""
    missing = [name for name in _FROM if name not in arrays]
    if missing:
        raise ValueError(f"the packaged set lacks {', '.join(missing)}; give every array")
    codes: dict[str, Array] = {}
    for name in _FROM:
        x, side = np.clip(arrays[name], 0, 1).astype(np.float64) * _steps(name), name.rpartition("_")[2]
        x = np.floor(x) if side == "lower" else np.ceil(x) if side == "upper" else np.rint(x)
        codes[name] = np.minimum(x, 255).astype(np.uint8)
    header = {"shape": codes["mean"].shape, "arrays": list(_FROM), "figures": dict(about)}
    planes = b"".join(_differences(code, codes.get(_FROM[name] or "")).tobytes() for name, code in codes.items())
    return lzma.compress(json.dumps(header).encode() + b"\n" + planes, preset=9 | lzma.PRESET_EXTREME)


def unpack(data: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays as float32, ends rounded outward once more, and the figures."""
    data = lzma.decompress(data)
    end = data.index(b"\n")
    header = json.loads(data[:end])
    planes = np.frombuffer(data, np.uint8, offset=end + 1).reshape(len(header["arrays"]), *header["shape"])
    codes: dict[str, Array] = {}
    arrays: dict[str, Array] = {}
    for name, plane in zip(header["arrays"], planes, strict=True):
        codes[name] = _sums(plane, codes.get(_FROM[name] or ""))
        exact, side = codes[name] / np.float64(_steps(name)), name.rpartition("_")[2]
        down, up = outward(exact, exact, np.float32)
        arrays[name] = down if side == "lower" else up if side == "upper" else exact.astype(np.float32)
    return arrays, header["figures"]


def _steps(name: str) -> int:
    return STEPS * FINE if "deviation" in name else STEPS


def _differences(code: Array, like: Array | None) -> Array:
    """Modulo 256, from an array alike or from the pixel to the left."""
    return np.diff(code, axis=-1, prepend=np.uint8(0)) if like is None else code - like


def _sums(difference: Array, like: Array | None) -> Array:
    return np.cumsum(difference, axis=-1, dtype=np.uint8) if like is None else difference + like
