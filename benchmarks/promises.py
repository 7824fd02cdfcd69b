"""What eight promises cost beside one, 512 images of 256 x 256: time computed and peak memory, in one run.

Time is that of the processor, of all threads together: other work on the machine does not add to it.

`python -m benchmarks promises` measures it; `python -m benchmarks.promises 96 64` tries it at another size.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from time import process_time
from typing import Any

import numpy as np

import pixelbounds as pb
from benchmarks.timing import extra_memory, seconds
from pixelbounds.demo.synthetic import synthetic_pairs

IMAGES, SIZE = 512, 256
REPEATS = 3
WAYS = {"frontier, band groups": pb.Frontier("band"), "rcps": pb.RCPS()}


def promises_of(truth: np.ndarray) -> list[pb.Promise]:
    """Eight promises: all pixels, three organs (one of them rare), body, edges, a tail, and one with a cap."""
    n, height, width = truth.shape
    organs = np.zeros(truth.shape, np.uint8)
    organs[:, : height // 2, : width // 4] = 1
    organs[::2, height // 2 :, : width // 4] = 2
    organs[::4, height // 4 : height // 3, width // 2 : 2 * width // 3] = 3
    return [
        pb.share(0.1),
        *(pb.share(0.15, within=organs == k, name=f"organ {k}") for k in (1, 2, 3)),
        pb.share(0.1, within=pb.regions.body(truth), name="body"),
        pb.share(0.2, within=pb.regions.edges(truth, top=0.05), name="edges"),
        pb.tail(0.15, above=0.2),
        pb.share(0.1, within=np.arange(n) % 3 > 0, cap=0.5, name="subgroup"),
    ]


def case(way: str, count: int, n: int, size: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A calibration with one promise or eight, and the same of a few small images, which compiles what it needs."""

    def made(n: int, size: int) -> Callable[[], Any]:
        truth, band, _ = synthetic_pairs(n, size, seed=1)
        asked = promises_of(truth) if count == 8 else [pb.share(0.1)]
        return lambda: pb.calibrate(truth, band, promises=asked, method=WAYS[way])

    return made(n, size), made(240, 16)


def peak(way: str, count: int, n: int, size: int) -> float:
    """MiB by which memory rises, at its peak, in a fresh process."""
    words = [sys.executable, "-m", "benchmarks.promises", "--peak", way, str(count), str(n), str(size)]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def measured(n: int = IMAGES, size: int = SIZE) -> list[dict[str, Any]]:
    """Seconds and peak memory of one promise and of eight."""
    rows: list[dict[str, Any]] = []
    for way in WAYS:
        times = {count: seconds(case(way, count, n, size)[0], REPEATS, process_time) for count in (1, 8)}
        peaks = {count: peak(way, count, n, size) for count in (1, 8)}
        for count in (1, 8):
            rows.append({
                "what": way, "promises": count, "images": n, "size": size, "CPU seconds": times[count],
                "times one": times[count] / times[1], "peak MiB": peaks[count],
            })  # fmt: skip
    return rows


def run() -> list[dict[str, Any]]:
    return measured()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        way, *numbers = sys.argv[2:]
        big, small = case(way, *map(int, numbers))
        small()
        gc.collect()
        print(extra_memory(big) / 2**20)
    else:
        print(json.dumps(measured(*map(int, sys.argv[1:])), indent=1))
