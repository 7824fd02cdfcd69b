"""`pixelbounds report`: what images with a known truth say, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..workflows.request import Force, HeldOutFiles, Identifiers, ReadOptions, Resources
from .command import LAST_PANEL, Outcome, command, written
from .evaluate import evaluated

_READ = ("miscoverage", "units", "kind", "key", "truth_key", "window", "raw")


@command("report", stopped="the page was not written")
def report_command(
    given: HeldOutFiles,
    out: Annotated[Path, typer.Option(help="The page, .html.")],
    read: Annotated[ReadOptions, _READ],
    large: Resources,
    trust: Annotated[
        Path | None, typer.Option(help="What pb.trust saved: its mask can be outlined.", rich_help_panel=LAST_PANEL)
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="A folder for figures as PDF, SVG and PNG.")] = None,
    title: Annotated[str, typer.Option(help="The heading of the page.")] = "Guaranteed error bars",
    examples: Annotated[int, typer.Option(min=1, help="Images to show, from the best covered to the worst.")] = 12,
    note: Annotated[list[str] | None, typer.Option(help="A paragraph for the page; several are possible.")] = None,
    identifiers: Identifiers = "drop",
    force: Force = False,
) -> Outcome:
    """Evaluate on images that had no part in the calibration and write one page: the promise, and every pixel.

    Example: pixelbounds report truth.npy new.zarr --calibration cal.safetensors --out report.html --figures figures
    """
    from ..workflows.report import report_files

    if given.calibration is None:
        raise ValueError("give --calibration, what `pixelbounds calibrate` wrote")
    with large.reporting("reporting") as resources:
        result, files = report_files(
            given, out, title=title, figures=figures, trust=trust, notes=note or (),
            examples=examples, identifiers=identifiers, replace=force,
            reading=read.reading(), resources=resources,
        )  # fmt: skip
    page, *drawn = files
    tables = [] if given.table is None else [given.table]
    named = {"page": [page], "figures": drawn, "table": tables}
    rows = {name: written(*paths) for name, paths in named.items() if paths}
    return evaluated(result, rows, [*files, *tables], page=str(page), figures=[str(x) for x in drawn])
