"""`pixelbounds federated key | announce | begin | answer | merge | job`: sites keep their images and send counts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..calibration.words import number_of
from ..workflows.request import FEDERATED, NO_HOLES, Force, ReadOptions, Request, Resources, SiteOptions, method_option
from .command import Outcome, certified, command, in_short, written

_Sent = Annotated[Path, typer.Option(help="The file to send, .safetensors.")]
_KEY = "The key that all sites share, of `federated key`: a unit (patient) that is at two sites is recognised."
_SHARED = "A unit (patient) at two sites: refuse, or join its images into one."
_BANDS_OUT = "A .zarr for the bands of samples, to be given in later rounds."


@command("key")
def key_command(out: Annotated[Path, typer.Option(help="A new file, which its owner alone can read.")]) -> Outcome:
    """Make the key by which sites recognise a unit (patient) that two of them have; the coordinator does not need it.

    Example: pixelbounds federated key --out units.key
    """
    from ..federated import make_key

    make_key(out)
    text = f"Give every site a copy of {out} in a safe way, and the option --unit-key {out} to `federated announce`."
    return in_short({"file": str(out)}, text, {"written": written(out)})


@command("announce")
def announce_command(
    here: SiteOptions,
    out: _Sent,
    read: Annotated[ReadOptions, NO_HOLES],
    large: Resources,
    bands_out: Annotated[Path | None, typer.Option(help=_BANDS_OUT)] = None,
    unit_key: Annotated[Path | None, typer.Option(help=_KEY)] = None,
    force: Force = False,
) -> Outcome:
    """Say how many images this site has; every value is read and checked, none is sent.

    Example: pixelbounds federated announce truth.npy bands.zarr --site north --out north-0.safetensors
    """
    from ..formats.opener import check_target
    from ..workflows.federated import SiteFiles, announce_files

    target = check_target(out, (".safetensors",), replace=force)
    with large.reporting("counting") as resources:
        files = SiteFiles(here, read.reading(), resources)
        message = announce_files(files, target, bands_out=bands_out, unit_key=unit_key)
    count, units, regions = (message.text[name] for name in ("images", "units", "regions"))
    facts = {"site": here.site, "images": count, "units": units, "least_count": here.least_count, "regions": regions}
    facts |= {"unit_key": unit_key is not None, "file": str(out)}
    rows = {"images": str(count), "units": str(units or "every image is its own")}
    rows |= {"regions": ", ".join(f"{x['name']} ({x['place']})" for x in regions)} if here.region else {}
    rows |= {} if bands_out is None else {"bands": f"{bands_out}; give them to `federated answer`"}
    text = f"Site {here.site} has {number_of(count, 'image')}; send {out} to the coordinator."
    return in_short(facts, text, {**rows, **_small_counts(here.least_count), "written": written(out)})


@command("answer")
def answer_command(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="What the coordinator sent.")],
    here: SiteOptions,
    out: _Sent,
    read: Annotated[ReadOptions, ("units", "kind", "truth_key", "window", "raw", "limits")],
    large: Resources,
    force: Force = False,
) -> Outcome:
    """Count what a plan asks for on this site's images, and write the tables; options as they were announced.

    Example: pixelbounds federated answer plan-1.safetensors truth.npy bands.zarr --site north --out north-1.safetensors
    """
    from ..formats.opener import check_target
    from ..workflows.federated import SiteFiles, answer_files, question_in_words

    target = check_target(out, (".safetensors",), replace=force)
    with large.reporting("counting") as resources:
        request, message = answer_files(SiteFiles(here, read.reading(), resources), plan, target)
    number = request.text["round"]
    tables = [{"name": name, "shape": x.shape, "dtype": str(x.dtype)} for name, x in message.tables.items()]
    facts = {"site": here.site, "round": number, "statistic": request.text["statistic"], "tables": tables}
    facts |= {"least_count": here.least_count, "file": str(out)}
    shapes = "; ".join(f"{x['name']} {' x '.join(map(str, x['shape']))} {x['dtype']}" for x in tables)
    rows = {"reports": question_in_words(request), "tables": shapes or "none"}
    rows |= {**_small_counts(here.least_count), "written": written(out)}
    return in_short(facts, f"Site {here.site} answers round {number}; send {out} to the coordinator.", rows)


@command("begin")
def begin_command(
    announcements: Annotated[list[Path], typer.Argument(metavar="ANNOUNCEMENTS...", help="One of each site.")],
    out: Annotated[Path, typer.Option(help="A new folder for the study: plans to send, and what sites answered.")],
    request: Annotated[Request, FEDERATED],
    shared_units: Annotated[str, method_option(help=_SHARED)] = "refuse",
) -> Outcome:
    """Open a study of all sites and write the first plan, which every site must answer.

    Methods are frontier and rcps; groups are `band`, or a calibration file whose groups are used again. Regions are at
    the sites: a promise has name=heart alone, the name under which they announce it.

    Example: pixelbounds federated begin north-0.safetensors south-0.safetensors --risk-level 0.1 --out study

    Example: pixelbounds federated begin north-0.safetensors south-0.safetensors --promise "share:0.05" --promise
    "share:0.1,name=heart" --out study
    """
    from ..workflows.federated import begin_folder

    return _next_round(begin_folder(announcements, out, request, shared_units), out)


@command("merge")
def merge_command(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="The folder that `federated begin` made.")],
    answers: Annotated[list[Path], typer.Argument(metavar="ANSWERS...", help="One of each site, to the last plan.")],
) -> Outcome:
    """Add the answers of all sites: the next plan, or in the end the calibration file.

    Example: pixelbounds federated merge study north-1.safetensors south-1.safetensors
    """
    from ..calibration.calibration import Calibration
    from ..workflows.federated import merge_folder

    merged = merge_folder(study, answers)
    if not isinstance(merged, Calibration):
        return _next_round(merged, study)
    target = study / "calibration.safetensors"
    promises = [promise.state() for promise in merged.promises]
    facts = {
        "guarantee": merged.guarantee, "promises": promises, "record": merged.record.state(),
        "file": str(target),
    }  # fmt: skip
    return certified(facts, merged, {"written": written(target)})


@command("job")
def job_command(
    site: Annotated[list[str], typer.Option(help="A site, as NVFlare's client is called; in the order of the study.")],
    out: Annotated[Path, typer.Option(help="A new folder for the job.")],
    request: Annotated[Request, FEDERATED],
    shared_units: Annotated[str, method_option(help=_SHARED)] = "refuse",
) -> Outcome:
    """Write a job for NVFlare that runs all rounds; each site says in local/pixelbounds-SITE.toml where its images are.

    Example: pixelbounds federated job --site north --site south --risk-level 0.1 --out study
    """
    from ..workflows.federated import write_job

    write_job(site, out, request, shared_units)
    text = f"Submit it to NVFlare: nvflare job submit -j {out}. Its run will hold calibration.safetensors."
    return in_short({"sites": site, "folder": str(out)}, text, {"sites": ", ".join(site), "written": written(out)})


def _next_round(study: Any, folder: Path) -> Outcome:
    from ..workflows.federated import plan_file, question_in_words

    plan, target = study.plan, plan_file(study, folder)
    names = [site.name for site in study.sites]
    facts = {"round": plan.text["round"], "statistic": plan.text["statistic"], "sites": names, "file": str(target)}
    units = "compared by keyed hashes of their names; those at two sites are joined or refused"
    if study.sites[0].text["units"] is None:
        units = "every image is its own; a patient at two sites is not found"
    elif study.sites[0].text["unit_key"] is None:
        units = "not compared between sites: a patient at two sites counts twice (--unit-key)"
    rows = {"asks for": question_in_words(plan), "units": units, "written": written(target)}
    return in_short(facts, f"Round {plan.text['round']}: send {target} to {', '.join(names)}.", rows)


def _small_counts(least_count: int) -> dict[str, str]:
    words = f"below {least_count} pixels reported as 0, misses rounded up to multiples of {least_count}"
    return {"small counts": words} if least_count > 1 else {}
