"""`pixelbounds apply`: a calibration file and new bands in, intervals out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..calibration.words import number_of
from ..images.measure import length_in_words
from ..workflows.request import ApplyOptions, BandPath, Force, ReadOptions, Resources
from .command import Outcome, command, first_of, in_short, skipped_in_words, written

if TYPE_CHECKING:
    from ..workflows.apply import Applied

_KEPT = "blocks of a .zarr that were written are kept as .part: run the same command to resume"


@command("apply", stopped=_KEPT)
def apply_command(
    calibration: Annotated[Path, typer.Argument(metavar="CALIBRATION", help="What `pixelbounds calibrate` wrote.")],
    bands: BandPath,
    out: Annotated[Path, typer.Option(help="intervals.zarr, .npz, .nii.gz, or a new folder for DICOM.")],
    read: Annotated[ReadOptions, ("miscoverage", "kind", "key", "window", "raw", "skip_bad", "fill_missing")],
    large: Resources,
    options: ApplyOptions,
    force: Force = False,
) -> Outcome:
    """Write the intervals of new images.

    Example: pixelbounds apply cal.safetensors new.zarr --out intervals.zarr
    """
    from ..workflows.apply import apply_files

    with large.reporting("widening") as resources:
        done = apply_files(calibration, bands, out, options, reading=read.reading(), replace=force, resources=resources)
    n, *pixels = done.shape
    rows = {
        "images": f"{n} of {' x '.join(map(str, pixels)) + ' pixels' if pixels else 'different sizes'}",
        **_lengths(done),
    }
    if done.masks.trust is not None:
        rows["trusted"] = f"{done.trusted_share:.1%} of the pixels. {done.masks.trust.guarantee}"
    if done.conformal_p_values:
        which = f"{number_of(len(done.conformal_p_values), 'image')} ({first_of(done.conformal_p_values)})"
        noun, expected = done.calibration.record.unit_name, done.expected_unusual
        rows["unusual"] = (
            f"{which} with bands farther out than those of all {len(done.calibration.reference)} certifying images "
            "kept; "
            + (f"images of one {noun} are so together" if expected is None else f"up to {expected:.2g} expected")
            + " from the same source"
        )
    rows |= {"written": written(*done.files), **skipped_in_words(done.skipped)}
    if done.sent is not None:
        rows["sent"] = f"{done.sent} objects that {options.send} did not have"
    names = "shape", "mean_length", "open_share", "skipped", "conformal_p_values", "sent"
    facts = {name: getattr(done, name) for name in names} | {
        "file": str(done.path),
        "files": [str(x) for x in done.files],
        "closed_length": None if done.open_share in (None, 1) else done.closed_length,
        "guarantee": done.calibration.guarantee,
        **({} if done.trusted_share is None else {"trusted_share": done.trusted_share}),
    }
    return in_short(facts, done.calibration.guarantee, rows)


def _lengths(done: Applied) -> dict[str, str]:
    """The mean length, as `evaluate` has it; of values seen through a window also that of intervals within it."""
    measure = done.measure
    mean = f"{length_in_words(done.mean_length, measure)}, each image counting the same"
    if done.open_share is None or done.closed_length is None or measure is None:
        return {"mean length": mean}
    unit = f" {measure.unit}" if measure.unit else ""
    closed = f"{length_in_words(done.closed_length, measure)} of the intervals within the window"
    return {
        "mean length": f"{mean}, an open end counting as the edge of the window (as `evaluate` does)",
        "closed": "no interval lies within the window" if done.open_share == 1 else closed,
        "open": f"{done.open_share:.1%} of the pixels have an end at the edge of the window, {measure.low:g} or "
        f"{measure.high:g}{unit}: beyond it the value may lie anywhere",
    }
