"""`pixelbounds sample`: posterior samples, or what a network predicts; an interrupted run resumes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..workflows.request import ReadOptions, SampleOptions, kept_option
from .command import Outcome, bar, command, tell

_inverse = partial(typer.Option, rich_help_panel="Inverse problems")


@command("sample", stopped="finished images are kept; run the same command to resume")
def sample_command(
    network: Annotated[
        str,
        typer.Argument(metavar="NETWORK", help="A network that `pixelbounds train` saved, or package.module:function."),
    ],
    observations: Annotated[
        Path,
        typer.Argument(
            metavar="OBSERVATIONS", help="Observations: .npy, .npz, .zarr, pictures in a folder or zip, NIfTI, DICOM."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The zarr store to write, or to resume.")],
    how: SampleOptions,
    read: Annotated[ReadOptions, ("window", "raw")],
    key: str | None = typer.Option(None, help="Name of the array inside an .npz or .zarr file."),
    images: str | None = kept_option(None, help="A range of the observations, START:STOP; they keep their numbers."),
    problem: Annotated[Path | None, _inverse(help="A TOML file that says what was observed: CT, MRI, blur.")] = None,
    method: Annotated[str | None, _inverse(help="mmps (default), pigdm or dps.")] = None,
    sweeps: Annotated[int | None, _inverse(help="Runs of the SDE, one after the other; 1 by default.")] = None,
) -> Outcome:
    """Sample the posterior of observations into a zarr store of bands, or resume an interrupted run.

    A function of your own, (observation, samples, seed) -> (samples, *pixels), is named as package.module:function.
    With --problem a score network inverts what a TOML file declares, such as CT or MRI.

    Example: pixelbounds sample runs/ct/score.safetensors noisy.npy --out ct.zarr --sigma0 0.4
    """
    from ..execution import let_threads_sleep

    let_threads_sleep()  # before torch is loaded
    from ..workflows import Inverse, sample_files

    with bar("sampling", of="samples") as advance:
        run = sample_files(
            network, observations, out, how, window=read.reading().mapping, key=key,
            images=None if images is None else partial(_range, images), inverse=Inverse(problem, method, sweeps),
            tell=tell, progress=advance,
        )  # fmt: skip
    return Outcome({"run": str(out), "images": len(run), "bands": run.kinds}, (str(run),))


def _range(text: str, n: int) -> range:
    try:
        start, stop = (int(part) if part.strip() else None for part in text.split(":"))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no range; write START:STOP, e.g. 0:100", param_hint="--images") from None
    chosen = range(n)[start:stop]
    if not chosen:
        raise typer.BadParameter(f"{text!r} chooses none of {n} images", param_hint="--images")
    return chosen
