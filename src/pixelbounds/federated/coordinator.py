"""The coordinator's part: it splits units, asks for tables round by round, and calibrates on their sums.

The stages are those of `pixelbounds.calibrate`: `SiteData` stands in for the images, looks answers up in the study, and
stops at the first request that is not answered, which becomes the next plan.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np

from ..calibration.block import Grouping
from ..calibration.bounds import BOUNDS
from ..calibration.calibration import Calibration
from ..calibration.certify import certify, loss_table
from ..calibration.choice import few_groups
from ..calibration.methods import RCPS, Frontier, Method, Split, method_of, split
from ..calibration.promises import Promise
from ..calibration.target import Target, Units, target_of
from ..images.checks import check_choice, check_count
from ..images.library import Array, current_runner
from .arguments import check_groups, decode, encode
from .fields import Tables
from .messages import Message, expect, message_of
from .sites import Site, SiteData, Unanswered, check_alike, joint_units, promise_at_sites

_IN_PLAN = ("site", "images", "units", "least_count")  # what a plan says of each site
_PROMISE = ("kind", "at_most", "above", "cap", "name", "weighting")  # what a study keeps of a promise


class StudySettings(NamedTuple):
    """What a study must achieve, and how: the arguments of `begin`, checked."""

    target: Target
    method: Method
    seed: int
    units: Units  # how they are called and count
    shared_units: str

    def state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """As JSON and arrays."""
        text, tables = encode(vars(self.method))
        target, units = self.target, self.units
        return {
            "promises": [{name: getattr(promise, name) for name in _PROMISE} for promise in target.promises],
            "failure_prob": target.failure_prob, "bound": target.bound_name,
            "method": {**text, "name": self.method.name}, "seed": self.seed, "unit_name": units.name,
            "weighting": units.weighting, "max_images": units.max_images, "shared_units": self.shared_units,
        }, tables  # fmt: skip

    @classmethod
    def from_state(cls, text: Mapping[str, Any], tables: Mapping[str, Array] = {}) -> StudySettings:
        """The settings of a file or job."""
        try:
            promises = [Promise(within=None, **promise) for promise in text["promises"]]
            method = {name: x for name, x in decode(text["method"], tables).items() if x is not None}
            kind = {"frontier": Frontier, "rcps": RCPS}[method.pop("name")]
            return study_settings(**{**text, "risk_level": None, "promises": promises, "method": kind(**method)})
        except (TypeError, KeyError) as error:
            raise ValueError(f"a study is incomplete or has unknown settings: {error}; begin it again") from error


@dataclass(frozen=True, eq=False)
class Study:
    """A calibration under way, kept by the coordinator: settings, announcements, and the answers so far.

    `plan` is what every site must answer next; nothing else of a study needs to be sent.
    """

    settings: StudySettings
    sites: Sequence[Site]
    rounds: Sequence[tuple[Sequence[Message], Tables]] = ()  # the answers of all sites, and their sums

    def __repr__(self) -> str:
        names = ", ".join(site.name for site in self.sites)
        compared = "" if self.sites[0].name_hashes else "; units at two sites are not found"
        return f"Study of {names}, round {len(self.rounds) + 1}{compared}"

    @cached_property
    def id(self) -> str:
        """Digest of settings and announcements: messages of another study are not taken for those of this one."""
        text, tables = self.settings.state()
        sites = [site.announcement.digest for site in self.sites]
        return Message("study", {"settings": text, "sites": sites}, tables).digest

    @cached_property
    def plan(self) -> Message:
        """The request of this round."""
        request = self.next
        if not isinstance(request, Unanswered):
            raise ValueError("every question was answered; there is no further plan")
        question, given, arrays = request.args
        first, regions = self.sites[0], self.pooled.regions
        text = {
            "study": self.id, "round": len(self.rounds) + 1, "statistic": question.statistic.name, "given": given,
            **{name: first.text[name] for name in ("family", "limits", "source", "measure")},
            "sites": [{name: site.text[name] for name in _IN_PLAN} for site in self.sites],
            "regions": [{"name": name, "place": first.regions[name]} for name in regions],
        }  # fmt: skip
        tables = {f"given.{name}": x for name, x in arrays.items()}
        for i, (site, fitting) in enumerate(zip(self.sites, self.fitting, strict=True)):
            tables[f"fitting.{i}"] = fits = np.zeros(int(site.unit_of.max()) + 1, bool)
            fits[site.unit_of] = fitting
        return Message("plan", text, tables)

    @cached_property
    def _split(self) -> tuple[Method, Split, np.random.Generator]:
        """Who fits. Where groups are not given they cannot be learned: they are few, or by the band."""
        settings, first = self.settings, self.sites[0]
        unit_of = joint_units(self.sites, join=settings.shared_units == "join")
        units = None if first.text["units"] is None else replace(settings.units, ids=unit_of)
        data = SiteData(
            sites=self.sites, answers=(x for _, x in self.rounds), units=units, unit_of=unit_of, runner=current_runner()
        )
        method, rng = settings.method, np.random.default_rng(settings.seed)
        parts = split(data, settings.target, method, rng)
        if isinstance(method, Frontier) and method.groups is method.k is None:
            fitting = parts.fitting
            if few_groups(fitting.units, float(fitting.data.sizes.sum())) is None:
                method, rng = replace(method, groups="band"), np.random.default_rng(settings.seed)
                parts = split(data, settings.target, method, rng)
        return method, parts, rng

    @property
    def pooled(self) -> SiteData:
        """The images of all sites."""
        return cast(SiteData, self._split[1].certifying.data)

    @property
    def fitting(self) -> list[Array]:
        """Which images of each site fit."""
        first = np.cumsum([site.text["images"] for site in self.sites])[:-1]
        return np.split(~self._split[1].certifying.images, first)

    @cached_property
    def next(self) -> Unanswered | Calibration:
        """The first question without an answer; the calibration where there is none."""
        (method, (fitting, certifying), rng), target = self._split, self.settings.target
        try:
            path = method.fit(fitting, target, rng)
            table = loss_table(certifying, path, target)
            point = certify(table, target)
        except Unanswered as request:
            return request
        rounded = {site.name: site.text["least_count"] for site in self.sites if site.text["least_count"] > 1}
        settings = {"least_count": rounded} if rounded else {}  # the risk that was seen is that of rounded counts
        return Calibration.of(table, point, target, method.name, str(self.settings.seed), settings)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the coordinator's file: settings, and all messages so far."""
        settings, tables = self.settings.state()
        for i, site in enumerate(self.sites):
            messages = [site.announcement, *(answers[i] for answers, _ in self.rounds)]
            tables |= {f"site.{i}.{j}": np.frombuffer(x.to_bytes(), np.uint8) for j, x in enumerate(messages)}
        text = {"settings": settings, "sites": len(self.sites), "rounds": len(self.rounds)}
        Message("study", text, tables).save(path)


def load_study(path: str | os.PathLike[str]) -> Study:
    """Read a coordinator's file; all that sites sent is checked again."""
    message = expect(path, "study")
    text, tables = message.text, dict(message.tables)
    names = [[f"site.{i}.{j}" for i in range(text["sites"])] for j in range(1 + text["rounds"])]
    if missing := {name for one in names for name in one} - tables.keys():
        raise ValueError(f"{str(path)!r}, a study, is incomplete: it lacks {min(missing)}")
    announced, *rounds = [
        [message_of(tables.pop(name).astype(np.uint8).tobytes(), str(path)) for name in one] for one in names
    ]
    study: Any = open_study(announced, StudySettings.from_state(text["settings"], tables))
    for answers in rounds:
        study = merge(study, answers)
        if not isinstance(study, Study):
            raise ValueError(f"{str(path)!r} is a study that has ended; begin another")
    return cast(Study, study)


def begin(
    announcements: Sequence[Any], *, risk_level: float | None = None, promises: Sequence[Promise] | None = None,
    failure_prob: float = 0.1, bound: str = "betting", method: str | Method = "frontier", seed: int = 0,
    unit_name: str = "unit", weighting: str = "units", max_images: int | None = None, shared_units: str = "refuse",
) -> Study:  # fmt: skip
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
    shared_units   "refuse" a unit (patient) that is at two sites, or "join" its images into one unit; both need a key
                   at the sites, without one such a unit is not recognised and counts twice
    others         as in `pixelbounds.calibrate`
    """
    asked = {name: value for name, value in locals().items() if name != "announcements"}
    return open_study(announcements, study_settings(**asked))


def study_settings(
    *, risk_level: float | None, promises: Sequence[Promise] | None, failure_prob: float, bound: str,
    method: str | Method, seed: int, unit_name: str, weighting: str, max_images: int | None, shared_units: str,
) -> StudySettings:  # fmt: skip
    """Arguments of `begin`, checked."""
    target = target_of(risk_level, promises, failure_prob, check_choice(bound, BOUNDS, "bound"))
    return StudySettings(
        replace(target, promises=[promise_at_sites(promise) for promise in target.promises]),
        _check_method(method),
        check_count(seed, "seed", least=0, most=2**128),
        Units((), unit_name, weighting, max_images),
        check_choice(shared_units, ("refuse", "join"), "shared_units"),
    )


def open_study(announcements: Sequence[Any], settings: StudySettings) -> Study:
    """The study of sites that fit together."""
    sites = [Site(expect(message, "announcement")) for message in announcements]
    if not sites:
        raise ValueError("there are no announcements; give one of each site")
    check_alike(sites, join=settings.shared_units == "join")
    study = Study(settings, sites)
    _ = study.plan  # what is wrong with the settings shows now
    return study


def _check_method(method: Any) -> Method:
    if isinstance(method, str):
        check_choice(method, ("frontier", "rcps"), "method of a federated calibration")
    method = method_of(method)
    if not isinstance(method, Frontier | RCPS):
        raise TypeError(f"method is {method!r}; sites answer pb.Frontier and pb.RCPS alone")
    if isinstance(method, Frontier) and isinstance(method.groups, Grouping):
        check_groups(method.groups)
    elif isinstance(method, Frontier) and not method.groups is method.k is None:
        groups = check_choice(method.groups or "band", ("band",), "groups of a federated calibration")
        return replace(method, groups=groups)
    return method


def merge(study: Study | str | os.PathLike[str], answers: Sequence[Any]) -> Study | Calibration:
    """Add the answers of all sites (Messages, or their paths): the study of the next round, or the calibration."""
    if not isinstance(study, Study):
        study = load_study(study)
    plan, data, names = study.plan, study.pooled, [site.name for site in study.sites]
    messages = [expect(answer, "answer") for answer in answers]
    answering = [message.text["site"] for message in messages]
    if sorted(answering) != sorted(names):
        raise ValueError(f"the answers are of {', '.join(answering)}; give one of each of {', '.join(names)}")
    by_site = [messages[answering.index(name)] for name in names]
    wanted = {"study": study.id, "round": plan.text["round"], "plan": plan.digest}
    for name, message in zip(names, by_site, strict=True):
        if any(message.text[field] != value for field, value in wanted.items()):
            other = f"round {message.text['round']}" + " of another study" * (message.text["study"] != study.id)
            raise ValueError(
                f"site {name!r} answers another plan (of {other}) than that of round {wanted['round']}; ask it again"
            )
    question, text, tables = cast(Unanswered, study.next).args
    given = question.arguments(text, tables, data.family)
    parts = []
    for site, answer, fitting in zip(study.sites, by_site, study.fitting, strict=True):
        of = site.answering(data.regions if question.regional else (), question.asked(fitting))
        parts.append(question.check(answer.tables, given, data.family, of, f"the answer of site {site.name!r}"))
    merged = replace(study, rounds=[*study.rounds, (by_site, question.merged([x for x in parts if x]))])
    return merged.next if isinstance(merged.next, Calibration) else merged
