"""`pixelbounds evaluate`: what images with a known truth say of intervals, in a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..calibration.text import promise_in_words
from ..calibration.words import level_in_words, plural, share_in_words
from ..images.measure import length_in_words
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
    written,
)
from .options import (
    Features,
    Force,
    LargeOptions,
    Organs,
    Promises,
    ReadOptions,
    Structures,
    TablePath,
    TestLabels,
    Truth,
)

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
    labels: TestLabels = None,
    promise: Promises = None,
    structures: Structures = None,
    table: TablePath = None,
    force: Force = False,
) -> Outcome:
    """Check intervals against the truth of images that had no part in their calibration.

    With --calibration images that calibrated are refused. Exit code 1: the images contradict the calibration, even at
    the low end of the risk's 95% interval, which is valid at any number of images. A calibration of promises is
    compared with the same ones, --promise, and the regions of these images.

    Example: pixelbounds evaluate truth.npy new.zarr --calibration cal.safetensors
    """
    from ..workflows.evaluate import evaluate_files

    with progress("evaluating") as advance:
        result = evaluate_files(
            truth, intervals, calibration=calibration, groups=groups, features=features, labels=labels,
            promises=promise or (), structures=structures, table=table, replace=force,
            progress=advance, reading=reading_of(read, large), resources=resources_of(large),
        )  # fmt: skip
    said = evaluated(result, {} if table is None else {"written": written(table)})
    return Outcome({**said.facts, "files": [] if table is None else [str(table)]}, said.text, said.code)


# ---------------------------------------------------------------- words and numbers


def evaluated(result: Evaluated, more: Mapping[str, str] | None = None) -> Outcome:
    """The risk in a sentence; length and worst images, and what more there is to say; then the strata."""
    from ..evaluation.evaluation import length_ends, share_ends

    ev = result.evaluation
    check = result.check
    said = _risk_in_words(ev)
    if check.level is not None:
        mean = " in the mean over images" if ev.two_means and check.risk != ev.risk else ""
        said += f" At most {level_in_words(check.level)}{mean} was promised."
    if check.promises:
        said += f" What was seen is {check.verdict}."
    if check.broken:
        said += " They contradict it: they come from another source, or the calibration was unlucky."
    length = length_in_words(ev.mean_length, result.measure)
    length += f"{_within(*length_ends(*ev.mean_length_interval))}, median {ev.median_length:.4f}"
    rows = {"mean length": length}
    if ev.two_means:
        by_image = float(ev.length_by_image.mean())
        rows["mean length"] += f", each {ev.each} counting the same; {by_image:.4f}, each image, as `apply` counts"
    if ev.coverage is not None:
        rows["samples held"] = f"{ev.coverage.share:.2%}{_within(*share_ends(*ev.coverage.interval))}"
    rows["independent"] = f"each {ev.each}, as is assumed here" + (
        " (else give --units)" if ev.unit_name is None else ""
    )
    if ev.apart_from is not None:
        others = "" if ev.unit_name is None else f"; whether others of these {plural(ev.unit_name)} did cannot be told"
        rows["apart"] = f"none of these images calibrated{others}"
    rows["worst images"] = ", ".join(f"{i} ({ev.by_image[i]:.1%})" for i in ev.worst())
    facts: dict[str, Any] = {
        "evaluation": ev.to_dict(),
        "risk": ev.risk,
        "image_risk": ev.image_risk,
        "mean_length": ev.mean_length,
        "mean_length_of_images": float(ev.length_by_image.mean()),
        "risk_level": result.risk_level,
        "guarantee": result.guarantee,
        "verdict": check.verdict,
        "contradicted": check.broken,
        "cautions": check.notes,
        "skipped": result.skipped,
    }
    rows |= skipped_in_words(result.skipped)
    style = "bold red" if check.broken else "bold"
    first = (sentence(said, style), *(Text(f"{note}\n") for note in check.notes))
    table = (_promises(ev), Text("")) if ev.promises else ()
    text: tuple[RenderableType, ...] = (*first, *table, numbers({**rows, **(more or {})}), Text(""), _strata(ev))
    return Outcome(facts, text, NO_GUARANTEE if check.broken else OK)


def _risk_in_words(ev: Evaluation) -> str:
    """What share lies outside, in one mean, or in both where they differ."""
    from ..evaluation.evaluation import share_ends

    whose = images_in_words(len(ev.by_image))
    if ev.unit_name is not None:
        whose += f" of {len(ev.units)} {plural(ev.unit_name)}" if len(ev.units) > 1 else f" of one {ev.unit_name}"
    said = f"{ev.risk:.2%} of the {ev.entries} of {whose} lie outside their intervals"
    said += _within(*share_ends(*ev.risk_interval))
    if not ev.two_means:
        return f"{said}."
    return (
        f"{said}, each {ev.each} counting the same; {ev.image_risk:.2%}"
        f"{_within(*share_ends(*ev.image_risk_interval))}, each image counting the same, in {plural(ev.each)} of at "
        f"most {images_in_words(ev.max_images)}."
    )


def _promises(ev: Evaluation) -> Table:
    """What each promise comes to, with its interval."""
    from ..evaluation.evaluation import share_ends

    one = (
        "each interval is valid by itself, not all at once; a promise is called broken only where all at once allow it"
    )
    table = Table(box=None, padding=(0, 2), header_style="dim", caption=one, caption_justify="left")
    table.add_column("promise")
    headings = ("level", "seen", f"{share_in_words(ev.confidence_level)} interval", plural(ev.each), "")
    for heading in headings:
        table.add_column(heading, justify="right")
    for promise in ev.promises:
        seen = "none has it" if not promise.units else f"{promise.risk:.2%}"
        low, high = share_ends(*promise.interval)
        cells = (level_in_words(promise.at_most), seen, f"{low} to {high}", str(promise.units))
        words = promise_in_words(promise)
        table.add_row(words, *cells, "broken" if promise.broken else "", style="red" if promise.broken else "")
    return table


def _strata(ev: Evaluation) -> Table:
    """Where intervals miss: by length, by edge strength, and in the riskiest groups."""
    from ..evaluation.evaluation import share_ends

    one = (
        f"each {ev.each} that has such {ev.entries} counts the same; each interval is valid by itself, not all at once"
    )
    table = Table(box=None, padding=(0, 2), header_style="dim", caption=one, caption_justify="left")
    table.add_column("pixels by")
    for heading in ("share", "outside", f"{share_in_words(ev.confidence_level)} interval", "length"):
        table.add_column(heading, justify="right")

    def add(strata: Strata, rows: list[int]) -> None:
        table.add_row(Text(strata.of, "italic"))
        edges = strata.edge_texts(3)
        for i in rows:
            name = f"{edges[i]} to {edges[i + 1]}" if edges else str(strata.label[i])
            span = " to ".join(share_ends(strata.low[i], strata.high[i]))
            length = f"{strata.mean_length[i]:.4f}"
            table.add_row(f"  {name}", f"{strata.share[i]:.1%}", f"{strata.risk[i]:.2%}", span, length)

    add(ev.size_stratified, list(range(len(ev.size_stratified))))
    add(ev.by_edge, list(range(len(ev.by_edge))))
    if ev.by_group is not None:
        add(ev.by_group, sorted(range(len(ev.by_group)), key=lambda i: -ev.by_group.risk[i])[:8])  # type: ignore[union-attr]
    return table


def _within(low: str, high: str) -> str:
    return f" ({low} to {high})" if low else ""
