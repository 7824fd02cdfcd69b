"""`pixelbounds evaluate`: what images with a known truth say of intervals, in a few numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ..calibration.text import promise_in_words
from ..calibration.words import level_in_words, plural, share_in_words
from ..evaluation.evaluation import length_ends, share_ends
from ..images.measure import length_in_words
from .command import (
    NO_GUARANTEE,
    OK,
    Outcome,
    command,
    images_in_words,
    numbers,
    progress,
    sentence,
    skipped_in_words,
    table,
    written,
)
from .options import Force, HeldOutOptions, LargeOptions, ReadOptions, Truth

if TYPE_CHECKING:
    from ..evaluation.evaluation import Evaluation, Strata
    from ..workflows.evaluate import Evaluated


@command("evaluate")
def evaluate_command(
    truth: Truth,
    intervals: Annotated[
        Path, typer.Argument(metavar="INTERVALS", help="What `pixelbounds apply` wrote; with --calibration: bands.")
    ],
    given: HeldOutOptions,
    read: ReadOptions,
    large: LargeOptions,
    force: Force = False,
) -> Outcome:
    """Check intervals against the truth of images that had no part in their calibration.

    With --calibration images that calibrated are refused. Exit code 1: the images contradict the calibration, even at
    the low end of the risk's 95% interval, which is valid at any number of images. A calibration of promises is
    compared with the same ones, --promise, and the regions of these images.

    Example: pixelbounds evaluate truth.npy new.zarr --calibration cal.safetensors
    """
    from ..workflows.evaluate import HeldOutFiles, evaluate_files

    with progress("evaluating") as advance:
        result = evaluate_files(
            HeldOutFiles(truth, intervals, **vars(given)), replace=force, progress=advance,
            reading=read.reading(large), resources=large.resources(),
        )  # fmt: skip
    files = [] if given.table is None else [given.table]
    return evaluated(result, files=files)


# ---------------------------------------------------------------- words and numbers


def evaluated(
    result: Evaluated, rows: Mapping[str, str] | None = None, files: Sequence[Path] = (), **facts: Any
) -> Outcome:
    """The risk in a sentence, promises, lengths, worst images, and strata where `rows` name no page, which has them."""
    ev = result.evaluation
    check = result.check
    said = _risk_in_words(ev)
    if check.level is not None:
        mean = " in the mean over images" if ev.two_means and check.risk != ev.risk else ""
        said += f" At most {level_in_words(check.level)}{mean} was promised."
    elif check.promises:
        said += f" What was seen is {check.verdict}."
    if check.broken:
        said += " They contradict it: they come from another source, or the calibration was unlucky."
    length = length_in_words(ev.mean_length, result.measure)
    length += f"{_within(*length_ends(*ev.mean_length_interval))}, median {ev.median_length:.4f}"
    by_image = float(ev.length_by_image.mean())
    lines = {"mean length": length}
    if ev.two_means:
        lines["mean length"] += f", each {ev.each} counting the same; {by_image:.4f}, each image, as `apply` counts"
    if ev.coverage is not None:
        lines["samples held"] = f"{ev.coverage.share:.2%}{_within(*share_ends(*ev.coverage.interval))}"
    give = " (else give --units)" if ev.unit_name is None else ""
    lines["independent"] = f"each {ev.each}, as is assumed here{give}"
    if ev.apart_from is not None:
        others = "" if ev.unit_name is None else f"; whether others of these {plural(ev.unit_name)} did is unknown"
        lines["apart"] = f"none of these images calibrated{others}"
    lines["worst images"] = ", ".join(f"{i} ({ev.by_image[i]:.1%})" for i in ev.worst())
    lines |= skipped_in_words(result.skipped) | dict(rows or {})
    if files and not rows:
        lines["written"] = written(*files)
    facts = {
        "evaluation": ev.to_dict(), "risk": ev.risk, "image_risk": ev.image_risk, "mean_length": ev.mean_length,
        "mean_length_of_images": by_image, "risk_level": result.risk_level, "guarantee": result.guarantee,
        "verdict": check.verdict, "contradicted": check.broken, "cautions": check.notes, "skipped": result.skipped,
        "files": [str(x) for x in files], **facts,
    }  # fmt: skip
    first = (sentence(said, "bold red" if check.broken else "bold"), *(Text(f"{note}\n") for note in check.notes))
    promises = (_promises(ev), Text("")) if ev.promises else ()
    strata = () if rows else (Text(""), _strata(ev))  # a page has them
    return Outcome(facts, (*first, *promises, numbers(lines), *strata), NO_GUARANTEE if check.broken else OK)


def _risk_in_words(ev: Evaluation) -> str:
    """What share lies outside, in one mean, or in both where they differ."""
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
    caption = (
        "each interval is valid by itself, not all at once; a promise is called broken only where all at once allow it"
    )
    rows = []
    for promise in ev.promises:
        low, high = share_ends(*promise.interval)
        seen = "none has it" if not promise.units else f"{promise.risk:.2%}"
        cells = level_in_words(promise.at_most), seen, f"{low} to {high}", str(promise.units)
        rows.append((promise_in_words(promise), *cells, "broken" if promise.broken else ""))
    headings = ("promise", "level", "seen", f"{share_in_words(ev.confidence_level)} interval", plural(ev.each), "")
    return table(headings, rows, caption=caption, style=lambda i: "red" if ev.promises[i].broken else "")


def _strata(ev: Evaluation) -> Table:
    """Where intervals miss: by length, by edge strength, and in the riskiest groups."""
    caption = (
        f"outside: of all such {ev.entries}; mean: each {ev.each} that has them counts the same; each interval is of "
        "the mean and valid by itself, not all at once"
    )
    rows: list[tuple[str | Text, ...]] = []

    def add(strata: Strata, chosen: Sequence[int]) -> None:
        rows.append((Text(strata.of, "italic"),))
        edges = strata.edge_texts(3)
        for i in chosen:
            name = f"{edges[i]} to {edges[i + 1]}" if edges else str(strata.label[i])
            span = " to ".join(share_ends(strata.low[i], strata.high[i]))
            length = f"{strata.mean_length[i]:.4f}"
            shares = [f"{strata.share[i]:.1%}", f"{strata.pooled[i]:.2%}", f"{strata.risk[i]:.2%}"]
            rows.append((f"  {name}", *shares, span, length))

    add(ev.size_stratified, range(len(ev.size_stratified)))
    add(ev.by_edge, range(len(ev.by_edge)))
    if ev.by_group is not None:
        by_group = ev.by_group
        add(by_group, sorted(range(len(by_group)), key=lambda i: -by_group.risk[i])[:8])
    headings = ("pixels by", "share", "outside", "mean", f"{share_in_words(ev.confidence_level)} interval", "length")
    return table(headings, rows, caption=caption)


def _within(low: str, high: str) -> str:
    return f" ({low} to {high})" if low else ""
