"""Files that are whole or not there: written aside, flushed to disk, renamed; folders that one process holds; and the
sealed file, which holds text and arrays under a checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Put bytes under a name; whatever happens, the name holds its old content or all of the new."""
    path = Path(path)
    handle, aside = tempfile.mkstemp(prefix=".pixelbounds.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(aside, 0o644)  # mkstemp lets nobody else read
        os.replace(aside, path)
    except BaseException:
        Path(aside).unlink(missing_ok=True)
        raise


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


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a folder alone, until the process ends however it ends."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BlockingIOError(f"{path} is being written by another process; wait for it or end it") from error
        yield
    finally:
        os.close(handle)


# ---------------------------------------------------------------- sealed files


def seal(text: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> bytes:
    """Text and arrays as one safetensors file with a checksum: no code runs when it is read, and an edited one is told.

    Equal content gives equal bytes: the text is one JSON string with sorted keys, in the only entry of the metadata.
    """
    from safetensors.numpy import save

    written = json.dumps(text, sort_keys=True)
    arrays = {name: np.asarray(x, order="C") for name, x in tensors.items()}
    # one entry only: safetensors does not keep the order of several, and equal content must give equal bytes
    return save(arrays, {"pixelbounds": f"{checksum(written, arrays)} {written}"})


def unseal(data: bytes, name: str, *, what: str, remedy: str, again: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Text and arrays of a file; errors say what it should be, `remedy` how to write it, `again` how to get another."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    foreign = f"{name!r} is not a pixelbounds {what}, or was cut short"
    try:
        tensors = load(data)
        size = struct.unpack("<Q", data[:8])[0]
        found, written = json.loads(data[8 : 8 + size])["__metadata__"]["pixelbounds"].split(" ", 1)
        text = json.loads(written)
    except (SafetensorError, ValueError, KeyError, struct.error, AttributeError, TypeError) as error:
        raise ValueError(f"{foreign} ({error}); {remedy}") from error
    if checksum(written, tensors) != found:
        raise ValueError(f"{name!r} was changed after it was written: its checksum does not fit; {again}")
    if not isinstance(text, dict) or "format" not in text:
        raise ValueError(f"{foreign}; {remedy}")
    return text, tensors


def checksum(text: str, tensors: Mapping[str, np.ndarray]) -> str:
    """Digest of all that a file holds."""
    state = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        state.update(f"{name} {tensors[name].dtype.str} {tensors[name].shape}".encode())
        state.update(tensors[name].tobytes())
    return state.hexdigest()
