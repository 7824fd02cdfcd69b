"""Regions of the sites, each under the name of its promise: what a site tells of them, and what is promised of all.

The coordinator says what must hold; where it is counted each site knows of its own images. A site announces of every
region which kind it is, its pixels in each image and a digest of all of it; of a subgroup of whole images, which they
are. So who has a region, and how much of it, is fixed before anyone sees a plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..calibration.block import Block
from ..calibration.data import ROWS, LocalData, Statistic
from ..calibration.families import Family
from ..calibration.image_hashes import fingerprints, region_digests
from ..calibration.loss_table import region_sizes
from ..calibration.names import ALL_PIXELS
from ..calibration.promises import Promise, RiskTarget, check_name, risk_target_of
from ..images.library import Array
from ..images.regions import place_of
from .messages import Message

MOST_REGIONS = 64
SUBGROUP, WEIGHTS = "subgroup", "weights"
_KEPT = ("kind", "at_most", "above", "cap", "name", "weighting")  # of a promise; its region is at the sites

Places = dict[str, tuple[str, Any]]  # name of a region: mask, weights or subgroup (`PLACES`), and its array


# ---------------------------------------------------------------- a site


def places_of(regions: Any, pairs: LocalData, least_count: int) -> Places:
    """What a site gives as its regions, checked."""
    if regions is None:
        return {}
    if not isinstance(regions, Mapping) or len(regions) > MOST_REGIONS:
        raise TypeError(
            f"regions is a {type(regions).__name__}; give at most {MOST_REGIONS}, each by the name of its promise, "
            "such as {'heart': mask}"
        )
    found: Places = {}
    for name, values in regions.items():
        if check_name(name) == ALL_PIXELS:
            raise ValueError(f"a region is called {name!r}, as a promise without a region is; give it another name")
        found[name] = place_of(values, pairs.band.lower, f"region {name!r}", name)
        if found[name][0] == WEIGHTS and least_count > 1:
            raise ValueError(
                f"region {name!r} holds weights, whose sums tell values of single pixels, and small counts are "
                "suppressed here; give a mask of bool, or leave least_count out"
            )
    return found


def counted_in(pairs: LocalData, places: Places, names: Sequence[str]) -> LocalData:
    """The pairs with some of the regions, in this order."""
    return replace(pairs, regions=tuple((f"region {name!r}", places[name][1]) for name in names))


def announced_places(pairs: LocalData, places: Places) -> tuple[list[dict[str, str]], dict[str, Array], Array]:
    """Name and kind of each region, the tables that tell of them, and the digest of the images.

    Sizes are exact here; `suppression.told_sizes` makes of them what is told.
    """
    said = [{"name": name, "place": place} for name, (place, _) in places.items()]
    masks = [name for name, (place, _) in places.items() if place != SUBGROUP]
    subgroups = [values for place, values in places.values() if place == SUBGROUP]
    tables: dict[str, Array] = {}
    total, sizes, digests = counted_in(pairs, places, masks).aggregate(_facts)
    if masks:
        tables = {"region_sizes": as_whole(sizes[:, 1:]), "region_digests": digests}
    if subgroups:
        tables["subgroups"] = np.stack(subgroups, axis=1)
    return said, tables, total


def _count_facts(truth: Array, block: Block, family: Family) -> tuple[Array, ...]:
    return *fingerprints.count(truth, block, family), region_sizes(block), region_digests(block)


_facts = Statistic("facts", _count_facts, (np.add, ROWS, np.add))


def as_whole(x: Array) -> Array:
    """Numbers that are all whole as such: they travel in few bytes."""
    return x.astype(np.int64) if (np.rint(x) == x).all() else x


def check_places(plan: Message, places: Places, site: str) -> list[str]:
    """The regions that a plan counts in, in its order; they must be those that the site gives, of the same kind."""
    for asked in plan.text["regions"]:
        name, place = asked["name"], asked["place"]
        own = places[name][0] if name in places else "none"
        if own != place:
            raise ValueError(
                f"the plan counts in the region {name!r} ({place}), and this site has {own}; give regions= (--region) "
                f"as {site!r} announced"
            )
    return [asked["name"] for asked in plan.text["regions"]]


# ---------------------------------------------------------------- all sites


def said_promise(promise: Promise) -> dict[str, Any]:
    """A promise as a study keeps it."""
    if promise.kind == "loss":
        raise ValueError(
            f"the loss {promise.name!r} is a function, and none travels to a site; use pb.share or pb.tail"
        )
    if promise.within is not None:
        raise ValueError(
            f"the promise {promise.kind} {promise.at_most:g} has a region of its own, and regions are at the sites: "
            "leave within out, give the promise a name, and announce regions under that name"
        )
    return {name: getattr(promise, name) for name in _KEPT}


def aims_of_sites(
    promises: Sequence[Mapping[str, Any]], sites: Sequence[Message], weighting: str, max_images: int
) -> tuple[tuple[RiskTarget, ...], tuple[str, ...]]:
    """Promises about the images of all sites in order, and the regions that sites count in, in order.

    A promise without a name is about all pixels, one with a name about the region, or subgroup, of that name.
    """
    images = sum(site.text["images"] for site in sites)
    units = sites[0].text["units"] is not None
    regions: list[str] = []
    targets = []
    for state in promises:
        promise, place, region, subgroup = Promise(within=None, **state), "all", 0, np.ones(images, bool)
        if promise.name is None:
            promise = replace(promise, name=ALL_PIXELS)
        else:
            place = _common_place(promise.name, sites)
            if place == SUBGROUP:
                subgroup = np.concatenate([_subgroup_at(site, promise.name) for site in sites])
            else:
                regions += [promise.name] if promise.name not in regions else []
                region = 1 + regions.index(promise.name)
        targets.append(risk_target_of(promise, place, region, subgroup, weighting, units, max_images))
        _check_exact(targets[-1], sites)
    return tuple(targets), tuple(regions)


def _common_place(name: str, sites: Sequence[Message]) -> str:
    """Of which kind a region is, at all sites."""
    first = _place_at(sites[0], name)
    for site in sites:
        own = _place_at(site, name)
        if own is None:
            raise ValueError(
                f"a promise is about {name!r}, and site {site.text['site']!r} announced no region of that name; it "
                "must announce one (a mask of False where it has none), or leave the name out for all pixels"
            )
        if own != first:
            raise ValueError(
                f"{name!r} is a {first} at site {sites[0].text['site']!r} and a {own} at {site.text['site']!r}; agree, "
                "and announce again"
            )
    return str(first)


def _check_exact(target: RiskTarget, sites: Sequence[Message]) -> None:
    """Pooled pixels of a region need its exact sizes."""
    coarse = [site.text["site"] for site in sites if site.text["least_count"] > 1]
    if coarse and target.weighting == "pixels" and target.region:
        raise ValueError(
            f"{target.words} pools pixels, and site {coarse[0]!r} tells sizes of regions roughly (least_count); count "
            "units or images, or announce without least_count"
        )


def _place_at(site: Message, name: str) -> str | None:
    return next((str(about["place"]) for about in site.text["regions"] if about["name"] == name), None)


def _subgroup_at(site: Message, name: str) -> Array:
    names = [about["name"] for about in site.text["regions"] if about["place"] == SUBGROUP]
    return site.tables["subgroups"][:, names.index(name)]


def told_region(site: Message, names: Sequence[str], table: str) -> list[Array]:
    """What a site announced of some regions: columns of "region_sizes" (n,), or rows of "region_digests" (8,)."""
    own = [about["name"] for about in site.text["regions"] if about["place"] != SUBGROUP]
    rows = site.tables[table].T if names and table == "region_sizes" else site.tables.get(table, ())
    return [rows[own.index(name)] for name in names]
