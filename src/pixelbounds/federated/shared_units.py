"""Units and images that are at more than one site.

A patient at two sites is one unit, not two. Sites do not tell names; under the key that they share each tells a keyed
hash of the name of each unit, and equal hashes are equal names. Without a key this is not checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from ..images.library import Array
from .archive import units_at
from .messages import Message

_SHOWN = 5


def check_shared(sites: Sequence[Message], *, join: bool) -> None:
    """Refuse sites that announce the very same images, and units at two sites unless these are joined."""
    for one, other in combinations(sites, 2):
        if np.array_equal(one.tables["image_hashes"], other.tables["image_hashes"]):
            raise ValueError(
                f"sites {one.text['site']!r} and {other.text['site']!r} announce the very same images, which would "
                "count twice; leave one of them out"
            )
    named = ["names" in site.tables for site in sites]
    if join and not all(named):
        raise ValueError(
            "shared_units is 'join', but sites tell no hashes of their units' names; announce with units and a key"
        )
    if any(named) and not all(named):
        one, other = sites[named.index(True)], sites[named.index(False)]
        raise ValueError(
            f"site {one.text['site']!r} tells hashes of its units' names and {other.text['site']!r} does not; "
            "announce again, all with units and the key"
        )
    if join or not all(named):
        return
    shared = [places for places in _places(sites).values() if len(places) > 1]
    if shared:
        words = [" and ".join(f"unit {unit} of {site!r}" for site, unit in places) for places in shared[:_SHOWN]]
        more = f", and {len(shared) - _SHOWN} more" if len(shared) > _SHOWN else ""
        raise ValueError(
            f"{len(shared)} units are at more than one site: {'; '.join(words)}{more} (units counted from 0 in the "
            "order of their names). A patient at two sites is one unit: join them with shared_units='join' "
            "(--shared-units join), or leave them out at one site. If they are different patients, give them "
            "different names, such as the site's name first, and announce again"
        )


def joint_units(sites: Sequence[Message], *, join: bool) -> Array:
    """Unit of each image of all sites, numbered through; with `join` a unit at two sites has one number."""
    parts = []
    numbers: dict[bytes, int] = {}
    units = 0
    for site in sites:
        own = units_at(site)
        count = int(own.max()) + 1
        number = np.arange(units, units + count)
        if join:
            for unit, name in enumerate(_names(site)):
                number[unit] = numbers.setdefault(name, units)
                units += number[unit] == units
        else:
            units += count
        parts.append(number[own])
    return np.concatenate(parts)


def _names(site: Message) -> list[bytes]:
    return [row.tobytes() for row in site.tables["names"].astype(np.uint8)]


def _places(sites: Sequence[Message]) -> dict[bytes, list[tuple[str, int]]]:
    """Where each name is: sites, and the number of the unit there."""
    places: dict[bytes, list[tuple[str, int]]] = defaultdict(list)
    for site in sites:
        for unit, name in enumerate(_names(site)):
            places[name].append((site.text["site"], unit))
    return places
