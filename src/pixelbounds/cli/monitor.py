"""`pixelbounds monitor update | drift | status | page | pool`: is the promise still kept?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from .command import ALARM, OK, Outcome, command, numbers, progress, reading_of, resources_of, sentence, written
from .options import WHERE, BandPath, Features, Force, LargeOptions, ReadOptions, TestLabels, Truth

if TYPE_CHECKING:
    from ..monitoring import Status

_State = Annotated[Path, typer.Argument(metavar="STATE", help="The monitor's file, .safetensors; made where missing.")]
_Calibration = Annotated[Path | None, typer.Option(help="The calibration to watch; needed to begin a STATE.")]
_FalseAlarm = Annotated[
    float | None, typer.Option(help="Chance of ever raising a false alarm; 0.01, settled when a STATE begins.")
]
_Regions = Annotated[
    list[str] | None,
    typer.Option("--region", metavar="TEXT", help="Of a promise, on these images: labels.nii.gz:2,name=heart."),
]
_KEPT = "the state is as it was: run the same command again"


@command("update", stopped=_KEPT)
def update_command(
    state: _State,
    truth: Truth,
    bands: BandPath,
    read: ReadOptions,
    large: Annotated[LargeOptions, WHERE],
    calibration: _Calibration = None,
    false_alarm: _FalseAlarm = None,
    region: _Regions = None,
    features: Features = None,
    labels: TestLabels = None,
) -> Outcome:
    """Count images whose truth is known now; those that were counted before are left out.

    Exit code 5: there was an alarm, now or earlier.

    Example: pixelbounds monitor update ct.monitor.safetensors truth.npy new.zarr --calibration cal.safetensors
    """
    from ..workflows.monitor import update_state

    with progress("weighting") as advance:
        status = update_state(
            state, truth, bands, calibration=calibration, false_alarm=false_alarm, regions=region or (),
            features=features, labels=labels, reading=reading_of(read), resources=resources_of(large), progress=advance,
        )  # fmt: skip
    return said(status, state)


@command("drift", stopped=_KEPT)
def drift_command(
    state: _State,
    bands: BandPath,
    read: ReadOptions,
    large: Annotated[LargeOptions, WHERE],
    calibration: _Calibration = None,
    false_alarm: _FalseAlarm = None,
    features: Features = None,
    labels: TestLabels = None,
) -> Outcome:
    """Hold bands without truth against those of the calibration: do they come from the same source?

    It tells nothing about risk. Exit code 5: there was an alarm, now or earlier.

    Example: pixelbounds monitor drift ct.monitor.safetensors new.zarr
    """
    from ..workflows.monitor import look_state

    with progress("looking") as advance:
        status = look_state(
            state, bands, calibration=calibration, false_alarm=false_alarm, features=features, labels=labels,
            reading=reading_of(read), resources=resources_of(large), progress=advance,
        )  # fmt: skip
    return said(status, state)


@command("status")
def monitor_status_command(state: _State) -> Outcome:
    """What a monitor has to say; with --json this is the summary that sites may send.

    Example: pixelbounds monitor status ct.monitor.safetensors
    """
    from ..monitoring import load_monitor

    return said(load_monitor(state).status(), state)


def said(status: Status, state: Path) -> Outcome:
    """The sentence, then what was seen."""
    rows = {"seen": f"{status.images} images with truth, {status.looked} without"}
    if status.repeated:
        rows["left out"] = f"{status.repeated} images that were counted before"
    for i, promise in enumerate(status.promises):
        rows[f"promise {i + 1}"] = f"{promise.words}; evidence {promise.e_value:.3g}"
    for i, words in enumerate(status.lately):
        rows[f"lately {i + 1}"] = words
    if status.lately:
        rows["of"] = f"{len(status.statistics)} things that are looked at, each by itself; none is a risk"
    if status.alarm:
        rows["next"] = (
            "calibrate anew with images of the source as it is now, or pixelbounds anytime start STATE TRUTH BANDS"
        )
    style = "bold red" if status.alarm else "bold"
    text = (sentence(status.sentence, style), numbers({**rows, "state": written(state)}))
    notes = tuple(Text(note) for note in status.notes)
    return Outcome({**status.to_dict(), "file": str(state)}, (*text, *notes), ALARM if status.alarm else OK)


@command("page")
def monitor_page_command(
    state: _State,
    out: Annotated[Path, typer.Option(help="The page, .html.")],
    title: Annotated[str, typer.Option(help="Of the page.")] = "Monitor",
    force: Force = False,
) -> Outcome:
    """Write a page: evidence and risk over time, what bands are like, and what changed.

    Example: pixelbounds monitor page ct.monitor.safetensors --out monitor.html
    """
    from ..formats.opener import check_target
    from ..monitoring import load_monitor
    from ..report.monitor_page import write_monitor_page

    target = check_target(out, (".html",), replace=force, inputs=(state,))
    monitor = load_monitor(state)
    status = monitor.status()
    write_monitor_page(target, monitor, title)
    facts = {"file": str(target), "alarm": status.alarm}
    return Outcome(facts, (sentence(status.sentence), numbers({"written": written(target)})))


@command("pool")
def pool_command(
    summaries: Annotated[
        list[Path], typer.Argument(metavar="SUMMARIES...", help="Of each site what `monitor status --json` printed.")
    ],
    false_alarm: Annotated[float, typer.Option(help="Chance that the common view ever raises a false alarm.")] = 0.01,
) -> Outcome:
    """What sites that watch the same calibration show together, given that no patient is at two of them.

    Exit code 5: together they raise an alarm.

    Example: pixelbounds monitor pool north.json south.json
    """
    from ..monitoring.pooled import pooled
    from ..monitoring.sentences import together_in_words
    from ..storage.files import strict_json

    found = pooled({path.stem: strict_json(path.read_bytes()) for path in summaries}, false_alarm)
    evidence = f"evidence {found.e_value:.3g}, where {1 / false_alarm:.3g} raises an alarm"
    start = "ALARM: together the sites show that a promise is broken" if found.alarm else "No alarm of all together"
    text = f"{start} ({evidence}). {together_in_words(false_alarm)}"
    rows = {
        name: f"{images} images with truth, evidence {e_value:.3g}{', an alarm of its own' if own else ''}"
        for name, images, e_value, own in found.sites
    }
    facts = {
        "alarm": found.alarm,
        "e_value": found.e_value,
        "false_alarm": false_alarm,
        "images": found.images,
        "sites": [dict(zip(("name", "images", "e_value", "alarm"), site, strict=True)) for site in found.sites],
    }
    return Outcome(facts, (sentence(text), numbers(rows)), ALARM if found.alarm else OK)


def monitor_commands() -> typer.Typer:
    """The commands of a monitor."""
    group = typer.Typer(no_args_is_help=True, help="After deployment: is the promise still kept?")
    for function in (update_command, drift_command, monitor_status_command, monitor_page_command, pool_command):
        group.command()(function)
    return group
