"""Data of a page in files beside it, each read when what it holds is looked at.

A page that is opened from disk may read no file, but it may run a script. So each file is a script of one call, with
its data as text. Its name ends in the first digits of the text's SHA-256, which the page compares: a folder of another
page, or a file that was changed, is not shown as if it were this page's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Set
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..storage.files import replace_file

_OURS = re.compile(r"\d{4,}-[a-z]+-[0-9a-f]{16}\.js")


def folder_beside(page: Path) -> Path:
    """Where the files of a page lie; Windows moves a folder of this name together with the page.

    >>> folder_beside(Path("out/report.html")).name
    'report_files'
    """
    return page.with_name(f"{page.stem}_files")


def write_data(folder: Path, number: int, what: str, data: Any) -> str:
    """Write plain values as a file of a page and return its name without `.js`; equal data have equal names."""
    text = json.dumps(data, separators=(",", ":"))
    name = f"{number:04d}-{what}-{sha256(text.encode()).hexdigest()[:16]}"
    replace_file(folder / f"{name}.js", f"pixelbounds({json.dumps(name)}, {json.dumps(text)});\n".encode())
    return name


def sweep_data(folder: Path, kept: Set[str]) -> None:
    """Remove files of an earlier page that this one does not name, and the folder where nothing is left in it."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) and path.stem not in kept:
            path.unlink(missing_ok=True)
    with suppress(OSError):  # it holds something
        folder.rmdir()
