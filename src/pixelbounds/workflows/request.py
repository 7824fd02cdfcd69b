"""What is asked of a calibration and of an evaluation on files, a frozen object each.

The command line reads its options off these classes: a field is declared, explained and given its default once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..execution.runner import Progress, bar, silent

if TYPE_CHECKING:
    from ..formats.arrays import Reading
    from .promise_words import PromiseText

method_option = partial(typer.Option, rich_help_panel="Method")
units_option = partial(typer.Option, rich_help_panel="Units: what is independent")
_read = partial(typer.Option, rich_help_panel="How files are read")
_large = partial(typer.Option, rich_help_panel="Large data")
_how = partial(typer.Option, rich_help_panel="Sampler")
kept_option = partial(typer.Option, rich_help_panel="What is drawn and kept")

_BOUNDS = ("betting", "hoeffding_bentkus", "bentkus", "empirical_bernstein", "hoeffding", "conformal")
_METHODS = ("frontier", "krcps", "rcps")
_KINDS = ("calibrated", "naive", "mean", "regressor", "dropout", "conffusion", "segmentation")
_FAMILIES = ("additive", "scaled", "multiplicative")


def one_of(*names: str) -> Callable[[str], list[str]]:
    """What completes a word to one of some names."""

    def completed(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return completed


Truth = Annotated[
    Path,
    typer.Argument(metavar="TRUTH", help="True images: .npy, .npz, .zarr, pictures in a folder or zip, NIfTI, DICOM."),
]
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
Promises = Annotated[
    list[str] | None,
    typer.Option(
        "--promise",
        "--promises",
        metavar="TEXT|FILE.toml",
        help="A promise, repeatable: share:0.05; share:0.10,within=labels.nii.gz:2,name=heart; "
        "tail:0.05,above=0.10; also within=body, edges:0.05, organ or background, dilated=3, cap=0.25, "
        "weighting=pixels. Or a TOML file of tables.",
    ),
]
FailureProb = Annotated[
    float, typer.Option(help="Failure probability (delta): how often the guarantee may fail, over calibration sets.")
]
Regions = Annotated[
    list[str] | None,
    typer.Option(
        "--region",
        metavar="TEXT",
        help="Region of a promise on these images, repeatable: labels.nii.gz:2,name=heart; "
        "women.npy,name=women; body; edges:0.05.",
    ),
]
Features = Annotated[Path | None, method_option(help="Further images known at test time, for learned groups.")]
TestLabels = Annotated[
    Path | None, method_option("--labels", help="Labels known at test time: whole numbers, one per image and pixel.")
]


def _texts_of(promises: list[str] | None) -> tuple[PromiseText, ...]:
    if not promises:
        return ()
    from .promise_words import promise_texts

    return promise_texts(promises)


@dataclass(frozen=True)
class Request:
    """Promises, method and units of a calibration on files; names are those of `pixelbounds.calibrate`."""

    risk_level: Annotated[
        float | None,
        typer.Option(help="Risk level (epsilon): the share of pixels that may lie outside, on average. Or --promise."),
    ] = None
    promises: Promises = None
    failure_prob: FailureProb = 0.1
    method: Annotated[
        str,
        method_option(help="frontier (shortest), krcps (the paper's) or rcps.", autocompletion=one_of(*_METHODS)),
    ] = "frontier"
    bound: Annotated[
        str, method_option(help=f"Confidence bound: {', '.join(_BOUNDS)}.", autocompletion=one_of(*_BOUNDS))
    ] = "betting"
    groups: Annotated[
        str | None, method_option(help="Groups: learned, band, loss, otsu, or a file of one map for all.")
    ] = None
    k: Annotated[int | None, method_option("--k", help="Number of groups.")] = None
    n_fit: Annotated[
        int | None, method_option("--n-fit", help="Number of images (units) that fit; the others certify.")
    ] = None
    family: Annotated[
        str | None, method_option(help="Widening: additive, scaled, multiplicative.", autocompletion=one_of(*_FAMILIES))
    ] = None
    features: Features = None
    labels: TestLabels = None
    seed: Annotated[int, method_option(help="Seed for the split and for fitting. Results are reproducible.")] = 0
    unit_name: Annotated[
        str | None, units_option(help="With --units: what a unit is, in the singular, such as patient.")
    ] = None
    weighting: Annotated[str, units_option(help="What counts the same on average: units or images.")] = "units"
    max_images: Annotated[
        int | None, units_option(help="With --weighting images: for how many images a unit counts at most.")
    ] = None

    @cached_property
    def texts(self) -> tuple[PromiseText, ...]:
        """The promises; none where a risk level says it."""
        if (self.risk_level is None) == (not self.promises):
            raise ValueError("give --risk-level, the share of all pixels that may be missed, such as 0.1, or --promise")
        return _texts_of(self.promises)

    @property
    def files(self) -> tuple[Path | str | None, ...]:
        """The files that it names."""
        return (self.groups, self.features, self.labels, *(one.path for one in self.texts))


@dataclass(frozen=True)
class SiteOptions:
    """Truth and bands of a site of a federated study, its regions in words, and what it keeps to itself."""

    truth: Truth
    bands: BandPath
    site: Annotated[str, typer.Option(help="Name by which the others know this site.")]
    region: Regions = None
    least_count: Annotated[int, typer.Option(help="Do not report counts of fewer pixels; see docs/federated.md.")] = 1


@dataclass(frozen=True)
class ArrivalOptions:
    """What is known of images that arrive, beside truth and bands; regions are those of promises, on these images."""

    regions: Regions = None
    features: Features = None
    labels: TestLabels = None
    batch: Annotated[str | None, typer.Option(help="A name of these images, such as a date: it counts once.")] = None


@dataclass(frozen=True, kw_only=True)
class ApplyOptions:
    """What is known of new images beside their bands, and what is written beside their intervals."""

    like: Annotated[
        Path | None,
        typer.Option("--like", "--from", help="NIfTI, DICOM or address of a series: the geometry of the intervals."),
    ] = None
    trust: Annotated[
        Path | None, typer.Option(help="A file of pb.trust: also write its mask, which has a promise.")
    ] = None
    parametric: Annotated[
        bool, typer.Option("--parametric", help="DICOM: also Parametric Maps (float, HU), and masks as SEG.")
    ] = False
    report: Annotated[
        bool, typer.Option("--report", help="DICOM: also a structured report (SR, TID 1500) of each scan.")
    ] = False
    structures: Annotated[
        Path | None, typer.Option(help="A label map or SEG of these images, whose structures are reported, too.")
    ] = None
    send: Annotated[
        str | None, typer.Option(metavar="URL", help="DICOM: also store it in an archive, https://HOST/dicom-web.")
    ] = None
    identifiers: Identifiers = "pseudonym"
    features: Features = None
    labels: TestLabels = None


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """How to sample; None takes what the network's file or the sampler says, else the default that stands here."""

    sigma_0: Annotated[float | None, typer.Option("--sigma0", help="Noise deviation of the observations.")] = None
    samples: Annotated[int | None, typer.Option(help="Samples (or passes) per image; 79 by default.")] = None
    miscoverage: Annotated[
        float | None, typer.Option(help="Share of future samples that a band may miss; 0.1 by default.")
    ] = None
    sampler: Annotated[str | None, _how(help="heun (default), reverse_sde or euler_maruyama.")] = None
    steps: Annotated[int | None, _how(help="Steps of the sampler; by default its own number.")] = None
    seed: Annotated[int, _how(help="Seed: with the numbers of image and sample it determines every draw.")] = 0
    batch: Annotated[int | None, _how(help="Images in the network at a time; fewer need less memory.")] = None
    device: Annotated[str | None, _how(help="cpu, cuda or cuda:1; a GPU if there is one.")] = None
    compile: Annotated[
        bool | None, _how("--compile/--no-compile", help="Use torch.compile; by default where it pays: on a GPU.")
    ] = None
    held_out: Annotated[int | None, kept_option(help="Further draws per image to check coverage; 0 by default.")] = None
    keep_samples: Annotated[bool | None, kept_option("--keep-samples", help="Keep all samples, in float16.")] = None
    repair: Annotated[bool, kept_option("--repair", help="Draw damaged images again.")] = False
    limits: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="Possible values, where the network's file has none."),
    ] = None


@dataclass(frozen=True)
class HeldOutFiles:
    """Files of images that judge, and what is asked of them; promises are those that were certified, in order."""

    truth: Truth
    intervals: Annotated[
        Path, typer.Argument(metavar="INTERVALS", help="What `pixelbounds apply` wrote; with --calibration: bands.")
    ]
    calibration: Annotated[
        Path | None, typer.Option(help="What `pixelbounds calibrate` wrote: it turns bands into intervals.")
    ] = None
    promises: Promises = None
    groups: Annotated[Path | None, typer.Option(help="Labels (organs): show the risk of each.")] = None
    features: Features = None
    labels: TestLabels = None
    structures: Annotated[
        Path | None, typer.Option(help="Label map (also DICOM SEG) of these images: a row of --table for each label.")
    ] = None
    table: Annotated[
        Path | None, typer.Option(help="structures.csv: length, misses and promise of each structure.")
    ] = None

    @cached_property
    def texts(self) -> tuple[PromiseText, ...]:
        """The promises."""
        return _texts_of(self.promises)

    @property
    def reads(self) -> tuple[Path | None, ...]:
        """The files that are read."""
        files = self.truth, self.intervals, self.calibration, self.groups, self.features, self.labels, self.structures
        return (*files, *(one.path for one in self.texts))

    def check_table(self, *, replace: bool) -> Path | None:
        """Where the table of structures goes, before any work is done; None where none is asked for."""
        from ..formats.opener import check_target

        if self.table is None:
            if self.structures is not None:
                raise ValueError("--structures are rows of a table; give its file, such as --table structures.csv")
            return None
        return check_target(self.table, (".csv",), replace=replace, inputs=self.reads)


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What a page shows beside the numbers."""

    trust: Annotated[
        Path | None, typer.Option(help="A file of pb.trust: the viewer can outline its mask.", rich_help_panel="Output")
    ] = None
    title: Annotated[str, typer.Option(help="The heading of the page.")] = "Guaranteed error bars"
    examples: Annotated[int, typer.Option(min=1, help="Number of images, from the best covered to the worst.")] = 12
    note: Annotated[list[str] | None, typer.Option(help="A paragraph for the page; repeatable.")] = None
    identifiers: Identifiers = "drop"


@dataclass(frozen=True)
class ReadOptions:
    """How files are read; `Reading` has the same names."""

    units: Annotated[
        str | None,
        units_option(help="Patient or scan of each image: a text file with a line each, or .npy; `each`: independent."),
    ] = None
    miscoverage: Annotated[
        str | None,
        _read(
            metavar="SHARE",
            help="Share of future samples that the band of samples may miss, 0.1 by default; `calibrate` takes several "
            "(0.05,0.1,0.2), and the fitting images choose one.",
        ),
    ] = None
    kind: Annotated[
        str | None, _read(help=f"Band: {', '.join(_KINDS)} (probabilities of a mask).", autocompletion=one_of(*_KINDS))
    ] = None
    key: Annotated[str | None, _read(help="Name of the samples in an .npz or .zarr.")] = None
    truth_key: Annotated[str | None, _read(help="Name of the truth in an .npz or .zarr.")] = None
    window: Annotated[
        tuple[float, float] | None,
        _read(
            metavar="WIDTH LEVEL",
            help="Window of NIfTI and DICOM values, mapped to [0, 1]; by default that of the run or calibration, or "
            "for CT 400 40.",
        ),
    ] = None
    raw: Annotated[bool, _read("--raw", help="Leave NIfTI and DICOM values as they are.")] = False
    limits: Annotated[
        tuple[float, float] | None,
        _read(metavar="LOW HIGH", help="Least and greatest possible value, 0 1 by default; 8-bit images span them."),
    ] = None

    skip_bad: Annotated[bool, _large("--skip-bad", help="Leave out images in missing or damaged chunks.")] = False
    fill_missing: Annotated[bool, _large("--fill-missing", help="Read missing chunks as the fill value.")] = False

    def reading(self) -> Reading:
        """The same for those who read."""
        from ..formats.arrays import Reading

        return Reading(**{**vars(self), "miscoverage": _shares(self.miscoverage)})


_REQUEST = tuple(field.name for field in fields(Request))
ANYTIME_OPTIONS = tuple(name for name in _REQUEST if name not in ("bound", "n_fit"))
FEDERATED = tuple(name for name in _REQUEST if name not in ("family", "features", "labels"))

NO_HOLES = tuple(field.name for field in fields(ReadOptions) if field.name not in ("skip_bad", "fill_missing"))


def _shares(text: Any) -> float | tuple[float, ...] | None:
    if text is None:
        return None
    try:
        shares = tuple(float(part) for part in str(text).split(","))
    except ValueError as error:
        raise ValueError(
            f"--miscoverage is {text!r}; give a share such as 0.1, or several with commas, such as 0.05,0.1,0.2"
        ) from error
    return shares if len(shares) > 1 else shares[0]


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The options of `pixelbounds.execution.running`, which explains them; a scheduler may also be a client."""

    scheduler: Annotated[str | None, _large(metavar="ADDRESS", help="Dask scheduler, such as tcp://host:8786.")] = None
    memory: Annotated[
        str | None, _large(metavar="SIZE", help="Memory for data, such as 4G; by default a quarter of RAM.")
    ] = None
    threads: int | None = None
    scratch: Annotated[Path | None, _large(help="Folder for temporary stores; workers must see it.")] = None
    progress: Progress = silent

    @contextmanager
    def reporting(self, what: str) -> Iterator[Resources]:
        """The same, with a bar on a terminal."""
        with bar(what) as advance:
            yield replace(self, progress=advance)
