"""A site's part: it announces how many images it has, and answers plans with tables of counts.

The coordinator says what must hold; where it is counted each site knows of its own images. A site announces of every
region which kind it is, its pixels in each image and a digest of all of it; of a subgroup of whole images, which they
are. So who has a region, and how much of it, is fixed before anyone sees a plan.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ..calibration.block import Block, image_hashes, is_known_image, region_digests
from ..calibration.data import ROWS, CalibrationData, statistic
from ..calibration.families import Family
from ..calibration.paths.path import region_sizes
from ..calibration.promises import ALL_PIXELS, check_name
from ..images.checks import VALIDITY_DOC, check_count, check_units
from ..images.library import Array
from ..images.measure import Measure
from ..images.regions import place_of
from .fields import BOOL, HASH_BYTES, MAX_REGIONS, SUBGROUP, Form, check_tables
from .messages import Message, expect
from .questions import ALL, QUESTIONS, as_whole, reported_sizes
from .sites import differences

Regions = dict[str, tuple[str, Any]]  # by name: mask, weights or subgroup (`PLACES`), and its array
_KEY_BYTES = range(32, 65)


def announce(
    truth: Any, band: Any, *, site: str, units: Any = None, limits: Any = (0.0, 1.0), measure: Measure | None = None,
    least_count: int = 1, regions: Any = None, unit_key: Any = None,
) -> Message:  # fmt: skip
    """How many images and units a site has, and how large; every value is read and checked, none is sent.

    truth, band, units, limits, measure    as in `pixelbounds.calibrate`; units are numbered, their names stay here
    site           a name by which the others know this site
    least_count    counts of fewer pixels are not reported: docs/federated.md says what becomes of them
    regions        what promises are about, by their names: masks, weights or subgroups of this site's images, as
                   `within` of `pixelbounds.share`; a mask of False where a site has none
    unit_key       that the sites share, 32 bytes or the path of its file: units are sent as keyed hashes of their
                   names, so that one that is at two sites is recognised
    """
    least_count = check_count(least_count, "least_count", most=2**20)
    data = CalibrationData(truth, band, units, limits=limits, measure=measure)
    regions = _check_regions(regions, data, least_count)
    masks = [name for name, (place, _) in regions.items() if place != SUBGROUP]
    subgroups = [values for place, values in regions.values() if place == SUBGROUP]
    counted = data.with_regions(tuple((f"region {name!r}", regions[name][1]) for name in masks))
    hashes, sizes, digests = counted.aggregate(_facts)
    tables = {"image_hashes": hashes}
    if masks:
        tables["region_sizes"] = reported_sizes(as_whole(sizes[:, 1:]), least_count)
        tables["region_digests"] = digests
    if subgroups:
        tables["subgroups"] = np.stack(subgroups, axis=1)
    about = [{"name": name, "place": place} for name, (place, _) in regions.items()]
    pixels = [int(x) for x in data.pixels]
    text = {"site": site, "pixels": pixels, "regions": about, "unit_key": None, **_state(data, least_count)}
    if not data.pixels:
        tables["sizes"] = data.sizes
    if data.units is not None:
        tables["unit_of"] = data.unit_of
        if unit_key is not None:
            key, names = read_key(unit_key), np.unique(check_units(data.units.ids, len(data))).tolist()
            text["unit_key"] = hmac.digest(key, b"name of the key", "sha256").hex()
            tables["names"] = name_hashes(key, names)
    return expect(Message("announcement", text, tables), "announcement")


def answer(
    plan: Any, truth: Any, band: Any, *, site: str, units: Any = None, limits: Any = (0.0, 1.0),
    measure: Measure | None = None, least_count: int = 1, regions: Any = None,
) -> Message:  # fmt: skip
    """The tables that a plan (a Message, or the path of one) asks of a site; everything else as it was announced."""
    plan = expect(plan, "plan")
    text = plan.text
    names = [about["site"] for about in text["sites"]]
    if names.count(site) != 1:
        raise ValueError(f"site is {site!r}, but the plan is for {', '.join(names)}; use the name that was announced")
    at = names.index(site)
    data = CalibrationData(truth, band, units, limits=limits, measure=measure)
    for name, planned, here in differences({**text, **text["sites"][at]}, _state(data, least_count)):
        raise ValueError(
            f"the plan has {name} {planned}, but this site has {here}; give what {site!r} announced, and if you did, "
            "do not answer: the plan is for other images"
        )
    if text["statistic"] not in QUESTIONS:
        raise ValueError(f"the plan asks for {text['statistic']!r}; sites answer {', '.join(QUESTIONS)} alone")
    question = QUESTIONS[text["statistic"]]
    given = {name.removeprefix("given."): x for name, x in plan.tables.items() if name.startswith("given.")}
    arguments = question.arguments(text["given"], given, data.family)
    sites_regions = _check_regions(regions, data, least_count)
    for about in text["regions"]:
        name, place = about["name"], about["place"]
        here = sites_regions[name][0] if name in sites_regions else "none"
        if here != place:
            why = f"the plan counts in the region {name!r} ({place}), and this site has {here}"
            raise ValueError(f"{why}; give regions= (--region) as {site!r} announced")
    if question.regional:
        names = [about["name"] for about in text["regions"]]
        data = data.with_regions(tuple((f"region {name!r}", sites_regions[name][1]) for name in names))
    forms = {f"fitting.{i}": Form(BOOL, (x["units"] or x["images"],)) for i, x in enumerate(text["sites"])}
    others = {name: x for name, x in plan.tables.items() if not name.startswith("given.")}
    fitting = check_tables(forms, others, "the plan", "ask the coordinator for another")[at][data.unit_of]
    if question.images == ALL and len(arguments["path"].grouping.fitted_on):
        again = is_known_image(data.aggregate(image_hashes)[1], arguments["path"].grouping.fitted_on) & ~fitting
        if again.any():
            raise ValueError(
                f"the groups of this plan were fitted on {again.sum()} of this site's images that would certify now, "
                f"which voids the promise; do not answer, and inform the coordinator ({VALIDITY_DOC})"
            )
    tables = question.answer(data, fitting, arguments, least_count)
    reply = {"site": site, "study": text["study"], "plan": plan.digest, "round": text["round"]}
    return Message("answer", reply, tables)


def _state(data: CalibrationData, least_count: int) -> dict[str, Any]:
    """What a site says of its images, and must say again; None where there is no limit, measure or unit."""
    return {
        "images": len(data),
        "units": None if data.units is None else int(data.unit_of.max()) + 1,
        "family": data.family.name,
        "limits": [float(x) if np.isfinite(x) else None for x in data.limits],
        "measure": None if data.measure is None else replace(data.measure, clipped=None).state(),
        "source": data.source.state(),
        "least_count": least_count,
    }


def _check_regions(regions: Any, data: CalibrationData, least_count: int) -> Regions:
    if regions is None:
        return {}
    if not isinstance(regions, Mapping) or len(regions) > MAX_REGIONS:
        kind = type(regions).__name__
        raise TypeError(f"regions is a {kind}; give at most {MAX_REGIONS}, each by the name of its promise")
    out: Regions = {}
    for name, values in regions.items():
        if check_name(name) == ALL_PIXELS:
            raise ValueError(f"a region is called {name!r}, as a promise without a region is; give it another name")
        out[name] = place_of(values, data.band.lower, f"region {name!r}", name)
        if out[name][0] == "weights" and least_count > 1:
            why = "whose sums reveal values of single pixels"
            raise ValueError(f"region {name!r} holds weights, {why}; give a mask of bool, or leave least_count out")
    return out


@statistic(np.add, ROWS, np.add)
def _facts(truth: Array, block: Block, family: Family) -> tuple[Array, ...]:
    return image_hashes.count(truth, block, family)[0], region_sizes(block), region_digests(block)


def make_key(path: str | os.PathLike[str]) -> None:
    """Write a new key as 64 hexadecimal digits into a new file that its owner alone can read."""
    FilePath(path).touch(0o600, exist_ok=False)
    FilePath(path).write_text(f"{secrets.token_hex(32)}\n")


def read_key(key: bytes | str | os.PathLike[str]) -> bytes:
    """A key from what a user gives: its bytes, or the file that holds it; a note where others can read that."""
    if not isinstance(key, bytes):
        file = FilePath(key)
        if os.name == "posix" and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            warnings.warn(f"others on this machine may read the key {key}; chmod 600 {key}", UserWarning, stacklevel=2)
        with file.open("rb") as opened:
            key = opened.read(100).strip()
    if len(key) not in _KEY_BYTES:
        raise ValueError("a key has 32 bytes, or 64 digits in a file; make one with `pixelbounds federated key --out`")
    return key


def name_hashes(key: bytes, names: Iterable[str]) -> Array:
    """Names of units as keyed hashes, (units, 16) uint8: equal exactly where names are equal."""
    hashes = [hmac.digest(key, b"unit " + name.strip().encode(), "sha256")[:HASH_BYTES] for name in names]
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, HASH_BYTES)
