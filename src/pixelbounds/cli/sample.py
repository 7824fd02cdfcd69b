"""`pixelbounds sample`: posterior samples, or what a network predicts; an interrupted run resumes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..workflows.request import ReadOptions, Resources
from .command import Outcome, bar, command, tell

if TYPE_CHECKING:
    from ..samplers import Sampler
    from ..workflows import SampleOptions


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
    from ..formats.opener import open_images
    from ..formats.scans import patients_digest
    from ..samplers import sample_function_to
    from ..workflows import SampleOptions, sample_to

    options = SampleOptions(**vars(how))
    sampler = _sampler(network, options, problem, method, sweeps)
    seen = open_images(observations, key=key, window=read.reading().mapping, clip=False, spectra=sampler is not None)
    chosen = _range(images, len(seen))
    with bar("sampling", of="samples") as advance:
        shared: dict[str, Any] = {
            "images": chosen, "measure": seen.measure, "patients": patients_digest(seen, chosen),
            "scheduler": large.scheduler, "tell": tell, "progress": advance,
        }  # fmt: skip
        if sampler is None:
            run = sample_to(network, seen.pixels, out, options, **shared)
        else:
            run = sample_function_to(sampler, seen.pixels, out, **_run_options(options, sampler, network), **shared)
    return Outcome({"run": str(out), "images": len(run), "bands": run.kinds}, (str(run),))


def _sampler(
    network: str, options: SampleOptions, problem: Path | None, method: str | None, sweeps: int | None
) -> Sampler | None:
    """A function, or a network that inverts a linear problem; None: a network that denoises, or predicts."""
    from ..samplers import LinearSampler, load_sampler

    guidance = {"--problem": problem, "--method": method, "--sweeps": sweeps}
    usual = {"--sigma0": options.sigma_0, "--compile": options.compile}
    wrong, why = guidance, "without --problem a network denoises"
    if is_function(network):
        chosen = {"--sampler": options.sampler, "--steps": options.steps}
        chosen |= {"--batch": options.batch, "--device": options.device}
        wrong, why = usual | chosen | guidance, "a function has settings of its own"
    elif problem is not None:
        wrong, why = usual, "with --problem the network is differentiated, and the file says what its noise is"
    given = [name for name, value in wrong.items() if value is not None]
    if given:
        raise typer.BadParameter(f"{why}; leave {', '.join(given)} out")
    if is_function(network):
        return load_sampler(network)
    if problem is None:
        return None
    from ..diffusion.inverse import Guidance
    from ..problems import read_problem

    settings: dict[str, Any] = {"method": method, "sweeps": sweeps, "sampler": options.sampler, "steps": options.steps}
    how = Guidance(**{name: value for name, value in settings.items() if value is not None})
    return LinearSampler(network, read_problem(problem), how, options.device, options.batch)


def _run_options(options: SampleOptions, sampler: Sampler, text: str) -> dict[str, Any]:
    """Options of a run that any sampler takes."""
    names = ("samples", "miscoverage", "held_out", "keep_samples", "seed", "repair")
    given = {name: getattr(options, name) for name in names}
    given["name"] = text if is_function(text) else None
    given["limits"] = options.limits or getattr(sampler, "limits", None)
    return {name: value for name, value in given.items() if value is not None}


def is_function(text: str) -> bool:
    """Whether the first word names a function, and no file.

    >>> is_function("mine.samplers:draw"), is_function("run/score.safetensors")
    (True, False)
    """
    return re.fullmatch(r"[\w.]+:[\w.]+", text) is not None and not Path(text).exists()


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
