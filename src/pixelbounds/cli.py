"""Strings and files become calls."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from .version import VERSION

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Guaranteed error bars for every pixel.")


@app.callback(invoke_without_command=True)
def top(version: bool = typer.Option(False, "--version", help="Print the version and leave.")) -> None:
    """Guaranteed error bars for every pixel of a restored image."""
    if version:
        typer.echo(VERSION)
        raise typer.Exit


@app.command()
def demo(
    images: int = typer.Option(640, min=100, help="Calibration images, and as many held-out ones."),
    size: int = typer.Option(48, min=16, help="Width and height of an image."),
) -> None:
    """Calibrate every method on synthetic images and print the comparison.

    Example: pixelbounds demo --images 400
    """
    from .demo import FAILURE_PROB, MISCOVERAGE, RISK_LEVEL, compare

    console = Console()
    console.print(
        f"{images} synthetic images of {size} x {size} pixels, a crude sampler, 39 samples each. Wanted: intervals\n"
        f"that miss at most {RISK_LEVEL:.0%} of the pixels on average, with probability {1 - FAILURE_PROB:.0%}, and\n"
        f"that hold a future sample of each pixel with probability {1 - MISCOVERAGE:.0%}.\n"
    )
    with console.status("calibrating every method"):
        rows = compare(images, size, images)
    table = Table(title=f"{images} held-out images", title_justify="left")
    for heading in ("method", "mean length", "outside", "samples held", "seconds"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    shortest = min(row.evaluation.mean_length for row in rows)
    for row in rows:
        coverage = row.evaluation.coverage
        style = "bold" if row.evaluation.mean_length == shortest else ""
        held = "" if coverage is None else f"{float(coverage):.1%}"
        table.add_row(
            row.name, f"{row.evaluation.mean_length:.4f}", f"{row.evaluation.risk:.2%}", held, f"{row.seconds:.2f}",
            style=style,
        )  # fmt: skip
    console.print(table)
    console.print(f"\n{rows[-1].calibration.guarantee}")


def main() -> None:
    """Entry point of the command `pixelbounds`."""
    app()
