"""`pixelbounds evaluate` and `pixelbounds report`: what held-out images say, as a few numbers or as a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from .command import (
    NO_GUARANTEE,
    OK,
    Outcome,
    command,
    images_in_words,
    numbers,
    sentence,
    skipped_in_words,
    streaming,
)
from .options import (
    ABDOMEN,
    BandPath,
    CalibrationOption,
    Features,
    FillMissing,
    Force,
    Key,
    Kind,
    Limits,
    Memory,
    Miscoverage,
    Raw,
    Scheduler,
    Scratch,
    SkipBad,
    Truth,
    TruthKey,
    Units,
    Window,
    reading_of,
    resources_of,
    size_of,
)

if TYPE_CHECKING:
    from ..evaluation import Evaluation, Strata
    from ..workflows.calibrate import Evaluated


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(app)(evaluate)
    command(app, stopped="the page was not written")(report)


def evaluate(
    truth: Truth,
    intervals: Annotated[
        Path, typer.Argument(metavar="INTERVALS", help="What `pixelbounds apply` wrote; with --calibration: bands.")
    ],
    calibration: CalibrationOption = None,
    groups: Annotated[Path | None, typer.Option(help="Labels (organs) by which the risk is broken down.")] = None,
    features: Features = None,
    miscoverage: Miscoverage = None,
    units: Units = None,
    kind: Kind = None,
    key: Key = None,
    truth_key: TruthKey = None,
    window: Window = ABDOMEN,
    raw: Raw = False,
    limits: Limits = None,
    scheduler: Scheduler = None,
    memory: Memory = None,
    scratch: Scratch = None,
    skip_bad: SkipBad = False,
    fill_missing: FillMissing = False,
) -> Outcome:
    """Check intervals against the truth of held-out images.

    Exit code 1: the images contradict the calibration, even at the low end of the risk's 95% interval.

    Example: pixelbounds evaluate truth.npy new.zarr --calibration cal.safetensors
    """
    from ..workflows.calibrate import evaluate_files

    reading = reading_of(
        key=key,
        truth_key=truth_key,
        kind=kind,
        miscoverage=miscoverage,
        window=window,
        raw=raw,
        limits=limits,
        units=units,
        skip_bad=skip_bad,
        fill_missing=fill_missing,
    )
    with streaming("evaluating") as advance:
        result = evaluate_files(
            truth, intervals, calibration=calibration, groups=groups, features=features, progress=advance,
            reading=reading, resources=resources_of(scheduler, memory, scratch),
        )  # fmt: skip
    return _evaluated(result)


def report(
    truth: Truth,
    bands: BandPath,
    calibration: Annotated[Path, typer.Option(help="What `pixelbounds calibrate` wrote.")],
    out: Annotated[Path, typer.Option(help="The page, .html.")],
    figures: Annotated[Path | None, typer.Option(help="A folder for figures as PDF, SVG and PNG.")] = None,
    title: Annotated[str, typer.Option(help="The heading of the page.")] = "Guaranteed error bars",
    examples: Annotated[int, typer.Option(min=1, help="Images to show, from the best covered to the worst.")] = 12,
    images: Annotated[str | None, typer.Option(help="Which images to show, such as 0,3,17.")] = None,
    note: Annotated[list[str] | None, typer.Option(help="A paragraph for the page; several are possible.")] = None,
    force: Force = False,
    groups: Annotated[Path | None, typer.Option(help="Labels (organs) by which the risk is broken down.")] = None,
    features: Features = None,
    miscoverage: Miscoverage = None,
    units: Units = None,
    kind: Kind = None,
    key: Key = None,
    truth_key: TruthKey = None,
    window: Window = ABDOMEN,
    raw: Raw = False,
) -> Outcome:
    """Evaluate on held-out images and write one page that shows the promise and every pixel.

    Example: pixelbounds report truth.npy new.zarr --calibration cal.safetensors --out report.html --figures figures
    """
    from ..workflows.calibrate import report_files

    reading = reading_of(
        key=key, truth_key=truth_key, kind=kind, miscoverage=miscoverage, window=window, raw=raw, units=units
    )
    with streaming("reporting") as advance:
        result, files = report_files(
            truth, bands, calibration, out, title=title, figures=figures, notes=note or (), replace=force,
            examples=examples if images is None else _numbers(images), groups=groups, features=features,
            progress=advance, reading=reading,
        )  # fmt: skip
    page, *drawn = files
    rows = {"page": f"{page} ({size_of(page)})"} | ({"figures": f"{len(drawn)} in {figures}"} if drawn else {})
    outcome = _evaluated(result, rows)
    facts = {**outcome.facts, "page": str(page), "figures": [str(x) for x in drawn]}
    return Outcome(facts, outcome.text[:2], outcome.code)  # the page has the rest


# ---------------------------------------------------------------- words and numbers


def _evaluated(result: Evaluated, more: Mapping[str, str] | None = None) -> Outcome:
    """The risk in a sentence; length and worst images, and what more there is to say; then the strata."""
    ev, promised = result.evaluation, result.risk_level
    over = images_in_words(len(ev.by_image)) if len(ev.units) == len(ev.by_image) else f"{len(ev.units)} units"
    said = f"{ev.risk:.2%} of the pixels of {over} lie outside their intervals ({_span(ev.risk_interval, '.2%')})"
    said += "." if promised is None else f"; at most {100 * promised:.6g}% on average was promised."
    if result.contradicted:
        said += " They contradict it: they come from another source, or the calibration was unlucky."
    rows = {
        "mean length": f"{ev.mean_length:.4f} ({_span(ev.mean_length_interval, '.4f')}), median {ev.median_length:.4f}"
    }
    if ev.coverage is not None:
        rows["samples held"] = f"{ev.coverage.share:.2%} ({_span(ev.coverage.interval, '.2%')})"
    rows["worst images"] = ", ".join(f"{i} ({ev.by_image[i]:.1%})" for i in ev.worst())
    facts: dict[str, Any] = {"evaluation": ev.to_dict(), "risk": ev.risk, "mean_length": ev.mean_length}
    facts |= {"risk_level": promised, "guarantee": result.guarantee, "contradicted": result.contradicted}
    facts["skipped"] = result.skipped
    rows |= skipped_in_words(result.skipped)
    style = "bold red" if result.contradicted else "bold"
    text: tuple[RenderableType, ...] = (sentence(said, style), numbers({**rows, **(more or {})}), Text(""), _strata(ev))
    return Outcome(facts, text, NO_GUARANTEE if result.contradicted else OK)


def _strata(ev: Evaluation) -> Table:
    """Where intervals miss: by length, by edge strength, and in the riskiest groups."""
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("pixels by")
    for heading in ("share", "outside", f"{100 * ev.confidence_level:.6g}% interval", "length"):
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


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} names no images; write numbers, e.g. 0,3,17", param_hint="--images"
        ) from None
