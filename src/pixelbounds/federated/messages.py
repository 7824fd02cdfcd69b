"""What travels between sites and coordinator: text and arrays in a sealed file.

A message is bytes in (`message_of`) and bytes out (`Message.to_bytes`), whatever carries them: NVFlare (`engine.py`),
which knows who sent them, or files. Every field is checked (`fields.py`) before anything uses it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ..images.library import Array
from ..storage.files import replace_file, seal, unseal
from ..storage.version import VERSION
from .fields import KINDS, check_announced, check_text

_FORMAT = 5


@dataclass(frozen=True, eq=False)
class Message:
    """Its kind, what it says, its tables, and the name by which errors call it."""

    kind: str  # announcement, plan, answer or study
    text: Mapping[str, Any]
    tables: Mapping[str, Array] = field(default_factory=dict)
    name: str = ""

    def __repr__(self) -> str:
        words = ", ".join(f"{key} {self.text[key]}" for key in ("site", "round") if key in self.text)
        return f"{self.kind} ({words}), {len(self.to_bytes())} bytes"

    @property
    def digest(self) -> str:
        """SHA-256 of all that the message holds."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """The content of the file; equal messages give equal bytes."""
        tables = {name: _narrow(x) for name, x in self.tables.items()}
        return seal({**self.text, "kind": self.kind, "format": _FORMAT, "version": VERSION}, tables)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, aside first and then in place."""
        replace_file(path, self.to_bytes())


def load(path: str | os.PathLike[str]) -> Message:
    """Read a file that `Message.save` wrote."""
    return message_of(FilePath(path).read_bytes(), str(path))


def message_of(data: bytes, name: str = "message") -> Message:
    """The message that the content of a file holds; `expect` checks what it says."""
    text, tables = unseal(data, name, what="message between sites", remedy="send it again", again="send it again")
    kind = text.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"{name!r} is not a message between sites but a {kind or 'calibration file'}")
    written = text.pop("format"), text.pop("version", "")
    if written != (_FORMAT, VERSION):
        raise ValueError(f"{name!r} was written by another version than {VERSION}; all sites must use the same one")
    wide = {key: x.astype(np.int64) if x.dtype.kind in "iu" else x for key, x in tables.items()}
    return Message(kind, text, wide, name)


def expect(message: Any, kind: str) -> Message:
    """A message of one kind, or the file that holds it, checked field by field."""
    message = message if isinstance(message, Message) else load(message)
    who = f"{message.name!r}, of kind {message.kind}," if message.name else f"this {message.kind}"
    if message.kind != kind:
        raise ValueError(f"{who} is given where the {kind} that `pixelbounds federated` wrote is needed")
    check_text(kind, message.text, who)
    if kind == "announcement":
        check_announced(message.text, message.tables, f"the announcement of site {message.text['site']!r}")
    return message


def _narrow(x: Array) -> Array:
    if x.dtype.kind not in "iu":
        return x
    return x.astype(np.min_scalar_type(int(x.max(initial=0))) if x.min(initial=0) >= 0 else np.int64)
