"""`python -m reproduce NAME`: the paper's table and figures, with ours beside them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from pixelbounds.cli.command import Outcome, bar, command, tell
from pixelbounds.execution import let_threads_sleep

from .experiment import EXPERIMENTS

_KEPT = "finished draws are kept: the same command resumes, without --fresh"


def _named(name: str) -> Callable[..., Outcome]:
    """The function that runs one experiment."""

    def run(
        material: Annotated[
            Path | None, typer.Option(help="Ready arrays: a folder of .npy files, an .npz or a .zarr.")
        ] = None,
        data: Annotated[
            Path | None, typer.Option(help="Images to train on and to hold out; makes the arrays first.")
        ] = None,
        train: Annotated[bool, typer.Option("--train", help="Train on simulated images, make the arrays.")] = False,
        out: Annotated[
            Path | None, typer.Option(help="Folder of draws, results, tables and figures; default: out/NAME.")
        ] = None,
        draws: Annotated[int | None, typer.Option(min=1, help="Number of draws; default: the experiment's.")] = None,
        plan: Annotated[Path | None, typer.Option(help="A TOML file of your own instead of NAME's.")] = None,
        toy: Annotated[bool, typer.Option("--toy", help="Run in miniature, to check that everything works.")] = False,
        fresh: Annotated[bool, typer.Option("--fresh", help="Compute finished draws again.")] = False,
        workers: Annotated[int | None, typer.Option(min=1, help="Processes; default: one per core.")] = None,
        figures: Annotated[bool, typer.Option(help="Draw the figures.")] = True,
        device: Annotated[str | None, typer.Option(help="cpu or cuda, for training and sampling.")] = None,
    ) -> Outcome:
        let_threads_sleep()  # before torch is loaded
        from .campaign import reproduce

        with bar(name, of="draws") as advance:
            folder = reproduce(
                name if plan is None else str(plan), material=material, data=data, train=train, out=out, draws=draws,
                toy=toy, fresh=fresh, workers=workers, figures=figures, device=device, tell=tell, progress=advance,
            )  # fmt: skip
        written = [folder / file for file in ("results.json", "table.md", "table.tex")]
        written += [folder / "figures"] if figures else []
        where = f"{folder}: {', '.join(path.name for path in written)}"
        return Outcome({"files": [str(path) for path in written]}, ((folder / "table.md").read_text(), where))

    given = "" if name == "phantom" else " --material FOLDER"
    run.__doc__ = (
        f"Table and figures of {name}; resumes where it stopped.\n\nExample: python -m reproduce {name}{given}"
    )
    return run


@command("page")
def page_command(
    results: Annotated[list[Path], typer.Argument(help="results.json of experiments, or their folders.")],
    out: Annotated[Path, typer.Option(help="The folder of pages.")] = Path("docs"),
) -> Outcome:
    """Write the pages of results from the JSONs of several experiments.

    Example: python -m reproduce page out/faces64 out/ct64 out/phantom --out docs
    """
    from .results_page import write_pages

    written = [str(path) for path in write_pages(results, out)]
    return Outcome({"files": written}, tuple(written))


app = typer.Typer(no_args_is_help=True, help="The paper's table and figures, with ours beside them.")
for _name in EXPERIMENTS:
    app.command()(command(_name, stopped=_KEPT)(_named(_name)))
app.command()(page_command)

if __name__ == "__main__":
    app(prog_name="python -m reproduce")
