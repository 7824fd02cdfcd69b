"""Phantoms: axial slices that look like abdominal CT, with the organ of every pixel.

A patient is a set of random numbers: habitus, pose, organ shapes, contrast phase, bowel content, lesions. A slice is
that patient cut at a level between 0 (liver dome) and 1 (iliac crest): organs are solids, so their sections grow and
shrink with the level. Shapes are signed distances in cm, painted one over the other; smooth random fields (cubic
B-splines) bend the coordinates and make the texture. x runs to the right of the image (the patient's left), y to the
back; the origin is the middle of the trunk.

A patient draws the same numbers at every level and size, so nothing of a patient is drawn inside an `if`. Values are
rounded to whole Hounsfield units, which hides last-bit differences between machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..formats.scans import ABDOMEN, windowed
from ..images.checks import check_count
from ..images.library import Array
from .anatomy import bowel, great_vessels, kidneys, left_organs, liver, lungs, spine, trunk
from .canvas import BEND, GRAIN, ORGANS, PHASE_SHARE, PHASES, Canvas, Patient, blend, smooth_field, uniforms


@dataclass(frozen=True, eq=False)
class Phantoms:
    """Slices in Hounsfield units (n, h, w), the organ of each pixel (n, h, w) and the patient of each slice (n,)."""

    hounsfield: Array
    organs: Array
    units: Array

    def __len__(self) -> int:
        return len(self.hounsfield)

    @property
    def images(self) -> Array:
        """The slices windowed to [0, 1] (width 400, level 40): (n, h, w) float32."""
        return windowed(self.hounsfield, ABDOMEN)


def phantoms(
    count: int, size: int | tuple[int, int] = 64, seed: int = 0, *, first: int = 0, slices_per_patient: int = 1
) -> Phantoms:
    """Slices first, first + 1, ... of an endless series; each depends on the seed and its number alone.

    >>> some, more = phantoms(2, 32, first=3), phantoms(5, 32)
    >>> bool((some.hounsfield == more.hounsfield[3:]).all())
    True
    """
    height, width = _check_size(size)
    for name, value, least in (("count", count, 1), ("seed", seed, 0), ("first", first, 0)):
        check_count(value, name, least=least)
    check_count(slices_per_patient, "slices_per_patient")
    hounsfield = np.empty((count, height, width), np.float32)
    organs = np.empty((count, height, width), np.uint8)
    units = np.arange(first, first + count, dtype=np.int64) // slices_per_patient
    for i, patient in enumerate(units.tolist()):
        hounsfield[i], organs[i] = _slice((height, width), seed, first + i, patient, slices_per_patient)
    return Phantoms(hounsfield, organs, units)


def _check_size(size: Any) -> tuple[int, int]:
    pair = size if isinstance(size, tuple | list) else (size, size)
    if len(pair) != 2:
        raise ValueError(f"size is {size!r}; give one whole number, or (height, width)")
    for value in pair:
        check_count(value, "size", least=8)
    return int(pair[0]), int(pair[1])


# ---------------------------------------------------------------- one slice


def _slice(size: tuple[int, int], seed: int, number: int, patient: int, per_patient: int) -> tuple[Array, Array]:
    rng = np.random.default_rng([seed, patient, 0])
    own = np.random.default_rng([seed, number, 1])
    top, bottom, fatness, a, b, square, turn, sideways, updown, room = uniforms(
        rng, (0, 0.2), (0.8, 1), (0, 1), (12.6, 15.6), (0.58, 0.72), (0.25, 0.7), (-1, 1), (-1, 1), (-1, 1), (0, 1)
    )
    level = top + (bottom - top) * (number % per_patient + own.random()) / per_patient
    fatness = fatness**1.5
    turn = 0.16 * turn**3
    a, b = a + 1.5 * fatness, b * a + 1.5 * fatness
    fine = max(1, -(-128 // min(size)))
    shape = size[0] * fine, size[1] * fine

    # skin and fat under it
    front, side, back, dent = uniforms(rng, (0.5, 0.9), (0.4, 0.8), (0.5, 1.0), (0.2, 0.9))
    front += 3.0 * fatness
    side += 2.6 * fatness
    back += 2.4 * fatness
    dent *= back
    outer = a + side, b + (front + back) / 2
    lean = abs(math.sin(turn))
    reach = outer[0] + lean * outer[1], outer[1] + lean * outer[0]  # half the body's extent after turning
    frame = shape[1] / 2 - fine, shape[0] / 2 - fine  # a pixel of air all around
    cm = max((reach[0] + BEND) / frame[0], (reach[1] + BEND) / frame[1]) * (1 + 0.06 * room * room)
    slack = frame[0] * cm - reach[0] - BEND, frame[1] * cm - reach[1] - BEND
    lift = 0.3 * updown * slack[1]
    shift = sideways * slack[0], lift - (back - front) / 2
    middle = shape[0] / 2 + lift / cm
    half = (reach[1] + 1.3) / cm  # only the rows of the body and the table are drawn
    drawn = slice(max(0, int((middle - half) / fine)), min(size[0], int((middle + half) / fine) + 1))
    rows = slice(drawn.start * fine, drawn.stop * fine)

    bend = blend(1.3 * level, rng.standard_normal((2, 2, 9, 9)))
    ripple = blend(1.3 * level, rng.standard_normal((2, 2, 23, 23)))
    bent = np.clip(0.24 * smooth_field(bend, shape, rows) + 0.09 * smooth_field(ripple, shape, rows), -BEND, BEND)
    canvas = Canvas(shape, rows, cm, turn, shift, bent)
    veins, strands = smooth_field(blend(6 * level, rng.standard_normal((2, 2, 33, 33))), shape, rows)
    speckle = smooth_field(own.standard_normal((67, 67)), shape, rows)

    phase = int(np.searchsorted(np.cumsum(PHASE_SHARE[:-1]), rng.random(), side="right"))
    strength, fatty, thin = uniforms(rng, (0.85, 1.15), (-1, 1), (0, 1))
    hu = {name: PHASES[name][0] + strength * (row[phase] - PHASES[name][0]) for name, row in PHASES.items()}
    hu["liver"] += 14 * fatty - 45 * max(0.0, thin - 0.85) / 0.15
    spine_x, spine_y = uniforms(rng, (-0.4, 0.4), (-0.4, 0.4))
    one = Patient(level, (a, b), square, fatness, (spine_x, b - 5.3 + spine_y), phase, hu, veins, strands, speckle)

    cavity = trunk(canvas, rng, one, outer, (back - front) / 2, dent)
    for organs_of in (bowel, left_organs, liver, kidneys, great_vessels, lungs, spine):
        organs_of(canvas, rng, one, cavity)

    canvas.hu += GRAIN[canvas.organ] * speckle
    hounsfield = np.full(size, -1000.0)
    organs = np.zeros(size, np.uint8)
    hounsfield[drawn] = canvas.hu.reshape(-1, fine, size[1], fine).mean((1, 3))
    organs[drawn] = _majority(canvas.organ, fine)
    noise = own.standard_normal((size[0] + 1, size[1] + 1))
    noise = noise[1:, 1:] + noise[:-1, 1:] + noise[1:, :-1] + noise[:-1, :-1]
    hounsfield += noise * (1.2 + 6.0 * min(1.0, min(size) / 512)) * math.sqrt(outer[0] / 17)
    return np.rint(np.maximum(hounsfield, -1024)).astype(np.float32), organs


def _majority(organ: Array, fine: int) -> Array:
    """The commonest organ among the fine pixels of each pixel; of equals the first."""
    height = organ.shape[0] // fine
    width = organ.shape[1] // fine
    rows = organ.reshape(height, fine, width, fine).swapaxes(1, 2).reshape(-1, fine * fine).astype(np.intp)
    rows += len(ORGANS) * np.arange(len(rows))[:, None]
    votes = np.bincount(rows.ravel(), minlength=len(ORGANS) * len(rows)).reshape(-1, len(ORGANS))
    return votes.argmax(1).reshape(height, width)
