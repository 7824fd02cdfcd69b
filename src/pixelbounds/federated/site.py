"""A site's part: it announces how many images it has, and answers plans with tables of counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..calibration.data import ROWS, LocalData, local_data_of
from ..calibration.groups.contract import Grouping
from ..calibration.image_hashes import image_hashes, is_known_image
from ..calibration.split import unit_numbers
from ..calibration.text import VALIDITY_DOC
from ..images.checks import Limits, check_count, check_limits, check_units
from ..images.library import Array
from ..images.measure import Measure
from .contents import check_site_name
from .keys import key_of, name_hashes
from .messages import Message, expect
from .places import announced_places, as_whole, check_places, counted_in, places_of
from .questions import ALL, FITTING, Form, Question, arguments_of, form_of
from .suppression import suppressed, told_sizes

_MOST_LEAST = 2**20


def announce(
    truth: Any, band: Any, *, site: str, units: Any = None, limits: Any = (0.0, 1.0), measure: Measure | None = None,
    least_count: int = 1, key: Any = None, regions: Any = None,
) -> Message:  # fmt: skip
    """How many images and units a site has, and how large; every value is read and checked, none is told.

    truth, band, units, limits, measure    as in `pixelbounds.calibrate`; units are numbered, their names stay here
    site           a name by which the others know this site
    least_count    counts of fewer pixels are not told: docs/federated.md says what becomes of them
    key            that the sites share, 32 bytes or the path of its file: the message is authenticated, and units are
                   told as keyed hashes of their names, so that one that is at two sites is found
    regions        what promises are about, by their names: masks, weights or subgroups of this site's images, as
                   `within` of `pixelbounds.share`; a mask of False where a site has none
    """
    site, key = check_site_name(site), key_of(key)
    least_count = check_count(least_count, "least_count", most=_MOST_LEAST)
    pairs = local_data_of(truth, band, None, limits)
    unit_of = unit_numbers(units, len(pairs))
    places, told, total = announced_places(pairs, places_of(regions, pairs, least_count))
    tables: dict[str, Array] = {"image_hashes": total, **told}
    if "region_sizes" in tables:
        tables["region_sizes"] = told_sizes(tables["region_sizes"], least_count)
    if units is not None:
        tables["unit_of"] = unit_of
        if key is not None:
            tables["names"] = name_hashes(key, np.unique(check_units(units, len(pairs))).tolist())
    if not pairs.pixels:
        tables["sizes"] = pairs.sizes
    text = {
        "site": site,
        "images": len(pairs),
        "units": None if units is None else int(unit_of.max()) + 1,
        "pixels": [int(x) for x in pairs.pixels],
        "source": pairs.source.state(),
        "measure": told_measure(measure),
        "centred": pairs.band.centre is not None,
        "limits": told_limits(pairs.limits),
        "least_count": least_count,
        "regions": places,
    }
    return expect(Message("announcement", text, tables).signed(key), "announcement", key)


def answer(
    plan: Any, truth: Any, band: Any, *, site: str, units: Any = None, limits: Any = (0.0, 1.0),
    measure: Measure | None = None, least_count: int = 1, key: Any = None, regions: Any = None,
) -> Message:  # fmt: skip
    """The tables that a plan (a Message, or the path of one) asks of a site; everything else as it was announced."""
    key = key_of(key)
    plan = expect(plan, "plan", key)
    at = _place(plan, site)
    asked = plan.text["sites"][at]
    _check_alike(site, "limits", plan.text["limits"], told_limits(check_limits(limits)))
    told = plan.text["measure"]
    if not same_measure(None if told is None else Measure.from_state(told), measure):
        _check_alike(site, "measure", told, told_measure(measure))
    pairs = local_data_of(truth, band, plan.text["family"], limits)
    _check_alike(site, "source of the bands", plan.text["source"], pairs.source.state())
    unit_of = unit_numbers(units, len(pairs))
    least_count = check_count(least_count, "least_count", most=_MOST_LEAST)
    if least_count != asked["least_count"]:
        raise ValueError(
            f"{site} announced a least count of {asked['least_count']}, but {least_count} is given now; give the same "
            "again"
        )
    places = places_of(regions, pairs, least_count)
    names = check_places(plan, places, site)
    for what, count in {"images": len(pairs), "units": None if units is None else int(unit_of.max()) + 1}.items():
        if count != asked[what]:
            raise ValueError(
                f"{site} announced {asked[what]} {what}, but {count} were given now; give the same images again"
            )
    question = question_of(plan)
    form, given = form_of(question), arguments_of(question, pairs.family)
    fitting = _fitting(plan, at)[unit_of]
    if form.regional:
        pairs = counted_in(pairs, places, names)
    if form.scope == ALL:
        _check_fresh(pairs, given["grouping"], ~fitting)
    counted = _count(pairs, form, fitting, given, least_count)
    text = {"site": site, "study": plan.text["study"], "plan": plan.digest, "round": plan.text["round"]}
    return Message("answer", text, {str(i): x for i, x in enumerate(counted)}).signed(key)


def told_limits(limits: Limits) -> list[float | None]:
    """Limits as messages have them: None where there is none."""
    return [float(x) if np.isfinite(x) else None for x in limits]


def told_measure(measure: Measure | None) -> dict[str, Any] | None:
    """What numbers stand for, as messages have it."""
    if measure is not None and not isinstance(measure, Measure):
        raise TypeError(f"measure is {measure!r}; give a pixelbounds.Measure, or leave it out")
    return None if measure is None else measure.state()


def same_measure(one: Measure | None, other: Measure | None) -> bool:
    """Whether numbers stand for the same; where nothing is known of one, nothing may be known of the other."""
    if one is None or other is None:
        return one is other
    return one.same_as(other)


def _check_alike(site: str, what: str, asked: Any, own: Any) -> None:
    """A plan is for what the site announced."""
    if asked != own:
        raise ValueError(
            f"the plan has {what} {asked}, but this site has {own}; give what {site!r} announced, and if you did, do "
            "not answer: the plan is for another kind of images"
        )


def _check_fresh(pairs: LocalData, grouping: Grouping, certifying: Array) -> None:
    """Groups that were made elsewhere must not have seen the images that certify here."""
    if not len(grouping.fitted_on):
        return
    _, own = pairs.aggregate(image_hashes)
    again = np.flatnonzero(is_known_image(own, grouping.fitted_on) & certifying)
    if len(again):
        raise ValueError(
            f"the groups of this plan were fitted on {len(again)} of this site's images that would certify now (image "
            f"{again[0]} is the first), which voids the promise; do not answer, and tell the coordinator ({VALIDITY_DOC})"  # noqa: E501
        )


def question_of(plan: Message) -> Question:
    """What a plan asks."""
    given = {name.removeprefix("given."): x for name, x in plan.tables.items() if name.startswith("given.")}
    return Question(plan.text["statistic"], plan.text["scope"], plan.text["given"], given)


def _place(plan: Message, site: str) -> int:
    """Which of the plan's sites this one is."""
    names = [about["site"] for about in plan.text["sites"]]
    if len(set(names)) < len(names):
        raise ValueError(f"the plan is for {', '.join(names)}, one of them twice; ask the coordinator for another")
    if site not in names:
        raise ValueError(f"site is {site!r}, but the plan is for {', '.join(names)}; use the name that was announced")
    return names.index(site)


def _fitting(plan: Message, at: int) -> Array:
    """Whether each unit of a site fits, (units,)."""
    tables: Mapping[str, Array] = plan.tables
    known = {f"fitting.{i}" for i in range(len(plan.text["sites"]))}
    others = {name for name in tables if not name.startswith("given.")}
    if others != known:
        raise ValueError("the plan does not say of each site which of its units fit; ask the coordinator for another")
    asked = plan.text["sites"][at]
    found = tables[f"fitting.{at}"]
    units = asked["images"] if asked["units"] is None else asked["units"]
    if found.dtype != np.bool_ or found.shape != (units,):
        raise ValueError(
            f"the plan says of {found.dtype} {found.shape} units of {asked['site']!r} whether they fit; it has {units}"
        )
    return found


def _count(pairs: LocalData, form: Form, fitting: Array, given: dict[str, Any], least: int) -> tuple[Array, ...]:
    """A statistic of the fitting or certifying images; of all, with rows of the certifying images alone."""
    if least > 1:
        return suppressed(pairs, form, fitting, given, least)
    statistic = form.statistic
    if form.scope == ALL:
        found = pairs.aggregate(statistic, **given)
        found = tuple(as_whole(x) if form.regional else x for x in found)
        return tuple(x[~fitting] if join is ROWS else x for x, join in zip(found, statistic.joins, strict=True))
    images = np.flatnonzero(fitting if form.scope == FITTING else ~fitting)
    found = pairs.aggregate(statistic, images, **given) if len(images) else ()
    return tuple(as_whole(x) if form.regional else x for x in found)
