"""Files that are whole or not there: written aside, flushed to disk, renamed; folders that one process writes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
