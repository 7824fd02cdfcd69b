"""All that networks made of the packaged phantoms, baselines too: what `python -m reproduce phantom` computes from.

The phantoms and the noise are made anew from their seeds; only the networks' outputs are stored, in 8 bits or fewer
within [0, 1], ends rounded outward, each array as differences from what others say of it. Bands and held-out samples
are the demo's and are not stored again. The networks never saw these phantoms. How the file is made:
`reproduce/gpu/package.py`.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pixelbounds.demo.packaged import COARSE, STEPS, grown, neighbours, observe, some_phantoms, stored_bands
from pixelbounds.images.ends import outward
from pixelbounds.images.library import Array

FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 0, "pb": 0}]
FILE = Path(__file__).with_name("phantoms.xz")

_ROUNDED = {"lower": np.floor, "upper": np.ceil}  # ends outward, all else to the nearest
# stored arrays in the order in which they are predicted from each other, and steps between 0 and 1
_ARRAYS = {
    "deviation": 2 * STEPS, "mean": STEPS, "naive_lower": STEPS, "naive_upper": STEPS,
    "fresh": COARSE, "qr_estimate": COARSE, "qr_lower": COARSE, "qr_upper": COARSE, "dropout_mean": COARSE,
    "dropout_deviation": 2 * COARSE, "conffusion_lower": COARSE, "conffusion_upper": COARSE,
}  # fmt: skip


def phantom_arrays() -> dict[str, Any]:
    """Truth, observation, unit, and every stored array (n, h, w) as float32 in [0, 1]; and `figures`."""
    demo, _ = stored_bands()
    arrays, about = unpack_arrays(FILE.read_bytes(), demo)
    made = some_phantoms(len(arrays["mean"]))
    whole = {"truth": made.images, "observation": observe(made.images), "unit": made.units, **arrays, "figures": about}
    return whole | {end: demo[end] for end in ("lower", "upper")}


def pack_arrays(arrays: Mapping[str, Array], about: Mapping[str, Any], demo: Mapping[str, Array]) -> bytes:
    """The networks' outputs (n, h, w) in [0, 1], and figures about them, as bytes, beside what the demo has of them."""
    missing = [name for name in _ARRAYS if name not in arrays]
    if missing:
        raise ValueError(f"the packaged set lacks {', '.join(missing)}; give every array")
    codes = _demo_codes(demo)
    planes = []
    for name, steps in _ARRAYS.items():
        x = np.clip(arrays[name], 0, 1).astype(np.float64) * steps
        code = np.minimum(_ROUNDED.get(_side(name), np.rint)(x), 255).astype(np.int16)
        guess = _guess(name, codes)
        residual = (code - (neighbours(code) if guess is None else guess)).astype(np.uint8)
        planes.append(residual.reshape(-1)[_order(codes)].tobytes())
        codes[name] = code
    header = {"shape": codes["mean"].shape, "figures": dict(about)}
    return lzma.compress(json.dumps(header).encode() + b"\n" + b"".join(planes), filters=FILTERS)


def unpack_arrays(data: bytes, demo: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays as float32, ends rounded outward once more, and the figures."""
    data = lzma.decompress(data)
    end = data.index(b"\n")
    header = json.loads(data[:end])
    planes = np.frombuffer(data, np.uint8, offset=end + 1).reshape(len(_ARRAYS), -1)
    codes, arrays = _demo_codes(demo), {}
    for (name, steps), plane in zip(_ARRAYS.items(), planes, strict=True):
        residual = np.empty(plane.size, np.int16)
        residual[_order(codes)] = plane
        residual = residual.reshape(header["shape"])
        guess = _guess(name, codes)
        codes[name] = grown(residual) if guess is None else (residual + guess) & 255
        exact = codes[name] / np.float64(steps)
        down, up = outward(exact, exact, np.float32)
        arrays[name] = {"lower": down, "upper": up}.get(_side(name), exact.astype(np.float32))
    return arrays, header["figures"]


def _side(name: str) -> str:
    """lower, upper, or something else."""
    return name.rpartition("_")[2]


def _order(codes: Mapping[str, Array]) -> Any:
    """Pixels by the width of their band: those alike lie together, which an adaptive coder likes."""
    return np.argsort((codes["upper"] - codes["lower"]).reshape(-1), kind="stable")


def _demo_codes(demo: Mapping[str, Array]) -> dict[str, Array]:
    """Both ends, and the further samples of the last phantoms, as the demo has them."""
    codes = {end: np.rint(demo[end] * np.float64(STEPS)).astype(np.int16) for end in ("lower", "upper")}
    return codes | {"demo_fresh": np.rint(demo["fresh"] * np.float64(COARSE)).astype(np.int16)}


def _guess(name: str, codes: Mapping[str, Array]) -> Array | None:
    """What the arrays before say of an array; None: its own neighbours say more."""
    width = codes["upper"] - codes["lower"]
    if name == "deviation":  # of a band of a tenth on either side, half a length is 1.28 of them
        return np.rint(0.75 * width).astype(np.int16)
    if name == "mean":
        return codes["lower"] + width // 2
    if name == "dropout_deviation":
        return None
    mean = codes["mean"]
    if name == "fresh":
        return np.concatenate([mean[: len(mean) - len(codes["demo_fresh"])] // 2, codes["demo_fresh"]])
    end = codes.get(_side(name), mean)
    if name.startswith("naive"):
        return end
    if name in ("qr_lower", "qr_upper"):
        return codes["qr_estimate"] + (end - mean) // 2
    return codes["qr_estimate"] if name == "dropout_mean" else end // 2
