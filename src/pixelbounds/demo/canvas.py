"""What phantoms are drawn with: labels and Hounsfield units, smooth fields, a canvas of signed distances in cm.

NumPy alone is needed, and no operation whose last bits depend on a library for linear algebra.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np

from ..images.library import Array

Box = tuple[slice, slice]
Wobble = Sequence[float] | Array

Organ = IntEnum(
    "Organ",
    "AIR FAT MUSCLE BONE LIVER SPLEEN KIDNEY AORTA VENA_CAVA VESSEL STOMACH BOWEL GAS DISC GALLBLADDER PANCREAS "
    "SPINAL_CANAL LUNG LESION SKIN TABLE",
    start=0,
)
ORGANS = tuple(organ.name.lower().replace("_", " ") for organ in Organ)

# Hounsfield units without contrast, in the arterial, the portal and the late phase
PHASES = {
    "muscle": (52, 56, 62, 60),
    "liver": (58, 72, 112, 98),
    "portal": (42, 105, 172, 132),
    "spleen": (48, 118, 128, 108),
    "cortex": (34, 195, 195, 165),
    "medulla": (31, 85, 165, 168),
    "pelvis": (6, 6, 25, 420),
    "aorta": (42, 310, 165, 132),
    "cava": (40, 85, 150, 130),
    "wall": (38, 75, 88, 76),
    "pancreas": (38, 102, 92, 76),
}
PHASE_SHARE = (0.2, 0.25, 0.4, 0.15)
# standard deviation of the tissue texture of each organ, in Hounsfield units
GRAIN = np.array([0, 9, 9, 30, 7, 7, 9, 7, 7, 6, 10, 12, 10, 5, 4, 10, 8, 35, 8, 8, 10], float)
HEIGHT = 26.0  # cm from level 0 to level 1
BEND = 0.6  # cm, the most that coordinates are bent


# ---------------------------------------------------------------- fields, canvas, shapes


@lru_cache(maxsize=64)
def _splines(pixels: int, spans: int) -> tuple[Array, Array]:
    """First of the 4 coefficients that reach each pixel, (pixels,), and their cubic B-spline weights (4, pixels)."""
    at = (np.arange(pixels) + 0.5) / pixels * spans
    first = at.astype(np.intp)
    t = at - first
    return first, np.stack([(1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, 3 * t * (1 + t - t * t) + 1, t**3]) / 6


def smooth_field(coefficients: Array, shape: tuple[int, int], rows: slice) -> Array:
    """Smooth field of unit deviation from white coefficients: (..., spans + 3, spans + 3) -> (..., rows, w)."""
    spans = coefficients.shape[-1] - 3  # sums of 4 terms rather than `@`: the same bits whatever the BLAS
    row, across = _splines(shape[0], spans)
    column, along = _splines(shape[1], spans)
    half = sum(2.08 * across[k, rows, None] * coefficients[..., row[rows] + k, :] for k in range(4))
    return np.asarray(sum(along[k] * np.take(half, column + k, axis=-1) for k in range(4)))


def blend(angle: float, pair: Array) -> Array:
    """White coefficients that turn from one set into another with the level."""
    return math.cos(angle) * pair[0] + math.sin(angle) * pair[1]


def uniforms(rng: np.random.Generator, *ranges: tuple[float, float]) -> list[float]:
    """One uniform number from each range."""
    low, high = np.array(ranges, float).T
    return rng.uniform(low, high).tolist()


def section(level: float, middle: float, half: float) -> float:
    """Relative radius of an ellipsoid's section at a level; 0 outside."""
    return math.sqrt(max(0.0, 1 - ((level - middle) / half) ** 2))


class Canvas:
    """Coordinates in cm, bent and turned, and the two images that shapes are painted on."""

    def __init__(
        self, shape: tuple[int, int], rows: slice, cm: float, turn: float, shift: tuple[float, float], bend: Array
    ) -> None:
        self.cm = cm
        self.cos = math.cos(turn)
        self.sin = math.sin(turn)
        self.origin = shape[0] / 2 + shift[1] / cm - rows.start, shape[1] / 2 + shift[0] / cm
        self.hu = np.full((rows.stop - rows.start, shape[1]), -1000.0)
        self.organ = np.zeros(self.hu.shape, np.uint8)
        self.down = ((np.arange(len(self.hu)) + 0.5 - self.origin[0]) * cm)[:, None]
        right = ((np.arange(shape[1]) + 0.5 - self.origin[1]) * cm)[None]
        self.x = self.cos * right + self.sin * self.down + bend[0]
        self.y = self.cos * self.down - self.sin * right + bend[1]
        self.soft = max(cm, 0.14)  # width of an edge in cm: one pixel, or the blur of the scanner

    def box(self, x: float, y: float, reach: float) -> Box:
        """The pixels within `reach` cm of a point, and a margin for the bending."""
        half = (reach + BEND + 0.2) / self.cm
        row = self.origin[0] + (self.sin * x + self.cos * y) / self.cm
        column = self.origin[1] + (self.cos * x - self.sin * y) / self.cm
        height, width = self.hu.shape
        return _within(row - half, row + half, height), _within(column - half, column + half, width)

    def blob(
        self, x: float, y: float, a: float, b: float, turn: float = 0, wobble: Wobble = (), by: float = 0
    ) -> tuple[Box, Array]:
        """Box (larger `by` cm) and signed distance of an ellipse whose radius wobbles with the angle."""
        box = self.box(x, y, 1.3 * max(a, b) + by)
        dx, dy = self.x[box] - x, self.y[box] - y
        cos, sin = math.cos(turn), math.sin(turn)
        u, v = dx * (cos / a) + dy * (sin / a), dy * (cos / b) - dx * (sin / b)
        r = np.sqrt(u * u + v * v) + 1e-9
        if not len(wobble):
            return box, (r - 1) * math.sqrt(a * b)
        c, s = u / r, v / r
        c2, s2 = c * c, s * s
        radius = 1 + wobble[0] * (c2 - s2) + 2 * wobble[1] * c * s
        radius += wobble[2] * c * (4 * c2 - 3) + wobble[3] * s * (3 - 4 * s2)
        return box, (r - radius) * math.sqrt(a * b)

    def paint(self, box: Box, distance: Array, hu: Any, organ: Organ) -> None:
        """Cover where the distance is negative, with a soft edge."""
        cover = distance * (-1 / self.soft)
        cover += 0.5
        np.minimum(np.maximum(cover, 0, out=cover), 1, out=cover)
        here = self.hu[box]
        change = hu - here
        change *= cover
        here += change
        np.copyto(self.organ[box], int(organ), where=cover > 0.5)


def _within(first: float, last: float, count: int) -> slice:
    """The pixels between two places, of those that there are."""
    start = min(max(int(first), 0), count)
    return slice(start, min(max(int(last) + 1, start), count))


EVERYWHERE: Box = (slice(None), slice(None))


@dataclass(frozen=True)
class Patient:
    """What the organs need to know of the patient at this level."""

    level: float
    half: tuple[float, float]  # of the trunk: the outside of the muscle wall
    square: float  # 0: the trunk is an ellipse, 1: a rectangle
    fatness: float
    spine: tuple[float, float]
    phase: int
    hu: dict[str, float]
    veins: Array  # smooth fields of unit deviation: two that follow the level, and a finer one of this slice
    strands: Array
    speckle: Array
