"""The figures of benchmarks/results/scale.json in docs/research/speed.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .pages import made, result, where
from .scale import SAMPLES, STEPS, WORKERS

PAGE = "docs/research/speed.md"
SIZE = 512
DRAWS = 128  # of the images to which the figures are carried over: the paper's CT experiment
COUNTS = (10**4, 10**6, 10**8)


def measured(rows: list[dict[str, Any]]) -> list[str]:
    """The table of what was measured, a line for each size."""
    sizes = sorted({row["GB"] for row in rows})
    named = {(row["GB"], row["what"]): row for row in rows}
    lines = [
        "| samples | reading with zarr | samples to calibration | against reading | apply | evaluate | peak memory |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for size in sizes:
        whats = ("reading with zarr", "samples to calibration", "apply", "evaluate")
        took = {what: f"{named[size, what]['seconds']:.3g} s" for what in whats}
        made = named[size, whats[1]]
        lines.append(
            f"| {size:.1f} GB | {took[whats[0]]} | {took[whats[1]]} | {made['times']:.2f} | {took['apply']} "
            f"| {took['evaluate']} | {made['peak MB']} MB |"
        )

    def gain(what: str) -> float:
        """How many times as fast two processes are."""
        one = named[sizes[:2][-1], f"{what}, 1 worker process"]["seconds"]
        return one / named[sizes[:2][-1], f"{what}, 2 worker processes"]["seconds"]

    bands = gain(WORKERS[0])
    applied = gain(WORKERS[1])
    bare = gain("reading by bare processes")
    threads = named[sizes[-1], "reading with zarr in threads"]
    files = named[sizes[-1], "reading files as bytes"]
    lines += [
        "",
        f"Reading with zarr is a plain loop over the images; of {sizes[-1]:.1f} GB the same loop in one thread more "
        f"than cores takes {threads['seconds']:.3g} s, and reading the files as bytes, without zarr, "
        f"{files['seconds']:.3g} s. Two worker processes apply learned groups, which computes, {applied:.2f} times as "
        f"fast as one, and make bands, which mostly reads, {bands:.2f} times; two bare processes that only read files "
        f"are {bare:.2f} times as fast as one on this machine.",
    ]
    return lines


def carried_over(found: dict[str, Any], drawing: dict[str, Any]) -> list[str]:
    """The table for many images, and its arithmetic."""
    rows = found["rows"]
    largest = max(row["GB"] for row in rows)
    named = {row["what"]: row for row in rows if row["GB"] == largest}
    cores = int(found["machine"]["cores"])
    pixels = SIZE * SIZE
    points = max(int(row["what"].split(": ")[1]) for row in rows if row["what"].startswith("points of the path"))
    per_byte = cores * named[STEPS[0]]["seconds"] / (largest * 1e9)
    per_pixel = sum(cores * named[what]["seconds"] for what in STEPS[1:4]) / (largest * 1e9 / (4 * SAMPLES))
    per_draw = drawing["seconds"] / drawing["samples"] * (SIZE / drawing["size"]) ** 2
    amounts: dict[str, Callable[[int], str]] = {
        "samples, float32": lambda n: size_in_words(4.0 * n * DRAWS * pixels),
        "bands, float32": lambda n: size_in_words(8.0 * n * pixels),
        "GPU hours to sample": lambda n: hours(n * DRAWS * per_draw),
        "core hours, samples to bands": lambda n: hours(4.0 * n * DRAWS * pixels * per_byte),
        "core hours, calibrate, apply, evaluate": lambda n: hours(n * pixels * per_pixel),
        "table of losses, on disk beyond a quarter of `--memory`": lambda n: size_in_words(4.0 * n * points),
    }
    lines = [f"| {SIZE} x {SIZE}, {DRAWS} samples | {' | '.join(f'{n:.0e} images' for n in COUNTS)} |"]
    lines.append("|---" * (1 + len(COUNTS)) + "|")
    lines += [f"| {what} | {' | '.join(amount(n) for n in COUNTS)} |" for what, amount in amounts.items()]
    image = 4.0 * DRAWS * pixels
    bands = named[STEPS[0]]["seconds"]
    rest = sum(named[x]["seconds"] for x in STEPS[1:4])
    return [
        *lines,
        "",
        "The arithmetic, for n images:",
        f"- samples: n x {DRAWS} x {pixels:,} pixels x 4 bytes = n x {size_in_words(image)};",
        f"- bands: n x 2 x {pixels:,} pixels x 4 bytes = n x {size_in_words(8.0 * pixels)};",
        f"- samples to bands: {bands:.3g} s x {cores} cores for {largest:.1f} GB = "
        f"{per_byte * 1e9:.3g} core seconds per GB;",
        f"- calibrate, apply and evaluate: {rest:.3g} s x {cores} cores for {largest * 1e9 / 4 / SAMPLES:.3g} pixels = "
        f"{per_pixel * 1e9:.3g} core seconds per 1e9 pixels;",
        f"- sampling: {drawing['samples']:,} samples of {drawing['size']} x {drawing['size']} took "
        f"{drawing['seconds']:.0f} s on one {drawing['device']}, times ({SIZE} / {drawing['size']})^2 pixels = "
        f"{per_draw:.3g} s per sample, for a network of the same make whose cost grows with the pixels;",
        f"- losses: {points} points of the path x 4 bytes = {size_in_words(4.0 * points)} per image.",
    ]


def size_in_words(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} EB"


def hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2g}" if seconds < 36000 else f"{seconds / 3600:,.0f}"


def text() -> str:
    found = result("scale")
    [call] = [call for call in made("ct64")["calls"] if call["way"] == "ours"]
    drawn = call["bands"][0]  # with one network
    drawing = {
        "samples": drawn["images"] * drawn["samples"], "seconds": drawn["seconds"], "device": call["device"],
        "size": 64,
    }  # fmt: skip
    lines = [f"One run (`python -m benchmarks scale`; {where(found)}), page cache warm, `--memory 512M`.", ""]
    return "\n".join([*lines, *measured(found["rows"]), "", "### To many images", *carried_over(found, drawing)])
