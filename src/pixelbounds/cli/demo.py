"""`pixelbounds demo`: the whole idea on phantoms, and a page to look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ..evaluation.evaluation import share_ends
from .command import Outcome, bar, command, numbers, sentence, table, tell

if TYPE_CHECKING:
    from ..demo.showcase import Demo


@command("demo")
def demo_command(
    out: Annotated[Path, typer.Option(help="Folder for the calibration, the intervals and the page.")] = Path(
        "out/demo"
    ),
    new: Annotated[int, typer.Option(min=1, max=64, help="New phantoms to sample.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Which new phantoms, and their noise.")] = 0,
) -> Outcome:
    """Show everything on phantoms: calibrate, promise body, organs and edges, sample new ones, write a page.

    Example: pixelbounds demo --new 8 --out out/demo
    """
    from ..execution import let_threads_sleep

    let_threads_sleep()  # before torch is loaded
    import torch  # noqa: F401 - where it is missing, fail now and not after all calibrations

    from ..demo.showcase import run

    with bar("sampling", of="images") as advance:
        demo = run(out, new=new, seed=seed, step=lambda what: tell(f"· {what}"), progress=advance)
    words = f"{demo.new.risk:.2%} of their pixels lie outside; {demo.calibration.risk_level:.0%} on average may"
    rows = {
        f"{len(demo.new.by_image)} new phantoms": words,
        "calibration": str(demo.calibration_file),
        "intervals": str(demo.intervals),
        "page": f"{demo.report}  (open it in a browser)",
        **{f"{seconds:.1f} s": what for what, seconds in demo.seconds.items()},
    }
    text = _methods(demo), "", _promises(demo), "", sentence(demo.calibration.guarantee), numbers(rows)
    return Outcome(_facts(demo), text)


def _methods(demo: Demo) -> Table:
    lengths = [row.evaluation.mean_length for row in demo.rows]
    rows = []
    for row, length in zip(demo.rows, lengths, strict=True):
        cells = f"{length:.4f}", f"{length / lengths[1] - 1:+.1%}", f"{row.evaluation.risk:.2%}"
        rows.append((row.name, *cells, f"{row.seconds or 0:.2f}"))
    return table(
        ("method", "mean length", "to the paper's", "outside", "seconds"), rows,
        title="On phantoms that did not calibrate", style=lambda i: "bold" if lengths[i] == min(lengths) else "",
    )  # fmt: skip


def _promises(demo: Demo) -> Table:
    """What was promised together, what other phantoms say, and what one level for all pixels would miss there."""
    ev = demo.promised.evaluation
    longer = ev.mean_length / demo.rows[-1].evaluation.mean_length - 1
    rows = []
    for seen, alone in zip(ev.promises, demo.plain, strict=True):
        ends = " to ".join(share_ends(*seen.jointly))
        rows.append((seen.name, f"{seen.at_most:.0%}", f"{seen.risk:.2%}", ends, seen.verdict, f"{alone.risk:.2%}"))
    return table(
        ("promise", "at most, outside", "seen", "95% range, jointly", "verdict", "with 5% of all alone"), rows,
        text=("verdict",),
        title=f"Promised together: mean length {ev.mean_length:.4f}, {longer:+.1%} against 5% of all pixels alone",
        caption="kept: the whole range is within the level; undecided: too few images to tell",
    )  # fmt: skip


def _facts(demo: Demo) -> dict[str, Any]:
    rows = [
        {"method": row.name, "mean_length": row.evaluation.mean_length, "risk": row.evaluation.risk}
        for row in demo.rows
    ]
    seen = demo.promised.evaluation.promises
    promises = [
        {"name": made.name, "at_most": made.at_most, "certifying": made.certifying, "risk": now.risk,
         "verdict": now.verdict, "risk_without": alone.risk}
        for made, now, alone in zip(demo.calibration.promises, seen, demo.plain, strict=True)
    ]  # fmt: skip
    files = {"calibration": demo.calibration_file, "intervals": demo.intervals, "report": demo.report}
    return {
        "guarantee": demo.calibration.guarantee, "methods": rows, "promises": promises,
        "promised_length": demo.promised.evaluation.mean_length, "new_risk": demo.new.risk,
        "files": {name: str(path) for name, path in files.items()}, "seconds": demo.seconds,
    }  # fmt: skip
