"""`pixelbounds plan`: what a promise needs, before any image is collected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..calibration.words import confidence_in_words, level_in_words, share_in_words
from ..workflows.request import FailureProb, Promises
from .command import NO_GUARANTEE, OK, Outcome, command, sentence, table

if TYPE_CHECKING:
    from ..calibration.sample_size import Needs, PromiseNeeds
    from ..workflows.promise_words import PromiseText

_SLACK = (
    "\nSlack is the part of the risk level that a bound cannot use: the less, the shorter the intervals. The last row "
    "holds where all images have the same loss, for bounds that toss no coins, and not for the expectation."
)


@command("plan")
def plan_command(
    risk_level: Annotated[float | None, typer.Option(help="Risk level (epsilon), 0.1 by default.")] = None,
    promises: Promises = None,
    failure_prob: FailureProb = 0.1,
    miscoverage: Annotated[float, typer.Option(help="Share of future samples that a band may miss.")] = 0.1,
    images: Annotated[
        list[int] | None, typer.Option(metavar="<int>", help="Images (or patients) that you have; repeatable.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Samples per image that you have.")] = None,
    method: Annotated[str, typer.Option(help="frontier, krcps or rcps.")] = "frontier",
    groups: Annotated[
        bool,
        typer.Option(
            "--groups", help="Of calibrations with --groups, --k or --features, where some images always fit."
        ),
    ] = False,
    bound: Annotated[str, typer.Option(help="The confidence bound that you mean to use.")] = "betting",
    spread: Annotated[float, typer.Option(help="How much images differ: deviation of their loss over its mean.")] = 0.5,
) -> Outcome:
    """Say how many images and samples a promise needs, and the slack of each bound.

    Example: pixelbounds plan --risk-level 0.05 --failure-prob 0.1 --images 300

    Example: pixelbounds plan --promise share:0.05,cap=0.25
    --promise share:0.10,prevalence=0.08,name=trachea --images 300 (8% of the images have a trachea)
    """
    from ..calibration.sample_size import IMAGES, plan
    from ..images.checks import check_choice
    from ..workflows.promise_words import promise_texts

    texts = promise_texts(promises or (), planned=True)
    if texts and risk_level is not None:
        raise typer.BadParameter("leave --risk-level out, which is one promise", param_hint="--promise")
    needs = plan(
        0.1 if risk_level is None and not texts else risk_level, failure_prob, **_promises(texts), bound=bound,
        method=method, groups=groups, images=images or IMAGES, miscoverage=miscoverage, spread=spread,
    )  # fmt: skip
    chosen = check_choice(bound, [x.bound for x in needs.bounds], "bound")
    number = next(i for i, row in enumerate(needs.bounds) if row.bound == chosen)
    row, missing = needs.bounds[number], []
    if images and max(images) < row.images:
        missing.append(f"{max(images)} images are too few: {row.images} are needed with {bound}.")
    if samples is not None and needs.samples is not None and samples < needs.samples:
        missing.append(f"{samples} samples per image are too few: {needs.samples} are needed.")
    what = f"at most {level_in_words(needs.risk_level)} of the pixels outside"
    if texts:
        what = f"{len(texts)} things jointly"
        what = what if texts[1:] else f"{_words(needs.promises[0])} at most {level_in_words(needs.risk_level)}"
    of_them = "" if texts else f", {row.certifying} of which certify"
    wanted = (
        f"To promise {what}, with probability {confidence_in_words(failure_prob)}, {method} with {bound} needs at "
        f"least {row.images} images (patients, where slices are not independent){of_them}. Bands that hold "
        f"{level_in_words(1 - miscoverage)} of future samples need {needs.samples} samples per image."
    )
    text: tuple[RenderableType, ...] = (
        sentence(wanted),
        *((_promised(needs), Text("")) if texts else ()),
        _bounds(needs, number),
        Text(_SLACK, style="dim"),
        *(Text(f"\n{line}", "bold red") for line in missing),
    )
    facts = {**asdict(needs), "bound": bound, "enough": not missing, "missing": missing}
    return Outcome(facts, text, NO_GUARANTEE if missing else OK)


def _promises(texts: Sequence[PromiseText]) -> dict[str, Any]:
    """Promises and the prevalence of their regions, by name; a region without a name is numbered."""
    promises = [one.promise() for one in texts]
    shares = [one.prevalence for one in texts]
    if any(share is not None and p.name is None for p, share in zip(promises, shares, strict=True)):
        promises = [replace(p, name=p.name or f"region {i}") for i, p in enumerate(promises, 1)]
    prevalence = {str(p.name): share for p, share in zip(promises, shares, strict=True) if share is not None}
    return {"promises": promises or None, "prevalence": prevalence}


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


def _bounds(needs: Needs, chosen: int) -> Table:
    names = [f"{row.bound} (expectation only)" if row.bound == "conformal" else row.bound for row in needs.bounds]
    rows = [(name, str(x.images), *map(_risk, x.slack)) for name, x in zip(names, needs.bounds, strict=True)]
    rows.append(("no bound needs less", "", *map(_risk, needs.limit)))
    headings = "bound", "min. images", *(f"{n} images" for n in needs.images)
    return table(headings, rows, title="slack of each bound", style=lambda i: "bold" if i == chosen else "")
