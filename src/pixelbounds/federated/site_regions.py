"""Regions of the sites, each under the name of its promise: what a site announces of them, and promises about them.

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
from ..calibration.paths.path import region_sizes
from ..calibration.promises import ALL_PIXELS, Promise, RiskTarget, check_name, risk_target_of
from ..calibration.provenance import fingerprints, region_digests
from ..calibration.target import Units
from ..images.library import Array
from ..images.regions import place_of
from .announcements import Site
from .fields import MAX_REGIONS, SUBGROUP
from .questions import as_whole
from .suppression import reported_sizes

Regions = dict[str, tuple[str, Any]]  # by name: mask, weights or subgroup (`PLACES`), and its array


# ---------------------------------------------------------------- a site


def check_regions(regions: Any, data: LocalData, least_count: int) -> Regions:
    """What a site gives as its regions, checked."""
    if regions is None:
        return {}
    if not isinstance(regions, Mapping) or len(regions) > MAX_REGIONS:
        raise TypeError(
            f"regions is a {type(regions).__name__}; give at most {MAX_REGIONS}, each by the name of its promise, "
            "such as {'heart': mask}"
        )
    out: Regions = {}
    for name, values in regions.items():
        if check_name(name) == ALL_PIXELS:
            raise ValueError(f"a region is called {name!r}, as a promise without a region is; give it another name")
        out[name] = place_of(values, data.band.lower, f"region {name!r}", name)
        if out[name][0] == "weights" and least_count > 1:
            raise ValueError(
                f"region {name!r} holds weights, whose sums reveal values of single pixels, and small counts are "
                "suppressed here; give a mask of bool, or leave least_count out"
            )
    return out


def announced_regions(
    data: LocalData, regions: Regions, least_count: int
) -> tuple[list[dict[str, str]], dict[str, Array]]:
    """Name and kind of each region, and the tables about regions and images."""
    about = [{"name": name, "place": place} for name, (place, _) in regions.items()]
    masks = [name for name, (place, _) in regions.items() if place != SUBGROUP]
    subgroups = [values for place, values in regions.values() if place == SUBGROUP]
    image_hashes, sizes, digests = with_regions(data, regions, masks).aggregate(_facts)
    tables = {"image_hashes": image_hashes}
    if masks:
        tables["region_sizes"] = reported_sizes(as_whole(sizes[:, 1:]), least_count)
        tables["region_digests"] = digests
    if subgroups:
        tables["subgroups"] = np.stack(subgroups, axis=1)
    return about, tables


def _count_facts(truth: Array, block: Block, family: Family) -> tuple[Array, ...]:
    return *fingerprints.count(truth, block, family), region_sizes(block), region_digests(block)


_facts = Statistic("facts", _count_facts, (np.add, ROWS, np.add))


def check_planned(regions: Regions, planned: Sequence[Any], site: str) -> None:
    """Refuse a plan that counts in regions which this site lacks, or has of another kind."""
    for about in planned:
        name, place = about["name"], about["place"]
        here = regions[name][0] if name in regions else "none"
        if here != place:
            raise ValueError(
                f"the plan counts in the region {name!r} ({place}), and this site has {here}; give regions= (--region) "
                f"as {site!r} announced"
            )


def with_regions(data: LocalData, regions: Regions, names: Sequence[str]) -> LocalData:
    """The images with some of the regions, in this order."""
    return data.with_regions(tuple((f"region {name!r}", regions[name][1]) for name in names))


# ---------------------------------------------------------------- all sites


def promise_at_sites(promise: Promise) -> Promise:
    """A promise whose region, if it has a name, is at the sites: `within` holds that name."""
    if promise.kind == "loss":
        raise ValueError(
            f"the loss {promise.name!r} is a function, and none travels to a site; use pb.share or pb.tail"
        )
    if promise.within is not None:
        raise ValueError(
            f"the promise {promise.kind} {promise.at_most:g} has a region of its own, and regions are at the sites: "
            "leave within out, give the promise a name, and announce regions under that name"
        )
    return replace(promise, within=promise.name)


def targets_of_sites(
    promises: Sequence[Promise], sites: Sequence[Site], units: Units | None
) -> tuple[tuple[RiskTarget, ...], tuple[str, ...]]:
    """Promises about the images of all sites in order, and the regions that sites count in, in order.

    A promise without a name is about all pixels, one with a name about the region, or subgroup, of that name.
    """
    images = sum(site.text["images"] for site in sites)
    weighting, max_images = (units.weighting, units.max_images or 0) if units else ("units", 0)
    regions: list[str] = []
    targets = []
    for promise in promises:
        place, region, subgroup = "all", 0, np.ones(images, bool)
        if promise.name is None:
            promise = replace(promise, name=ALL_PIXELS)
        else:
            place = _common_place(promise.name, sites)
            if place == SUBGROUP:
                subgroup = np.concatenate([site.subgroup(promise.name) for site in sites])
            else:
                regions += [promise.name] if promise.name not in regions else []
                region = 1 + regions.index(promise.name)
        target = risk_target_of(promise, place, region, subgroup, weighting, units is not None, max_images)
        rounded = [site.name for site in sites if site.text["least_count"] > 1]
        if rounded and target.weighting == "pixels" and region:
            raise ValueError(
                f"{target.words} pools pixels, and site {rounded[0]!r} rounds sizes of regions (least_count); "
                "count units or images, or announce without least_count"
            )
        targets.append(target)
    return tuple(targets), tuple(regions)


def _common_place(region: str, sites: Sequence[Site]) -> str:
    """Of which kind a region is, at all sites."""
    first = sites[0].place(region)
    for site in sites:
        place = site.place(region)
        if place is None:
            raise ValueError(
                f"a promise is about {region!r}, and site {site.name!r} announced no region of that name; it must "
                "announce one (a mask of False where it has none), or leave the name out for all pixels"
            )
        if place != first:
            raise ValueError(
                f"{region!r} is a {first} at site {sites[0].name!r} and a {place} at {site.name!r}; agree, and "
                "announce again"
            )
    return str(first)
