"""`pixelbounds plan`: what a promise needs, before any image is collected, and what samples are worth, from a pilot."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..calibration.words import confidence_in_words, level_in_words, share_in_words
from .command import NO_GUARANTEE, OK, Outcome, command, progress, sentence
from .options import FailureProb

if TYPE_CHECKING:
    from ..calibration.sample_size import BoundNeeds, Needs, PromiseNeeds
    from ..workflows.pilot import Pilot

_pilot = partial(typer.Option, rich_help_panel="From a pilot run")


@command("plan")
def plan_command(
    risk_level: Annotated[
        float | None, typer.Option(help="Share of the pixels of an image that may lie outside; 0.1 unless told.")
    ] = None,
    promise: Annotated[
        list[str] | None,
        typer.Option(
            "--promise",
            metavar="WORDS",
            help="What must hold, several times: 'share:0.05,cap=0.25', 'share:0.10,prevalence=0.08,name=trachea' (8% of the "
            "images have it), 'tail:0.05,above=0.10'; or a .toml file of them.",
        ),
    ] = None,
    failure_prob: FailureProb = 0.1,
    miscoverage: Annotated[float, typer.Option(help="Share of future samples that a band may miss.")] = 0.1,
    images: Annotated[
        list[int] | None,
        typer.Option(
            help="Images (or patients) that you have, may be given several times; with --pilot those to sample."
        ),
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Samples per image that you have.")] = None,
    method: Annotated[str, typer.Option(help="frontier, krcps or rcps.")] = "frontier",
    groups: Annotated[
        bool,
        typer.Option("--groups", help="You will give calibrate --groups, --k or --features; then some images fit."),
    ] = False,
    confidence: Annotated[str, typer.Option(help="The bound that you mean to use.")] = "betting",
    spread: Annotated[float, typer.Option(help="How much images differ: deviation of their loss over its mean.")] = 0.5,
    pilot: Annotated[
        list[Path] | None,
        _pilot(help="A run of `sample --keep-samples`; may be given several times, for other steps or samplers."),
    ] = None,
    truth: Annotated[Path | None, _pilot(help="True images of the pilot.")] = None,
    tolerance: Annotated[float, _pilot(help="How much longer than the shortest a cheaper choice may be.")] = 0.01,
    plot: Annotated[Path | None, _pilot(help="A picture to write: length against cost.")] = None,
) -> Outcome:
    """How many images and samples a promise needs, and what slack each bound leaves; with a pilot, how to sample.

    Example: pixelbounds plan --risk-level 0.05 --failure-prob 0.1 --images 300

    Example: pixelbounds plan --promise "share:0.05,cap=0.25" --promise "share:0.10,prevalence=0.08,name=trachea" --images 300

    Example: pixelbounds plan --risk-level 0.05 --pilot pilot.zarr --truth pilot.npy --images 2000 --plot pilot.png
    """
    from ..calibration.sample_size import IMAGES, plan
    from ..images.checks import check_choice
    from ..workflows.promise_words import promise_texts

    said = promise_texts(promise or (), planned=True)
    if said and (pilot or risk_level is not None):
        raise typer.BadParameter("leave --risk-level and --pilot out, which know one level", param_hint="--promise")
    risk_level = 0.1 if risk_level is None and not said else risk_level
    if pilot and risk_level is not None:
        if truth is None:
            raise typer.BadParameter("a pilot needs the true images of its observations", param_hint="--truth")
        return _piloted(pilot, truth, risk_level, miscoverage, tolerance, max(images or [1000]), plot)
    if truth is not None or plot is not None:
        raise typer.BadParameter("--truth and --plot belong to a pilot run; give one", param_hint="--pilot")
    asked = [one.promise() for one in said]
    if any(one.prevalence is not None and one.name is None for one in said):
        asked = [replace(p, name=p.name or f"region {i}") for i, p in enumerate(asked, 1)]
    prevalence = {str(p.name): one.prevalence for p, one in zip(asked, said, strict=True) if one.prevalence is not None}
    found = plan(
        risk_level, failure_prob, promises=asked or None, prevalence=prevalence, bound=confidence, method=method,
        groups=groups, images=images or IMAGES, miscoverage=miscoverage, spread=spread,
    )  # fmt: skip
    chosen = {row.bound: row for row in found.bounds}[
        check_choice(confidence, [row.bound for row in found.bounds], "confidence")
    ]
    missing = _missing(found, chosen, max(images) if images else None, samples)
    what = f"at most {level_in_words(found.risk_level)} of the pixels outside"
    if said:
        what = (
            f"{len(said)} things jointly"
            if len(said) > 1
            else f"{_words(found.promises[0])} at most {level_in_words(found.risk_level)}"
        )
    of_them = "" if said else f", {chosen.certifying} of which certify"
    wanted = (
        f"To promise {what}, with probability {confidence_in_words(failure_prob)}, {method} with {confidence} needs at "
        f"least {chosen.images} images (patients, where slices are not independent){of_them}. Bands that hold "
        f"{level_in_words(1 - miscoverage)} of future samples need {found.samples} samples per image."
    )
    slack = Text(
        "\nSlack is the part of the risk level that a bound cannot use: the less, the shorter the intervals. The last "
        "row holds where all images lose alike, and not for the expectation.",
        style="dim",
    )
    text: tuple[RenderableType, ...] = (
        sentence(wanted),
        *((_promised(found), Text("")) if said else ()),
        _table(found, chosen),
        slack,
        *(Text(f"\n{line}", "bold red") for line in missing),
    )
    facts = {**asdict(found), "confidence": confidence, "enough": not missing, "missing": missing}
    return Outcome(facts, text, NO_GUARANTEE if missing else OK)


# ---------------------------------------------------------------- a pilot


def _piloted(
    runs: list[Path], truth: Path, risk_level: float, miscoverage: float, tolerance: float, images: int,
    plot: Path | None,
) -> Outcome:  # fmt: skip
    from ..formats.opener import check_target
    from ..workflows.pilot import draw_pilot, pilot_runs

    target = None if plot is None else check_target(plot, (".png", ".pdf", ".svg"), replace=True)
    with progress("comparing", of="choices") as advance:
        found = pilot_runs(
            runs, truth, risk_level=risk_level, miscoverage=miscoverage, tolerance=tolerance, progress=advance
        )
    best = found.recommended
    cost = f"{best.evaluations:,} evaluations of the network an image"
    if best.seconds is not None:
        cost += f", {_duration(best.seconds * images)} for {images:,} images"
    advice = (
        f"{best.samples} samples, {best.steps} steps of {best.sampler} and a miscoverage of {best.miscoverage:g}: "
        f"{cost}; {best.longer:.1%} longer than the shortest of {len(found.choices)} choices."
    )
    caution = Text(
        f"\nLengths at which intervals of other pilot images miss {risk_level:g} on average, on {found.images} images: "
        "they compare ways to sample and promise nothing. These images have chosen; calibrate on others.",
        style="dim",
    )
    text: list[RenderableType] = [sentence(advice), _choices(found, images), caution]
    if target is not None:
        text.append(f"\n{draw_pilot(found, target)}")
    return Outcome({**asdict(found), "plot": None if plot is None else str(plot)}, tuple(text), OK)


def _choices(found: Pilot, images: int) -> Table:
    table = Table(title=f"the cheapest first; time for {images:,} images", title_justify="left")
    for name in ("steps", "samples", "miscoverage", "evaluations", "time", "length", "than the shortest"):
        table.add_column(name, justify="right")
    for row in found.choices:
        time = "?" if row.seconds is None else _duration(row.seconds * images)
        level, length = f"{row.miscoverage:g}", f"{row.length:.4f} +- {row.error:.4f}"
        cells = (str(row.steps), str(row.samples), level, f"{row.evaluations:,}", time, length, f"{row.longer:+.1%}")
        table.add_row(*cells, style="bold" if row is found.recommended else "")
    return table


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


# ---------------------------------------------------------------- before any image


def _promised(found: Needs) -> Table:
    """What each promise needs, and what risk so many images certify, with its cap and without."""
    table = Table(title="each promise, and the greatest risk that is certified", title_justify="left")
    table.add_column("promise")
    for heading in ("level", "in images", "least images"):
        table.add_column(heading, justify="right")
    for n in found.images:
        table.add_column(f"{n} images", justify="right")
    for one in found.promises:
        level, share = level_in_words(one.at_most), share_in_words(one.prevalence)
        table.add_row(_words(one), level, share, str(one.images), *map(_risk, one.certified))
        if one.cap < 1:
            plain = map(_risk, one.certified_without_cap)
            table.add_row("  without the cap", "", "", str(one.images_without_cap), *plain, style="dim")
    return table


def _words(one: PromiseNeeds) -> str:
    tail = f"images that miss more than {level_in_words(one.above)}, " if one.kind == "tail" else ""
    return f"{tail}{one.name}" + (f", cap {level_in_words(one.cap)}" if one.cap < 1 else "")


def _risk(value: float | None) -> str:
    return "impossible" if value is None else f"{value:.4f}"


def _table(found: Needs, chosen: BoundNeeds) -> Table:
    table = Table(title="slack of each bound", title_justify="left")
    table.add_column("bound")
    table.add_column("least images", justify="right")
    for n in found.images:
        table.add_column(f"{n} images", justify="right")
    for row in found.bounds:
        name = f"{row.bound} (expectation only)" if row.bound == "conformal" else row.bound
        table.add_row(name, str(row.images), *map(_risk, row.slack), style="bold" if row is chosen else "")
    table.add_section()
    table.add_row("no bound needs less", "", *map(_risk, found.limit), style="dim")
    return table


def _missing(found: Needs, chosen: BoundNeeds, images: int | None, samples: int | None) -> list[str]:
    """What is too little of what the user has."""
    out = []
    if images is not None and images < chosen.images:
        out.append(f"{images} images are too few: {chosen.images} are needed with {chosen.bound}.")
    if samples is not None and found.samples is not None and samples < found.samples:
        out.append(f"{samples} samples per image are too few: {found.samples} are needed.")
    return out
