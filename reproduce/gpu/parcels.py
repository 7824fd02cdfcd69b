"""What a call brings back of slices: files of at most 16 MiB, of which the last is written anew with every block."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
FILE = 15 * 2**20  # bytes


class Kept:
    """What is found of slices, in files that may be brought back; the last one is written anew with every block."""

    def __init__(self, out: Path, figures: dict[str, Any]) -> None:
        self.out, self.figures = out, figures
        self.count = self._file = 0
        self._now: list[dict[str, Array]] = []

    def add(self, numbers: Array, found: dict[str, Array]) -> None:
        """Keep a block: ends outward in float16, all else as it is."""
        from .measures import outward

        low, high = outward(found["lower"], found["upper"])
        block = found | {"lower": low, "upper": high, "numbers": np.asarray(numbers, np.int32)}
        if self._now and self._bytes(self._now) + self._bytes([block]) > FILE:
            self._now = []
            self._file += 1
        self._now.append(block)
        self.count += len(numbers)
        target = self.out / f"slices-{self._file}.npz"
        part = target.with_suffix(".partial.npz")
        np.savez(part, **{name: np.concatenate([x[name] for x in self._now]) for name in block})  # type: ignore[arg-type]
        part.rename(target)
        (self.out / "figures.json").write_text(json.dumps(self.figures | {"drawn": self.count}) + "\n")

    @staticmethod
    def _bytes(blocks: list[dict[str, Array]]) -> int:
        return sum(x.nbytes for block in blocks for x in block.values())


def brought(folder: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """What came back, in float32, and its figures."""
    parts: dict[str, list[Array]] = {}
    for path in sorted(folder.glob("slices-*.npz"), key=lambda path: int(path.stem.rpartition("-")[2])):
        with np.load(path, allow_pickle=False) as file:
            for name in file.files:
                x = file[name]
                parts.setdefault(name, []).append(x if name == "numbers" else x.astype(np.float32))
    if not parts:
        raise SystemExit(f"{folder} holds no slices-*.npz; give the folder of what came back")
    return {name: np.concatenate(x) for name, x in parts.items()}, json.loads((folder / "figures.json").read_text())
