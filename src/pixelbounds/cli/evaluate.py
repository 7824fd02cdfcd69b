"""`pixelbounds evaluate`: what held-out images say of intervals, in a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..calibration.sentence import level_in_words
from .command import (
    NO_GUARANTEE,
    OK,
    Outcome,
    command,
    images_in_words,
    numbers,
    progress,
    reading_of,
    resources_of,
    sentence,
    skipped_in_words,
)
from .options import Features, LargeOptions, Organs, ReadOptions, Truth

if TYPE_CHECKING:
    from ..evaluation.evaluation import Evaluation, Strata
    from ..workflows.evaluate import Evaluated


@command("evaluate")
def evaluate_command(
    truth: Truth,
    intervals: Annotated[
        Path, typer.Argument(metavar="INTERVALS", help="What `pixelbounds apply` wrote; with --calibration: bands.")
    ],
    read: ReadOptions,
    large: LargeOptions,
    calibration: Annotated[
        Path | None, typer.Option(help="Turns bands into intervals; without it INTERVALS are read.")
    ] = None,
    groups: Organs = None,
    features: Features = None,
) -> Outcome:
    """Check intervals against the truth of held-out images.

    Exit code 1: the images contradict the calibration, even at the low end of the risk's 95% interval.

    Example: pixelbounds evaluate truth.npy new.zarr --calibration cal.safetensors
    """
    from ..workflows.evaluate import evaluate_files

    with progress("evaluating") as advance:
        result = evaluate_files(
            truth, intervals, calibration=calibration, groups=groups, features=features, progress=advance,
            reading=reading_of(read, large), resources=resources_of(large),
        )  # fmt: skip
    return evaluated(result)


# ---------------------------------------------------------------- words and numbers


def evaluated(result: Evaluated, more: Mapping[str, str] | None = None) -> Outcome:
    """The risk in a sentence; length and worst images, and what more there is to say; then the strata."""
    ev = result.evaluation
    promised = result.risk_level
    over = images_in_words(len(ev.by_image)) if len(ev.units) == len(ev.by_image) else f"{len(ev.units)} units"
    said = f"{ev.risk:.2%} of the pixels of {over} lie outside their intervals ({_span(ev.risk_interval, '.2%')})"
    said += "." if promised is None else f"; at most {level_in_words(promised)} on average was promised."
    if result.contradicted:
        said += " They contradict it: they come from another source, or the calibration was unlucky."
    rows = {
        "mean length": f"{ev.mean_length:.4f} ({_span(ev.mean_length_interval, '.4f')}), median {ev.median_length:.4f}"
    }
    if ev.coverage is not None:
        rows["samples held"] = f"{ev.coverage.share:.2%} ({_span(ev.coverage.interval, '.2%')})"
    rows["worst images"] = ", ".join(f"{i} ({ev.by_image[i]:.1%})" for i in ev.worst())
    facts: dict[str, Any] = {
        "evaluation": ev.to_dict(),
        "risk": ev.risk,
        "mean_length": ev.mean_length,
        "risk_level": promised,
        "guarantee": result.guarantee,
        "contradicted": result.contradicted,
        "skipped": result.skipped,
    }
    rows |= skipped_in_words(result.skipped)
    style = "bold red" if result.contradicted else "bold"
    text: tuple[RenderableType, ...] = (sentence(said, style), numbers({**rows, **(more or {})}), Text(""), _strata(ev))
    return Outcome(facts, text, NO_GUARANTEE if result.contradicted else OK)


def _strata(ev: Evaluation) -> Table:
    """Where intervals miss: by length, by edge strength, and in the riskiest groups."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("pixels by")
    for heading in ("share", "outside", f"{level_in_words(ev.confidence_level)} interval", "length"):
        table.add_column(heading, justify="right")

    def add(strata: Strata, rows: list[int]) -> None:
        table.add_row(Text(strata.of, "italic"))
        for i in rows:
            edges = strata.edges
            name = str(strata.label[i]) if edges is None else f"{edges[i]:.3g} to {edges[i + 1]:.3g}"
            span = _span((strata.low[i], strata.high[i]), ".2%")
            length = f"{strata.mean_length[i]:.4f}"
            table.add_row(f"  {name}", f"{strata.share[i]:.1%}", f"{strata.risk[i]:.2%}", span, length)

    add(ev.size_stratified, list(range(len(ev.size_stratified))))
    add(ev.by_edge, list(range(len(ev.by_edge))))
    if ev.by_group is not None:
        add(ev.by_group, sorted(range(len(ev.by_group)), key=lambda i: -ev.by_group.risk[i])[:8])  # type: ignore[union-attr]
    return table


def _span(ends: tuple[float, float], form: str) -> str:
    low, high = ends
    return "interval unknown" if low != low else f"{low:{form}} to {high:{form}}"
