"""`pixelbounds calibrate`: truth and bands in, a calibration file out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ..calibration.text import promise_in_words
from ..calibration.words import level_in_words, plural
from .command import (
    Outcome,
    command,
    images_in_words,
    numbers,
    progress,
    reading_of,
    resources_of,
    sentence,
    skipped_in_words,
    written,
)
from .options import (
    BandPath,
    FailureProb,
    FamilyName,
    Features,
    FittingCount,
    Force,
    LargeOptions,
    Promises,
    ReadOptions,
    TestLabels,
    Truth,
    method_option,
    one_of,
    units_option,
)

if TYPE_CHECKING:
    from ..calibration.calibration import Calibration
    from ..workflows.calibrate import Calibrated

_BOUNDS = ("betting", "hoeffding_bentkus", "bentkus", "empirical_bernstein", "hoeffding", "conformal")


@command("calibrate")
def calibrate_command(
    truth: Truth,
    bands: BandPath,
    out: Annotated[Path, typer.Option(help="The calibration file, .safetensors.")],
    read: ReadOptions,
    large: LargeOptions,
    risk_level: Annotated[
        float | None, typer.Option(help="Share of the pixels of an image that may lie outside: --promise 'share ...'.")
    ] = None,
    promise: Promises = None,
    failure_prob: FailureProb = 0.1,
    force: Force = False,
    method: Annotated[
        str,
        method_option(
            help="frontier (shortest), krcps (the paper's), rcps.", autocompletion=one_of("frontier", "krcps", "rcps")
        ),
    ] = "frontier",
    confidence: Annotated[
        str,
        method_option(help=f"{', '.join(_BOUNDS)}.", autocompletion=one_of(*_BOUNDS)),
    ] = "betting",
    groups: Annotated[
        str | None, method_option(help="learned, band, loss, squared, otsu, or a file of one map for all.")
    ] = None,
    features: Features = None,
    labels: TestLabels = None,
    family: FamilyName = None,
    k: Annotated[int | None, method_option("--k", help="Number of groups.")] = None,
    n_opt: FittingCount = None,
    seed: Annotated[int, method_option(help="Of the split and of all fitting.")] = 0,
    unit_name: Annotated[str | None, units_option(help="What a unit is, in the singular, such as patient.")] = None,
    weighting: Annotated[str, units_option(help="What counts the same on average: units, or images.")] = "units",
    max_images: Annotated[
        int | None, units_option(help="Images that a unit counts for at most, with --weighting images.")
    ] = None,
    bands_out: Annotated[
        Path | None, typer.Option(help="Keep the bands of samples in this .zarr; an unfinished one is gone on with.")
    ] = None,
) -> Outcome:
    """Choose intervals that keep a promise on future images, and write them as a calibration file.

    Example: pixelbounds calibrate truth.npy samples.zarr --risk-level 0.1 --failure-prob 0.1 --out cal.safetensors

    Example: pixelbounds calibrate truth.npy bands.zarr --promise "share:0.05" --promise "share:0.1,within=heart.npy,name=heart" --out cal.safetensors
    """
    from ..workflows.calibrate import calibrate_files

    with progress("calibrating") as advance:
        made = calibrate_files(
            truth, bands, out, risk_level=risk_level, promises=promise or (), failure_prob=failure_prob,
            method=method, bound=confidence, groups=groups, features=features, labels=labels, family=family,
            k=k, n_fit=n_opt, seed=seed, replace=force, progress=advance, reading=reading_of(read, large),
            bands_out=bands_out, resources=resources_of(large), unit_name=unit_name,
            weighting=weighting, max_images=max_images,
        )  # fmt: skip
    found = made.calibration
    skipped = found.record.settings.get("skipped", ())
    facts = {**_facts(found), "lengths": vars(made.lengths), "file": str(out), "skipped": skipped}
    facts["seconds"] = made.seconds
    also = " --labels NEW_LABELS" if labels is not None else ""
    also += " --features NEW_FEATURES" if features is not None else ""
    kept = () if bands_out is None else (bands_out,)
    rows = {
        **_rows(found),
        "mean length": _lengths(made),
        "cost": _cost(made),
        "written": written(out, *kept),
        **skipped_in_words(skipped),
        "next": f"pixelbounds apply {out} NEW_BANDS{also} {_next(found)}",
    }
    return Outcome(facts, (sentence(found.guarantee), *_promises(found), numbers(rows)))


def _next(found: Calibration) -> str:
    """Where intervals are likely to go: beside the scan, where values are those of scans."""
    return "--out intervals.zarr" if found.measure is None else "--like NEW_SCAN --out maps"


def _cost(made: Calibrated) -> str:
    """Images and time that the promise took: what certifies could not fit, and the other way round."""
    record = made.calibration.record
    who = f"{record.certifying} {plural(record.unit_name)}" if record.units else images_in_words(record.certifying)
    fitted = images_in_words(record.fitting) if record.fitting else "no image"
    return f"{made.seconds:.3g} s; of {images_in_words(record.images)} {fitted} fitted, {who} certified"


def _rows(found: Calibration) -> dict[str, str]:
    record, groups = found.record, found.grouping
    who = f"{record.certifying} {plural(record.unit_name) if record.units else 'images'}"
    grouped = f"{groups.count} {groups.kind} group{'s' * (groups.count > 1)}"
    fitted = f" fitted on {images_in_words(record.fitting)}" if record.fitting else ""
    certified = {
        "certified": f"at most {level_in_words(found.risk_level)}; {found.risk:.2%} seen on {who} that certified",
    }
    tried = record.settings.get("bands", {})
    chosen = {}
    if tried:
        lengths = ", ".join(f"{length:.4f} at {name}" for name, length in tried.items())
        chosen["miscoverage"] = f"{record.settings['band']}, chosen on the fitting images by length: {lengths}"
    return {
        **({} if not found.of_all_pixels else certified),
        **({"note": found.note} if found.note else {}),
        **chosen,
        "method": f"{found.method}, {grouped}{fitted}",
    }


def _promises(found: Calibration) -> tuple[Table, ...]:
    """A table of promises, where there are more than one level: what was asked, what was seen, and by how many."""
    if found.of_all_pixels:
        return ()
    record = found.record
    table = Table(box=None, padding=(0, 2), header_style="dim")
    table.add_column("promise")
    for heading in ("level", "seen", f"{plural(record.unit_name) if record.units else 'images'} that certified"):
        table.add_column(heading, justify="right")
    for promise in found.promises:
        words = promise_in_words(promise)
        table.add_row(words, level_in_words(promise.at_most), f"{promise.risk:.2%}", str(promise.certifying))
    return (table,)


def _lengths(made: Calibrated) -> str:
    """Before and after, on some of the images: what was seen, not what is promised."""
    lengths, images = made.lengths, made.calibration.record.images
    on = "the calibration images" if lengths.images == images else f"{lengths.images} of the calibration images"
    return f"{lengths.band:.4f} of the bands, {lengths.interval:.4f} of the intervals, as seen on {on}: no promise"


def _facts(calibration: Calibration) -> dict[str, Any]:
    names = "guarantee", "note", "method", "bound", "risk_level", "failure_prob", "risk"
    groups = {"kind": calibration.grouping.kind, "count": calibration.grouping.count}
    measure = calibration.measure
    return {name: getattr(calibration, name) for name in names} | {
        "groups": groups,
        "promises": [promise.state() for promise in calibration.promises],
        "measure": None if measure is None else measure.state(),
        "record": calibration.record.state(),
    }
