"""The coordinator's part: it splits units, asks for tables round by round, and calibrates on their sums.

The calibration is the very one of `pixelbounds.calibrate`: `Sites` stands in for the images, looks answers up in the
study, and stops at the first question that is not answered, which becomes the next plan.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf
from typing import Any

import numpy as np

from ..calibration.calibrate import calibrate_archive, what_is_promised
from ..calibration.confidence import BOUNDS, bound_named
from ..calibration.data import CalibrationData
from ..calibration.families import Family, family_named
from ..calibration.groups.contract import Grouping
from ..calibration.joint_test import needs_of
from ..calibration.loss_table import Path
from ..calibration.paths.weighted_frontier import PathObjective, objective_of
from ..calibration.procedures import frontier, groups_for, path_of, rcps
from ..calibration.promises import Promise, RiskTarget, path_level
from ..calibration.result import WEIGHTINGS, Calibration
from ..calibration.split import Need, Split, fitting_units, least_units, most_in_a_unit
from ..images.checks import check_choice, check_count, check_open_unit, check_unit_name
from ..images.ends import Band
from ..images.library import Array, current_runner
from ..images.measure import Measure
from ..images.source import UNKNOWN, Source
from .answers import Tables, added, checked_tables
from .archive import Sites, Unanswered, sizes_at
from .contents import check_announced
from .keys import key_of
from .messages import Message, expect
from .places import aims_of_sites, said_promise
from .questions import FITTING, Question, arguments_of, check_groups, decode, encode, form_of
from .shared_units import check_shared, joint_units
from .site import same_measure

_TOLD = ("site", "images", "units", "least_count")  # what a plan says of each site


@dataclass(frozen=True, eq=False)
class Study:
    """A calibration under way, kept by the coordinator: settings, announcements, and the sums of all answers so far.

    `plan` is what every site must answer next; nothing else of a study needs to be sent. With a `key`, which is not
    kept in the file, plans are authenticated and answers must be.
    """

    settings: Mapping[str, Any]
    sites: Sequence[Message]
    answered: Sequence[tuple[str, Tables]] = ()  # digest of the question, tables
    key: bytes | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        names = ", ".join(site.text["site"] for site in self.sites)
        signed = "authenticated" if self.key else "not authenticated; units at two sites are not found"
        return f"Study of {names}, round {len(self.answered) + 1}, {signed}"

    @cached_property
    def id(self) -> str:
        """Digest of settings and announcements: messages of another study are not taken for those of this one."""
        settings, tables = _said(self.settings)
        return Message("study", {"settings": settings, "sites": [site.digest for site in self.sites]}, tables).digest

    @property
    def plan(self) -> Message:
        """The question of this round."""
        if not isinstance(self._next, Question):
            raise ValueError("every question was answered; there is no further plan")
        question, sites, first = self._next, _sites(self)[0], self.sites[0].text
        text = {
            "study": self.id, "round": len(self.answered) + 1,
            "statistic": question.statistic, "scope": question.scope, "given": question.given,
            "family": sites.family.name, "limits": first["limits"],
            "source": first["source"], "measure": first["measure"],
            "sites": [{name: site.text[name] for name in _TOLD} for site in self.sites],
            "regions": [about for name in sites.regions for about in first["regions"] if about["name"] == name],
        }  # fmt: skip
        fitting = {f"fitting.{i}": sites.fitting_units(i) for i in range(len(self.sites))}
        tables = fitting | {f"given.{name}": x for name, x in question.tables.items()}
        return Message("plan", text, tables).signed(self.key)

    @cached_property
    def _next(self) -> Question | Calibration:
        try:
            return _calibrate(self)
        except Unanswered as stop:
            return stop.question

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the coordinator's file."""
        settings, tables = _said(self.settings)
        text = {
            "settings": settings,
            "sites": [{"text": dict(site.text), "tables": list(site.tables)} for site in self.sites],
            "answered": [{"question": question, "tables": len(found)} for question, found in self.answered],
        }
        tables |= {f"site.{i}.{name}": x for i, site in enumerate(self.sites) for name, x in site.tables.items()}
        tables |= {f"round.{i}.{j}": x for i, (_, found) in enumerate(self.answered) for j, x in enumerate(found)}
        Message("study", text, tables).signed(self.key).save(path)


def _said(settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Array]]:
    """Settings as JSON and arrays; groups by their name, if any, or as a grouping made elsewhere."""
    if not isinstance(settings["groups"], Grouping):
        return dict(settings), {}
    said, tables = encode({"groups": settings["groups"]})
    return {**settings, "groups": said["groups"]}, tables


def load_study(path: str | os.PathLike[str], *, key: Any = None) -> Study:
    """Read a coordinator's file."""
    key = key_of(key)
    found = expect(path, "study", key)
    text, tables = found.text, dict(found.tables)

    def taken(name: str) -> Array:
        if name not in tables:
            raise ValueError(f"{str(path)!r}, a study, lacks the table {name!r}; begin again")
        return tables.pop(name)

    sites = []
    for i, kept in enumerate(text["sites"]):
        own = {name: taken(f"site.{i}.{name}") for name in kept["tables"]}
        check_announced(kept["text"], own, f"the announcement of site {kept['text']['site']!r} in {str(path)!r}")
        sites.append(Message("announcement", kept["text"], own))
    answered = [
        (about["question"], tuple(taken(f"round.{i}.{j}") for j in range(about["tables"])))
        for i, about in enumerate(text["answered"])
    ]
    settings = dict(text["settings"])
    if isinstance(settings["groups"], Mapping):
        settings |= decode({"groups": settings["groups"]}, tables)
    _check_sites(sites, settings["shared_units"])
    return Study(settings, sites, answered, key)


# ---------------------------------------------------------------- begin


def begin(
    announcements: Sequence[Any],
    *,
    risk_level: float | None = None,
    promises: Sequence[Promise] | None = None,
    failure_prob: float = 0.1,
    method: str = "frontier",
    confidence: str = "betting",
    groups: str | Grouping | None = None,
    family: str | None = None,
    k: int | None = None,
    n_opt: int | None = None,
    seed: int = 0,
    unit_name: str = "unit",
    weighting: str = "units",
    max_images: int | None = None,
    shared_units: str = "refuse",
    key: Any = None,
) -> Study:
    """Open a study of some sites, in this order; `study.plan` is what each of them must answer.

    announcements  Messages of `announce`, or their paths
    risk_level     the share of all pixels that may be missed: the short form of promises=[pb.share(risk_level)]
    promises       what must hold, made by `pb.share` and `pb.tail` without `within`: one with a name is about the
                   region that every site announced under that name, one without about all pixels
    method         "frontier" or "rcps"; krcps needs single pixels, which do not travel
    groups         of the frontier: "band", or a Grouping made elsewhere, such as that of another calibration; unless
                   told "band" where at least 16 units fit, else few by width, as `pixelbounds.calibrate` has them
    shared_units   "refuse" a unit (patient) that is at two sites, or "join" its images into one unit; both need a key,
                   without one such a unit is not found and counts twice
    unit_name, counting, max_images    as in `pixelbounds.calibrate`
    key            that the sites share: announcements must be authenticated under it, and plans will be
    others         as in `pixelbounds.calibrate`
    """
    key = key_of(key)
    sites = [expect(message, "announcement", key) for message in announcements]
    if not sites:
        raise ValueError("there are no announcements; give one of each site")
    check_choice(shared_units, ("refuse", "join"), "shared_units")
    _check_sites(sites, shared_units)
    check_choice(method, ("frontier", "rcps"), "method of a federated calibration")
    if isinstance(groups, str):
        check_choice(groups, ("band",), "groups of a federated calibration")
    elif groups is not None and not isinstance(groups, Grouping):
        raise TypeError(f"groups is {groups!r}; give 'band' or a Grouping, or leave it out")
    check_groups(groups)
    if k is not None and (method == "rcps" or isinstance(groups, Grouping)):
        raise ValueError("k is the number of bins of groups='band'; leave it out")
    asked = what_is_promised(risk_level, promises)
    settings = {
        "risk_level": asked if isinstance(asked, float) else 0.0,
        "promises": [] if isinstance(asked, float) else [said_promise(promise) for promise in asked],
        "failure_prob": check_open_unit(failure_prob, "failure_prob"),
        "method": method,
        "confidence": check_choice(confidence, BOUNDS, "confidence"),
        "groups": "band" if groups is None and k is not None else groups,
        "family": _family(family, sites).name,
        "k": None if k is None else check_count(k, "k", most=4096),
        "n_opt": None if n_opt is None else check_count(n_opt, "n_opt", least=0),
        "seed": check_count(seed, "seed", least=0, most=2**128),
        "shared_units": shared_units,
        "unit_name": unit_name,
        "weighting": weighting if sites[0].text["units"] is not None else "units",
        "max_images": None if max_images is None else check_count(max_images, "max_images"),
    }
    check_unit_name(unit_name)
    check_choice(weighting, WEIGHTINGS, "weighting")
    if max_images is not None and settings["weighting"] != "images":
        raise ValueError(f"max_images is {max_images!r}; it belongs to weighting='images' with units: leave it out")
    if settings["promises"]:
        settings["risk_level"] = path_level(_aims(settings, sites)[0])
    study = Study(settings, sites, key=key)
    _ = study.plan  # what is wrong with the settings shows now
    return study


def _check_sites(sites: Sequence[Message], shared_units: str) -> None:
    """Sites have names, images and units of their own, and one kind of band, limits and units."""
    names = [site.text["site"] for site in sites]
    first = sites[0]
    for name, site in zip(names, sites, strict=True):
        if names.count(name) > 1:
            raise ValueError(f"site {name!r} announces itself twice; every site needs a name of its own")
        differences = _differences(first, site)
        if differences:
            raise ValueError(
                f"the images of sites {names[0]!r} and {name!r} were not made alike ({'; '.join(differences)}). Which "
                "of the two is wrong cannot be known here; agree, and announce again"
            )
        if (site.text["units"] is None) != (first.text["units"] is None):
            raise ValueError(
                f"only one of the sites {names[0]!r} and {name!r} gives units; all must, or none: announce again"
            )
    check_shared(sites, join=shared_units == "join")


def _differences(one: Message, other: Message) -> list[str]:
    """What two sites say differently of how their images were made, in words."""
    first, second = one.text["site"], other.text["site"]
    pairs = {what: (one.text[what], other.text[what]) for what in ("limits", "centred")}
    measures = [None if x is None else Measure.from_state(x) for x in (one.text["measure"], other.text["measure"])]
    if not same_measure(*measures):
        pairs["measure"] = measures[0], measures[1]
    mine, yours = Source.from_state(one.text["source"]).known, Source.from_state(other.text["source"]).known
    pairs |= {f"source: {name}": (mine.get(name, UNKNOWN), yours.get(name, UNKNOWN)) for name in {**mine, **yours}}
    return [f"{what} {a} at {first!r}, {b} at {second!r}" for what, (a, b) in pairs.items() if a != b]


# ---------------------------------------------------------------- merge


def merge(study: Study | str | os.PathLike[str], answers: Sequence[Any], *, key: Any = None) -> Study | Calibration:
    """Add the answers of all sites (Messages, or their paths): the study of the next round, or the calibration."""
    key = key_of(key)
    if not isinstance(study, Study):
        study = load_study(study, key=key)
    elif key not in (None, study.key):
        raise ValueError("this study began with another key, or without one; give the key that it began with")
    by_site = _by_site(study, answers)
    question, sites = study._next, _sites(study)[0]
    assert isinstance(question, Question)  # else there was no plan to answer
    statistic = form_of(question).statistic
    given = arguments_of(question, sites.family)
    before = study.answered[-1][1] if study.answered else None
    parts: list[Tables] = []
    for i, site in enumerate(study.sites):
        tables = by_site[site.text["site"]].tables
        by = sites.respondent(i, statistic, before)
        asked = by.fitting if question.scope == FITTING else len(by.rows)
        if question.scope != "all" and not asked:
            if tables:
                by.refuse(f"has {len(tables)} tables, but none of its images is asked for")
            continue
        found = checked_tables(question, given, sites.family, tables, by)
        parts.append(sites.expand(i, found, statistic) if question.scope == "all" else found)
    done = replace(study, answered=[*study.answered, (question.digest, added(statistic, parts))])
    return done._next if isinstance(done._next, Calibration) else done


def _by_site(study: Study, answers: Sequence[Any]) -> dict[str, Message]:
    """One answer of every site, each to the plan of this round of this study."""
    names = [site.text["site"] for site in study.sites]
    plan = study.plan
    out: dict[str, Message] = {}
    for message in answers:
        found = expect(message, "answer", study.key)
        name = found.text["site"]
        if name not in names:
            raise ValueError(f"site {name!r} is not part of this study, which is of {', '.join(names)}")
        if name in out:
            raise ValueError(f"site {name!r} answers twice; give one answer of each site")
        if any(found.text[what] != wanted for what, wanted in _belongs(plan).items()):
            other = "" if found.text["study"] == study.id else " of another study"
            raise ValueError(
                f"site {name!r} answers another plan (of round {found.text['round']}{other}) than that of round "
                f"{plan.text['round']} of this study; send it this plan and ask again"
            )
        out[name] = found
    missing = [name for name in names if name not in out]
    if missing:
        raise ValueError(f"the answers of {', '.join(missing)} are missing; a round needs one of every site")
    return out


def _belongs(plan: Message) -> dict[str, Any]:
    """What an answer must say to be one to this plan."""
    return {"study": plan.text["study"], "round": plan.text["round"], "plan": plan.digest}


# ---------------------------------------------------------------- from answers to the next question


def _sites(study: Study) -> tuple[Sites, Any]:
    """The study's sites, with all units in one random order, and the groups of the frontier."""
    asked = study.settings
    unit_of = joint_units(study.sites, join=asked["shared_units"] == "join")
    bound = bound_named(asked["confidence"])
    targets, regions = _aims(asked, study.sites)
    sizes = np.concatenate([sizes_at(site, regions) for site in study.sites])
    needs = needs_of(targets, sizes > 0, unit_of, bound, asked["failure_prob"]) if targets else []
    least = max((need.least for need in needs), default=least_units(asked["risk_level"], asked["failure_prob"], bound))
    split, groups = _split(asked, unit_of, least, needs, float(sizes[:, 0].sum()))
    low, high = study.sites[0].text["limits"]
    limits = (-inf if low is None else low, inf if high is None else high)
    sites = Sites(
        study.sites, split, _family(asked["family"], study.sites), limits, iter(study.answered),
        regions=regions, runner=current_runner(),
    )  # fmt: skip
    return sites, groups


def _split(
    asked: Mapping[str, Any], unit_of: Array, least: int, needs: Sequence[Need], pixels: float
) -> tuple[Split, Any]:
    """Which units fit, and the groups that were asked for; if none were, those of few units, or by the band."""
    units = int(unit_of.max()) + 1
    values = pixels / units

    def drawn(given: bool) -> Split:
        fit = fitting_units(asked["n_opt"], asked["method"], units, least, given, values)
        return Split.draw(unit_of, fit, np.random.default_rng(asked["seed"]), needs if asked["n_opt"] is None else ())

    if asked["groups"] is None:
        split = drawn(given=False)
        fits = units - len(split.order)
        few = groups_for(fits, fits * values)
        if few is not None:
            return split, few
    return drawn(given=True), "band" if asked["groups"] is None else asked["groups"]


def _aims(settings: Mapping[str, Any], sites: Sequence[Message]) -> tuple[tuple[RiskTarget, ...], tuple[str, ...]]:
    """What is promised beyond one level, on the images of all sites, and the regions that it is about."""
    return aims_of_sites(settings["promises"], sites, settings["weighting"], settings["max_images"] or 0)


def _family(family: str | None, sites: Sequence[Message]) -> Family:
    """The family that a name stands for, or that the sites' bands call for."""
    blank = np.zeros((1, 1))
    return family_named(family, Band(blank, blank, blank if sites[0].text["centred"] else None))


def _calibrate(study: Study) -> Calibration:
    """The calibration, or the first question without an answer as an exception."""
    settings, (sites, groups) = study.settings, _sites(study)
    targets, _ = _aims(settings, study.sites)
    bound = BOUNDS[settings["confidence"]]
    objective = objective_of(targets, sites.split, bound, settings["failure_prob"]) if targets else None
    words = {name: settings[name] for name in ("risk_level", "failure_prob", "method")}
    first = study.sites[0].text
    most = settings["max_images"]
    found = calibrate_archive(
        sites, sites.split, partial(_fit_path, settings, groups, objective), bound, targets=targets,
        units=None if first["units"] is None else settings["unit_name"], seed=str(settings["seed"]),
        max_images=most_in_a_unit(sites.split, most) if settings["weighting"] == "images" else 0, **words,
    )  # fmt: skip
    rounded = {site.text["site"]: site.text["least_count"] for site in study.sites if site.text["least_count"] > 1}
    if rounded:  # what was seen is what these sites told, rounded up
        found = replace(found, record=replace(found.record, settings={"least_count": rounded}))
    return found if first["measure"] is None else replace(found, measure=Measure.from_state(first["measure"]))


def _fit_path(
    settings: Mapping[str, Any], groups: Any, objective: PathObjective | None, fit: CalibrationData, images: Array
) -> tuple[Grouping, Path]:
    """Groups and path of a method whose fitting asks for sums alone."""
    if settings["method"] == "rcps" or not len(images):
        return rcps(fit)
    if not isinstance(groups, str):
        grouping = groups if isinstance(groups, Grouping) else groups(fit, images)
        return grouping, path_of(fit, images, grouping, settings["risk_level"], objective)
    unused = np.random.default_rng(0)  # band groups are not random
    return frontier(fit, images, unused, settings["risk_level"], groups=groups, k=settings["k"], objective=objective)
