"""Files that are whole or not there: written aside, flushed to disk, renamed."""

from __future__ import annotations

import os
import tempfile
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
