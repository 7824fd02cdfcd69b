"""What travels between sites and coordinator: text and arrays in a sealed file, told apart by kind and by digest."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ..calibration.arrivals import Path
from ..calibration.groups.contract import Grouping, load_grouping
from ..images.library import Array
from ..storage.files import replace_file, seal, unseal
from ..storage.version import VERSION

_FORMAT = 1
_KINDS = {
    "announcement": "announcement of a site (federated.announce)",
    "plan": "plan (federated.begin, federated.merge)",
    "answer": "answer of a site (federated.answer)",
    "study": "study of a coordinator (federated.begin, federated.merge)",
}

_PARTS = {  # what each kind must say, and the tables it must have
    "announcement": {"site", "images", "units", "pixels", "source", "centred", "limits", "prints"},
    "plan": {"statistic", "scope", "given", "round", "family", "limits", "sites"},
    "answer": {"site", "plan", "round"},
    "study": {"settings", "sites", "answered"},
}


@dataclass(frozen=True, eq=False)
class Message:
    """A file that is sent: its kind, what it says, its tables, and the name by which errors call it."""

    kind: str
    text: Mapping[str, Any]
    tables: Mapping[str, Array] = field(default_factory=dict)
    name: str = ""

    def __repr__(self) -> str:
        said = ", ".join(f"{key} {self.text[key]}" for key in ("site", "round") if key in self.text)
        return f"{self.kind} ({said}), {len(self.to_bytes())} bytes"

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """The content of the file; equal messages give equal bytes."""
        tables = {name: _small(x) for name, x in self.tables.items()}
        return seal({**self.text, "kind": self.kind, "format": _FORMAT, "version": VERSION}, tables)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file, aside first and then in place."""
        replace_file(path, self.to_bytes())


def load(path: str | os.PathLike[str]) -> Message:
    """Read a file that `Message.save` wrote."""
    if not FilePath(path).is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}; give what `federated` wrote")
    return message_of(FilePath(path).read_bytes(), str(path))


def message_of(data: bytes, name: str = "message") -> Message:
    """The message that the content of a file holds."""
    text, tables = unseal(data, name, what="message between sites", remedy="send it again", again="send it again")
    kind = text.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"{name!r} is not a message between sites but a {kind or 'calibration file'}")
    if (text.pop("format"), text.pop("version", "")) != (_FORMAT, VERSION):
        raise ValueError(f"{name!r} was written by another version than {VERSION}; all sites must use the same one")
    missing = sorted(_PARTS[kind] - text.keys() - tables.keys())
    if missing:
        raise ValueError(f"{name!r} is the {_KINDS[kind]}, but lacks {', '.join(missing)}; send it again")
    return Message(kind, text, {key: _wide(x) for key, x in tables.items()}, name)


def expect(message: Any, kind: str) -> Message:
    """A message of one kind, or the file that holds it."""
    found = message if isinstance(message, Message) else load(message)
    if found.kind != kind:
        raise ValueError(f"{found.name or 'this'} is the {_KINDS[found.kind]}; what is needed is the {_KINDS[kind]}")
    return found


def _small(x: Array) -> Array:
    """Whole numbers in as few bytes as hold them."""
    if x.dtype.kind not in "iu":
        return x
    return x.astype(np.min_scalar_type(int(x.max(initial=0))) if x.min(initial=0) >= 0 else np.int64)


def _wide(x: Array) -> Array:
    return x.astype(np.int64) if x.dtype.kind in "iu" else x


# ---------------------------------------------------------------- what a question gives to a statistic


def encode(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Numbers, arrays, groupings and paths as JSON and arrays."""
    said: dict[str, Any] = {}
    tables: dict[str, Array] = {}
    for name, value in given.items():
        if isinstance(value, Grouping):
            meta, arrays = value.state()
            said[name] = {"is": "grouping", "kind": value.kind, "meta": meta}
            said[name]["dtypes"] = {key: x.dtype.str for key, x in arrays.items()}
            tables |= {f"{name}.{key}": x for key, x in arrays.items()}
        elif isinstance(value, Path):
            said[name] = {"is": "path"}
            tables[name] = value.knots
        elif isinstance(value, np.ndarray):
            said[name] = {"is": "array"}
            tables[name] = value
        else:
            said[name] = {"is": "number", "value": value}
    return said, tables


def decode(said: Mapping[str, Any], tables: Mapping[str, Array]) -> dict[str, Any]:
    """What `encode` was given."""
    out: dict[str, Any] = {}
    for name, about in said.items():
        if about["is"] == "grouping":
            arrays = {key: tables[f"{name}.{key}"].astype(dtype) for key, dtype in about["dtypes"].items()}
            out[name] = load_grouping(about["kind"], about["meta"], arrays)
        elif about["is"] == "path":
            out[name] = Path(tables[name])
        else:
            out[name] = tables[name] if about["is"] == "array" else about["value"]
    return out
