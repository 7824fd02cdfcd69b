"""The arguments and options that several commands share, each declared once; more are in `workflows/request.py`.

A command that takes `read: ReadOptions` has all options of that class; `Annotated[ReadOptions, ("window", "raw")]` has
those two alone, and the others keep their defaults. `command` turns the fields into options.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..workflows.request import Features, ReadOptions, Request, TestLabels, one_of

if TYPE_CHECKING:
    pass


# ---------------------------------------------------------------- single ones

BandPath = Annotated[
    Path,
    typer.Argument(
        metavar="BANDS",
        help="A run of `pixelbounds sample`; lower and upper in a .zarr, .npz or folder; or samples (n, m, *pixels) in "
        ".npy, .zarr or .npz.",
    ),
]
Identifiers = Annotated[
    str,
    typer.Option(
        metavar="pseudonym|keep|drop",
        help="Names of patients and files in what is written.",
        autocompletion=one_of("pseudonym", "keep", "drop"),
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
Regions = Annotated[
    list[str] | None,
    typer.Option(
        "--region",
        metavar="TEXT",
        help="Region of a promise on these images, may be given several times: labels.nii.gz:2,name=heart; "
        "women.npy,name=women; body; edges:0.05.",
    ),
]


# ---------------------------------------------------------------- groups

_REQUEST = tuple(field.name for field in fields(Request))
ANYTIME_OPTIONS = tuple(name for name in _REQUEST if name not in ("bound", "n_fit"))
FEDERATED = tuple(name for name in _REQUEST if name not in ("family", "features", "labels"))


@dataclass(frozen=True)
class ArrivalOptions:
    """What is known of images that arrive; functions of `workflows` have the same names."""

    regions: Regions = None
    features: Features = None
    labels: TestLabels = None
    batch: Annotated[
        str | None, typer.Option(help="A name of these images, such as a date; they count once under it.")
    ] = None


NO_HOLES = tuple(field.name for field in fields(ReadOptions) if field.name not in ("skip_bad", "fill_missing"))
