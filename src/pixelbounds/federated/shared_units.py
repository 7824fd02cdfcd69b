"""Units and images that are at more than one site.

A patient at two sites is one unit, not two. Sites do not send names; with a key that all of them have, 32 random bytes
that the coordinator need not know, each sends a keyed hash of the name of each unit, and equal hashes are equal names.
Without a key this is not checked.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ..images.library import Array
from .announcements import Site
from .fields import HASH_BYTES

_KEY_BYTES = 32
_SHOWN = 5
_REMEDY = "make one with `pixelbounds federated key --out units.key` and give every site a copy"


# ---------------------------------------------------------------- the key, at the sites


def make_key() -> bytes:
    """A new key, from the system's source of randomness."""
    return secrets.token_bytes(_KEY_BYTES)


def write_key(path: str | os.PathLike[str], key: bytes) -> None:
    """Write a key as 64 hexadecimal digits into a new file that its owner alone can read."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise FileExistsError(f"{path} exists, and a key in use must not be lost; give another name") from error
    with os.fdopen(handle, "wb") as file:
        file.write(f"{key.hex()}\n".encode())


def read_key(key: bytes | str | os.PathLike[str]) -> bytes:
    """A key from what a user gives: its bytes, or the file that holds it; a note where others can read that."""
    if not isinstance(key, bytes):
        file = FilePath(key)
        if not file.is_file():
            raise FileNotFoundError(f"there is no key file {str(key)!r}; {_REMEDY}")
        if os.name == "posix" and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            warnings.warn(f"others on this machine may read the key {key}; chmod 600 {key}", UserWarning, stacklevel=2)
        with file.open("rb") as opened:
            digits = opened.read(4 * _KEY_BYTES)
        try:
            key = bytes.fromhex(digits.decode("ascii"))
        except ValueError:
            key = b""
    if len(key) != _KEY_BYTES:
        raise ValueError(
            f"the key is not of {_KEY_BYTES} bytes, in a file {2 * _KEY_BYTES} hexadecimal digits; {_REMEDY}"
        )
    return key


def name_hashes(key: bytes, names: Iterable[str]) -> Array:
    """Names of units as keyed hashes, (units, 16) uint8: equal exactly where names are equal."""
    hashes = [hmac.digest(key, b"unit " + name.strip().encode(), "sha256")[:HASH_BYTES] for name in names]
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, HASH_BYTES)


def key_name(key: bytes) -> str:
    """By which sites see that they have the same key; who knows it learns nothing of the key."""
    return hmac.digest(key, b"name", "sha256")[:HASH_BYTES].hex()


# ---------------------------------------------------------------- the coordinator


def check_shared(sites: Sequence[Site], *, join: bool) -> None:
    """Refuse sites that announce the very same images, and units at two sites unless these are joined."""
    for one, other in combinations(sites, 2):
        if np.array_equal(one.announcement.tables["image_hashes"], other.announcement.tables["image_hashes"]):
            raise ValueError(
                f"sites {one.name!r} and {other.name!r} announce the very same images, which would count twice; leave "
                "one of them out"
            )
    if join and sites[0].text["unit_key"] is None:
        raise ValueError(
            "shared_units is 'join', but sites send no hashes of their units' names; announce with units and a key"
        )
    places = defaultdict(list)
    for site in sites:
        for unit, name in enumerate(site.name_hashes):
            places[name].append(f"unit {unit} of {site.name!r}")
    shared = [units for units in places.values() if len(units) > 1]
    if shared and not join:
        more = f", and {len(shared) - _SHOWN} more" if len(shared) > _SHOWN else ""
        raise ValueError(
            f"{len(shared)} units are at more than one site: {'; '.join(map(' and '.join, shared[:_SHOWN]))}{more} "
            "(units counted from 0 in the order of their names). Join them with shared_units='join' (--shared-units "
            "join), leave them out at one site, or, if they are different patients, give them different names"
        )


def joint_units(sites: Sequence[Site], *, join: bool) -> Array:
    """Unit of each image of all sites, numbered through; with `join` a unit at two sites has one number."""
    numbers: dict[Any, int] = {}
    parts = []
    for at, site in enumerate(sites):
        names = site.name_hashes if join else [(at, unit) for unit in range(int(site.unit_of.max()) + 1)]
        parts.append(np.array([numbers.setdefault(name, len(numbers)) for name in names])[site.unit_of])
    return np.concatenate(parts)
