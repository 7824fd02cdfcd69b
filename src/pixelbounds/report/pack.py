"""Examples as data for the viewer and as small pictures.

Numbers become whole multiples of a power of ten, which is exactly what the viewer shows: at least 6500 steps over the
range of an example. Whether the truth is missed is decided here, on the exact arrays. Codes are stored as differences,
low bytes before high bytes, deflated, in base64.
"""

from __future__ import annotations

import io
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from math import floor, isfinite, log10
from typing import Any

import numpy as np
from PIL import Image

from ..images.checks import Limits
from ..images.library import Array, to_numpy
from ..images.measure import open_ends
from .example import Example

SAMPLES = (32, 24, 16, 12, 8)  # kept per pixel, order statistics at even ranks: the first count that fits, or none
MOST_PLANES = 12  # kept of a stack
MOST_SIDE = 256  # of a small picture
_STEPS = 65000  # codes are uint16
OPEN = (238, 238, 234)  # colour of an interval with an open end in a map of lengths, which cividis does not have
REGIONS = 15  # masks in one layer, a bit each


# ---------------------------------------------------------------- planes


def is_colour(pixels: tuple[int, ...]) -> bool:
    """Three channels first."""
    return len(pixels) == 3 and pixels[0] == 3


def kept_planes(pixels: tuple[int, ...]) -> Array:
    """Which planes of an image are shown: all of a picture, some at even distances of a stack."""
    count = pixels[0] if len(pixels) == 3 else 1
    if count <= MOST_PLANES:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, MOST_PLANES).round().astype(int))


def one_plane(x: Array) -> Array:
    """What a single picture shows: (h, w), (3, h, w) in colour, or the middle plane of (p, h, w)."""
    return x if x.ndim == 2 or is_colour(x.shape) else x[len(x) // 2]


def planes_of(x: Array, pixels: tuple[int, ...]) -> Array:
    """The planes that are shown: (..., *pixels) -> (..., p, h, w)."""
    x = x.reshape(*x.shape[: x.ndim - len(pixels)], -1, *pixels[-2:])
    return x[..., kept_planes(pixels), :, :]


def band_ends(example: Example, limits: Limits) -> tuple[Array, Array] | None:
    """Ends of the band before calibration within the limits, (*pixels) each."""
    if example.band is None:
        return None
    lower = to_numpy(example.band.lower)[0]
    upper = to_numpy(example.band.upper)[0]
    return np.clip(lower, *limits), np.clip(upper, *limits)


def widening_of(example: Example, limits: Limits) -> Array | None:
    """Length that the calibration added to each pixel's band, at least 0: (*pixels)."""
    ends = band_ends(example, limits)
    return None if ends is None else np.maximum(example.length - (ends[1] - ends[0]), 0)


def pictures_of(example: Example, limits: Limits) -> dict[str, Array]:
    """What is known of an example, in the order in which it is read, and maps of length and widening."""
    names = ("observation", "lower", "estimate", "upper", "truth", "length")
    pictures = {name: getattr(example, name) for name in names} | {"widening": widening_of(example, limits)}
    pictures |= example.also or {}
    return {name: x for name, x in pictures.items() if x is not None}


def closed_length(example: Example, *, windowed: bool) -> Array:
    """Length of each interval, infinite where values were seen through a window and an end lies at its edge."""
    if not windowed:
        return example.length
    return np.where(open_ends(example.lower, example.upper) > 0, np.inf, example.length.astype(np.float64))


def missed(example: Example) -> Array | None:
    """0 where the truth is inside, 1 where it is below the interval, 2 above: (*pixels) uint8."""
    if example.truth is None:
        return None
    return ((example.truth < example.lower) + 2 * (example.truth > example.upper)).astype(np.uint8)


# ---------------------------------------------------------------- data for the viewer


def decimals_for(span: float) -> int:
    """Digits after the point (before it, where negative) such that the span fits into uint16."""
    return floor(log10(_STEPS / span)) if span > 0 and isfinite(span) else 4


def add_samples(shown: Sequence[dict[str, Any]], examples: Sequence[Example], most: int) -> None:
    """Put samples into what the viewer reads of examples, as many of each pixel as so many bytes allow."""
    sampled = [(x, example) for x, example in zip(shown, examples, strict=True) if example.samples is not None]
    entries = sum(planes_of(example.lower, example.pixels).size for _, example in sampled)
    counts = [count for count in SAMPLES if count * entries <= 4 * most]  # they never shrink to less than a quarter
    ordered = [_ordered(example, counts[0]) for _, example in sampled if counts]
    for count in counts:
        thinned = [x[_even(len(x), count)] for x in ordered]
        layers = [
            _layer(s, x["layers"]["lower"]["decimals"] - 1, s[0].size)
            for s, (x, _) in zip(thinned, sampled, strict=True)
        ]
        if sum(len(layer["data"]) for layer in layers) <= most:
            for layer, s, (x, _) in zip(layers, thinned, sampled, strict=True):
                x["layers"]["samples"] = layer
                x["samples"] = len(s)
            break


def bytes_of(shown: dict[str, Any]) -> int:
    """Of the data of an example."""
    return sum(len(layer["data"]) for layer in shown["layers"].values())


def _ordered(example: Example, count: int) -> Array:
    """Order statistics of the samples at even ranks: (count, p, h, w)."""
    ranks = _even(len(example.samples), count)
    return np.sort(planes_of(example.samples, example.pixels), axis=0)[ranks].astype(np.float64)


def _even(n: int, count: int) -> Array:
    return np.linspace(0, n - 1, min(count, n)).round().astype(int)


def viewer_data(example: Example, limits: Limits, *, windowed: bool = False) -> dict[str, Any]:
    """What the viewer reads of an example, all but its samples, ready for JSON.

    windowed       values were seen through a window, so that ends at its edges are open
    """
    pixels = example.pixels
    ends = band_ends(example, limits) or (None, None)
    images = {
        "lower": example.lower, "upper": example.upper, "estimate": example.estimate, "truth": example.truth,
        "band_lower": ends[0], "band_upper": ends[1],
    }  # fmt: skip
    if example.observation is not None and example.observation.shape == pixels:
        images["observation"] = example.observation
    parts = {name: planes_of(x, pixels).astype(np.float64) for name, x in images.items() if x is not None}
    decimals = decimals_for(max(float(np.ptp(x)) for name, x in parts.items() if name != "observation"))
    layers = {name: _layer(x, decimals) for name, x in parts.items()}
    wrong = missed(example)
    if wrong is not None:
        layers["missed"] = _layer(planes_of(wrong, pixels).astype(np.float64), 0)
    if windowed:
        layers["open"] = _layer(planes_of(open_ends(example.lower, example.upper), pixels).astype(np.float64), 0)
    masks = [planes_of(mask, pixels) for mask in (example.regions or {}).values()]
    for first in range(0, len(masks), REGIONS):
        bits = [2.0**bit * mask for bit, mask in enumerate(masks[first : first + REGIONS])]
        layers[f"regions_{first // REGIONS}"] = _layer(np.sum(bits, axis=0), 0)
    return {
        "regions": list(example.regions or {}),
        "holds": [name for name, mask in zip(example.regions or {}, masks, strict=True) if mask.any()],
        "name": example.name, "height": pixels[-2], "width": pixels[-1], "colour": is_colour(pixels),
        "planes": kept_planes(pixels).tolist(), "depth": pixels[0] if len(pixels) == 3 else 1,
        "window": list(window_of(example, limits)), "layers": layers, "samples": 0,
        "drawn": 0 if example.samples is None else len(example.samples),
    }  # fmt: skip


def _layer(x: Array, decimals: int, stride: int = 1) -> dict[str, Any]:
    """Codes of an array: value = (base + code) / 10**decimals; code i is a difference to code i - stride."""
    decimals = min(decimals, decimals_for(float(np.ptp(x))))
    whole = np.rint(x * 10.0**decimals).reshape(-1)
    base = whole.min()
    code = (whole - base).astype(np.uint16)
    code[stride:] -= code[:-stride].copy()  # wraps around, as the viewer's sum does
    bytes_ = code.astype("<u2").view(np.uint8).reshape(-1, 2).T.tobytes()
    data = b64encode(zlib.compress(bytes_, 6)).decode()
    return {"base": int(base), "decimals": decimals, "stride": stride, "data": data}


# ---------------------------------------------------------------- small pictures


def small_pictures(example: Example, limits: Limits, scales: Mapping[str, float], *, windowed: bool) -> dict[str, Any]:
    """Name and small pictures of an example, in the order in which they are read."""
    window = window_of(example, limits)
    length = closed_length(example, windowed=windowed)
    shown = [
        (name, map_png(x, scales[name]) if name in scales else gray_png(x, window))
        for name, x in {**pictures_of(example, limits), "length": length}.items()
    ]
    wrong = missed(example)
    h, w = example.pixels[-2:]
    return {
        "name": example.name, "shown": shown, "file": None, "height": round(128 * h / w),
        "above": None if wrong is None else float(np.mean(wrong == 2)),
        "below": None if wrong is None else float(np.mean(wrong == 1)),
        "length": float(example.length.mean(dtype=np.float64)), "open": float(np.isinf(length).mean()),
    }  # fmt: skip


def window_of(example: Example, limits: Limits) -> Limits:
    """Values shown as black and white: the limits, or what the interval spans where there are none."""
    low, high = limits
    low = low if isfinite(low) else float(example.lower.min())
    high = high if isfinite(high) else float(example.upper.max())
    return (low, high) if high > low else (low, low + 1.0)


@cache
def colours() -> Array:
    """Cividis, which readers with any colour vision see alike: (256, 3) uint8."""
    from matplotlib import colormaps

    return (colormaps["cividis"](np.arange(256))[:, :3] * 255).round().astype(np.uint8)


def gray_png(x: Array, window: Limits) -> str:
    """A picture, (h, w), (3, h, w), or the middle plane of (p, h, w), as a data URI."""
    low, high = window
    share = (one_plane(x).astype(np.float64) - low) / (high - low)
    level = (np.clip(share, 0, 1) * 255).round().astype(np.uint8)
    return _uri(Image.fromarray(level if level.ndim == 2 else np.ascontiguousarray(level.transpose(1, 2, 0))))


def map_png(x: Array, most: float) -> str:
    """Lengths from 0 to `most` in cividis as a data URI, infinite ones in OPEN.

    Channels are averaged, of planes the middle one is shown.
    """
    x = one_plane(x)
    x = x.mean(axis=0) if x.ndim == 3 else x
    closed = np.minimum(x.astype(np.float64) / most, 1.0)
    levels = np.where(np.isinf(x), 255, (254 * np.maximum(closed, 0)).round()).astype(np.uint8)
    picture = _fit(Image.fromarray(levels))
    picture.putpalette(colours()[:255].tobytes() + bytes(OPEN))
    return _uri(picture)


def _fit(picture: Image.Image) -> Image.Image:
    scale = MOST_SIDE / max(picture.size)
    if scale >= 1:
        return picture
    width, height = (max(1, round(side * scale)) for side in picture.size)
    return picture.resize((width, height), Image.Resampling.BOX)


def _uri(picture: Image.Image) -> str:
    out = io.BytesIO()
    _fit(picture).save(out, "PNG", optimize=True)
    return "data:image/png;base64," + b64encode(out.getvalue()).decode()
