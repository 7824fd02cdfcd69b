"""Folders that are whole or not there: written aside, then given their name; an earlier one goes only then."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from .files import exclusive, lock, remove_unheld, sweep


def swap_folder(new: Path, path: Path) -> None:
    """Give a finished folder its name; what had the name before is removed, unless another process writes it."""
    if not path.is_dir():
        os.rename(new, path)
    else:
        with exclusive(path):
            _change_places(new, path)
    for stale in path.parent.glob(f".{path.name}*.old"):  # of processes that were killed
        remove_unheld(stale)


def _change_places(new: Path, path: Path) -> None:
    """A folder does not replace another in one step: the earlier one steps aside, and comes back where that fails."""
    old = path.with_name(f".{path.name}.{uuid4().hex}.old")
    os.rename(path, old)
    try:
        os.rename(new, path)
    except OSError:
        if not path.exists():
            os.rename(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A folder beside a path to write into, which nobody else may enter; whatever happens, it is gone afterwards."""
    sweep(path.parent)
    try:
        folder, handle = _new_folder(path.parent)
    except OSError as error:  # what cannot be made is known by the name that was asked for
        raise OSError(error.errno, error.strerror, str(path)) from error
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
        os.close(handle)


def _new_folder(parent: Path) -> tuple[Path, int]:
    """A new folder of no other's name, held."""
    while True:
        folder = parent / f".pixelbounds.{uuid4().hex}.part"
        folder.mkdir(mode=0o700)
        try:
            return folder, lock(folder)
        except (BlockingIOError, FileNotFoundError):  # somebody sweeps, and took it for a killed one's
            continue
