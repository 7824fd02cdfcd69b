"""`pixelbounds sample`: posterior samples, or what a network predicts; it goes on where a run stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .command import Outcome, command, progress, reading_of, tell
from .options import LargeOptions, ReadOptions


@command("sample", stopped="finished images are kept; run the same command to go on")
def sample_command(
    network: Annotated[Path, typer.Argument(help="A network that `pixelbounds train` saved.")],
    observations: Annotated[
        Path, typer.Argument(help="Noisy images: .npy, .npz, .zarr, pictures in a folder or zip, NIfTI, DICOM.")
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
    """Sample the posterior of noisy images into a zarr store of bands, or go on where a run stopped.

    Example: pixelbounds sample runs/ct/score.safetensors noisy.npy --out ct.zarr --sigma0 0.4
    """
    from ..formats.opener import open_images
    from ..workflows import SampleOptions, sample_to

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
