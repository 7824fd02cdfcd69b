"""`pixelbounds sample`: posterior samples, or what a network predicts; an interrupted run resumes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..workflows.request import ReadOptions, Resources
from .command import Outcome, bar, command, tell

_how = partial(typer.Option, rich_help_panel="Sampler")
_kept = partial(typer.Option, rich_help_panel="What is drawn and kept")
_inverse = partial(typer.Option, rich_help_panel="Inverse problems")


@dataclass(frozen=True)
class SamplerOptions:
    """How to sample; `workflows.SampleOptions` has the same names."""

    sigma_0: Annotated[float | None, typer.Option("--sigma0", help="Noise deviation of the observations.")] = None
    samples: Annotated[int | None, typer.Option(help="Samples (or passes) per image; 79 by default.")] = None
    miscoverage: Annotated[
        float | None, typer.Option(help="Share of future samples that a band may miss; 0.1 by default.")
    ] = None
    sampler: Annotated[str | None, _how(help="heun (default), reverse_sde, predictor_corrector or euler_maruyama.")] = (
        None
    )
    steps: Annotated[int | None, _how(help="Steps of the sampler; by default its own number.")] = None
    seed: Annotated[int, _how(help="With image and sample number, it determines every draw.")] = 0
    batch: Annotated[int | None, _how(help="Images in the network at a time; less needs less memory.")] = None
    device: Annotated[str | None, _how(help="cpu, cuda or cuda:1; a GPU if there is one.")] = None
    compile: Annotated[
        bool | None, _how("--compile/--no-compile", help="Use torch.compile; by default where it pays.")
    ] = None
    held_out: Annotated[int | None, _kept(help="Further draws per image to check coverage; 0 by default.")] = None
    keep_samples: Annotated[bool | None, _kept("--keep-samples", help="Keep all samples, in float16.")] = None
    repair: Annotated[bool, _kept("--repair", help="Draw damaged images again.")] = False
    limits: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="Possible values, where the network's file has none."),
    ] = None


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
    how: SamplerOptions,
    read: Annotated[ReadOptions, ("window", "raw")],
    large: Annotated[Resources, ("scheduler",)],
    key: str | None = typer.Option(None, help="Name of the array inside an .npz or .zarr file."),
    images: str | None = _kept(None, help="A range of the observations, START:STOP; they keep their numbers."),
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
    from ..workflows import Inverse, SampleOptions, sample_files

    with bar("sampling", of="samples") as advance:
        run = sample_files(
            network, observations, out, SampleOptions(**vars(how)), window=read.reading().mapping, key=key,
            images=None if images is None else partial(_range, images), inverse=Inverse(problem, method, sweeps),
            scheduler=large.scheduler, tell=tell, progress=advance,
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
