"""`pixelbounds federated key | announce | begin | answer | merge`: sites keep their images and send counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..calibration.text import promise_in_words
from ..calibration.words import level_in_words
from .command import Outcome, command, images_in_words, in_short, progress, reading_of, resources_of, written
from .options import (
    WHERE,
    BandPath,
    FailureProb,
    FamilyName,
    FittingCount,
    Force,
    LargeOptions,
    ReadOptions,
    Truth,
    method_option,
)

if TYPE_CHECKING:
    from ..calibration.promises import Promise
    from ..federated import Study
    from ..formats.arrays import Reading
    from ..workflows.resources import Resources

_Site = Annotated[str, typer.Option(help="Name by which the others know this site.")]
_Sent = Annotated[Path, typer.Option(help="The file to send, .safetensors.")]
_Key = Annotated[
    Path | None,
    typer.Option(help="The key that all sites share, of `federated key`: messages are authenticated under it."),
]
_Regions = Annotated[
    list[str] | None,
    typer.Option(
        "--region",
        metavar="WORDS",
        help="A region of this site's images under the name of its promise, several times: "
        "labels.nii.gz:2,name=heart; body; edges:0.05; women.npy,name=women.",
    ),
]
_LeastCount = Annotated[int, typer.Option(help="Counts of fewer pixels are not told; docs/federated.md says more.")]
_ASKED = {
    "extent": "least and greatest width and level of the fitting images",
    "cells": "histograms of width, room and level of the fitting images",
    "occupied": "which combinations of bins occur in the fitting images",
    "farthest": "the greatest score of the fitting images",
    "longest": "the greatest width of the fitting images",
    "spend": "misses and lengths by group of the fitting images",
    "missed_cells": "misses of each fitting image by group, in all and in each region",
    "misses": "misses of each certifying image along the path",
    "regional_misses": "misses of each certifying image along the path, in all and in each region",
    "arriving": "where between two points of the path pixels are covered",
}


# ---------------------------------------------------------------- the key


@command("key")
def key_command(out: Annotated[Path, typer.Option(help="A new file, which its owner alone can read.")]) -> Outcome:
    """Make the key that the sites of a study share; it never travels with the messages.

    Example: pixelbounds federated key --out study.key
    """
    from ..federated import make_key, write_key

    write_key(out, make_key())
    text = f"Give every site a copy of {out} in a safe way, and the option --study-key {out} to every command."
    return in_short({"file": str(out)}, text, {"written": written(out)})


def _messages(key: Path | None) -> dict[str, str]:
    """The row that says whether messages are authenticated."""
    if key is None:
        return {"messages": "not authenticated: whoever handles them can change them (--study-key)"}
    return {"messages": f"authenticated under {key}"}


# ---------------------------------------------------------------- a site


@command("announce")
def announce_command(
    truth: Truth,
    bands: BandPath,
    site: _Site,
    out: _Sent,
    read: ReadOptions,
    large: Annotated[LargeOptions, WHERE],
    bands_out: Annotated[
        Path | None, typer.Option(help="A .zarr for the bands of samples, to be given in later rounds.")
    ] = None,
    region: _Regions = None,
    least_count: _LeastCount = 1,
    study_key: _Key = None,
    force: Force = False,
) -> Outcome:
    """Say how many images this site has; every value is read and checked, none is told.

    Example: pixelbounds federated announce truth.npy bands.zarr --site north --out north-0.safetensors
    """
    from ..federated import announce
    from ..formats.opener import check_target

    target = check_target(out, (".safetensors",), replace=force)
    with _images(truth, bands, region, reading_of(read), resources_of(large), bands_out) as (given, known):
        message = announce(*given, site=site, **known, least_count=least_count, key=study_key)
    message.save(target)
    said = message.text
    facts = {"site": site, "images": said["images"], "units": said["units"], "least_count": least_count}
    facts |= {"regions": said["regions"], "authenticated": study_key is not None, "file": str(out)}
    rows = {"images": str(said["images"]), "units": str(said["units"] or "every image is its own")}
    if region:
        rows["regions"] = ", ".join(f"{about['name']} ({about['place']})" for about in said["regions"])
    rows |= _suppressed(least_count)
    if bands_out is not None:
        rows["bands"] = f"{bands_out}; give them to `federated answer`"
    text = f"Site {site} has {images_in_words(said['images'])}; send {out} to the coordinator."
    return in_short(facts, text, {**rows, **_messages(study_key), "written": written(out)})


def _suppressed(least_count: int) -> dict[str, str]:
    """The row that says which counts are not told, where some are not."""
    if least_count == 1:
        return {}
    return {"small counts": f"below {least_count} pixels told as 0, misses rounded up to multiples of {least_count}"}


@command("answer")
def answer_command(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="What the coordinator sent.")],
    truth: Truth,
    bands: BandPath,
    site: _Site,
    out: _Sent,
    read: Annotated[ReadOptions, ("units", "kind", "truth_key", "window", "raw", "limits")],
    large: Annotated[LargeOptions, WHERE],
    region: _Regions = None,
    least_count: _LeastCount = 1,
    study_key: _Key = None,
    force: Force = False,
) -> Outcome:
    """Count what a plan asks for on this site's images, and write the tables; options as they were announced.

    Example: pixelbounds federated answer plan-1.safetensors truth.npy bands.zarr --site north --out north-1.safetensors
    """
    from ..federated import answer
    from ..federated.keys import key_of
    from ..federated.messages import expect
    from ..formats.opener import check_target

    target = check_target(out, (".safetensors",), replace=force)
    key = key_of(study_key)
    asked = expect(plan, "plan", key)
    with _images(truth, bands, region, reading_of(read), resources_of(large)) as (given, known):
        message = answer(asked, *given, site=site, **known, least_count=least_count, key=key)
    message.save(target)
    what = asked.text["statistic"]
    tables = [{"shape": x.shape, "dtype": str(x.dtype)} for x in message.tables.values()]
    facts = {"site": site, "round": asked.text["round"], "statistic": what, "tables": tables}
    facts |= {"least_count": least_count, "authenticated": key is not None, "file": str(out)}
    rows = {
        "tells": _ASKED[what],
        "tables": "; ".join(f"{' x '.join(map(str, x['shape']))} {x['dtype']}" for x in tables) or "none",
        **_suppressed(least_count),
        **_messages(study_key),
        "written": written(out),
    }
    text = f"Site {site} answers round {asked.text['round']}; send {out} to the coordinator."
    return in_short(facts, text, rows)


@contextmanager
def _images(
    truth: Path,
    bands: Path,
    region: list[str] | None,
    reading: Reading,
    resources: Resources,
    bands_out: Path | None = None,
) -> Iterator[tuple[tuple[Any, Any], dict[str, Any]]]:
    """Truth and band as they lie in files, and what else is announced; rounds read them again: bands must be bands."""
    from ..execution.runner import running
    from ..formats.inputs import open_pair, open_units
    from ..formats.opener import check_target
    from ..workflows.promise_regions import named_regions

    with progress("weighting") as advance, running(**vars(resources), progress=advance) as execution:
        images, made, limits = open_pair(truth, bands, reading, execution)
        if made.samples is not None and bands_out is None:
            raise ValueError(
                f"{bands} holds samples, of which every round would make bands again; keep them once with "
                "`federated announce --bands-out bands.zarr`, and give those"
            )
        if bands_out is not None and (made.samples is None or not bands_out.exists()):
            check_target(bands_out, (".zarr",), replace=False)
        band, _ = made.whole(execution, bands_out)
        known: dict[str, Any] = {
            "units": open_units(images, reading),
            "limits": limits,
            "measure": images.measure or made.measure,
        }
        if region:
            known["regions"] = named_regions(region, images, reading)
        yield (images.pixels, band), known


# ---------------------------------------------------------------- the coordinator


@command("begin")
def begin_command(
    announcements: Annotated[list[Path], typer.Argument(metavar="ANNOUNCEMENTS...", help="One of each site.")],
    out: Annotated[Path, typer.Option(help="A new folder for the study: plans to send, and what sites answered.")],
    risk_level: Annotated[
        float | None, typer.Option(help="Share of the pixels of an image that may lie outside: --promise 'share ...'.")
    ] = None,
    promise: Annotated[
        list[str] | None,
        typer.Option(
            "--promise",
            metavar="WORDS",
            help="What must hold, several times: 'share:0.05', 'share:0.10,name=heart' for the region that sites "
            "announce as heart, 'tail:0.05,above=0.10'; or a .toml file of them.",
        ),
    ] = None,
    failure_prob: FailureProb = 0.1,
    method: Annotated[str, method_option(help="frontier or rcps.")] = "frontier",
    confidence: Annotated[str, method_option(help="betting, hoeffding_bentkus, bentkus, ...")] = "betting",
    groups: Annotated[
        str | None,
        method_option(help="band, or a calibration file whose groups are used again; few groups where few units fit."),
    ] = None,
    family: FamilyName = None,
    k: Annotated[int | None, method_option("--k", help="Bins of the band's width.")] = None,
    n_opt: FittingCount = None,
    seed: Annotated[int, method_option(help="Of the split.")] = 0,
    unit_name: Annotated[str, method_option(help="What a unit is: patient, scan.")] = "unit",
    weighting: Annotated[str, method_option(help="units or images: which of them count the same.")] = "units",
    max_images: Annotated[
        int | None, method_option(help="With --weighting images: a unit of more counts as one of so many.")
    ] = None,
    shared_units: Annotated[
        str, method_option(help="A unit (patient) at two sites: refuse, or join its images into one.")
    ] = "refuse",
    study_key: _Key = None,
) -> Outcome:
    """Open a study of all sites and write the first plan, which every site must answer.

    Example: pixelbounds federated begin north-0.safetensors south-0.safetensors --risk-level 0.1 --out study

    Example: pixelbounds federated begin north-0.safetensors south-0.safetensors --promise "share:0.05" --promise
    "share:0.1,name=heart" --out study
    """
    from ..calibration.calibration import load_calibration
    from ..federated import begin

    if out.exists():
        raise FileExistsError(f"{out} exists; give the name of a new folder")
    study = begin(
        announcements, risk_level=risk_level, promises=_promised(promise), failure_prob=failure_prob, method=method,
        confidence=confidence,
        groups=groups if groups in (None, "band") else load_calibration(groups).grouping, family=family, k=k,
        n_opt=n_opt, seed=seed, unit_name=unit_name, weighting=weighting, max_images=max_images,
        shared_units=shared_units, key=study_key,
    )  # fmt: skip
    out.mkdir()
    return _asked(study, out, study_key)


def _promised(words: list[str] | None) -> list[Promise] | None:
    """Promises in words; their regions are at the sites."""
    from ..workflows.promise_words import promise_texts

    if not words:
        return None
    said = promise_texts(words)
    for one in said:
        if one.region is not None:
            raise ValueError(
                f"a promise has within={one.within}, and regions are at the sites: give name= alone here, and "
                "--region REGION,name=NAME to `federated announce` and `answer`"
            )
    return [one.promise() for one in said]


@command("merge")
def merge_command(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="The folder that `federated begin` made.")],
    answers: Annotated[list[Path], typer.Argument(metavar="ANSWERS...", help="One of each site, to the last plan.")],
    study_key: _Key = None,
) -> Outcome:
    """Add the answers of all sites: the next plan, or in the end the calibration file.

    Example: pixelbounds federated merge study north-1.safetensors south-1.safetensors
    """
    from ..calibration.calibration import Calibration
    from ..federated import merge

    found = merge(study / "study.safetensors", answers, key=study_key)
    if not isinstance(found, Calibration):
        return _asked(found, study, study_key)
    target = study / "calibration.safetensors"
    found.save(target)
    facts = {"guarantee": found.guarantee, "risk": found.risk, "risk_level": found.risk_level}
    facts |= {"promises": [promise.state() for promise in found.promises]}
    facts |= {"authenticated": study_key is not None, "record": found.record.state(), "file": str(target)}
    level = {
        "certified": f"at most {level_in_words(found.risk_level)} outside, by {found.bound}",
        "seen": f"{found.risk:.2%} outside on the certifying images, as the sites told it",
    }
    each = {
        promise_in_words(promise): f"at most {level_in_words(promise.at_most)}; {promise.risk:.2%} as the sites told it"
        for promise in found.promises
    }
    rows = {
        **(each or level),
        **({"note": found.note} if found.note else {}),
        **_messages(study_key),
        "written": written(target),
    }
    return in_short(facts, found.guarantee, rows)


def _asked(study: Study, folder: Path, key: Path | None) -> Outcome:
    """Write the plan and then the study: a merge that is stopped between the two can be done again."""
    plan = study.plan
    target = folder / f"plan-{plan.text['round']}.safetensors"
    plan.save(target)
    study.save(folder / "study.safetensors")
    names = [site.text["site"] for site in study.sites]
    facts = {"round": plan.text["round"], "statistic": plan.text["statistic"], "sites": names}
    facts |= {"authenticated": key is not None, "file": str(target)}
    rows = {"asks for": _ASKED[plan.text["statistic"]], **_messages(key), **_units(study, key)}
    text = f"Round {plan.text['round']}: send {target} to {', '.join(names)}."
    return in_short(facts, text, {**rows, "written": written(target)})


def _units(study: Study, key: Path | None) -> dict[str, str]:
    """The row that says whether a unit at two sites would be found."""
    if study.sites[0].text["units"] is None:
        return {"units": "every image is its own; a patient at two sites is not found"}
    if key is None:
        return {"units": "not compared between sites: a patient at two sites counts twice (--study-key)"}
    return {"units": "compared by keyed hashes of their names; those at two sites are joined or refused"}


def federated_commands() -> typer.Typer:
    """The commands of sites and coordinator."""
    group = typer.Typer(no_args_is_help=True, help="Calibrate across sites that keep their images.")
    for function in (key_command, announce_command, begin_command, answer_command, merge_command):
        group.command()(function)
    return group
