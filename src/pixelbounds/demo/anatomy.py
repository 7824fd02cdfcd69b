"""The organs of a phantom: each function paints some of them onto the canvas, at the patient's level."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..images.library import Array
from .canvas import EVERYWHERE, HEIGHT, Box, Canvas, Organ, Patient, section, uniforms


def trunk(
    canvas: Canvas, rng: np.random.Generator, one: Patient, outer: tuple[float, float], offset: float, dent: float
) -> Array:
    """Table, skin, fat, muscle wall, ribs and back muscles; returns the signed distance from the cavity."""
    table, gap, thick, recti, erector, ribs_at, ribs_apart, tilt = uniforms(
        rng, (0, 1), (0.1, 0.6), (0.8, 1.3), (0.4, 0.9), (0.85, 1.15), (0, 1), (21, 26), (-0.2, 0.2)
    )
    rib_lengths = rng.uniform(0.4, 1.15, (2, 8))
    x = canvas.x
    y = canvas.y
    level = one.level
    strands = one.strands
    r2 = x * x + y * y + 1e-9
    radius = np.sqrt(r2)
    if table < 0.55:
        sag = canvas.down - (outer[1] + offset + gap - 0.012 * x * x)
        canvas.paint(EVERYWHERE, np.maximum(np.abs(sag) - 0.1, np.abs(x) - 20), -40, Organ.TABLE)

    def inside(half: tuple[float, float], y: Array, square: float) -> Array:
        p2, q2 = (x / half[0]) ** 2, (y / half[1]) ** 2
        rho = np.sqrt(p2 + q2 - square * np.minimum(p2 * q2, 1) + 1e-9)
        return radius * (1 - 1 / rho)

    notch = dent * (y > 0) / (1 + (x / 2.2) ** 2) ** 2
    skin = inside(outer, y - offset + notch, one.square * 0.8)
    canvas.paint(EVERYWHERE, skin, 15, Organ.SKIN)
    canvas.paint(EVERYWHERE, skin + 0.32, -108 + 10 * (strands > 1.4), Organ.FAT)
    trunk = np.maximum(inside(one.half, y + 0.6 * notch, one.square), skin + 0.35)
    canvas.paint(EVERYWHERE, trunk, one.hu["muscle"] - 12, Organ.MUSCLE)
    lateral = x * x / r2
    wall = thick * (0.55 + 0.9 * lateral * min(1, 0.5 + level))
    wall *= np.where(y < 0, 1 - 0.8 / (1 + (x * x / 0.64) ** 2), 1)  # thin at the linea alba
    wall += np.where(y < 0, recti * 0.5 / (1 + ((np.abs(x) - 3.2) / 2) ** 2) ** 2, 0)
    cavity = trunk + wall
    if level > 0.3:  # fat between the layers of the side wall
        layer = np.abs(trunk + 0.5 * wall) - 0.05
        canvas.paint(EVERYWHERE, np.maximum(layer, 0.4 * one.half[0] - np.abs(x)), -40, Organ.MUSCLE)
    canvas.paint(EVERYWHERE, cavity, -100 + 16 * np.maximum(np.abs(strands) - 0.7, 0), Organ.FAT)

    branch = np.maximum(0.8 * np.abs(one.veins) - 0.1, np.maximum(0.5 * (0.3 - strands), cavity + 2))
    canvas.paint(EVERYWHERE, branch, 0.5 * one.hu["portal"], Organ.VESSEL)

    for sign in (-1, 1):
        _back_muscles(canvas, one, trunk, sign, erector)
        for k, length in enumerate(rib_lengths[(sign + 1) // 2]):
            azimuth = 30 + ribs_apart * (k + (ribs_at + 9 * level + 0.3 * sign) % 1) + 4 * tilt
            if azimuth < 158 - 150 * max(0.0, level - 0.1):
                _rib(canvas, one, trunk, sign, azimuth, length)
    return cavity


def _back_muscles(canvas: Canvas, one: Patient, trunk: Array, sign: int, erector: float) -> None:
    """Erector spinae, quadratus lumborum and psoas of one side."""
    sx, sy = one.spine
    muscle = one.hu["muscle"]
    shapes = (3.0, 3.2, 2.7 * erector, 1.9 * erector, 0.25), (5.4, 1.9, 2.0, 1.0 * erector, 0.75)
    for dx, dy, ra, rb, turn in shapes:
        box, d = canvas.blob(sx + sign * dx, sy + dy, ra, rb, -sign * turn)
        canvas.paint(box, np.maximum(d, trunk[box]), muscle - 25 * (one.strands[box] > 1.2), Organ.MUSCLE)
    if one.level > 0.3:
        size = 0.5 + 1.7 * erector * min(1.0, max(0.0, one.level - 0.3) * 1.6)
        box, d = canvas.blob(sx + sign * (2.0 + 0.6 * size), sy + 0.3, size * 0.75, size, sign * 0.3)
        canvas.paint(box, d, muscle, Organ.MUSCLE)


def _rib(canvas: Canvas, one: Patient, trunk: Array, sign: int, azimuth: float, length: float) -> None:
    """A piece of a rib in the wall of the trunk, counted in degrees from the back; in front it is cartilage."""
    a, b = one.half
    ex, ey = sign * math.sin(math.radians(azimuth)), math.cos(math.radians(azimuth))
    p2, q2 = (ex / a) ** 2, (ey / b) ** 2
    s = p2 + q2
    at = math.sqrt(2 / (s + math.sqrt(max(0.0, s * s - 4 * one.square * p2 * q2)))) - 0.55
    along = math.atan2(ex / a**2, -ey / b**2)
    box, d = canvas.blob(at * ex, at * ey, length, 0.3, along)
    d = np.maximum(d, trunk[box] + 0.25)
    canvas.paint(box, d, 620 if azimuth < 125 else 190, Organ.BONE)
    canvas.paint(box, d + 0.16, 220 if azimuth < 125 else 120, Organ.BONE)


def _hollow(
    canvas: Canvas, box: Box, d: Array, wall: tuple[float, float], content: Any, gas: float, organ: Organ
) -> None:
    """A wall (HU, cm) around content, with gas above a level that is `gas` of the height of the lumen."""
    canvas.paint(box, d, wall[0], organ)
    lumen = d + wall[1]
    canvas.paint(box, lumen, content, organ)
    rows = np.flatnonzero((lumen < 0).any(1)) if gas > 0 else np.empty(0, int)
    if len(rows):
        down = canvas.down[box[0]]
        top, bottom = down[rows[0], 0], down[rows[-1], 0]
        canvas.paint(box, np.maximum(lumen, down - (top + gas * (bottom - top))), -960, Organ.GAS)


def bowel(canvas: Canvas, rng: np.random.Generator, one: Patient, cavity: Array) -> None:
    """Small bowel on a jittered grid, then colon; loops lie apart by visceral fat."""
    a, b = one.half
    level = one.level
    halo, fill, oral, gassy, stool = uniforms(rng, (0.05, 0.5), (0.3, 1), (0, 1), (0, 1), (0, 1))
    content = 180 + 120 * stool if oral > 0.87 else 22
    loops = rng.random((24, 9))
    for k in rng.permutation(24).tolist():
        ux, uy, grow, long, turn, gas, when, swing, wall = loops[k].tolist()
        present = math.sin(6.3 * (when + 1.2 * level)) + 1.6 * (level - 0.45) + 0.9 * fill - 0.2
        if present <= 0:
            continue
        x = a * (-0.72 + 0.29 * (k % 6 + 0.8 * (ux - 0.5))) + 1.2 * math.sin(6 * level + 6.3 * swing)
        y = b * (-0.66 + 0.29 * (k // 6 + 0.9 * (uy - 0.5)))
        radius = (1.0 + 0.8 * grow) * min(1.0, 0.4 + present)
        box, d = canvas.blob(x, y, radius * (1 + 1.4 * long * long), radius, 3.1 * turn, (0, 0.1, 0.1 * wall, 0.08))
        d = np.maximum(d, cavity[box] + 0.25)
        canvas.paint(box, d - halo, -98, Organ.FAT)
        share = (gas - 0.72) * 2.2 * gassy if gas > 0.72 else 0
        _hollow(canvas, box, d, (one.hu["wall"] + 15 * wall, 0.25), content + 25 * grow, share, Organ.BOWEL)
    pieces = rng.random((6, 6))
    sites = ((-0.74, 0.12, 0.55, 0.5), (0.78, 0.2, 0.6, 0.62), (-0.36, -0.6, 0.55, 0.4), (0.0, -0.66, 0.5, 0.34),
             (0.4, -0.6, 0.5, 0.4), (0.66, -0.3, 0.3, 0.3))  # fmt: skip
    for (p, q, middle, half), (jx, jy, grow, gas, turn, long) in zip(sites, pieces.tolist(), strict=True):
        size = section(level, middle + 0.16 * (jx - 0.5), half)
        if size > 0.25:
            radius = (1.3 + 1.1 * grow) * min(1.0, size * 1.3)
            x, y = a * (p + 0.12 * (jx - 0.5)), b * (q + 0.16 * (jy - 0.5))
            box, d = canvas.blob(x, y, radius * (1 + 0.7 * long), radius, turn - 0.5, (0, 0.06, 0.08, 0.1))
            d = np.maximum(d, cavity[box] + 0.2)
            canvas.paint(box, d - halo, -98, Organ.FAT)
            faeces = 35 - 260 * stool * np.maximum(one.speckle[box], 0)
            _hollow(canvas, box, d, (one.hu["wall"], 0.22), faeces, max(0.0, 1.7 * gas * gassy - 0.3), Organ.BOWEL)


def left_organs(canvas: Canvas, rng: np.random.Generator, one: Patient, cavity: Array) -> None:
    """Stomach, pancreas and spleen."""
    a, b = one.half
    level = one.level
    hu = one.hu
    sx, sy = one.spine
    px, py, grow, gas, food, turn, low = uniforms(
        rng, (0.25, 0.45), (-0.5, -0.25), (0.8, 1.2), (0, 0.7), (0, 1), (-0.2, 0.7), (0.34, 0.5)
    )
    wob = rng.uniform(-0.12, 0.12, (3, 4))
    size = grow * section(level, 0.15, low)
    if size > 0.15:
        box, d = canvas.blob(a * px, b * py, 4.6 * size, 3.0 * size, turn, wob[0])
        d = np.maximum(d, cavity[box] + 0.3)
        canvas.paint(box, d - 0.25, -98, Organ.FAT)
        meal = (250 if food > 0.85 else 18 + 30 * food) + 25 * food * one.speckle[box]
        _hollow(canvas, box, d, (hu["wall"], 0.35), meal, max(0.0, gas - 0.1), Organ.STOMACH)

    px, py, turn, thick = uniforms(rng, (-1.0, 1.5), (-4.6, -3.6), (-0.5, 0.1), (0.9, 1.5))
    size = section(level, 0.45, 0.2)
    if size > 0.2:
        box, d = canvas.blob(sx + 1.5 + px, sy + py, 5.0 * size, thick * size, turn, 1.6 * wob[1])
        canvas.paint(box, d - 0.2, -98, Organ.FAT)
        lobules = np.maximum(one.strands[box], 0)
        canvas.paint(box, d + 0.25 * lobules, hu["pancreas"] - 12 * lobules, Organ.PANCREAS)

    px, py, la, lb, turn, low, gap = uniforms(
        rng, (0.74, 0.84), (0.1, 0.34), (2.3, 3.3), (3.8, 5.6), (-0.1, 0.5), (0.26, 0.42), (0.15, 0.5)
    )
    size = section(level, 0.16, low)
    if size > 0.15:
        box, d = canvas.blob(a * px, b * py, la * size, lb * size, turn, wob[2])
        hilum, bite = canvas.blob(a * px - 1.35 * la, b * py - 0.8, la, 0.6 * lb, turn)
        d = np.maximum(np.maximum(d, cavity[box] + gap), -_cut(bite, hilum, box))
        canvas.paint(box, d - 0.2, -98, Organ.FAT)
        patchy = 30 * one.veins[box] if one.phase == 1 else 0
        canvas.paint(box, d, hu["spleen"] + patchy, Organ.SPLEEN)


def liver(canvas: Canvas, rng: np.random.Generator, one: Patient, cavity: Array) -> None:
    """Liver with vessels and lesions, gallbladder."""
    a, b = one.half
    level = one.level
    hu = one.hu
    strands = one.strands
    wobble = rng.uniform(-0.12, 0.12, 4)
    px, py, la, lb, low, gap, left, spread = uniforms(
        rng, (-0.6, -0.48), (-0.15, 0.1), (5.8, 7.8), (6.2, 8.4), (0.55, 0.85), (0.05, 0.3), (0.15, 0.45), (3.0, 5.5)
    )
    size = section(level, 0.12, low)
    tumours = rng.random((4, 6))
    if size > 0.15:
        x, y = a * (px - 0.5 * (1 - size)), b * (py + 0.2 * (1 - size))
        box, d = canvas.blob(x, y, la * size, lb * size**0.6, 0.35, wobble, by=5)
        lobe = section(level, 0.15, left)
        if lobe > 0.2:
            dx, dy = canvas.x[box] - a * (px + 0.42), canvas.y[box] + 0.52 * b
            second = np.sqrt((dx / (spread * 1.25 * lobe)) ** 2 + ((dy - 0.25 * dx) / (2.9 * lobe)) ** 2) - 1
            d = np.minimum(d, 3 * second)
        d = np.maximum(d, cavity[box] + gap)
        canvas.paint(box, d - 0.15, -98, Organ.FAT)
        canvas.paint(box, d, hu["liver"], Organ.LIVER)
        width = 0.10 + 0.10 * np.maximum(strands[box], -0.8)
        vessel = np.maximum(np.abs(one.veins[box]) * 0.9 - width, d + 0.8)
        canvas.paint(box, np.maximum(vessel, -strands[box] - 0.5), 0.7 * hu["portal"] + 0.3 * hu["liver"], Organ.LIVER)
        for exists, tx, ty, radius, when, kind in tumours.tolist():
            r = math.sqrt(max(0.0, (0.4 + 2.4 * radius**2) ** 2 - (HEIGHT * (when * 0.7 - level) * 0.5) ** 2))
            if exists < 0.45 and r > 0.2:
                spot, t = canvas.blob(a * (-0.85 + 0.6 * tx), b * (-0.5 + ty), r, r * (0.8 + 0.2 * kind))
                t = np.maximum(t, _cut(d, box, spot) + 0.1)
                rim = 40 if kind > 0.8 else 0
                canvas.paint(spot, t, hu["liver"] + rim if kind > 0.4 else 12, Organ.LESION)
                canvas.paint(spot, t + 0.4, hu["liver"] - 20 - 45 * kind if kind > 0.4 else 8, Organ.LESION)

    px, py, radius, turn, middle = uniforms(rng, (-0.45, -0.3), (-0.45, -0.25), (1.1, 2.0), (-0.8, 0.8), (0.42, 0.58))
    size = section(level, middle, 0.14)
    if size > 0.3:
        box, d = canvas.blob(a * px, b * py, 1.4 * radius * size, radius * size, turn)
        canvas.paint(box, np.maximum(d, cavity[box] + 0.4), hu["wall"], Organ.GALLBLADDER)
        canvas.paint(box, np.maximum(d, cavity[box] + 0.4) + 0.2, 8, Organ.GALLBLADDER)


def _cut(whole: Array, box: Box, part: Box) -> Array:
    """Values of an array over `box` at the pixels of another box; far outside where the boxes do not meet."""
    out = np.full((part[0].stop - part[0].start, part[1].stop - part[1].start), 99.0)
    here = []
    there = []
    for own, other in zip(part, box, strict=True):
        start = max(own.start, other.start)
        stop = max(min(own.stop, other.stop), start)
        here.append(slice(start - own.start, stop - own.start))
        there.append(slice(start - other.start, stop - other.start))
    out[tuple(here)] = whole[tuple(there)]
    return out


def kidneys(canvas: Canvas, rng: np.random.Generator, one: Patient, cavity: Array) -> None:
    """Kidneys, the patient's right one a little lower."""
    for sign, low in ((-1, 0.05), (1, 0.0)):
        _kidney(canvas, rng, one, cavity, sign, low)


def _kidney(canvas: Canvas, rng: np.random.Generator, one: Patient, cavity: Array, sign: int, low: float) -> None:
    """Cortex, medulla, sinus, pelvis, cysts, tumours and stones."""
    away, up, ra, rb, turn, middle, lobes, spin, fat, hilum = uniforms(
        rng, (5.6, 6.8), (-0.9, 0.6), (2.3, 2.9), (2.9, 3.6), (0.3, 0.9), (0.52, 0.66), (0.5, 1.0), (0, 6.28),
        (0.3, 1.2), (0.0, 0.35),
    )  # fmt: skip
    exists, angle, radius, kind, when, stone = rng.random(6).tolist()
    wob = rng.uniform(-0.06, 0.06, 4)
    fat += one.fatness
    depth = one.level - middle - low
    size = section(depth, 0, 0.24)
    if size <= 0.2:
        return
    hu = one.hu
    strands = one.strands
    sx, sy = one.spine
    x, y = sx + sign * (away + 0.8 * one.fatness + 3 * depth), sy + up - 0.4
    size = size**0.7
    box, d = canvas.blob(x, y, ra * size, rb * size, sign * turn, wob, by=fat)
    canvas.paint(box, np.maximum(d - fat, cavity[box]), -100, Organ.FAT)
    inward = -sign * 0.8, -0.6  # towards the hilum: to the middle and to the front
    reach = max(0.0, 1 - (depth / 0.11) ** 2)
    dx, dy = canvas.x[box] - x, canvas.y[box] - y
    along, across = dx * inward[0] + dy * inward[1], dy * inward[0] - dx * inward[1]
    oval = np.sqrt(((along - 1.3 * size) / 1.9) ** 2 + (across / (0.7 + 0.5 * lobes)) ** 2)
    sinus = oval - math.sqrt(reach) + 0.18 * strands[box]
    notch = np.maximum(d, -sinus - 0.25 - hilum) if reach > 0.05 else d
    canvas.paint(box, notch, hu["cortex"], Organ.KIDNEY)
    r = np.sqrt(dx * dx + dy * dy) + 1e-9
    c, s = dx / r, dy / r
    c2, s2 = c * c - s * s, 2 * c * s
    c4, s4 = c2 * c2 - s2 * s2, 2 * c2 * s2
    pyramids = 0.35 * strands[box] + math.cos(spin) * (c4 * c2 - s4 * s2) + math.sin(spin) * (s4 * c2 + c4 * s2)
    medulla = np.maximum(np.maximum(d + 0.6 * size, 0.5 - r), 0.4 * (-pyramids - 0.3))
    canvas.paint(box, medulla, hu["medulla"], Organ.KIDNEY)
    if reach > 0.05:
        canvas.paint(box, np.maximum(sinus + 0.1, d), -70 + 20 * strands[box], Organ.FAT)
        canvas.paint(box, np.maximum(np.maximum(np.abs(across) - 0.35 * lobes, sinus), d), hu["pelvis"], Organ.KIDNEY)
    r = math.sqrt(max(0.0, (0.5 + 2.6 * radius**2) ** 2 - (HEIGHT * (depth - 0.3 * (when - 0.5))) ** 2))
    if exists < 0.45 and r > 0.2:
        ux, uy = math.cos(6.28 * angle), math.sin(6.28 * angle)
        spot, t = canvas.blob(x + 0.9 * ra * size * ux, y + 0.9 * rb * size * uy, r, 0.9 * r)
        t = np.maximum(t, cavity[spot] + 0.1)
        solid = 0.55 * hu["cortex"] + 10 + 25 * strands[spot]
        canvas.paint(spot, t, solid if kind > 0.55 else 8, Organ.LESION)
    if stone > 0.9:
        spot, t = canvas.blob(x + 0.6 * inward[0], y + 0.6, 0.35, 0.28)
        canvas.paint(spot, t, 700, Organ.LESION)


def great_vessels(canvas: Canvas, rng: np.random.Generator, one: Patient, cavity: Array) -> None:
    """Aorta, vena cava, their branches, and the crura of the diaphragm."""
    level = one.level
    hu = one.hu
    sx, sy = one.spine
    ao, ro, cx, rc, flat, calcium, smx, smy = uniforms(
        rng, (0.2, 1.2), (0.85, 1.2), (-2.2, -1.5), (0.95, 1.35), (0.6, 1.0), (0, 1), (-0.3, 0.6), (-1.6, -1.1)
    )
    aneurysm, twist = rng.random(2).tolist()
    ro *= (1 - 0.22 * level) * (1.6 if aneurysm > 0.95 else 1)
    ao_x = sx + ao
    ao_y = sy - 1.9 - ro
    front = sy - 1.75
    for sign in (-1, 1):  # crura of the diaphragm
        box, d = canvas.blob(sx + 0.4 + sign * 1.7, sy - 1.7, 0.45, 1.6 * max(0.1, 1 - level), -0.25 * sign)
        canvas.paint(box, d, hu["muscle"], Organ.MUSCLE)
    box, d = canvas.blob(sx + cx, front - rc * flat, rc, rc * flat, 0.2)
    canvas.paint(box, d - 0.15, -95, Organ.FAT)
    renal = max(0.0, 1 - (abs(level - 0.58) / 0.05) ** 2)
    if renal > 0:
        for sign in (-1, 1):
            tube, t = canvas.blob(sx + sign * 3.0 + 0.3, sy - 2.0 + 0.3 * twist, 2.7, 0.42 * renal + 0.05, sign * 0.25)
            canvas.paint(tube, t, hu["cava"], Organ.VESSEL)
    canvas.paint(box, d, hu["cava"], Organ.VENA_CAVA)
    box, d = canvas.blob(ao_x, ao_y, ro, ro)
    canvas.paint(box, d - 0.2, -95, Organ.FAT)
    canvas.paint(box, d, hu["muscle"], Organ.AORTA)
    canvas.paint(box, d + 0.12, hu["aorta"], Organ.AORTA)
    if calcium > 0.6:
        arc = np.maximum(np.abs(d + 0.1) - 0.12, 0.6 * ro - (canvas.x[box] - ao_x) * math.cos(9 * twist + 4 * level))
        canvas.paint(box, arc, 650, Organ.AORTA)
    if level > 0.3:
        for dx, r, key in ((smx, 0.38, "aorta"), (smx - 1.3, 0.6, "portal")):
            box, d = canvas.blob(ao_x + dx, ao_y - ro + smy, r, r)
            canvas.paint(box, d - 0.25, -95, Organ.FAT)
            canvas.paint(box, d, hu[key], Organ.VESSEL)


def lungs(canvas: Canvas, rng: np.random.Generator, one: Patient, cavity: Array) -> None:
    """Lung bases: crescents along the back of the cavity at the uppermost levels."""
    end, high = uniforms(rng, (0.1, 0.32), (2.5, 5.5))
    if one.level < end:
        part = 1 - one.level / end
        sx, sy = one.spine
        thick = high * part * np.clip((canvas.y - sy + 7 * part + 2) / 5, 0, 1)
        back = 3.2 - np.sqrt(((canvas.x - sx) / 1.5) ** 2 + (canvas.y - sy - 2.4) ** 2)  # spine and its muscles
        lung = np.maximum(np.maximum(cavity + 0.1, 0.4 - cavity - thick), back)
        canvas.paint(EVERYWHERE, lung, -860 + 160 * np.maximum(one.speckle - 1, 0), Organ.LUNG)


def spine(canvas: Canvas, rng: np.random.Generator, one: Patient, cavity: Array) -> None:
    """Vertebral body or disc, canal, arch and processes; which of them depends on the level."""
    dense, wide, at, process, tilt = uniforms(rng, (110, 260), (0.9, 1.1), (0, 1), (0.8, 1.2), (-0.15, 0.15))
    x, y = one.spine
    turn = (at + 7 * one.level) % 1  # one vertebra per turn
    disc = turn > 0.8
    arch = turn < 0.65
    for sign in (-1, 1):
        if 0.25 < turn < 0.6 or one.level < 0.2:
            box, d = canvas.blob(x + sign * 3.2, y + 2.2, 1.7 * wide, 0.36, sign * (0.1 + tilt))
            canvas.paint(box, d, 520, Organ.BONE)
        box, d = canvas.blob(x + sign * 1.55, y + 2.4, 0.55 if arch else 0.8, 0.75, sign * 0.4)
        canvas.paint(box, d, 640, Organ.BONE)
    if turn > 0.2:
        box, d = canvas.blob(x + 0.3 * tilt, y + 2.8 + 0.5 * process, 0.34, process, 0.2 * tilt)
        canvas.paint(box, d, 480, Organ.BONE)
        canvas.paint(box, d + 0.2, 300, Organ.BONE)
    box, d = canvas.blob(x, y + 2.15, 1.55 * wide, 1.25)
    canvas.paint(box, d if arch else np.maximum(d, y + 2.3 - canvas.y[box]), 560, Organ.BONE)
    box, d = canvas.blob(x, y, 2.3 * wide, 1.75 * wide, 0, (0.03, 0, 0, 0.05))
    if disc:
        canvas.paint(box, d, 95, Organ.DISC)
    else:
        canvas.paint(box, d, 560, Organ.BONE)
        canvas.paint(box, d + 0.28, dense, Organ.BONE)
    box, d = canvas.blob(x, y + 2.15, 1.05 * wide, 0.85)
    canvas.paint(box, d, -20, Organ.SPINAL_CANAL)
    canvas.paint(box, d + 0.2, 28, Organ.SPINAL_CANAL)
