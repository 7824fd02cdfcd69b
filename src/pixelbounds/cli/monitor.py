"""`pixelbounds monitor update | drift | status | page | pool`: is the promise still kept?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..workflows.request import NO_HOLES, ArrivalOptions, BandPath, Force, ReadOptions, Resources, Truth
from .command import ALARM, OK, Outcome, command, in_short, written

if TYPE_CHECKING:
    from ..monitoring import Status

_State = Annotated[Path, typer.Argument(metavar="STATE", help="The monitor's file, .safetensors; made where missing.")]
_Calibration = Annotated[Path | None, typer.Option(help="The calibration to monitor; needed to begin a STATE.")]
_FalseAlarm = Annotated[
    float | None, typer.Option(help="Probability of ever raising a false alarm; 0.01, set when a STATE begins.")
]
_KEPT = "the state is as it was: run the same command again"


@command("update", stopped=_KEPT)
def update_command(
    state: _State,
    truth: Truth,
    bands: BandPath,
    read: Annotated[ReadOptions, NO_HOLES],
    large: Resources,
    new: ArrivalOptions,
    calibration: _Calibration = None,
    false_alarm: _FalseAlarm = None,
) -> Outcome:
    """Count images whose truth is known now; the same files do not count twice.

    Exit code 5: there was an alarm, now or earlier.

    Example: pixelbounds monitor update ct.monitor.safetensors truth.npy new.zarr --calibration cal.safetensors
    """
    from ..workflows.monitor import update_state

    with large.reporting("counting") as resources:
        status = update_state(
            state, truth, bands, calibration=calibration, false_alarm=false_alarm, reading=read.reading(),
            resources=resources, new=new,
        )  # fmt: skip
    return _outcome(status, state)


@command("drift", stopped=_KEPT)
def drift_command(
    state: _State,
    bands: BandPath,
    read: Annotated[ReadOptions, NO_HOLES],
    large: Resources,
    new: Annotated[ArrivalOptions, ("features", "labels", "batch")],
    calibration: _Calibration = None,
    false_alarm: _FalseAlarm = None,
) -> Outcome:
    """Compare bands without truth with those of the calibration: do they come from the same source?

    It says nothing about risk. Exit code 5: there was an alarm, now or earlier.

    Example: pixelbounds monitor drift ct.monitor.safetensors new.zarr
    """
    from ..workflows.monitor import update_state

    with large.reporting("comparing") as resources:
        status = update_state(
            state, None, bands, calibration=calibration, false_alarm=false_alarm, new=new, reading=read.reading(),
            resources=resources,
        )  # fmt: skip
    return _outcome(status, state)


@command("status")
def monitor_status_command(state: _State) -> Outcome:
    """The state of a monitor; with --json this is the summary that sites may send.

    Example: pixelbounds monitor status ct.monitor.safetensors
    """
    from ..monitoring import load_monitor

    return _outcome(load_monitor(state).status(), state)


def _outcome(status: Status, state: Path) -> Outcome:
    rows = {"seen": f"{status.images} images with truth, {status.drift_images} without"}
    if status.repeated:
        rows["not counted"] = f"{status.repeated} images of a batch that was counted before (new ones: --batch NAME)"
    for i, promise in enumerate(status.promises):
        rows[f"promise {i + 1}"] = f"{promise.words}; e-value {promise.e_value:.3g}"
    for i, words in enumerate(status.recent_changes):
        rows[f"recently {i + 1}"] = words
    if status.recent_changes:
        rows["of"] = f"{len(status.statistics)} statistics, each by itself; none is a risk"
    if status.alarm:
        rows["next"] = "calibrate again on images of the source as it is now, or use `pixelbounds anytime start`"
    rows |= {"state": written(state)} | ({"note": "\n".join(status.notes)} if status.notes else {})
    facts = {**status.to_dict(), "file": str(state)}
    return in_short(facts, status.sentence, rows, code=ALARM if status.alarm else OK)


@command("page")
def monitor_page_command(
    state: _State,
    out: Annotated[Path, typer.Option(help="The page, .html.")],
    title: Annotated[str, typer.Option(help="Of the page.")] = "Monitor",
    force: Force = False,
) -> Outcome:
    """Write a page: e-values and risk over time, what bands are like, and what changed.

    Example: pixelbounds monitor page ct.monitor.safetensors --out monitor.html
    """
    from ..formats.opener import check_target
    from ..monitoring import load_monitor
    from ..report.monitor_page import write_monitor_page

    target = check_target(out, (".html",), replace=force, inputs=(state,))
    monitor = load_monitor(state)
    status = monitor.status()
    write_monitor_page(target, monitor, title)
    return in_short({"file": str(target), "alarm": status.alarm}, status.sentence, {"written": written(target)})


@command("pool")
def pool_command(
    summaries: Annotated[
        list[Path], typer.Argument(metavar="SUMMARIES...", help="For each site what `monitor status --json` printed.")
    ],
    false_alarm: Annotated[
        float, typer.Option(help="Probability that the sites together ever raise a false alarm.")
    ] = 0.01,
) -> Outcome:
    """Combine sites that monitor the same calibration, where no patient is at two of them.

    Exit code 5: together they raise an alarm.

    Example: pixelbounds monitor pool north.json south.json
    """
    from ..monitoring.status import pooled
    from ..storage.files import strict_json

    result = pooled({path.stem: strict_json(path.read_bytes()) for path in summaries}, false_alarm)
    rows = {
        name: f"{images} images with truth, e-value {value:.3g}{', an alarm of its own' if alarm else ''}"
        for name, images, value, alarm in result.sites
    }
    sites = [dict(zip(("name", "images", "e_value", "alarm"), site, strict=True)) for site in result.sites]
    return in_short({**vars(result), "sites": sites}, result.sentence, rows, code=ALARM if result.alarm else OK)
