"""Units and images that are at more than one site.

A patient at two sites is one unit, not two. Sites do not send names; under the key that they share each sends a keyed
hash of the name of each unit, and equal hashes are equal names. Without a key this is not checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from ..images.library import Array
from .announcements import Site

_SHOWN = 5


def check_shared(sites: Sequence[Site], *, join: bool) -> None:
    """Refuse sites that announce the very same images, and units at two sites unless these are joined."""
    for one, other in combinations(sites, 2):
        if np.array_equal(one.announcement.tables["image_hashes"], other.announcement.tables["image_hashes"]):
            raise ValueError(
                f"sites {one.name!r} and {other.name!r} announce the very same images, which would count twice; leave "
                "one of them out"
            )
    hashed = [site.name_hashes is not None for site in sites]
    if join and not all(hashed):
        raise ValueError(
            "shared_units is 'join', but sites send no hashes of their units' names; announce with units and a key"
        )
    if any(hashed) and not all(hashed):
        one, other = sites[hashed.index(True)], sites[hashed.index(False)]
        raise ValueError(
            f"site {one.name!r} sends hashes of its units' names and {other.name!r} does not; announce again, all with "
            "units and the key"
        )
    places = defaultdict(list)
    for site in sites:
        for unit, name in enumerate(site.name_hashes or ()):
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
    parts = []
    numbers: dict[bytes, int] = {}
    units = 0
    for site in sites:
        count = int(site.unit_of.max()) + 1
        number = np.arange(units, units + count)
        if join:
            for unit, name in enumerate(site.name_hashes or ()):
                number[unit] = numbers.setdefault(name, units)
                units += number[unit] == units
        else:
            units += count
        parts.append(number[site.unit_of])
    return np.concatenate(parts)
