"""The key that the sites of a study share: 32 random bytes, under which files are authenticated and units compared.

Two keys are derived from it, one for each use, so that what one reveals is of no use for the other. Who has the key can
write in the name of any site: it keeps out those who do not have it, not a site that lies.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import warnings
from collections.abc import Iterable
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ..images.library import Array

KEY_BYTES = 32
HASH_BYTES = 16  # of a unit's name: two names share it by chance once in 2**128
_REMEDY = "make one with `pixelbounds federated key --out study.key` and give every site a copy"


def make_key() -> bytes:
    """A new key, from the system's source of randomness."""
    return secrets.token_bytes(KEY_BYTES)


def write_key(path: str | os.PathLike[str], key: bytes) -> None:
    """Write a key as 64 hexadecimal digits into a new file that its owner alone can read."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise FileExistsError(f"{path} exists, and a key in use must not be lost; give another name") from error
    with os.fdopen(handle, "wb") as file:
        file.write(f"{key.hex()}\n".encode())
        file.flush()
        os.fsync(file.fileno())


def read_key(path: str | os.PathLike[str]) -> bytes:
    """The key that a file holds; a note where others than its owner can read it."""
    file = FilePath(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no key file {str(path)!r}; {_REMEDY}")
    about = file.stat()
    digits = file.read_bytes().strip() if about.st_size <= 4 * KEY_BYTES else b""
    try:
        key = bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"{str(path)!r} holds no key of {2 * KEY_BYTES} hexadecimal digits; {_REMEDY}")
    if os.name == "posix" and about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        warnings.warn(f"others on this machine may read the key {path}; chmod 600 {path}", UserWarning, stacklevel=2)
    return key


def key_of(key: Any) -> bytes | None:
    """A key from what a user gives: None, 32 bytes, or the path of a file that holds them."""
    if isinstance(key, str | os.PathLike):
        return read_key(key)
    if key is not None and (not isinstance(key, bytes) or len(key) != KEY_BYTES):
        raise ValueError(f"key is not {KEY_BYTES} bytes or the path of a key file; {_REMEDY}")
    return key


def mac_of(key: bytes, content: bytes) -> str:
    """HMAC-SHA256 of a content, 64 hexadecimal digits, which only those who have the key can write."""
    return hmac.new(_derived(key, "messages"), content, hashlib.sha256).hexdigest()


def name_hashes(key: bytes, names: Iterable[str]) -> Array:
    """Names of units as keyed hashes, (units, 16) uint8: equal exactly where names are equal."""
    unit_key = _derived(key, "units")
    hashes = [hmac.new(unit_key, name.strip().encode(), hashlib.sha256).digest()[:HASH_BYTES] for name in names]
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, HASH_BYTES)


def _derived(key: bytes, use: str) -> bytes:
    return hmac.new(key, f"pixelbounds federated {use}".encode(), hashlib.sha256).digest()
