"""A site's part: it announces how many images it has, and answers plans with tables of counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calibration.arrivals import arriving, misses
from ..calibration.front_door import pairs_of, unit_numbers
from ..calibration.groups.band_bins import cells, extent, occupied
from ..calibration.groups.contract import Grouping
from ..calibration.pairs import ROWS, Pairs, Statistic, fingerprints
from ..calibration.paths.frontier import farthest, longest, spend
from ..images.library import Array
from .messages import Message, decode, expect

STATISTICS = {
    statistic.name: statistic for statistic in (extent, cells, occupied, farthest, longest, spend, misses, arriving)
}  # all that a coordinator may ask for
WITHOUT_POSITIONS = ("single", "band", "learned")  # groups that a plan may use: a map of pixels could single one out


def announce(truth: Any, band: Any, *, site: str, units: Any = None, limits: Any = (0.0, 1.0)) -> Message:
    """How many images and units a site has, and how large; every value is read and checked, none is told.

    truth, band, units, limits    as in `pixelbounds.calibrate`; units are numbered, their names stay here
    site                          a name by which the others know this site
    """
    if not isinstance(site, str) or not site.strip() or len(site) > 80 or not site.isprintable():
        raise ValueError(f"site is {site!r}; give a short name, such as 'north'")
    pairs = pairs_of(truth, band, None, limits)
    unit_of = unit_numbers(units, len(pairs))
    (prints,) = pairs.ask(fingerprints)
    tables: dict[str, Array] = {"prints": prints}
    if units is not None:
        tables["unit_of"] = unit_of
    if not pairs.pixels:
        tables["sizes"] = pairs.sizes
    text = {
        "site": site,
        "images": len(pairs),
        "units": None if units is None else int(unit_of.max()) + 1,
        "pixels": pairs.pixels,
        "source": pairs.source.state(),
        "centred": pairs.band.centre is not None,
        "limits": [x if np.isfinite(x) else None for x in pairs.limits],
    }
    return Message("announcement", text, tables)


def answer(plan: Any, truth: Any, band: Any, *, site: str, units: Any = None) -> Message:
    """The tables that a plan (a Message, or the path of one) asks of a site; images and units as announced."""
    plan = expect(plan, "plan")
    names = [about["site"] for about in plan.text["sites"]]
    if site not in names:
        raise ValueError(f"site is {site!r}, but the plan is for {', '.join(names)}; use the name that was announced")
    at = names.index(site)
    low, high = plan.text["limits"]
    limits = (-np.inf if low is None else low, np.inf if high is None else high)
    pairs = pairs_of(truth, band, plan.text["family"], limits)
    unit_of = unit_numbers(units, len(pairs))
    found = {"images": len(pairs), "units": None if units is None else int(unit_of.max()) + 1}
    for what, count in found.items():
        wanted = plan.text["sites"][at][what]
        if count != wanted:
            raise ValueError(
                f"{site} announced {wanted} {what}, but {count} were given now; give the same images again"
            )
    fitting = plan.tables[f"fitting.{at}"].astype(bool)[unit_of]
    given = decode(
        plan.text["given"], {k.removeprefix("given."): x for k, x in plan.tables.items() if k.startswith("given.")}
    )
    for value in given.values():
        check_groups(value)
    if plan.text["statistic"] not in STATISTICS:
        raise ValueError(f"the plan asks for {plan.text['statistic']!r}, which this version does not tell")
    counted = _count(pairs, STATISTICS[plan.text["statistic"]], plan.text["scope"], fitting, given)
    text = {"site": site, "plan": plan.digest, "round": plan.text["round"]}
    return Message("answer", text, {str(i): x for i, x in enumerate(counted)})


def check_groups(groups: Any) -> None:
    """Refuse groups that follow the pixel grid: counts by group would be counts by position."""
    if isinstance(groups, Grouping) and groups.kind not in WITHOUT_POSITIONS:
        raise ValueError(
            f"groups of kind {groups.kind!r} follow the pixel grid, so that counts would tell where pixels lie; sites "
            f"answer for groups of kind {', '.join(WITHOUT_POSITIONS)}"
        )


def _count(pairs: Pairs, statistic: Statistic, scope: str, fitting: Array, given: dict[str, Any]) -> tuple[Array, ...]:
    """A statistic of the fitting or certifying images; of all, with rows of the certifying images alone."""
    if scope == "all":
        found = pairs.ask(statistic, **given)
        return tuple(x[~fitting] if join is ROWS else x for x, join in zip(found, statistic.joins, strict=True))
    images = np.flatnonzero(fitting if scope == "fitting" else ~fitting)
    return pairs.ask(statistic, images, **given) if len(images) else ()
