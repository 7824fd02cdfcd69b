"""Bands of a call in files of some images, as codes: written as the call goes, read at home."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

Array = np.ndarray


def codes(lower: Array, upper: Array) -> tuple[Array, Array]:
    """Ends in [0, 1] as multiples of 1 / 2048, rounded outward: what lies beyond is cut off by any interval."""
    low, high = np.clip(lower, 0, 1) * 2048, np.clip(upper, 0, 1) * 2048
    return np.floor(low).astype(np.uint16), np.ceil(high).astype(np.uint16)


class CodedBands:
    """Codes of bands in files of so many images; bytes of numbers are kept apart, which compresses better."""

    def __init__(self, out: Path, label: str, numbers: Array, per_file: int) -> None:
        self.out, self.label, self.numbers, self.per_file = out, label, numbers, per_file
        self.count = 0
        self._now: list[dict[int, tuple[Array, Array]]] = []

    def add(self, ends: dict[int, tuple[Array, Array]]) -> None:
        """Keep the bands of the next image."""
        self._now.append(ends)
        self.count += 1
        if len(self._now) == self.per_file:
            self.write()

    def write(self) -> None:
        """Write what is not written yet."""
        if not self._now:
            return
        first = self.count - len(self._now)
        parts: dict[str, Array] = {"numbers": np.asarray(self.numbers[first : self.count], np.int32)}
        for m in self._now[0]:
            lower = np.stack([ends[m][0] for ends in self._now])
            length = np.stack([ends[m][1] for ends in self._now]) - lower
            for name, x in ((f"{m}/lower", lower), (f"{m}/length", length)):
                parts |= {f"{name}/high": (x >> 8).astype(np.uint8), f"{name}/low": (x & 255).astype(np.uint8)}
        target = self.out / f"{self.label}-{first // self.per_file}.npz"
        part = target.with_suffix(".partial.npz")
        np.savez_compressed(part, **parts)  # type: ignore[arg-type]
        part.rename(target)
        self._now = []
        print(f"{target.name}: {self.count} images, {target.stat().st_size / 2**20:.1f} MiB", flush=True)


def decoded(folder: Path, label: str) -> Iterator[tuple[int, Array, Array, Array]]:
    """Samples, numbers of the images, and both ends in [0, 1] of every band of a label."""
    found: dict[int, list[tuple[Array, Array, Array]]] = {}
    files = sorted(folder.glob(f"{label}-[0-9]*.npz"), key=lambda path: int(path.stem.rsplit("-", 1)[1]))
    for path in files:
        with np.load(path, allow_pickle=False) as file:
            for m in sorted({int(name.split("/")[0]) for name in file.files if "/" in name}):
                lower, length = (
                    file[f"{m}/{part}/high"].astype(np.float32) * 256 + file[f"{m}/{part}/low"]
                    for part in ("lower", "length")
                )
                found.setdefault(m, []).append((file["numbers"], lower / 2048, (lower + length) / 2048))
    for m, pieces in found.items():
        numbers, lower, upper = (np.concatenate([piece[i] for piece in pieces]) for i in range(3))
        yield m, numbers, lower, upper
