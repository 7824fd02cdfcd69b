"""The coordinator's part: it splits units, asks for tables round by round, and calibrates on their sums.

The stages are those of `pixelbounds.calibrate`: `SiteData` stands in for the images, looks answers up in the study, and
stops at the first request that is not answered, which becomes the next plan.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..calibration.bounds import BOUNDS
from ..calibration.calibration import Calibration
from ..calibration.certify import certify
from ..calibration.data import ROWS
from ..calibration.families import FAMILIES
from ..calibration.groups.contract import Grouping
from ..calibration.loss_table import loss_table
from ..calibration.methods import RCPS, Frontier, Method, few_groups, method_of
from ..calibration.promises import Promise
from ..calibration.split import Split, split
from ..calibration.target import Target, Units, target_of
from ..images.checks import check_choice, check_count
from ..images.library import Array, current_runner
from ..images.measure import Measure
from .announcements import Site, differences
from .arguments import check_groups, decode, encode
from .keys import key_of
from .messages import Message, expect, message_of
from .questions import ALL, FITTING, Question, StatisticRequest
from .shared_units import check_shared, joint_units
from .site_data import SiteData, Unanswered
from .site_regions import promise_at_sites
from .tables import Tables

_IN_PLAN = ("site", "images", "units", "least_count")  # what a plan says of each site
_PROMISE = ("kind", "at_most", "above", "cap", "name", "weighting")  # what a study keeps of a promise


@dataclass(frozen=True, eq=False)
class Study:
    """A calibration under way, kept by the coordinator: settings, announcements, and the sums of all answers so far.

    `plan` is what every site must answer next; nothing else of a study needs to be sent. With a `key`, which is not
    kept in the file, plans are authenticated and answers must be.
    """

    target: Target
    method: Method
    settings: Mapping[str, Any]  # seed, and how units count
    sites: Sequence[Site]
    rounds: Sequence[tuple[str, Tables]] = ()  # digest of the request, tables
    key: bytes | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        names = ", ".join(site.name for site in self.sites)
        signed = "authenticated" if self.key else "not authenticated; units at two sites are not found"
        return f"Study of {names}, round {len(self.rounds) + 1}, {signed}"

    @cached_property
    def id(self) -> str:
        """Digest of settings and announcements: messages of another study are not taken for those of this one."""
        text, tables = self._state()
        sites = [site.announcement.digest for site in self.sites]
        return Message("study", {"settings": text, "sites": sites}, tables).digest

    @property
    def plan(self) -> Message:
        """The request of this round."""
        request = self.next
        if not isinstance(request, StatisticRequest):
            raise ValueError("every question was answered; there is no further plan")
        first, regions = self.sites[0].text, self.pooled.regions
        text = {
            "study": self.id, "round": len(self.rounds) + 1, "statistic": request.statistic, "given": request.given,
            **{name: first[name] for name in ("family", "limits", "source", "measure")},
            "sites": [{name: site.text[name] for name in _IN_PLAN} for site in self.sites],
            "regions": [about for name in regions for about in first["regions"] if about["name"] == name],
        }  # fmt: skip
        tables = {f"given.{name}": x for name, x in request.tables.items()}
        for i, (site, fitting) in enumerate(zip(self.sites, self.fitting, strict=True)):
            tables[f"fitting.{i}"] = fits = np.zeros(int(site.unit_of.max()) + 1, bool)
            fits[site.unit_of] = fitting
        return Message("plan", text, tables).signed(self.key)

    # ------------------------------------------------------------ the stages

    @cached_property
    def _split(self) -> tuple[Method, Split, np.random.Generator]:
        """Who fits, drawn with all units in one random order. Where groups are not given they cannot be learned: they
        are few, or by the band.
        """
        settings, first = self.settings, self.sites[0]
        unit_of = joint_units(self.sites, join=settings["shared_units"] == "join")
        how = {name: settings[name] for name in ("weighting", "max_images")}
        units = None if first.text["units"] is None else Units(unit_of, settings["unit_name"], **how)
        measure = first.text["measure"]
        data = SiteData(
            sites=self.sites, answers=iter(self.rounds), units=units, unit_of=unit_of, limits=first.span,
            family=FAMILIES[first.text["family"]], runner=current_runner(),
            measure=None if measure is None else Measure.from_state(measure),
        )  # fmt: skip
        method, rng = self.method, np.random.default_rng(settings["seed"])
        parts = split(data, self.target, method, rng)
        if isinstance(method, Frontier) and method.groups is method.k is None:
            fitting = parts.fitting
            if few_groups(fitting.units, float(fitting.data.sizes.sum())) is None:
                method, rng = replace(method, groups="band"), np.random.default_rng(settings["seed"])
                parts = split(data, self.target, method, rng)
        return method, parts, rng

    @property
    def pooled(self) -> SiteData:
        """The images of all sites."""
        data = self._split[1].certifying.data
        assert isinstance(data, SiteData)
        return data

    @property
    def fitting(self) -> list[Array]:
        """Which images of each site fit."""
        first = np.cumsum([site.images for site in self.sites])[:-1]
        return np.split(~self._split[1].certifying.images, first)

    @cached_property
    def next(self) -> StatisticRequest | Calibration:
        """The first request without an answer; the calibration where there is none."""
        method, (fitting, certifying), rng = self._split
        try:
            path = method.fit(fitting, self.target, rng)
            with loss_table(certifying, path, self.target) as table:
                point = certify(table, self.target)
        except Unanswered as stop:
            return stop.request
        rounded = {site.name: site.text["least_count"] for site in self.sites if site.text["least_count"] > 1}
        settings = {"least_count": rounded} if rounded else {}  # the risk that was seen is that of rounded counts
        return Calibration.of(table, point, self.target, method.name, str(self.settings["seed"]), settings)

    # ------------------------------------------------------------ its file

    def _state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Arguments of `begin` as JSON and arrays."""
        method, tables = encode({name: x for name, x in vars(self.method).items() if isinstance(x, Grouping)})
        text = {
            **self.settings,
            "promises": [{name: getattr(promise, name) for name in _PROMISE} for promise in self.target.promises],
            "failure_prob": self.target.failure_prob,
            "bound": self.target.bound_name,
            "method": {**vars(self.method), **method, "name": self.method.name},
        }
        return text, tables

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the coordinator's file."""
        settings, tables = self._state()
        for i, site in enumerate(self.sites):
            tables[f"site.{i}"] = np.frombuffer(site.announcement.to_bytes(), np.uint8)
        for i, (_, sums) in enumerate(self.rounds):
            tables |= {f"round.{i}.{j}": x for j, x in enumerate(sums)}
        text = {"settings": settings, "sites": len(self.sites), "rounds": [digest for digest, _ in self.rounds]}
        Message("study", text, tables).signed(self.key).save(path)


def load_study(path: str | os.PathLike[str], *, key: Any = None) -> Study:
    """Read a coordinator's file."""
    key = key_of(key)
    message = expect(path, "study", key)
    text, tables = message.text, dict(message.tables)
    settings = dict(text["settings"])
    try:
        sites = [tables.pop(f"site.{i}").astype(np.uint8).tobytes() for i in range(text["sites"])]
        rounds = []
        for i, digest in enumerate(text["rounds"]):
            names = [f"round.{i}.{j}" for j in range(sum(name.startswith(f"round.{i}.") for name in tables))]
            rounds.append((digest, tuple(tables.pop(name) for name in names)))
        settings["promises"] = [Promise(within=None, **state) for state in settings["promises"]]
        method = dict(settings["method"])
        if isinstance(method.get("groups"), Mapping):
            method |= decode({"groups": method["groups"]}, tables)
        settings["method"] = {"frontier": Frontier, "rcps": RCPS}[method.pop("name")](**method)
        study = begin([message_of(data) for data in sites], key=key, **settings)
    except (TypeError, KeyError) as error:
        raise ValueError(f"{str(path)!r}, a study, is incomplete or has unknown settings: {error}") from error
    return replace(study, rounds=rounds)


# ---------------------------------------------------------------- begin


def begin(
    announcements: Sequence[Any],
    *,
    risk_level: float | None = None,
    promises: Sequence[Promise] | None = None,
    failure_prob: float = 0.1,
    bound: str = "betting",
    method: str | Method = "frontier",
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
    bound          name of a function of `pixelbounds.bounds`
    method         "frontier", pb.Frontier(...), "rcps" or pb.RCPS(...); krcps needs single pixels, which do not travel.
                   Groups of the frontier are "band" or a Grouping made elsewhere, such as that of another calibration;
                   by default "band" where at least 16 units fit, else few by width, as `pixelbounds.calibrate` has them
    unit_name, weighting, max_images    name, weighting and max_images of `pixelbounds.Units`
    shared_units   "refuse" a unit (patient) that is at two sites, or "join" its images into one unit; both need a key,
                   without one such a unit is not recognised and counts twice
    key            that the sites share: announcements must be authenticated under it, and plans will be
    others         as in `pixelbounds.calibrate`
    """
    key = key_of(key)
    sites = [Site(expect(message, "announcement", key)) for message in announcements]
    if not sites:
        raise ValueError("there are no announcements; give one of each site")
    check_choice(shared_units, ("refuse", "join"), "shared_units")
    _check_alike(sites)
    check_shared(sites, join=shared_units == "join")
    Units((), unit_name, weighting, max_images)  # wrong ones are refused
    target = target_of(risk_level, promises, failure_prob, check_choice(bound, BOUNDS, "bound"))
    target = replace(target, promises=[promise_at_sites(promise) for promise in target.promises])
    settings = {
        "seed": check_count(seed, "seed", least=0, most=2**128), "unit_name": unit_name, "weighting": weighting,
        "max_images": max_images, "shared_units": shared_units,
    }  # fmt: skip
    study = Study(target, _check_method(method), settings, sites, key=key)
    _ = study.plan  # what is wrong with the settings shows now
    return study


def _check_method(method: Any) -> Method:
    """A method whose fitting asks for sums alone."""
    if isinstance(method, str):
        check_choice(method, ("frontier", "rcps"), "method of a federated calibration")
    method = method_of(method)
    if not isinstance(method, Frontier | RCPS):
        raise TypeError(f"method is {method!r}; sites answer pb.Frontier and pb.RCPS alone")
    if isinstance(method, Frontier):
        if isinstance(method.groups, Grouping):
            check_groups(method.groups)
        elif method.groups is not None:
            check_choice(method.groups, ("band",), "groups of a federated calibration")
        elif method.k is not None:
            return replace(method, groups="band")
    return method


def _check_alike(sites: Sequence[Site]) -> None:
    """Sites have names of their own, units or not, and one kind of band, limits and measure."""
    names, first = [site.name for site in sites], sites[0]
    for site in sites:
        if names.count(site.name) > 1:
            raise ValueError(f"site {site.name!r} announces itself twice; every site needs a name of its own")
        if different := [*differences(first.made, site.made)]:
            words = "; ".join(f"{what} {a} at {first.name!r}, {b} at {site.name!r}" for what, a, b in different)
            raise ValueError(
                f"the images of sites {first.name!r} and {site.name!r} were not made alike ({words}). Which of the two "
                "is wrong cannot be known here; agree, and announce again"
            )


# ---------------------------------------------------------------- merge


def merge(study: Study | str | os.PathLike[str], answers: Sequence[Any], *, key: Any = None) -> Study | Calibration:
    """Add the answers of all sites (Messages, or their paths): the study of the next round, or the calibration."""
    key = key_of(key)
    if not isinstance(study, Study):
        study = load_study(study, key=key)
    elif key not in (None, study.key):
        raise ValueError("this study began with another key, or without one; give the key that it began with")
    by_site = _by_site(study, answers)
    request, data = study.next, study.pooled
    assert isinstance(request, StatisticRequest)  # else there was no plan to answer
    question = request.question
    given = question.arguments(request, data.family)
    parts: list[Tables] = []
    for site, fitting in zip(study.sites, study.fitting, strict=True):
        tables, who = by_site[site.name].tables, f"the answer of site {site.name!r}"
        if question.is_for(fitting):
            sizes = site.region_sizes(data.regions)
            of = question.answering([site], data.regions, sizes[fitting if question.images == FITTING else ~fitting])
            checked = question.check(tables, given, data.family, of, who)
            parts.append(_of_all_images(question, checked, ~fitting, sizes) if question.images == ALL else checked)
        elif tables:
            raise ValueError(f"{who} has {len(tables)} tables, but none of its images is asked for; ask it again")
    done = replace(study, rounds=[*study.rounds, (request.digest, question.merged(parts))])
    return done.next if isinstance(done.next, Calibration) else done


def _of_all_images(question: Question, tables: Tables, certifying: Array, sizes: Array) -> Tables:
    """Rows of certifying images among rows of zeros for fitting images, which nobody looks at; sizes were announced."""
    out = []
    for name, x, join in zip(question.tables, tables, question.statistic.joins, strict=True):
        rows = np.zeros((len(certifying), *x.shape[1:]), x.dtype) if join is ROWS else x
        if join is ROWS:
            rows[certifying] = x
        out.append(sizes if name == "sizes" else rows)
    return tuple(out)


def _by_site(study: Study, answers: Sequence[Any]) -> dict[str, Message]:
    """One answer of every site, each to the plan of this round of this study."""
    names = [site.name for site in study.sites]
    plan = study.plan
    wanted = {"study": plan.text["study"], "round": plan.text["round"], "plan": plan.digest}
    out: dict[str, Message] = {}
    for answer in answers:
        message = expect(answer, "answer", study.key)
        name = message.text["site"]
        if name not in names:
            raise ValueError(f"site {name!r} is not part of this study, which is of {', '.join(names)}")
        if name in out:
            raise ValueError(f"site {name!r} answers twice; give one answer of each site")
        if any(message.text[field] != value for field, value in wanted.items()):
            other = "" if message.text["study"] == study.id else " of another study"
            raise ValueError(
                f"site {name!r} answers another plan (of round {message.text['round']}{other}) than that of round "
                f"{plan.text['round']} of this study; send it this plan and ask again"
            )
        out[name] = message
    missing = [name for name in names if name not in out]
    if missing:
        raise ValueError(f"the answers of {', '.join(missing)} are missing; a round needs one of every site")
    return out
