"""The arguments and options that several commands share, each declared once; more are in `workflows/request.py`.

A command that takes `read: ReadOptions` has all options of that class; `Annotated[ReadOptions, ("window", "raw")]` has
those two alone, and the others keep their defaults. `command` turns the fields into options.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import typer

from ..workflows.request import ReadOptions, Request, one_of

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
_REQUEST = tuple(field.name for field in fields(Request))
ANYTIME_OPTIONS = tuple(name for name in _REQUEST if name not in ("bound", "n_fit"))
FEDERATED = tuple(name for name in _REQUEST if name not in ("family", "features", "labels"))

NO_HOLES = tuple(field.name for field in fields(ReadOptions) if field.name not in ("skip_bad", "fill_missing"))
