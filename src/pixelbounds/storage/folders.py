"""Folders that are whole or not there: written aside, then given their name; an earlier one goes only then."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def swap_folder(new: Path, path: Path) -> None:
    """Give a finished folder its name; what had the name before is removed."""
    old = path.with_name(f".{path.name}.old")
    if path.is_dir():  # a folder does not replace another in one step
        shutil.rmtree(old, ignore_errors=True)  # of a process that was killed
        os.rename(path, old)
    try:
        os.rename(new, path)
    except OSError:
        if old.exists() and not path.exists():
            os.rename(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A folder beside a path to write into; whatever happens, it is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix=".pixelbounds.", suffix=".part", dir=path.parent))
    try:
        yield folder
    finally:
        for _ in range(50):  # a thread of zarr may still be writing a chunk after an interrupt
            shutil.rmtree(folder, ignore_errors=True)
            if sys.exception() is None:
                break
            time.sleep(0.02)
            if not folder.exists():
                break
