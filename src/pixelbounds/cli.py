"""Strings and files become calls."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
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
        f"{images} synthetic images of {size} x {size} pixels and a crude sampler, 39 samples each. Wanted: intervals "
        f"that miss at most {RISK_LEVEL:.0%} of the pixels on average, with probability {1 - FAILURE_PROB:.0%}, and "
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


# ---------------------------------------------------------------- train and sample

_DEBUG = typer.Option(False, "--debug", help="Show the traceback of an error.")


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="A TOML file; see docs/diffusion.md and examples/.")],
    quiet: bool = typer.Option(False, "--quiet", help="No progress bar."),
    debug: bool = _DEBUG,
) -> None:
    """Train a score network, a regressor or N-Conffusion, or go on where a run stopped.

    Example: pixelbounds train examples/score.toml

    Several GPUs: torchrun --nproc-per-node 4 -m pixelbounds.cli train examples/score.toml
    """
    with _messages(debug, "the state is saved; run the same command to go on"):
        from .jobs import train_from
        from .settings import Configuration

        path = train_from(Configuration(config), tell=_tell, quiet=quiet)
        if os.environ.get("RANK", "0") == "0":
            typer.echo(path)


@app.command()
def sample(
    network: Annotated[Path, typer.Argument(help="A network that `pixelbounds train` saved.")],
    observations: Annotated[Path, typer.Argument(help="Noisy images: .npy, .npz, .zarr, or a folder or zip.")],
    out: Annotated[Path, typer.Option("--out", help="The zarr store to write, or to go on with.")],
    sigma0: float | None = typer.Option(None, "--sigma0", help="Noise deviation of the observations."),
    samples: int = typer.Option(128, help="Samples (or passes with dropout) per image."),
    miscoverage: float = typer.Option(0.1, help="Share of future samples that a band may miss."),
    sampler: str = typer.Option("heun", help="heun, reverse_sde, predictor_corrector or euler_maruyama."),
    steps: int | None = typer.Option(None, help="Steps of the sampler; its own number unless told."),
    seed: int = typer.Option(0, help="With image and sample number, it determines every draw."),
    batch: int | None = typer.Option(None, help="Images in the network at a time; less needs less memory."),
    held_out: int = typer.Option(0, help="Further draws per image, kept to check coverage."),
    keep_samples: bool = typer.Option(False, "--keep-samples", help="Keep all samples, in float16."),
    key: str | None = typer.Option(None, help="Name of the array inside an .npz or .zarr file."),
    images: str | None = typer.Option(None, help="A range of the observations, START:STOP; they keep their numbers."),
    limits: tuple[float, float] | None = typer.Option(None, help="Least and greatest pixel value; the network's."),
    device: str | None = typer.Option(None, help="cpu, cuda or cuda:1; a GPU if there is one."),
    compile_: bool = typer.Option(False, "--compile", help="Use torch.compile."),
    repair: bool = typer.Option(False, "--repair", help="Draw damaged images again."),
    debug: bool = _DEBUG,
) -> None:
    """Sample the posterior of noisy images into a zarr store of bands, or go on where a run stopped.

    Example: pixelbounds sample runs/ct/score.safetensors noisy.npy --out ct.zarr --sigma0 0.4 --samples 128
    """
    with _messages(debug, "finished images are kept; run the same command to go on"):
        from .jobs import SampleOptions, sample_to
        from .pictures import read_images

        noisy = read_images(observations, key)
        chosen = _range(images, len(noisy))
        options = SampleOptions(
            sigma_0=sigma0, samples=samples, miscoverage=miscoverage, sampler=sampler, steps=steps, seed=seed,
            batch=batch, held_out=held_out, keep_samples=keep_samples, limits=limits, device=device,
            compile=compile_, repair=repair,
        )  # fmt: skip
        columns = TextColumn("images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("images", total=len(chosen))
            run = sample_to(
                network, noisy[chosen.start : chosen.stop], out, options, ids=list(chosen),
                tell=lambda line: bar.console.print(line, markup=False, highlight=False, soft_wrap=True),
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )  # fmt: skip
        typer.echo(run)


def _range(text: str | None, n: int) -> range:
    """START:STOP, either of which may be left out."""
    try:
        start, stop = (int(part) if part.strip() else None for part in (text or ":").split(":"))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no range; write START:STOP, e.g. 0:100", param_hint="--images") from None
    chosen = range(n)[start:stop]
    if not chosen:
        raise typer.BadParameter(f"{text!r} chooses none of {n} images", param_hint="--images")
    return chosen


def _tell(line: str) -> None:
    typer.echo(line, err=True)


@contextmanager
def _messages(debug: bool, interrupted: str) -> Iterator[None]:
    """Errors as messages: exit code 2 for a wrong configuration, 1 for anything else."""
    try:
        yield
    except KeyboardInterrupt:
        _tell(f"pixelbounds: stopped; {interrupted}")
        raise typer.Exit(1) from None
    except ModuleNotFoundError as error:
        if debug or error.name not in ("torch", "tqdm"):
            raise
        _tell(f"pixelbounds: {error.name} is not installed; pip install 'pixelbounds[diffusion]'")
        raise typer.Exit(1) from None
    except (ValueError, TypeError, OSError, RuntimeError, ArithmeticError, MemoryError) as error:
        if debug or isinstance(error, typer.Exit):
            raise
        message = str(error) or type(error).__name__
        if type(error).__name__ == "OutOfMemoryError":
            message = f"out of GPU memory; use a smaller batch ({message.splitlines()[0]})"
        _tell(f"pixelbounds: {message}")
        raise typer.Exit(2 if type(error).__name__ == "SettingsError" else 1) from None


def main() -> None:
    """Entry point of the command `pixelbounds`."""
    app()


if __name__ == "__main__":
    main()
