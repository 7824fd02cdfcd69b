"""The arguments and options that several commands share, each declared once.

A command that takes `read: ReadOptions` has all options of that class; `Annotated[ReadOptions, ("window", "raw")]` has
those two alone, and the others keep their defaults. `command` turns the fields into options.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

READ, METHOD, LARGE = "How files are read", "Method", "Large data"
_BANDS = (
    "A run of `pixelbounds sample`; lower and upper in a .zarr, .npz or folder; or samples (n, m, *pixels) in .npy, "
    ".zarr or .npz."
)


@dataclass(frozen=True)
class ReadOptions:
    """How files are read; `Reading` has the same names, apart from raw."""

    miscoverage: Annotated[
        float | None,
        typer.Option(help="Share of future samples that the band of samples may miss.", rich_help_panel=READ),
    ] = None
    units: Annotated[
        str | None,
        typer.Option(
            help="Patient or scan of each image: a text file with a line each, or .npy; `each`: images are "
            "independent.",
            rich_help_panel=READ,
        ),
    ] = None
    kind: Annotated[
        str | None,
        typer.Option(
            help="Band of a run: calibrated, naive, mean, regressor, dropout, conffusion.", rich_help_panel=READ
        ),
    ] = None
    key: Annotated[str | None, typer.Option(help="Name of the samples in an .npz or .zarr.", rich_help_panel=READ)] = (
        None
    )
    truth_key: Annotated[
        str | None, typer.Option(help="Name of the truth in an .npz or .zarr.", rich_help_panel=READ)
    ] = None
    window: Annotated[
        tuple[float, float],
        typer.Option(metavar="WIDTH LEVEL", help="Of NIfTI and DICOM values, mapped to [0, 1].", rich_help_panel=READ),
    ] = (400.0, 40.0)
    raw: Annotated[
        bool, typer.Option("--raw", help="Leave NIfTI and DICOM values as they are.", rich_help_panel=READ)
    ] = False
    limits: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LEAST MOST",
            help="Possible values, 0 1 unless told; 8-bit images span them.",
            rich_help_panel=READ,
        ),
    ] = None


@dataclass(frozen=True)
class LargeOptions:
    """Where the work is done, and what becomes of stores with holes."""

    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Of a Dask scheduler, such as tcp://host:8786.", rich_help_panel=LARGE),
    ] = None
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="For data at a time, such as 4G; a quarter of RAM.", rich_help_panel=LARGE),
    ] = None
    scratch: Annotated[
        Path | None, typer.Option(help="Folder for temporary stores; workers must see it.", rich_help_panel=LARGE)
    ] = None
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Leave out images in missing or damaged chunks.", rich_help_panel=LARGE),
    ] = False
    fill_missing: Annotated[
        bool,
        typer.Option("--fill-missing", help="Chunks that are not there hold the fill value.", rich_help_panel=LARGE),
    ] = False


WHERE = ("scheduler", "memory", "scratch")  # of the options of large data


# ---------------------------------------------------------------- single ones

Truth = Annotated[
    Path,
    typer.Argument(metavar="TRUTH", help="True images: .npy, .npz, .zarr, pictures in a folder or zip, NIfTI, DICOM."),
]
BandPath = Annotated[Path, typer.Argument(metavar="BANDS", help=_BANDS)]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
RiskLevel = Annotated[float, typer.Option(help="Share of the pixels of an image that may lie outside.")]
FailureProb = Annotated[float, typer.Option(help="Share of calibrations that may be unlucky.")]
FamilyName = Annotated[str | None, typer.Option(help="additive, scaled or multiplicative.", rich_help_panel=METHOD)]
FittingCount = Annotated[
    int | None, typer.Option(help="Images (units) that fit; the rest certify.", rich_help_panel=METHOD)
]
Features = Annotated[
    Path | None, typer.Option(help="Further images known at test time, for learned groups.", rich_help_panel=METHOD)
]
Organs = Annotated[Path | None, typer.Option(help="Labels (organs) by which the risk is broken down.")]
