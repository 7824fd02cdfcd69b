"""`pixelbounds evaluate`: what images with a known truth say of intervals, in a few numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ..calibration.words import level_in_words, number_of, plural, share_in_words
from ..evaluation.evaluation import length_ends, share_ends
from ..images.measure import length_in_words
from ..workflows.request import Force, HeldOutFiles, ReadOptions, Resources
from .command import NO_GUARANTEE, OK, Outcome, command, numbers, sentence, skipped_in_words, written

if TYPE_CHECKING:
    from ..evaluation.evaluation import Evaluation
    from ..workflows.evaluate import Evaluated


@command("evaluate")
def evaluate_command(
    given: HeldOutFiles, read: ReadOptions, large: Resources, force: Force = False,
) -> Outcome:  # fmt: skip
    """Check intervals against the truth of images that had no part in their calibration.

    With --calibration images that calibrated are refused. Exit code 1: the images contradict the calibration, even at
    the low end of the risk's 95% interval, which is valid at any number of images. A calibration of promises is
    compared with the same ones, --promise, and the regions of these images.

    Example: pixelbounds evaluate truth.npy new.zarr --calibration cal.safetensors
    """
    from ..workflows.evaluate import evaluate_files

    with large.reporting("evaluating") as resources:
        result = evaluate_files(
            given, replace=force,
            reading=read.reading(), resources=resources,
        )  # fmt: skip
    files = [] if given.table is None else [given.table]
    return evaluated(result, files=files)


def evaluated(
    result: Evaluated, rows: Mapping[str, str] | None = None, files: Sequence[Path] = (), **facts: Any
) -> Outcome:
    """The risk in a sentence, promises, lengths, worst images, and strata where `rows` name no page, which has them."""
    ev = result.evaluation
    check = result.check
    said = _risk_in_words(ev)
    if check.level is not None:
        mean = " in the mean over images" if ev.two_means and check.promises[0].risk != ev.risk else ""
        said += f" At most {level_in_words(check.level)}{mean} was promised: {check.promises[0].verdict}."
    elif check.promises:
        said += f" What was seen is {check.verdict}."
    if check.broken:
        said += " They contradict it: they come from another source, or the calibration was unlucky."
    mean, median = (length_in_words(x, result.measure) for x in (ev.mean_length, ev.median_length))
    length = f"{mean}{_within(*length_ends(*ev.mean_length_interval))}, median {median}"
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
    tables = _tables(ev, strata=not rows)
    return Outcome(facts, (*first, numbers(lines), Text(), tables), NO_GUARANTEE if check.broken else OK)


def _risk_in_words(ev: Evaluation) -> str:
    """What share lies outside, in one mean, or in both where they differ."""
    whose = number_of(len(ev.by_image), "image")
    if ev.unit_name is not None:
        whose += f" of {len(ev.units)} {plural(ev.unit_name)}" if len(ev.units) > 1 else f" of one {ev.unit_name}"
    said = f"{ev.risk:.2%} of the {ev.entries} of {whose} lie outside their intervals"
    said += _within(*share_ends(*ev.risk_interval))
    if not ev.two_means:
        return f"{said}."
    said += f", each {ev.each} counting the same; {ev.image_risk:.2%}"
    if not ev.max_images:
        return f"{said}, each image counting the same."
    said += f"{_within(*share_ends(*ev.image_risk_interval))}, each image counting the same"
    return f"{said}, in {plural(ev.each)} of at most {number_of(ev.max_images, 'image')}."


def _tables(ev: Evaluation, *, strata: bool) -> Text:
    """What each promise comes to, and where intervals miss: by length, by edge strength, in the riskiest groups."""
    parts = [ev.promise_table()] if ev.promises else []
    if strata:  # a page has them
        parts += [ev.size_stratified.table(), ev.by_edge.table()]
        parts += [] if ev.by_group is None else [ev.by_group.table(ev.by_group.riskiest(8))]
    text = "\n".join(parts)
    note = f"\n{share_in_words(ev.confidence_level)} intervals, each valid by itself, not all at once"
    return Text(text and text + note)


def _within(low: str, high: str) -> str:
    return f" ({low} to {high})" if low else ""
