"""`pixelbounds report`: what images with a known truth say, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .command import Outcome, command, progress, written
from .evaluate import evaluated
from .options import WHERE, BandPath, Force, HeldOutOptions, Identifiers, LargeOptions, ReadOptions, Truth

_READ = ("miscoverage", "units", "kind", "key", "truth_key", "window", "raw")


@command("report", stopped="the page was not written")
def report_command(
    truth: Truth,
    bands: BandPath,
    out: Annotated[Path, typer.Option(help="The page, .html.")],
    given: HeldOutOptions,
    read: Annotated[ReadOptions, _READ],
    large: Annotated[LargeOptions, WHERE],
    risk_level: Annotated[
        float | None, typer.Option(help="Instead of a calibration, a first look: half of the images calibrate.")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="A folder for figures as PDF, SVG and PNG.")] = None,
    title: Annotated[str, typer.Option(help="The heading of the page.")] = "Guaranteed error bars",
    examples: Annotated[int, typer.Option(min=1, help="Images to show, from the best covered to the worst.")] = 12,
    images: Annotated[str | None, typer.Option(help="Which images to show, such as 0,3,17.")] = None,
    note: Annotated[list[str] | None, typer.Option(help="A paragraph for the page; several are possible.")] = None,
    identifiers: Identifiers = "drop",
    force: Force = False,
) -> Outcome:
    """Evaluate on images that had no part in the calibration and write one page: the promise, and every pixel.

    A first look needs no calibration: with --risk-level half of the images calibrate and the others are judged.

    Example: pixelbounds report truth.npy new.zarr --calibration cal.safetensors --out report.html --figures figures

    Example: pixelbounds report truth.npy run.zarr --risk-level 0.1 --out report.html
    """
    from ..workflows.evaluate import HeldOutFiles
    from ..workflows.first_look import first_look_files
    from ..workflows.report import report_files

    if (given.calibration is None) == (risk_level is None):
        raise ValueError("give --calibration, what `pixelbounds calibrate` wrote, or --risk-level for a first look")
    if risk_level is not None and any(x is not None for x in vars(given).values()):
        raise ValueError("a first look has one level for all pixels; calibrate, and give --calibration")
    shared: dict[str, Any] = {
        "title": title, "figures": figures, "notes": note or (), "replace": force, "identifiers": identifiers,
        "examples": examples if images is None else _numbers(images), "reading": read.reading(),
        "resources": large.resources(),
    }  # fmt: skip
    with progress("reporting") as advance:
        if risk_level is not None:
            result, files = first_look_files(truth, bands, out, risk_level=risk_level, progress=advance, **shared)
        else:
            result, files = report_files(HeldOutFiles(truth, bands, **vars(given)), out, progress=advance, **shared)
    page, *drawn = files
    rows = {"page": written(page)} | ({"figures": written(*drawn)} if drawn else {})
    tables = [] if given.table is None else [given.table]
    rows |= {"table": written(*tables)} if tables else {}
    return evaluated(result, rows, [*files, *tables], page=str(page), figures=[str(x) for x in drawn])


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} names no images; write numbers, e.g. 0,3,17", param_hint="--images"
        ) from None
