"""`pixelbounds report`: what images with a known truth say, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .command import Outcome, command, progress, reading_of, resources_of, written
from .evaluate import evaluated
from .options import (
    WHERE,
    BandPath,
    Features,
    Force,
    Identifiers,
    LargeOptions,
    Organs,
    Promises,
    ReadOptions,
    Structures,
    TablePath,
    TestLabels,
    Truth,
)

_READ = ("miscoverage", "units", "kind", "key", "truth_key", "window", "raw")


@command("report", stopped="the page was not written")
def report_command(
    truth: Truth,
    bands: BandPath,
    calibration: Annotated[Path, typer.Option(help="What `pixelbounds calibrate` wrote.")],
    out: Annotated[Path, typer.Option(help="The page, .html.")],
    read: Annotated[ReadOptions, _READ],
    large: Annotated[LargeOptions, WHERE],
    figures: Annotated[Path | None, typer.Option(help="A folder for figures as PDF, SVG and PNG.")] = None,
    title: Annotated[str, typer.Option(help="The heading of the page.")] = "Guaranteed error bars",
    examples: Annotated[int, typer.Option(min=1, help="Images to show, from the best covered to the worst.")] = 12,
    images: Annotated[str | None, typer.Option(help="Which images to show, such as 0,3,17.")] = None,
    note: Annotated[list[str] | None, typer.Option(help="A paragraph for the page; several are possible.")] = None,
    identifiers: Identifiers = "drop",
    force: Force = False,
    groups: Organs = None,
    features: Features = None,
    labels: TestLabels = None,
    promise: Promises = None,
    structures: Structures = None,
    table: TablePath = None,
) -> Outcome:
    """Evaluate on images that had no part in the calibration and write one page: the promise, and every pixel.

    Example: pixelbounds report truth.npy new.zarr --calibration cal.safetensors --out report.html --figures figures
    """
    from ..workflows.report import report_files

    with progress("reporting") as advance:
        result, files = report_files(
            truth, bands, calibration, out, title=title, figures=figures, notes=note or (), replace=force,
            examples=examples if images is None else _numbers(images), groups=groups, features=features,
            labels=labels, promises=promise or (), structures=structures, table=table,
            identifiers=identifiers, progress=advance, reading=reading_of(read),
            resources=resources_of(large),
        )  # fmt: skip
    page, *drawn = files
    rows = {"page": written(page)} | ({"figures": written(*drawn)} if drawn else {})
    rows |= {} if table is None else {"table": written(table)}
    said = evaluated(result, rows)
    facts = {**said.facts, "page": str(page), "figures": [str(x) for x in drawn]}
    facts["files"] = [str(x) for x in (*files, *(() if table is None else (table,)))]
    return Outcome(facts, said.text[:-2], said.code)  # the page has the rest


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} names no images; write numbers, e.g. 0,3,17", param_hint="--images"
        ) from None
