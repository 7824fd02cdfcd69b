"""`pixelbounds archive`: what cron calls in a hospital."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..workflows.request import ApplyOptions, Identifiers, Resources, SampleOptions
from .command import ALARM, OK, WRONG_INPUT, Outcome, command, in_short, written

_OPTIONS = "sigma_0", "samples", "miscoverage", "sampler", "steps", "batch", "device", "compile"


@command("archive", stopped="series that were done are kept, another resumes: run the same command again")
def archive_command(
    calibration: Annotated[Path, typer.Argument(metavar="CALIBRATION", help="What `pixelbounds calibrate` wrote.")],
    network: Annotated[str, typer.Argument(metavar="NETWORK", help="A network, or package.module:function.")],
    archive: Annotated[str, typer.Option("--from", metavar="URL", help="DICOMweb: https://HOST/dicom-web.")],
    work: Annotated[Path, typer.Option(help="A folder for the monitor and the list of series that are done.")],
    how: Annotated[SampleOptions, _OPTIONS],
    large: Annotated[Resources, ("memory", "scratch")],
    match: Annotated[
        list[str],
        typer.Option(metavar="KEYWORD=VALUE", help="Only series with this value, repeatable."),
    ] = ["Modality=CT"],  # noqa: B006 - typer copies it
    send: Annotated[str | None, typer.Option(metavar="URL", help="Another archive, which gets the maps.")] = None,
    trust: Annotated[Path | None, typer.Option(help="As in `apply`.")] = None,
    identifiers: Identifiers = "keep",
) -> Outcome:
    """Process the series that arrived since the last call: sample, apply, send maps and a report, monitor.

    A series is done when it has as many images as at the call before. A killed call loses nothing and sends nothing
    twice. Exit code 5: an alarm of the monitor; 2: a series was refused.

    Example: pixelbounds archive cal.safetensors score.safetensors --from http://localhost:8042/dicom-web --work ct
    """
    from ..execution import let_threads_sleep

    let_threads_sleep()  # before torch is loaded
    from ..workflows.archive import STATE, look_at_archive

    pairs = [text.partition("=")[::2] for text in match]
    if not all(word and value for word, value in pairs):
        raise ValueError(f"--match is {' '.join(match)}; give KEYWORD=VALUE, such as Modality=CT")
    look = look_at_archive(
        calibration, network, archive, work, how, match=dict(pairs), resources=large,
        maps=ApplyOptions(trust=trust, report=True, identifiers=identifiers, send=send),
    )  # fmt: skip
    rows = {
        "done": f"{len(look.done)} series, {look.sent} objects sent",
        "waiting": f"{len(look.waiting)} series, for the next call",
        **{f"refused {uid}": why for uid, why in look.refused.items()},
        "written": written(work / STATE),
    }
    code = ALARM if look.status.alarm else WRONG_INPUT if look.refused else OK
    facts = {**vars(look), "status": look.status.to_dict()}
    return in_short(facts, look.status.sentence, rows, code=code)
