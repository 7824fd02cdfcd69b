"""`pixelbounds report`: what images with a known truth say, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..workflows.request import Force, HeldOutFiles, ReadOptions, ReportOptions, Resources
from .command import Outcome, command, written
from .evaluate import evaluated

_READ = ("miscoverage", "units", "kind", "key", "truth_key", "window", "raw")


@command("report", stopped="the page was not written")
def report_command(
    given: HeldOutFiles,
    out: Annotated[Path, typer.Option(help="The page, .html.")],
    read: Annotated[ReadOptions, _READ],
    large: Resources,
    options: ReportOptions,
    force: Force = False,
) -> Outcome:
    """Evaluate on images that had no part in the calibration and write one page: the promise, and every pixel.

    Example: pixelbounds report truth.npy new.zarr --calibration cal.safetensors --out report.html --figures figures
    """
    from ..workflows.report import report_files

    if given.calibration is None:
        raise ValueError("give --calibration, what `pixelbounds calibrate` wrote")
    with large.reporting("reporting") as resources:
        result, files = report_files(given, out, options, reading=read.reading(), replace=force, resources=resources)
    page, *drawn = files
    tables = [] if given.table is None else [given.table]
    named = {"page": [page], "figures": drawn, "table": tables}
    rows = {name: written(*paths) for name, paths in named.items() if paths}
    return evaluated(result, rows, [*files, *tables], page=str(page), figures=[str(x) for x in drawn])
