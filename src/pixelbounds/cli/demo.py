"""`pixelbounds demo`: every method on synthetic images."""

from __future__ import annotations

import typer
from rich.table import Table

from .contract import Outcome, command, progress, sentence


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app)(demo)


def demo(
    images: int = typer.Option(640, min=100, help="Calibration images, and as many held-out ones."),
    size: int = typer.Option(48, min=16, help="Width and height of an image."),
) -> Outcome:
    """Calibrate every method on synthetic images and print the comparison.

    Example: pixelbounds demo --images 400
    """
    from ..demo import FAILURE_PROB, MISCOVERAGE, RISK_LEVEL, compare

    about = (
        f"{images} synthetic images of {size} x {size} pixels and a crude sampler, 39 samples each. Wanted: intervals "
        f"that miss at most {RISK_LEVEL:.0%} of the pixels on average, with probability {1 - FAILURE_PROB:.0%}, and "
        f"that hold a future sample of each pixel with probability {1 - MISCOVERAGE:.0%}."
    )
    with progress("calibrating every method"):
        rows = compare(images, size, images)
    table = Table(title=f"{images} held-out images", title_justify="left")
    for heading in ("method", "mean length", "outside", "samples held", "seconds"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    shortest = min(row.evaluation.mean_length for row in rows)
    facts = []
    for row in rows:
        ev = row.evaluation
        held = "" if ev.coverage is None else f"{float(ev.coverage):.1%}"
        style = "bold" if ev.mean_length == shortest else ""
        table.add_row(
            row.name, f"{ev.mean_length:.4f}", f"{ev.risk:.2%}", held, f"{row.seconds:.2f}", style=style
        )  # fmt: skip
        facts.append({"method": row.name, "mean_length": ev.mean_length, "risk": ev.risk, "seconds": row.seconds})
    promise = rows[-1].calibration.guarantee
    return Outcome({"guarantee": promise, "methods": facts}, (sentence(about, ""), table, f"\n{promise}"))
