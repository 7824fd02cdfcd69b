"""`pixelbounds sample`: posterior samples, or what a network predicts; it goes on where a run stopped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .command import Outcome, command, progress, reading_of, tell
from .options import LargeOptions, ReadOptions

if TYPE_CHECKING:
    from ..formats.runs import Run
    from ..formats.scans import Images


@command("sample", stopped="finished images are kept; run the same command to go on")
def sample_command(
    network: Annotated[
        str, typer.Argument(help="A network that `pixelbounds train` saved, or package.module:function.")
    ],
    observations: Annotated[
        Path, typer.Argument(help="Observations: .npy, .npz, .zarr, pictures in a folder or zip, NIfTI, DICOM.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The zarr store to write, or to go on with.")],
    read: Annotated[ReadOptions, ("window", "raw")],
    large: Annotated[LargeOptions, ("scheduler",)],
    sigma0: float | None = typer.Option(None, "--sigma0", help="Noise deviation of the observations."),
    samples: int | None = typer.Option(None, help="Samples (or passes with dropout) per image; 79 unless told."),
    miscoverage: float | None = typer.Option(
        None, help="Share of future samples that a band may miss; 0.1 unless told."
    ),
    sampler: str | None = typer.Option(
        None, help="heun (unless told), reverse_sde, predictor_corrector or euler_maruyama."
    ),
    steps: int | None = typer.Option(None, help="Steps of the sampler; its own number unless told."),
    seed: int = typer.Option(0, help="With image and sample number, it determines every draw."),
    batch: int | None = typer.Option(None, help="Images in the network at a time; less needs less memory."),
    held_out: int | None = typer.Option(None, help="Further draws per image, kept to check coverage; 0 unless told."),
    keep_samples: bool | None = typer.Option(None, "--keep-samples", help="Keep all samples, in float16."),
    key: str | None = typer.Option(None, help="Name of the array inside an .npz or .zarr file."),
    images: str | None = typer.Option(None, help="A range of the observations, START:STOP; they keep their numbers."),
    limits: tuple[float, float] | None = typer.Option(
        None, help="Least and greatest pixel value, where the network's file tells none."
    ),
    device: str | None = typer.Option(None, help="cpu, cuda or cuda:1; a GPU if there is one."),
    compile_: bool = typer.Option(False, "--compile", help="Use torch.compile."),
    repair: bool = typer.Option(False, "--repair", help="Draw damaged images again."),
) -> Outcome:
    """Sample the posterior of observations into a zarr store of bands, or go on where a run stopped.

    A function of your own, (observation, samples, seed) -> (samples, *pixels), is named as package.module:function.

    Example: pixelbounds sample runs/ct/score.safetensors noisy.npy --out ct.zarr --sigma0 0.4
    """
    from ..formats.opener import open_images
    from ..workflows import SampleOptions, sample_to

    if is_function(network):
        own = {"sigma0": sigma0, "sampler": sampler, "steps": steps, "batch": batch, "device": device}
        own |= {"compile": compile_ or None}
        given = [f"--{name}" for name, value in own.items() if value is not None]
        if given:
            raise typer.BadParameter(f"a function has settings of its own; leave {', '.join(given)} out")
        told: dict[str, Any] = {
            "samples": samples,
            "miscoverage": miscoverage,
            "held_out": held_out,
            "keep_samples": keep_samples,
        }
        told |= {"limits": limits, "seed": seed, "repair": repair, "scheduler": large.scheduler}
        seen = open_images(observations, key=key, window=reading_of(read).mapping, clip=False, spectra=True)
        return _with_function(network, seen, out, images, {k: v for k, v in told.items() if v is not None})
    options = SampleOptions(
        sigma_0=sigma0, samples=samples, miscoverage=miscoverage, sampler=sampler, steps=steps, seed=seed,
        batch=batch, held_out=held_out, keep_samples=keep_samples, limits=limits, device=device,
        compile=compile_, repair=repair,
    )  # fmt: skip
    noisy = open_images(observations, key=key, window=reading_of(read).mapping, clip=False)
    with progress("sampling", of="images") as advance:
        run = sample_to(
            network,
            noisy.pixels,
            out,
            options,
            images=_range(images, len(noisy)),
            measure=noisy.measure,
            scheduler=large.scheduler,
            tell=tell,
            progress=advance,
        )
    return _outcome(run, out)


def is_function(text: str) -> bool:
    """Whether the first word names a function, and no file.

    >>> is_function("mine.samplers:draw"), is_function("run/score.safetensors")
    (True, False)
    """
    return re.fullmatch(r"[\w.]+:[\w.]+", text) is not None and not Path(text).exists()


def _with_function(text: str, seen: Images, out: Path, images: str | None, told: dict[str, Any]) -> Outcome:
    from ..samplers import load_sampler, sample_function_to

    sampler = load_sampler(text)
    with progress("sampling", of="images") as advance:
        run = sample_function_to(
            sampler,
            seen.pixels,
            out,
            name=text,
            images=_range(images, len(seen)),
            measure=seen.measure,
            tell=tell,
            progress=advance,
            **told,
        )
    return _outcome(run, out)


def _outcome(run: Run, out: Path) -> Outcome:
    return Outcome({"run": str(out), "images": len(run), "bands": run.kinds}, (str(run),))


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
