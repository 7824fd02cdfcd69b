"""`pixelbounds plan`: what a promise needs, before any image is collected, and what samples are worth, from a pilot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..calibration.words import confidence_in_words, level_in_words, share_in_words
from .command import NO_GUARANTEE, OK, Outcome, command, progress, sentence, table
from .options import FailureProb, Promises

if TYPE_CHECKING:
    from ..calibration.sample_size import BoundNeeds, Needs, PromiseNeeds
    from ..workflows.pilot import Pilot
    from ..workflows.promise_words import PromiseText

_SLACK = (
    "\nSlack is the part of the risk level that a bound cannot use: the less, the shorter the intervals. The last row "
    "holds where all images have the same loss, and not for the expectation."
)
_pilot = partial(typer.Option, rich_help_panel="From a pilot run")


@command("plan")
def plan_command(
    risk_level: Annotated[float | None, typer.Option(help="Risk level (epsilon), 0.1 by default.")] = None,
    promises: Promises = None,
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
    bound: Annotated[str, typer.Option(help="The confidence bound that you mean to use.")] = "betting",
    spread: Annotated[float, typer.Option(help="How much images differ: deviation of their loss over its mean.")] = 0.5,
    pilot: Annotated[
        list[Path] | None,
        _pilot(help="A run of `sample --keep-samples`; may be given several times, for other steps or samplers."),
    ] = None,
    truth: Annotated[Path | None, _pilot(help="True images of the pilot.")] = None,
    tolerance: Annotated[float, _pilot(help="How much longer than the shortest a cheaper choice may be.")] = 0.01,
    plot: Annotated[Path | None, _pilot(help="A picture to write: length against cost.")] = None,
) -> Outcome:
    """Say how many images and samples a promise needs, and the slack of each bound; with a pilot, how to sample.

    Example: pixelbounds plan --risk-level 0.05 --failure-prob 0.1 --images 300

    Example: pixelbounds plan --promise share:0.05,cap=0.25
    --promise share:0.10,prevalence=0.08,name=trachea --images 300 (8% of the images have a trachea)

    Example: pixelbounds plan --risk-level 0.05 --pilot pilot.zarr --truth pilot.npy --images 2000 --plot pilot.png
    """
    from ..calibration.sample_size import IMAGES, plan
    from ..images.checks import check_choice
    from ..workflows.promise_words import promise_texts

    texts = promise_texts(promises or (), planned=True)
    if texts and (pilot or risk_level is not None):
        raise typer.BadParameter("leave --risk-level and --pilot out, which have one level", param_hint="--promise")
    if not texts and risk_level is None:
        risk_level = 0.1
    if pilot and risk_level is not None:
        if truth is None:
            raise typer.BadParameter("a pilot needs the true images of its observations", param_hint="--truth")
        return _piloted(pilot, truth, risk_level, miscoverage, tolerance, max(images or [1000]), plot)
    if truth is not None or plot is not None:
        raise typer.BadParameter("--truth and --plot belong to a pilot run; give one", param_hint="--pilot")
    needs = plan(
        risk_level, failure_prob, **_promises(texts), bound=bound, method=method, groups=groups,
        images=images or IMAGES, miscoverage=miscoverage, spread=spread,
    )  # fmt: skip
    chosen = check_choice(bound, [x.bound for x in needs.bounds], "bound")
    row = next(row for row in needs.bounds if row.bound == chosen)
    missing = _missing(needs, row, max(images) if images else None, samples)
    text: tuple[RenderableType, ...] = (
        sentence(_wanted(needs, row, method, bound, failure_prob, miscoverage, texts=len(texts))),
        *((_promised(needs), Text("")) if texts else ()),
        _bounds(needs, row),
        Text(_SLACK, style="dim"),
        *(Text(f"\n{line}", "bold red") for line in missing),
    )
    facts = {**asdict(needs), "bound": bound, "enough": not missing, "missing": missing}
    return Outcome(facts, text, NO_GUARANTEE if missing else OK)


def _wanted(
    needs: Needs, chosen: BoundNeeds, method: str, bound: str, failure_prob: float, miscoverage: float, *, texts: int
) -> str:
    """What is needed, in a sentence."""
    what = f"at most {level_in_words(needs.risk_level)} of the pixels outside"
    if texts == 1:
        what = f"{_words(needs.promises[0])} at most {level_in_words(needs.risk_level)}"
    elif texts:
        what = f"{texts} things jointly"
    of_them = "" if texts else f", {chosen.certifying} of which certify"
    return (
        f"To promise {what}, with probability {confidence_in_words(failure_prob)}, {method} with {bound} needs at "
        f"least {chosen.images} images (patients, where slices are not independent){of_them}. Bands that hold "
        f"{level_in_words(1 - miscoverage)} of future samples need {needs.samples} samples per image."
    )


def _promises(texts: Sequence[PromiseText]) -> dict[str, Any]:
    """Promises and the prevalence of their regions, by name; a region without a name is numbered."""
    promises = [one.promise() for one in texts]
    shares = [one.prevalence for one in texts]
    if any(share is not None and p.name is None for p, share in zip(promises, shares, strict=True)):
        promises = [replace(p, name=p.name or f"region {i}") for i, p in enumerate(promises, 1)]
    prevalence = {str(p.name): share for p, share in zip(promises, shares, strict=True) if share is not None}
    return {"promises": promises or None, "prevalence": prevalence}


# ---------------------------------------------------------------- a pilot


def _piloted(
    runs: list[Path], truth: Path, risk_level: float, miscoverage: float, tolerance: float, images: int,
    plot: Path | None,
) -> Outcome:  # fmt: skip
    from ..formats.opener import check_target
    from ..workflows.pilot import draw_pilot, pilot_runs

    target = None if plot is None else check_target(plot, (".png", ".pdf", ".svg"), replace=True)
    with progress("comparing", of="choices") as advance:
        result = pilot_runs(
            runs, truth, risk_level=risk_level, miscoverage=miscoverage, tolerance=tolerance, progress=advance
        )
    best = result.recommended
    cost = f"{best.evaluations:,} evaluations of the network an image"
    if best.seconds is not None:
        cost += f", {_duration(best.seconds * images)} for {images:,} images"
    advice = (
        f"{best.samples} samples, {best.steps} steps of {best.sampler} and a miscoverage of {best.miscoverage:g}: "
        f"{cost}; {best.longer:.1%} longer than the shortest of {len(result.choices)} choices."
    )
    caution = Text(
        f"\nLengths at which intervals of other pilot images miss {risk_level:g} on average, on {result.images} "
        "images: they compare ways to sample and promise nothing. These images have chosen; calibrate on others.",
        style="dim",
    )
    text: list[RenderableType] = [sentence(advice), _choices(result, images), caution]
    if target is not None:
        text.append(f"\n{draw_pilot(result, target)}")
    return Outcome({**asdict(result), "plot": None if plot is None else str(plot)}, tuple(text), OK)


def _choices(pilot: Pilot, images: int) -> Table:
    rows = []
    for row in pilot.choices:
        time = "?" if row.seconds is None else _duration(row.seconds * images)
        level, length = f"{row.miscoverage:g}", f"{row.length:.4f} +- {row.error:.4f}"
        rows.append(
            (str(row.steps), str(row.samples), level, f"{row.evaluations:,}", time, length, f"{row.longer:+.1%}")
        )
    return table(
        ("steps", "samples", "miscoverage", "evaluations", "time", "length", "than the shortest"), rows,
        title=f"the cheapest first; time for {images:,} images",
        style=lambda i: "bold" if pilot.choices[i] is pilot.recommended else "",
    )  # fmt: skip


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


# ---------------------------------------------------------------- before any image


def _promised(needs: Needs) -> Table:
    """What each promise needs, and what risk so many images certify, with its cap and without."""
    rows = []
    for one in needs.promises:
        level, share = level_in_words(one.at_most), share_in_words(one.prevalence)
        rows.append((_words(one), level, share, str(one.images), *map(_risk, one.certified)))
        if one.cap < 1:
            plain = map(_risk, one.certified_without_cap)
            rows.append(("  without the cap", "", "", str(one.images_without_cap), *plain))
    counts = (f"{n} images" for n in needs.images)
    title = "each promise, and the greatest risk that is certified"
    return table(("promise", "level", "in images", "min. images", *counts), rows, title=title)


def _words(one: PromiseNeeds) -> str:
    tail = f"images that miss more than {level_in_words(one.above)}, " if one.kind == "tail" else ""
    return f"{tail}{one.name}" + (f", cap {level_in_words(one.cap)}" if one.cap < 1 else "")


def _risk(value: float | None) -> str:
    return "impossible" if value is None else f"{value:.4f}"


def _bounds(needs: Needs, chosen: BoundNeeds) -> Table:
    rows = []
    for row in needs.bounds:
        name = f"{row.bound} (expectation only)" if row.bound == "conformal" else row.bound
        rows.append((name, str(row.images), *map(_risk, row.slack)))
    rows.append(("no bound needs less", "", *map(_risk, needs.limit)))
    bold = needs.bounds.index(chosen)
    return table(
        ("bound", "min. images", *(f"{n} images" for n in needs.images)), rows, title="slack of each bound",
        style=lambda i: "bold" if i == bold else "",
    )  # fmt: skip


def _missing(needs: Needs, chosen: BoundNeeds, images: int | None, samples: int | None) -> list[str]:
    """What is too little of what the user has."""
    out = []
    if images is not None and images < chosen.images:
        out.append(f"{images} images are too few: {chosen.images} are needed with {chosen.bound}.")
    if samples is not None and needs.samples is not None and samples < needs.samples:
        out.append(f"{samples} samples per image are too few: {needs.samples} are needed.")
    return out
