"""A table that comes in rows and is read by columns, in memory or, beyond a limit, in a temporary file.

The losses of a million images at some two thousand points take gigabytes. Rows are kept in tiles, each turned over so
that its part of a column lies together; a column is read tile by tile, and where the tiles lie changes no bit. The file
has no name: however the process ends, nothing is left of it.
"""

from __future__ import annotations

import tempfile
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray
_TILE = 2**24  # bytes


@dataclass(frozen=True)
class Room:
    """Bytes that a table may take in memory, and the folder for those that take more; None: the system's."""

    most: int = 2**30
    folder: Path | None = None


ROOM: ContextVar[Room] = ContextVar("ROOM", default=Room())  # noqa: B039 - frozen; `execution.running` sets it


class Table:
    """Counts (n, columns), int32, that are appended as rows and read as columns; a context that frees what it took.

    >>> with Table() as table:
    ...     table.append(np.array([[5, 3], [4, 0]]))
    ...     table.append(np.array([[7, 1]]))
    ...     table.columns(1, 2)
    array([[3, 0, 1]], dtype=int32)
    """

    def __init__(self) -> None:
        self._room = ROOM.get()
        self._waiting: list[Array] = []  # rows that are in no tile yet
        self._tiles: list[Array | tuple[int, int]] = []  # (columns, rows) each, or where in the file, and rows
        self._file: Any = None  # unbuffered
        self._rows = self._coming = self._held = 0  # rows, and bytes that wait and lie in tiles

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *error: Any) -> None:
        self._waiting, self._tiles = [], []
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        return self._rows

    @property
    def on_disk(self) -> bool:
        """Whether it was too large for memory."""
        return self._file is not None

    def append(self, rows: Array) -> None:
        """Add rows (r, columns)."""
        self._waiting.append(rows)
        self._rows += len(rows)
        self._coming += 4 * rows.size
        if self._coming >= min(_TILE, self._room.most // 4):
            self._turn()

    def columns(self, start: int, stop: int) -> Array:
        """Columns start..stop: (stop - start, n)."""
        self._turn()
        out = np.empty((stop - start, len(self)), np.int32)
        first = 0
        for tile in self._tiles:
            part = self._read(*tile, start, stop) if isinstance(tile, tuple) else tile[start:stop]
            out[:, first : first + part.shape[1]] = part
            first += part.shape[1]
        return out

    def _turn(self) -> None:
        """Make a tile of the rows that wait; all tiles go to the file once they are too many."""
        if not self._waiting:
            return
        rows = sum(len(x) for x in self._waiting)
        tile, first = np.empty((self._waiting[0].shape[1], rows), np.int32), 0
        for x in self._waiting:
            tile[:, first : first + len(x)] = x.T
            first += len(x)
        self._waiting, self._coming = [], 0
        self._held += tile.nbytes
        if self._file is None and self._held > self._room.most:
            self._file = tempfile.TemporaryFile(buffering=0, dir=self._room.folder)  # noqa: SIM115 - kept
            self._tiles = [self._write(x) for x in self._tiles if isinstance(x, np.ndarray)]
        self._tiles.append(tile if self._file is None else self._write(tile))

    def _write(self, tile: Array) -> tuple[int, int]:
        at, left = self._file.seek(0, 2), tile.data.cast("B")
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:  # the file has no name to tell
            folder = self._room.folder or tempfile.gettempdir()
            raise OSError(error.errno, f"{error.strerror} for a table of losses", str(folder)) from error
        return at, tile.shape[1]

    def _read(self, at: int, rows: int, start: int, stop: int) -> Array:
        out = np.empty((stop - start, rows), np.int32)
        self._file.seek(at + 4 * rows * start)
        left = out.data.cast("B")
        while left:
            got = self._file.readinto(left)
            if not got:
                raise OSError("the temporary file of a table of losses was cut short; run it again")
            left = left[got:]
        return out
