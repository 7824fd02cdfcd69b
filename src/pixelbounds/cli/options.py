"""The arguments and options that several commands share, each declared once.

A command that takes `read: ReadOptions` has all options of that class; `Annotated[ReadOptions, ("window", "raw")]` has
those two alone, and the others keep their defaults. `command` turns the fields into options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

method_option = partial(typer.Option, rich_help_panel="Method")
units_option = partial(typer.Option, rich_help_panel="Units: what is independent")
_read = partial(typer.Option, rich_help_panel="How files are read")
_large = partial(typer.Option, rich_help_panel="Large data")


def one_of(*names: str) -> Callable[[str], list[str]]:
    """What completes a word to one of some names."""

    def completed(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return completed


_TRUTH = "True images: .npy, .npz, .zarr, pictures in a folder or zip, NIfTI, DICOM."
_BANDS = (
    "A run of `pixelbounds sample`; lower and upper in a .zarr, .npz or folder; or samples (n, m, *pixels) in .npy, "
    ".zarr or .npz."
)
_UNITS = "Patient or scan of each image: a text file with a line each, or .npy; `each`: images are independent."
_KINDS = ("calibrated", "naive", "mean", "regressor", "dropout", "conffusion")
_KIND = "Band of a run: calibrated, naive, mean, regressor, dropout, conffusion."
_WINDOW = "Of NIfTI and DICOM values, mapped to [0, 1]; that of the run or calibration, else 400 40."
_MISCOVERAGE = (
    "Share of future samples that the band of samples may miss; `calibrate` takes several, 0.05,0.1,0.2, of which the "
    "fitting images choose."
)
_LIMITS = "Possible values, 0 1 unless told; 8-bit images span them."


@dataclass(frozen=True)
class ReadOptions:
    """How files are read; `Reading` has the same names."""

    miscoverage: Annotated[str | None, _read(metavar="SHARE", help=_MISCOVERAGE)] = None
    units: Annotated[str | None, _read(help=_UNITS)] = None
    kind: Annotated[str | None, _read(help=_KIND, autocompletion=one_of(*_KINDS))] = None
    key: Annotated[str | None, _read(help="Name of the samples in an .npz or .zarr.")] = None
    truth_key: Annotated[str | None, _read(help="Name of the truth in an .npz or .zarr.")] = None
    window: Annotated[tuple[float, float] | None, _read(metavar="WIDTH LEVEL", help=_WINDOW)] = None
    raw: Annotated[bool, _read("--raw", help="Leave NIfTI and DICOM values as they are.")] = False
    limits: Annotated[tuple[float, float] | None, _read(metavar="LEAST MOST", help=_LIMITS)] = None


@dataclass(frozen=True)
class LargeOptions:
    """Where the work is done (`WHERE`), and what becomes of stores with holes."""

    scheduler: Annotated[
        str | None, _large(metavar="ADDRESS", help="Of a Dask scheduler, such as tcp://host:8786.")
    ] = None
    memory: Annotated[str | None, _large(metavar="SIZE", help="For data at a time, such as 4G; a quarter of RAM.")] = (
        None
    )
    scratch: Annotated[Path | None, _large(help="Folder for temporary stores; workers must see it.")] = None
    skip_bad: Annotated[bool, _large("--skip-bad", help="Leave out images in missing or damaged chunks.")] = False
    fill_missing: Annotated[bool, _large("--fill-missing", help="Chunks that are not there hold the fill value.")] = (
        False
    )


WHERE = ("scheduler", "memory", "scratch")


# ---------------------------------------------------------------- single ones

Truth = Annotated[Path, typer.Argument(metavar="TRUTH", help=_TRUTH)]
BandPath = Annotated[Path, typer.Argument(metavar="BANDS", help=_BANDS)]
Identifiers = Annotated[
    str,
    typer.Option(
        metavar="drop|keep",
        help="What the files say of patients, and names of files, in what is written.",
        autocompletion=one_of("drop", "keep"),
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
RiskLevel = Annotated[float, typer.Option(help="Share of the pixels of an image that may lie outside.")]
Promises = Annotated[
    list[str] | None,
    typer.Option(
        "--promise",
        metavar="WORDS",
        help="What must hold, several times: 'share:0.05', 'share:0.10,within=labels.nii.gz:2,name=heart', "
        "'tail:0.05,above=0.10', also 'within body', 'within edges 0.05', 'cap 0.25', 'counting pixels'; or a .toml "
        "file of them.",
    ),
]
FailureProb = Annotated[float, typer.Option(help="Share of calibrations that may be unlucky.")]
FamilyName = Annotated[
    str | None,
    method_option(
        help="additive, scaled or multiplicative.", autocompletion=one_of("additive", "scaled", "multiplicative")
    ),
]
FittingCount = Annotated[int | None, method_option(help="Images (units) that fit; the rest certify.")]
Features = Annotated[Path | None, method_option(help="Further images known at test time, for learned groups.")]
TestLabels = Annotated[
    Path | None, method_option("--labels", help="Labels known at test time: whole numbers, one per image and pixel.")
]
Structures = Annotated[
    Path | None,
    typer.Option("--structures", help="Label map (also DICOM SEG) of these images: a row of --table for each label."),
]
TablePath = Annotated[
    Path | None, typer.Option("--table", help="structures.csv: length, misses and promise of each structure.")
]
Organs = Annotated[Path | None, typer.Option(help="Labels (organs) by which the risk is broken down.")]
