"""Text and arrays in one safetensors file with a checksum: no code runs when it is read, and an edited one is told.

Equal content gives equal bytes: the text is one JSON string with sorted keys, in the only entry of the metadata.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors


def seal(text: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> bytes:
    """The content of a file."""
    written = json.dumps(text, sort_keys=True)
    arrays = {name: np.ascontiguousarray(x) for name, x in tensors.items()}
    # one entry only: safetensors does not keep the order of several, and equal content must give equal bytes
    return save_tensors(arrays, {"pixelbounds": f"{checksum(written, arrays)} {written}"})


def unseal(data: bytes, name: str, *, what: str, remedy: str, again: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Text and arrays of a file; errors say what it should be, `remedy` how to write it, `again` how to get another."""
    foreign = f"{name!r} is not a pixelbounds {what}, or was cut short"
    try:
        tensors = load_tensors(data)
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
        state.update(np.ascontiguousarray(tensors[name]).tobytes())
    return state.hexdigest()
