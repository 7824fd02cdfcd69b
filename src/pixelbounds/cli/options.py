"""The arguments and options that the commands on files share, and the words for a size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..formats.stores import Reading
    from ..workflows.calibrate import Resources

READ, METHOD, LARGE = "How files are read", "Method", "Large data"
_BANDS = (
    "A run of `pixelbounds sample`; lower and upper in a .zarr, .npz or folder; or samples (n, m, *pixels) in .npy, "
    ".zarr or .npz."
)

Truth = Annotated[
    Path,
    typer.Argument(metavar="TRUTH", help="True images: .npy, .npz, .zarr, pictures in a folder or zip, NIfTI, DICOM."),
]
BandPath = Annotated[Path, typer.Argument(metavar="BANDS", help=_BANDS)]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Units = Annotated[
    str | None,
    typer.Option(
        help="Patient or scan of each image: a text file with a line each, or .npy; `each`: images are independent.",
        rich_help_panel=READ,
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(help="Band of a run: calibrated, naive, mean, regressor, dropout, conffusion.", rich_help_panel=READ),
]
Key = Annotated[str | None, typer.Option(help="Name of the samples in an .npz or .zarr.", rich_help_panel=READ)]
TruthKey = Annotated[str | None, typer.Option(help="Name of the truth in an .npz or .zarr.", rich_help_panel=READ)]
Window = Annotated[
    tuple[float, float],
    typer.Option(metavar="WIDTH LEVEL", help="Of NIfTI and DICOM values, mapped to [0, 1].", rich_help_panel=READ),
]
Raw = Annotated[bool, typer.Option("--raw", help="Leave NIfTI and DICOM values as they are.", rich_help_panel=READ)]
Limits = Annotated[
    tuple[float, float] | None,
    typer.Option(
        metavar="LEAST MOST", help="Possible values, 0 1 unless told; 8-bit images span them.", rich_help_panel=READ
    ),
]
Miscoverage = Annotated[
    float | None, typer.Option(help="Share of future samples that the band of samples may miss.", rich_help_panel=READ)
]
Features = Annotated[
    Path | None, typer.Option(help="Further images known at test time, for learned groups.", rich_help_panel=METHOD)
]
CalibrationOption = Annotated[
    Path | None, typer.Option("--calibration", help="Turns bands into intervals; without it INTERVALS are read.")
]

Scheduler = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Of a Dask scheduler, such as tcp://host:8786.", rich_help_panel=LARGE),
]
Memory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="For data at a time, such as 4G; a quarter of RAM.", rich_help_panel=LARGE),
]
Scratch = Annotated[
    Path | None, typer.Option(help="Folder for temporary stores; workers must see it.", rich_help_panel=LARGE)
]
SkipBad = Annotated[
    bool,
    typer.Option("--skip-bad", help="Leave out images in missing or damaged chunks.", rich_help_panel=LARGE),
]
FillMissing = Annotated[
    bool,
    typer.Option("--fill-missing", help="Chunks that are not there hold the fill value.", rich_help_panel=LARGE),
]

ABDOMEN = 400.0, 40.0


def reading_of(*, window: tuple[float, float], raw: bool, **said: Any) -> Reading:
    """How files are read, as the options say."""
    from ..formats.stores import Reading

    return Reading(window=None if raw else window, **said)


def resources_of(scheduler: str | None, memory: str | None, scratch: Path | None) -> Resources:
    """Where the work is done, as the options say."""
    from ..workflows.calibrate import Resources

    return Resources(scheduler=scheduler, memory=memory, scratch=scratch)


def size_of(path: Path) -> str:
    """Bytes of a file or of all files in a folder, in words."""
    files = [path] if path.is_file() else [x for x in path.rglob("*") if x.is_file()]
    size = float(sum(x.stat().st_size for x in files))
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "bytes" else f"{size:.0f} bytes"
        size /= 1000
    return f"{size:.3g} GB"
