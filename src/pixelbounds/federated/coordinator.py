"""The coordinator's part: it splits units, asks for tables round by round, and calibrates on their sums.

The calibration is the very one of `pixelbounds.calibrate`: `Sites` stands in for the images, looks answers up in the
study, and stops at the first question that is not answered, which becomes the next plan.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import Any

import numpy as np

from ..calibration.arrivals import Path
from ..calibration.confidence import BOUNDS, bound_named
from ..calibration.families import Family, family_named
from ..calibration.front_door import Split, calibrate_archive, fitting_units, least_units
from ..calibration.groups.contract import Grouping
from ..calibration.pairs import ROWS, Archive, Statistic
from ..calibration.paths.frontier import frontier_of
from ..calibration.procedures import frontier, rcps
from ..calibration.result import Calibration
from ..images.checks import check_choice, check_count, check_open_unit
from ..images.ends import Band
from ..images.library import Array, current_runner
from .archive import Question, Sites, Tables, Unanswered, units_at
from .messages import Message, decode, encode, expect
from .site import STATISTICS, check_groups


@dataclass(frozen=True, eq=False)
class Study:
    """A calibration under way, kept by the coordinator: settings, announcements, and the sums of all answers so far.

    `plan` is what every site must answer next; nothing else of a study needs to be sent.
    """

    settings: Mapping[str, Any]
    sites: Sequence[Message]
    answered: Sequence[tuple[str, Tables]] = ()  # digest of the question, tables

    @property
    def plan(self) -> Message:
        """The question of this round."""
        if not isinstance(self._next, Question):
            raise ValueError("every question was answered; there is no further plan")
        question, sites = self._next, _sites(self)
        text = {
            "statistic": question.statistic, "scope": question.scope, "given": question.given,
            "round": len(self.answered) + 1, "family": sites.family.name, "limits": self.sites[0].text["limits"],
            "sites": [{key: site.text[key] for key in ("site", "images", "units")} for site in self.sites],
        }  # fmt: skip
        fitting = {f"fitting.{i}": sites.fitting_units(i) for i in range(len(self.sites))}
        return Message("plan", text, fitting | {f"given.{name}": x for name, x in question.tables.items()})

    @cached_property
    def _next(self) -> Question | Calibration:
        try:
            return _calibrate(self)
        except Unanswered as stop:
            return stop.question

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the coordinator's file."""
        said, tables = encode({"groups": self.settings["groups"]})
        text = {
            "settings": {**self.settings, "groups": said["groups"]},
            "sites": [{"text": dict(site.text), "tables": list(site.tables)} for site in self.sites],
            "answered": [{"question": question, "tables": len(found)} for question, found in self.answered],
        }
        tables |= {f"site.{i}.{name}": x for i, site in enumerate(self.sites) for name, x in site.tables.items()}
        tables |= {f"round.{i}.{j}": x for i, (_, found) in enumerate(self.answered) for j, x in enumerate(found)}
        Message("study", text, tables).save(path)


def load_study(path: str | os.PathLike[str]) -> Study:
    """Read a coordinator's file."""
    found = expect(path, "study")
    text, tables = found.text, found.tables
    settings = {**text["settings"], **decode({"groups": text["settings"]["groups"]}, tables)}
    sites = [
        Message("announcement", site["text"], {name: tables[f"site.{i}.{name}"] for name in site["tables"]})
        for i, site in enumerate(text["sites"])
    ]
    answered = [
        (about["question"], tuple(tables[f"round.{i}.{j}"] for j in range(about["tables"])))
        for i, about in enumerate(text["answered"])
    ]
    return Study(settings, sites, answered)


# ---------------------------------------------------------------- begin


def begin(
    announcements: Sequence[Any],
    *,
    risk_level: float,
    failure_prob: float = 0.1,
    method: str = "frontier",
    confidence: str = "betting",
    groups: str | Grouping = "band",
    family: str | None = None,
    k: int | None = None,
    n_opt: int | None = None,
    seed: int = 0,
) -> Study:
    """Open a study of some sites, in this order; `study.plan` is what each of them must answer.

    announcements  Messages of `announce`, or their paths
    method         "frontier" or "rcps"; krcps needs single pixels, which do not travel
    groups         of the frontier: "band", or a Grouping made elsewhere, such as that of another calibration
    others         as in `pixelbounds.calibrate`
    """
    sites = [expect(message, "announcement") for message in announcements]
    if not sites:
        raise ValueError("there are no announcements; give one of each site")
    _check_sites(sites)
    check_choice(method, ("frontier", "rcps"), "method of a federated calibration")
    if isinstance(groups, str):
        check_choice(groups, ("band",), "groups of a federated calibration")
    elif not isinstance(groups, Grouping):
        raise TypeError(f"groups is {groups!r}; give 'band' or a Grouping")
    check_groups(groups)
    if k is not None and (method == "rcps" or isinstance(groups, Grouping)):
        raise ValueError("k is the number of bins of groups='band'; leave it out")
    settings = {
        "risk_level": check_open_unit(risk_level, "risk_level"),
        "failure_prob": check_open_unit(failure_prob, "failure_prob"),
        "method": method,
        "confidence": check_choice(confidence, BOUNDS, "confidence"),
        "groups": groups,
        "family": _family(family, sites).name,
        "k": None if k is None else check_count(k, "k", most=4096),
        "n_opt": n_opt,
        "seed": check_count(seed, "seed", least=0),
    }
    study = Study(settings, sites)
    _ = study.plan  # what is wrong with the settings shows now
    return study


def _check_sites(sites: Sequence[Message]) -> None:
    """Sites have names of their own, and one kind of band, limits and units."""
    names = [site.text["site"] for site in sites]
    for name, site in zip(names, sites, strict=True):
        if names.count(name) > 1:
            raise ValueError(f"site {name!r} announces itself twice; every site needs a name of its own")
        for what in ("source", "limits", "centred"):
            if site.text[what] != sites[0].text[what]:
                raise ValueError(
                    f"the {what} of site {name!r} is {site.text[what]!r}, but that of {names[0]!r} is "
                    f"{sites[0].text[what]!r}; images of all sites must be made alike"
                )
        if (site.text["units"] is None) != (sites[0].text["units"] is None):
            raise ValueError(f"only one of the sites {names[0]!r} and {name!r} gives units; all must, or none")


# ---------------------------------------------------------------- merge


def merge(study: Study | str | os.PathLike[str], answers: Sequence[Any]) -> Study | Calibration:
    """Add the answers of all sites (Messages, or their paths): the study of the next round, or the calibration."""
    study = study if isinstance(study, Study) else load_study(study)
    by_site = _by_site(study, answers)
    question, sites = study._next, _sites(study)
    assert isinstance(question, Question)  # else there was no plan to answer
    statistic = STATISTICS[question.statistic]
    parts: list[Tables] = []
    for i, site in enumerate(study.sites):
        tables = by_site[site.text["site"]].tables
        if not tables and question.scope != "all" and not len(sites.sizes_of(i, question.scope)):
            continue  # none of its images fits
        found = _checked(site, tables, statistic, sites.sizes_of(i, "certifying"), parts)
        parts.append(sites.expand(i, found, statistic) if question.scope == "all" else found)
    done = replace(study, answered=[*study.answered, (question.digest, statistic.merge(parts))])
    return done._next if isinstance(done._next, Calibration) else done


def _by_site(study: Study, answers: Sequence[Any]) -> dict[str, Message]:
    """One answer of every site, each to the plan of this round."""
    names, plan, out = [site.text["site"] for site in study.sites], study.plan, {}
    for message in answers:
        found = expect(message, "answer")
        name = found.text["site"]
        if name not in names:
            raise ValueError(f"site {name!r} is not part of this study, which is of {', '.join(names)}")
        if name in out:
            raise ValueError(f"site {name!r} answers twice; give one answer of each site")
        if found.text["plan"] != plan.digest:
            raise ValueError(
                f"site {name!r} answers another plan (of round {found.text['round']}) than that of round "
                f"{plan.text['round']} of this study; send it this plan and ask again"
            )
        out[name] = found
    missing = [name for name in names if name not in out]
    if missing:
        raise ValueError(f"the answers of {', '.join(missing)} are missing; a round needs one of every site")
    return out


def _checked(
    site: Message, tables: Mapping[str, Array], statistic: Statistic, certifying: Array, before: Sequence[Tables]
) -> Tables:
    """The tables of an answer where they fit the question, the announcement, and those of the sites before."""
    who = f"the answer of site {site.text['site']!r}"
    if set(tables) != {str(j) for j in range(len(statistic.joins))}:
        raise ValueError(f"{who} has {len(tables)} tables, but {len(statistic.joins)} were asked for; ask it again")
    found = tuple(tables[str(j)] for j in range(len(statistic.joins)))
    for j, (x, join) in enumerate(zip(found, statistic.joins, strict=True)):
        if not np.isfinite(x).all() or (x.dtype.kind == "i" and (x < 0).any()):
            raise ValueError(f"{who} has a table with impossible values; ask it again")
        kind, shape = x.dtype.kind, x.shape[join is ROWS :]
        if before and (kind, shape) != (before[0][j].dtype.kind, before[0][j].shape[join is ROWS :]):
            raise ValueError(f"{who} has a table of shape {x.shape}, which does not fit those of other sites")
    if statistic.joins[0] is ROWS and len(found[0]) != len(certifying):
        raise ValueError(f"{who} counts {len(found[0])} images, but {len(certifying)} of its images certify")
    if statistic.name == "misses":
        if (found[0] > certifying[:, None]).any():
            raise ValueError(f"{who} counts more misses than its images have pixels; ask it again")
        if not np.array_equal(found[1], site.tables["prints"]):
            raise ValueError(f"the images of site {site.text['site']!r} are not those that it announced; begin again")
    if statistic.name == "arriving" and found[0].sum() != len(found[1]):
        raise ValueError(f"{who} lists {len(found[1])} ends but counts {found[0].sum()}; ask it again")
    return found


# ---------------------------------------------------------------- from answers to the next question


def _sites(study: Study) -> Sites:
    """The study's sites, with all units in one random order."""
    parts, units = [], 0
    for site in study.sites:
        parts.append(units_at(site) + units)
        units = int(parts[-1].max()) + 1
    asked = study.settings
    least = least_units(asked["risk_level"], asked["failure_prob"], bound_named(asked["confidence"]))
    fit = fitting_units(asked["n_opt"], asked["method"], units, least, asked["groups"] is not None)
    split = Split.draw(np.concatenate(parts), fit, np.random.default_rng(study.settings["seed"]))
    low, high = study.sites[0].text["limits"]
    limits = (-inf if low is None else low, inf if high is None else high)
    return Sites(
        study.sites, split, _family(asked["family"], study.sites), limits, iter(study.answered),
        runner=current_runner(),
    )  # fmt: skip


def _family(family: str | None, sites: Sequence[Message]) -> Family:
    """The family that a name stands for, or that the sites' bands call for."""
    blank = np.zeros((1, 1))
    return family_named(family, Band(blank, blank, blank if sites[0].text["centred"] else None))


def _calibrate(study: Study) -> Calibration:
    """The calibration, or the first question without an answer as an exception."""
    settings, sites = study.settings, _sites(study)
    words = {name: settings[name] for name in ("risk_level", "failure_prob", "method")}
    return calibrate_archive(
        sites, sites.split, partial(_fit_path, settings), BOUNDS[settings["confidence"]],
        units=None if study.sites[0].text["units"] is None else "unit", seed=str(settings["seed"]), **words,
    )  # fmt: skip


def _fit_path(settings: Mapping[str, Any], fit: Archive, images: Array) -> tuple[Grouping, Path]:
    """Groups and path of a method whose fitting asks for sums alone."""
    groups, risk_level = settings["groups"], settings["risk_level"]
    if settings["method"] == "rcps":
        return rcps(fit)
    if isinstance(groups, Grouping):
        return groups, frontier_of(fit, images, groups, risk_level)
    unused = np.random.default_rng(0)  # band groups are not random
    return frontier(fit, images, unused, risk_level, groups=groups, k=settings["k"])
