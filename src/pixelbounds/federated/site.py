"""A site's part: it announces how many images it has, and answers plans with tables of counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..calibration.block import Grouping
from ..calibration.data import LocalData
from ..calibration.provenance import image_hashes, is_known_image
from ..images.checks import VALIDITY_DOC, check_count, check_units
from ..images.library import Array
from ..images.measure import Measure
from .announcements import differences
from .messages import Message, expect
from .questions import ALL, question_of
from .shared_units import key_name, name_hashes, read_key
from .site_regions import announced_regions, check_planned, check_regions, with_regions
from .tables import BOOL, Form, Tables, check_tables


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
    data = LocalData(truth, band, units, limits=limits, measure=measure)
    about, tables = announced_regions(data, check_regions(regions, data, least_count), least_count)
    hashed_with = None
    if data.units is not None:
        tables["unit_of"] = data.unit_of
        if unit_key is not None:
            unit_key = read_key(unit_key)
            hashed_with = key_name(unit_key)
            tables["names"] = name_hashes(unit_key, np.unique(check_units(data.units.ids, len(data))).tolist())
    if not data.pixels:
        tables["sizes"] = data.sizes
    pixels = [int(x) for x in data.pixels]
    text = {"site": site, "pixels": pixels, "regions": about, "unit_key": hashed_with, **_state(data, least_count)}
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
    data = LocalData(truth, band, units, limits=limits, measure=measure)
    for name, planned, here in differences({**text, **text["sites"][at]}, _state(data, least_count)):
        raise ValueError(
            f"the plan has {name} {planned}, but this site has {here}; give what {site!r} announced, and if you did, "
            "do not answer: the plan is for other images"
        )
    question = question_of(text["statistic"])
    given = {name.removeprefix("given."): x for name, x in plan.tables.items() if name.startswith("given.")}
    arguments = question.checked_arguments(text["given"], given, data.family)
    known = check_regions(regions, data, least_count)
    check_planned(known, text["regions"], site)
    if question.regional:
        data = with_regions(data, known, [about["name"] for about in text["regions"]])
    fitting = _fitting_units(plan)[at][data.unit_of]
    if question.images == ALL:
        _check_not_certifying(data, arguments["path"].grouping, ~fitting)
    tables = question.answer(data, fitting, arguments, least_count)
    reply = {"site": site, "study": text["study"], "plan": plan.digest, "round": text["round"]}
    return Message("answer", reply, tables)


def _state(data: LocalData, least_count: int) -> dict[str, Any]:
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


def _check_not_certifying(data: LocalData, grouping: Grouping, certifying: Array) -> None:
    """Groups that were made elsewhere must not have seen the images that certify here."""
    if not len(grouping.fitted_on):
        return
    _, hashes = data.aggregate(image_hashes)
    again = np.flatnonzero(is_known_image(hashes, grouping.fitted_on) & certifying)
    if len(again):
        raise ValueError(
            f"the groups of this plan were fitted on {len(again)} of this site's images that would certify now (image "
            f"{again[0]} is the first), which voids the promise; do not answer, and inform the coordinator "
            f"({VALIDITY_DOC})"
        )


def _fitting_units(plan: Message) -> Tables:
    """Whether each unit of each site fits."""
    sites = plan.text["sites"]
    forms = {f"fitting.{i}": Form(BOOL, (site["units"] or site["images"],)) for i, site in enumerate(sites)}
    tables = {name: x for name, x in plan.tables.items() if not name.startswith("given.")}
    return check_tables(forms, tables, "the plan", "ask the coordinator for another")
