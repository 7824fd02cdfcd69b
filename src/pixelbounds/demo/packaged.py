"""What comes with the package: phantoms, noisy views of them, and what trained networks made of these.

The phantoms and the noise are made anew from their seeds; only the networks' outputs are stored, in 8 bits or fewer
within [0, 1], ends rounded outward, each array as differences from what others say of it. The networks never saw
these phantoms. How the file is made: `reproduce/gpu/package.py`.
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

from ..images.ends import outward
from ..images.library import Array
from .phantom import Phantoms, phantoms

SEED = 2023
SIZE = 64
SIGMA_0 = 0.2  # deviation of the noise
NOISE_SEED = 2
NEW = 300_000  # phantoms from this number on were seen by nobody: not trained on, not packaged
STEPS = 255  # of gray values between 0 and 1
_COARSE = 127  # of baselines and of the further sample
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 0, "pb": 0}]

_ROUNDED = {"lower": np.floor, "upper": np.ceil}  # ends outward, all else to the nearest
# stored arrays in the order in which they are predicted from each other, and steps between 0 and 1
_ARRAYS = {
    "deviation": 2 * STEPS, "mean": STEPS, "lower": STEPS, "upper": STEPS, "naive_lower": STEPS, "naive_upper": STEPS,
    "fresh": _COARSE, "qr_estimate": _COARSE, "qr_lower": _COARSE, "qr_upper": _COARSE, "dropout_mean": _COARSE,
    "dropout_deviation": 2 * _COARSE, "conffusion_lower": _COARSE, "conffusion_upper": _COARSE,
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
    return unpack_arrays(files(__package__).joinpath("embedded", "phantoms.xz").read_bytes())


def figures() -> dict[str, Any]:
    """How the networks were trained, how samples were drawn, and what was measured."""
    return dict(_stored()[1])


def material() -> dict[str, Any]:
    """Truth, organs, observation, unit, and every stored array (n, h, w) as float32 in [0, 1]; and `figures`.

    >>> arrays = material()
    >>> arrays["lower"].shape == arrays["truth"].shape, bool((arrays["lower"] <= arrays["upper"]).all())
    (True, True)
    """
    arrays, about = _stored()
    made = some_phantoms(len(arrays["mean"]))
    known = {"truth": made.images, "organs": made.organs, "observation": observe(made.images), "unit": made.units}
    return {**known, **arrays, "figures": about}


# ---------------------------------------------------------------- how it is stored


def pack_arrays(arrays: Mapping[str, Array], about: Mapping[str, Any]) -> bytes:
    """The networks' outputs (n, h, w) in [0, 1], and figures about them, as bytes."""
    missing = [name for name in _ARRAYS if name not in arrays]
    if missing:
        raise ValueError(f"the packaged set lacks {', '.join(missing)}; give every array")
    codes: dict[str, Array] = {}
    planes = []
    for name, steps in _ARRAYS.items():
        x = np.clip(arrays[name], 0, 1).astype(np.float64) * steps
        code = np.minimum(_ROUNDED.get(_side(name), np.rint)(x), 255).astype(np.int16)
        guess = _guess(name, codes)
        residual = (code - (_neighbours(code) if guess is None else guess)).astype(np.uint8)
        planes.append(residual.reshape(-1)[_order(codes)].tobytes())
        codes[name] = code
    header = {"shape": codes["mean"].shape, "figures": dict(about)}
    return lzma.compress(json.dumps(header).encode() + b"\n" + b"".join(planes), filters=_FILTERS)


def unpack_arrays(data: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays as float32, ends rounded outward once more, and the figures."""
    data = lzma.decompress(data)
    end = data.index(b"\n")
    header = json.loads(data[:end])
    planes = np.frombuffer(data, np.uint8, offset=end + 1).reshape(len(_ARRAYS), -1)
    codes: dict[str, Array] = {}
    arrays: dict[str, Array] = {}
    for (name, steps), plane in zip(_ARRAYS.items(), planes, strict=True):
        residual = np.empty(plane.size, np.int16)
        residual[_order(codes)] = plane
        residual = residual.reshape(header["shape"])
        guess = _guess(name, codes)
        codes[name] = _grown(residual) if guess is None else (residual + guess) & 255
        exact = codes[name] / np.float64(steps)
        down, up = outward(exact, exact, np.float32)
        arrays[name] = {"lower": down, "upper": up}.get(_side(name), exact.astype(np.float32))
    return arrays, header["figures"]


def _side(name: str) -> str:
    """lower, upper, or something else."""
    return name.rpartition("_")[2]


def _order(codes: Mapping[str, Array]) -> Any:
    """Pixels by their deviation: those alike lie together, which an adaptive coder likes."""
    known = codes.get("deviation")
    return slice(None) if known is None else np.argsort(known.reshape(-1), kind="stable")


def _guess(name: str, codes: Mapping[str, Array]) -> Array | None:
    """What the arrays before say of an array; None: its own neighbours say more."""
    if name in ("deviation", "mean", "dropout_deviation"):
        return None
    mean = codes["mean"]
    if name in ("lower", "upper"):
        reach = np.rint(0.6 * codes["deviation"]).astype(np.int16)  # 1.2 deviations
        return mean - reach if name == "lower" else mean + reach
    end = codes.get(_side(name), mean)
    if name.startswith("naive"):
        return end
    if name in ("qr_lower", "qr_upper"):
        return codes["qr_estimate"] + (end - mean) // 2
    return codes["qr_estimate"] if name == "dropout_mean" else end // 2


def _neighbours(code: Array) -> Array:
    """The median edge detector of LOCO-I: a pixel from those to the left, above, and above left."""
    around = np.pad(code, ((0, 0), (1, 0), (1, 0)))
    return _median(around[:, 1:, :-1], around[:, :-1, 1:], around[:, :-1, :-1])


def _median(left: Array, above: Array, corner: Array) -> Array:
    return np.clip(left + above - corner, np.minimum(left, above), np.maximum(left, above))


def _grown(residual: Array) -> Array:
    """The inverse of subtracting `_neighbours`, pixel by pixel, all images at once."""
    n, h, w = residual.shape
    code = np.zeros((h + 1, w + 1, n), np.int16)
    parts = np.ascontiguousarray(np.moveaxis(residual, 0, -1))
    for i in range(h):
        for j in range(w):
            guess = _median(code[i + 1, j], code[i, j + 1], code[i, j])
            code[i + 1, j + 1] = (parts[i, j] + guess) & 255
    return np.moveaxis(code[1:, 1:], -1, 0)
