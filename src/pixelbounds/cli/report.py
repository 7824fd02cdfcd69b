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

    Example: pixelbounds report truth.npy new.zarr --calibration cal.safetensors --out report.html
    """
    from ..workflows.report import report_files

    with large.reporting("reporting") as resources:
        result = report_files(given, out, options, reading=read.reading(), replace=force, resources=resources)
    files = {"page": out} | ({} if given.table is None else {"table": given.table})
    rows = {name: written(path) for name, path in files.items()}
    return evaluated(result, rows, [*files.values()], page=str(out))
