"""All that networks made of the packaged phantoms, baselines too: what `python -m reproduce phantom` computes from.

The phantoms and the noise are made anew from their seeds; only the networks' outputs are stored, in 8 bits or fewer
within [0, 1], ends rounded outward, each array as differences from what others say of it. The networks never saw
these phantoms. How the file is made: `reproduce/gpu/package.py`.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pixelbounds.demo.packaged import COARSE, FILTERS, STEPS, grown, neighbours, observe, some_phantoms
from pixelbounds.images.ends import outward
from pixelbounds.images.library import Array

FILE = Path(__file__).with_name("phantoms.xz")

_ROUNDED = {"lower": np.floor, "upper": np.ceil}  # ends outward, all else to the nearest
# stored arrays in the order in which they are predicted from each other, and steps between 0 and 1
_ARRAYS = {
    "deviation": 2 * STEPS, "mean": STEPS, "lower": STEPS, "upper": STEPS, "naive_lower": STEPS, "naive_upper": STEPS,
    "fresh": COARSE, "qr_estimate": COARSE, "qr_lower": COARSE, "qr_upper": COARSE, "dropout_mean": COARSE,
    "dropout_deviation": 2 * COARSE, "conffusion_lower": COARSE, "conffusion_upper": COARSE,
}  # fmt: skip


def phantom_arrays() -> dict[str, Any]:
    """Truth, observation, unit, and every stored array (n, h, w) as float32 in [0, 1]; and `figures`."""
    arrays, about = unpack_arrays(FILE.read_bytes())
    made = some_phantoms(len(arrays["mean"]))
    return {"truth": made.images, "observation": observe(made.images), "unit": made.units, **arrays, "figures": about}


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
        residual = (code - (neighbours(code) if guess is None else guess)).astype(np.uint8)
        planes.append(residual.reshape(-1)[_order(codes)].tobytes())
        codes[name] = code
    header = {"shape": codes["mean"].shape, "figures": dict(about)}
    return lzma.compress(json.dumps(header).encode() + b"\n" + b"".join(planes), filters=FILTERS)


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
        codes[name] = grown(residual) if guess is None else (residual + guess) & 255
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
