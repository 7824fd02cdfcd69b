"""`pixelbounds plan`: what a promise needs, before any image is collected."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..calibration.sentence import confidence_in_words, level_in_words
from .command import NO_GUARANTEE, OK, Outcome, command, sentence
from .options import FailureProb, RiskLevel

if TYPE_CHECKING:
    from ..calibration.needs import BoundNeeds, Needs


@command("plan")
def plan_command(
    risk_level: RiskLevel = 0.1,
    failure_prob: FailureProb = 0.1,
    miscoverage: Annotated[float, typer.Option(help="Share of future samples that a band may miss.")] = 0.1,
    images: Annotated[
        list[int] | None, typer.Option(help="Images (or patients) that you have; may be given several times.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Samples per image that you have.")] = None,
    method: Annotated[str, typer.Option(help="frontier, krcps or rcps.")] = "frontier",
    groups: Annotated[
        bool,
        typer.Option("--groups", help="You will give calibrate --groups, --k or --features; then some images fit."),
    ] = False,
    confidence: Annotated[str, typer.Option(help="The bound that you mean to use.")] = "betting",
    spread: Annotated[float, typer.Option(help="How much images differ: deviation of their loss over its mean.")] = 0.5,
) -> Outcome:
    """How many images and samples a promise needs, and what slack each bound leaves.

    Example: pixelbounds plan --risk-level 0.05 --failure-prob 0.1 --images 300
    """
    from ..calibration.needs import IMAGES, plan
    from ..images.checks import check_choice

    found = plan(
        risk_level, failure_prob, method=method, groups=groups, images=images or IMAGES, miscoverage=miscoverage,
        spread=spread,
    )  # fmt: skip
    chosen = {row.confidence: row for row in found.bounds}[
        check_choice(confidence, [row.confidence for row in found.bounds], "confidence")
    ]
    missing = _missing(found, chosen, max(images) if images else None, samples)
    promise = (
        f"To promise at most {level_in_words(risk_level)} of the pixels outside, with probability "
        f"{confidence_in_words(failure_prob)}, {method} with {confidence} needs at least {chosen.images} images "
        f"(patients, where slices are not independent), {chosen.certifying} of which certify. Bands that hold "
        f"{level_in_words(1 - miscoverage)} of future samples need {found.samples} samples per image."
    )
    slack = Text(
        "\nSlack is the part of the risk level that a bound cannot use: the less, the shorter the intervals. The last "
        "row holds where all images lose alike, and not for the expectation.",
        style="dim",
    )
    text: tuple[RenderableType, ...] = (
        sentence(promise),
        _table(found, chosen),
        slack,
        *(Text(f"\n{line}", "bold red") for line in missing),
    )
    facts = {**asdict(found), "confidence": confidence, "enough": not missing, "missing": missing}
    return Outcome(facts, text, NO_GUARANTEE if missing else OK)


def _table(found: Needs, chosen: BoundNeeds) -> Table:
    table = Table(title="slack of each bound", title_justify="left")
    table.add_column("bound")
    table.add_column("least images", justify="right")
    for n in found.images:
        table.add_column(f"{n} images", justify="right")
    for row in found.bounds:
        name = f"{row.confidence} (expectation only)" if row.confidence == "conformal" else row.confidence
        table.add_row(name, str(row.images), *map(_slack, row.slack), style="bold" if row is chosen else "")
    table.add_section()
    table.add_row("no bound needs less", "", *map(_slack, found.limit), style="dim")
    return table


def _slack(value: float | None) -> str:
    return "impossible" if value is None else f"{value:.4f}"


def _missing(found: Needs, chosen: BoundNeeds, images: int | None, samples: int | None) -> list[str]:
    """What is too little of what the user has."""
    out = []
    if images is not None and images < chosen.images:
        out.append(f"{images} images are too few: {chosen.images} are needed with {chosen.confidence}.")
    if samples is not None and found.samples is not None and samples < found.samples:
        out.append(f"{samples} samples per image are too few: {found.samples} are needed.")
    return out
