"""What travels between sites and coordinator: text and arrays in a sealed file.

A message is bytes in (`message_of`) and bytes out (`Message.to_bytes`), whatever carries them. It may have an HMAC
under the key that the sites share (`keys.py`), over everything that it holds: kind, study, round, the digest of the
plan that is answered, and all tables. Whoever has the key checks it first, then every field (`fields.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ..images.library import Array
from ..storage.files import replace_file, seal, unseal
from ..storage.version import VERSION
from .fields import check_announced, check_text
from .keys import mac_of

_FORMAT = 4
_KINDS = {
    "announcement": "announcement of a site (federated.announce)",
    "plan": "plan (federated.begin, federated.merge)",
    "answer": "answer of a site (federated.answer)",
    "study": "study of a coordinator (federated.begin, federated.merge)",
}


@dataclass(frozen=True, eq=False)
class Message:
    """Its kind, what it says, its tables, the name by which errors call it, and its HMAC."""

    kind: str
    text: Mapping[str, Any]
    tables: Mapping[str, Array] = field(default_factory=dict)
    name: str = ""
    mac: str = ""

    def __repr__(self) -> str:
        words = ", ".join(f"{key} {self.text[key]}" for key in ("site", "round") if key in self.text)
        signed = "authenticated" if self.mac else "not authenticated"
        return f"{self.kind} ({words}), {len(self.to_bytes())} bytes, {signed}"

    @property
    def digest(self) -> str:
        """SHA-256 of all that the message holds; its HMAC is no part of that."""
        return hashlib.sha256(self._content()).hexdigest()

    def signed(self, key: bytes | None) -> Message:
        """The message with its HMAC under a key; as it is without one."""
        return self if key is None else replace(self, mac=mac_of(key, self._content()))

    def to_bytes(self) -> bytes:
        """The content of the file; equal messages give equal bytes."""
        return self._content({"mac": self.mac} if self.mac else {})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, aside first and then in place."""
        replace_file(path, self.to_bytes())

    def _content(self, more: Mapping[str, str] = {}) -> bytes:
        tables = {name: _narrow(x) for name, x in self.tables.items()}
        return seal({**self.text, "kind": self.kind, "format": _FORMAT, "version": VERSION, **more}, tables)


def load(path: str | os.PathLike[str]) -> Message:
    """Read a file that `Message.save` wrote."""
    if not FilePath(path).is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}; give what `federated` wrote")
    return message_of(FilePath(path).read_bytes(), str(path))


def message_of(data: bytes, name: str = "message") -> Message:
    """The message that the content of a file holds; `expect` checks what it says."""
    text, tables = unseal(data, name, what="message between sites", remedy="send it again", again="send it again")
    kind = text.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"{name!r} is not a message between sites but a {kind or 'calibration file'}")
    written = text.pop("format"), text.pop("version", "")
    if written != (_FORMAT, VERSION):
        raise ValueError(
            f"{name!r} was written by another version than {VERSION} (format {written[0]!r}, not {_FORMAT}); all sites "
            "must use the same one"
        )
    mac = text.pop("mac", "")
    if not isinstance(mac, str) or not mac.isascii() or len(mac) not in (0, 64):
        raise ValueError(f"{name!r} has an invalid HMAC; send it again")
    wide = {key: x.astype(np.int64) if x.dtype.kind in "iu" else x for key, x in tables.items()}
    return Message(kind, text, wide, name, mac)


def expect(message: Any, kind: str, key: bytes | None = None) -> Message:
    """A message of one kind, or the file that holds it, authenticated under the key and checked field by field."""
    message = message if isinstance(message, Message) else load(message)
    who = repr(message.name) if message.name else f"this {message.kind}"
    if message.kind != kind:
        raise ValueError(f"{who} is the {_KINDS[message.kind]}; what is needed is the {_KINDS[kind]}")
    _authenticate(message, key, who)
    check_text(kind, message.text, f"{who}, the {_KINDS[kind]},")
    if kind == "announcement":
        check_announced(message.text, message.tables, f"the announcement of site {message.text['site']!r}")
    return message


def _authenticate(message: Message, key: bytes | None, who: str) -> None:
    """Refuse what was not written with the key; without one, refuse what claims to be."""
    if key is None and message.mac:
        raise ValueError(f"{who} is authenticated, and no key was given to check that; give the key (--study-key)")
    if key is not None and not message.mac:
        raise ValueError(f"{who} is not authenticated; who wrote it must use the study's key (--study-key), too")
    if key is not None and not hmac.compare_digest(message.mac, message.signed(key).mac):
        raise ValueError(f"{who} was not written with this key, or was changed since; do not use it, ask for another")


def _narrow(x: Array) -> Array:
    """Whole numbers in as few bytes as hold them."""
    if x.dtype.kind not in "iu":
        return x
    return x.astype(np.min_scalar_type(int(x.max(initial=0))) if x.min(initial=0) >= 0 else np.int64)
