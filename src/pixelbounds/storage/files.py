"""Files and folders that are whole or not there: written aside, flushed to disk, renamed; what one process holds
against others; and the sealed file, which holds text and arrays under a checksum.

What is written aside is held by its writer until it has its name or is gone. A part that nobody holds was left by a
process that was killed, and the next writer sweeps it away.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

_MOST_HEADER = 2**26  # bytes of names and shapes in a sealed file
_SWEPT: set[Path] = set()  # folders that this process looked through


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Put bytes under a name; whatever happens, the name holds its old content or all of the new.

    Who may read the file is as it was for an earlier one, and what the umask says for a new one.
    """
    path = Path(path)
    sweep(path.parent)
    aside, handle = _new_file(path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            with suppress(FileNotFoundError):
                os.chmod(aside, stat.S_IMODE(path.stat().st_mode))
            os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def check_regular(path: str | os.PathLike[str]) -> None:
    """What a path names is no pipe and no device, which would be read for ever."""
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path} is a pipe or a device; copy what it gives into a file")


def check_new_file(path: str | os.PathLike[str], what: str) -> Path:
    """A path under which a file can be written; else a ValueError says what is wrong with it."""
    target = Path(path)
    try:
        folder, taken = target.parent.is_dir(), target.is_dir()
    except OSError as error:
        raise ValueError(f"no file can have the name {str(target)!r} ({error.strerror}); give another") from error
    if not folder:
        raise ValueError(f"there is no folder {str(target.parent)!r} to save the {what} in; make it first")
    if taken:
        raise ValueError(f"{str(target)!r} is a folder; give the name of a file")
    return target


def read_file(path: str | os.PathLike[str], what: str) -> bytes:
    """The content of a file; a ValueError says that there is none."""
    target = Path(path)
    try:
        exists = target.is_file()
    except OSError:  # a name that no file can have
        exists = False
    if not exists:
        raise ValueError(f"there is no {what} at {str(target)!r}")
    return target.read_bytes()


def _new_file(folder: Path) -> tuple[Path, int]:
    while True:
        aside = folder / f".pixelbounds.{uuid4().hex}.part"
        handle = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)
        if _locked(handle) and os.fstat(handle).st_nlink:
            return aside, handle
        os.close(handle)  # somebody sweeps, and took it for a killed one's


def size_in_words(size: float) -> str:
    """Bytes, to three digits.

    >>> size_in_words(999), size_in_words(4711), size_in_words(2e12)
    ('999 bytes', '4.71 kB', '2 TB')
    """
    if size < 1000:
        return f"{size:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 1000:
            return f"{size:.3g} {unit}"
    return f"{size / 1000:.3g} TB"


def lock(path: Path) -> int:
    """Hold a file or folder against other processes until the handle is closed, or the process ends however it ends.

    A FileNotFoundError says that it is gone, or has another name by now.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        if not _locked(handle):
            raise BlockingIOError(f"{path} is being written by another process; wait for it or end it")
        held = os.fstat(handle)
        there = os.stat(path)
        if (held.st_dev, held.st_ino) != (there.st_dev, there.st_ino):
            raise FileNotFoundError(f"{path} was renamed by another process; run the command again")
    except BaseException:
        os.close(handle)
        raise
    return handle


def _locked(handle: int) -> bool:
    """Whether this process holds what a handle stands for; where the system has no locks it always does."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a folder alone."""
    handle = lock(path)
    try:
        yield
    finally:
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove what killed writers left aside in a folder, once in a process; what somebody holds stays."""
    folder = folder.absolute()
    if folder in _SWEPT or os.name != "posix":
        return
    _SWEPT.add(folder)
    for part in folder.glob(".pixelbounds.*.part"):
        remove_unheld(part)


def remove_unheld(part: Path) -> None:
    """Remove a file or folder unless a process holds it."""
    with suppress(OSError), exclusive(part):
        if part.is_dir() and not part.is_symlink():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


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
    while True:
        folder = parent / f".pixelbounds.{uuid4().hex}.part"
        folder.mkdir(mode=0o700)
        try:
            return folder, lock(folder)
        except (BlockingIOError, FileNotFoundError):  # somebody sweeps, and took it for a killed one's
            continue


# ---------------------------------------------------------------- sealed files


def seal(text: Mapping[str, Any], tensors: Mapping[str, np.ndarray], *, finite: bool = True) -> bytes:
    """Text and arrays as one safetensors file with a checksum: no code runs when it is read, and an edit is noticed.

    Equal content gives equal bytes: the text is one JSON string with sorted keys, in the only entry of the metadata.
    Numbers of the text must be finite, unless `finite` is False.
    """
    from safetensors.numpy import save

    written = json.dumps(text, sort_keys=True, allow_nan=not finite)
    arrays = {name: np.asarray(x, order="C") for name, x in tensors.items()}
    # one entry only: safetensors does not keep the order of several, and equal content must give equal bytes
    return save(arrays, {"pixelbounds": f"{checksum(written, arrays)} {written}"})


def unseal(
    data: bytes, name: str, *, what: str, remedy: str, again: str, finite: bool = True
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Text and arrays of a file; errors say what it should be, `remedy` how to write it, `again` how to get another."""
    try:
        entry, tensors = sealed_parts(data)
        stored, _, written = entry.partition(" ")
        if len(stored) != 64:
            raise ValueError("it has no checksum")
        changed = checksum(written, tensors) != stored
        text = {} if changed else strict_json(written, finite=finite)
        if not changed and (not isinstance(text, dict) or "format" not in text):
            raise ValueError("it names no format")
    except ValueError as error:
        raise ValueError(f"{name!r} is not a pixelbounds {what}, or was cut short ({error}); {remedy}") from error
    if changed:
        raise ValueError(f"{name!r} was changed after it was written: its checksum does not fit; {again}")
    return text, tensors


def sealed_parts(data: bytes) -> tuple[str, dict[str, np.ndarray]]:
    """The entry `pixelbounds` of the metadata of a safetensors file, and its arrays; anything odd is a ValueError."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if len(data) < 8:
        raise ValueError(f"it has {len(data)} bytes")
    size = struct.unpack("<Q", data[:8])[0]
    if size > min(len(data) - 8, _MOST_HEADER):
        raise ValueError(f"its header of {size} bytes is longer than the file, or than {_MOST_HEADER}")
    header = strict_json(data[8 : 8 + size])
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    entry = metadata.get("pixelbounds") if isinstance(metadata, dict) else None
    if not isinstance(entry, str):
        raise ValueError("its metadata have no entry of pixelbounds")
    try:
        return entry, load(data)
    except KeyError as error:
        raise ValueError(f"it holds arrays of type {error.args[0]}, which is none of ours") from error
    except (SafetensorError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(str(error)) from error


def strict_json(text: str | bytes, *, finite: bool = True) -> Any:
    """What JSON text says, without names that are given twice, bottomless lists, or with `finite` infinite numbers.

    >>> strict_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    """
    numbers: dict[str, Any] = {"parse_constant": _finite, "parse_float": _finite} if finite else {}
    try:
        return json.loads(text, object_pairs_hook=_once, **numbers)
    except RecursionError as error:
        raise ValueError("its text is nested without end") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{twice[:40]!r} is given twice")
    return table


def _finite(word: str) -> float:
    value = float(word)
    if not np.isfinite(value):
        raise ValueError(f"{word[:40]} is no finite number")
    return value


def checksum(text: str, tensors: Mapping[str, np.ndarray]) -> str:
    """Digest of all that a file holds."""
    state = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        state.update(f"{name} {tensors[name].dtype.str} {tensors[name].shape}".encode())
        state.update(tensors[name].tobytes())
    return state.hexdigest()
