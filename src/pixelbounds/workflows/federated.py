"""What sites and coordinator of a federated study do, on files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ..calibration.calibration import Calibration
from ..calibration.calibration_file import load_calibration
from ..calibration.methods import method_of
from ..calibration.promises import Promise
from ..execution.runner import running
from ..federated import Message, Study, announce, answer, begin, merge
from ..federated.coordinator import study_settings
from ..federated.messages import expect
from ..federated.questions import QUESTIONS
from ..formats.arrays import Reading
from ..formats.inputs import open_pair, open_units
from ..formats.opener import check_target
from ..storage.files import replace_file
from ..storage.toml import TomlSection, read_toml
from .promise_words import PromiseText, named_regions
from .request import Request, Resources, SiteOptions


@dataclass(frozen=True, eq=False)
class SiteFiles:
    """What a site gives, and how it is read."""

    given: SiteOptions
    reading: Reading
    resources: Resources

    @contextmanager
    def opened(self, bands_out: Path | None = None) -> Iterator[tuple[tuple[Any, Any], dict[str, Any]]]:
        """Truth and band, and what else is announced. Every round reads them again, so bands must be bands."""
        regions = self.given.region
        with running(**vars(self.resources)) as execution:
            images, made, limits = open_pair(self.given.truth, self.given.bands, self.reading, execution)
            if made.samples is not None and bands_out is None:
                raise ValueError(
                    f"{self.given.bands} holds samples, of which every round would make bands again; keep them once "
                    "with `federated announce --bands-out bands.zarr`, and give those"
                )
            if bands_out is not None and (made.samples is None or not bands_out.exists()):
                check_target(bands_out, (".zarr",), replace=False)
            band, _ = made.whole(execution, bands_out)
            given = {
                "units": open_units(images, self.reading),
                "limits": limits,
                "measure": images.measure or made.measure,
                "regions": named_regions(regions, images, self.reading) if regions else None,
            }
            yield (images.pixels, band), given


def announce_files(files: SiteFiles, target: Path, *, bands_out: Path | None, unit_key: Any) -> Message:
    """Announce the images of a site, into a file."""
    site, least_count = files.given.site, files.given.least_count
    with files.opened(bands_out) as (images, given):
        message = announce(*images, site=site, least_count=least_count, unit_key=unit_key, **given)
    message.save(target)
    return message


def answer_files(files: SiteFiles, plan: Path, target: Path) -> tuple[Message, Message]:
    """Answer a plan at a site, into a file: the plan and the answer."""
    message = expect(plan, "plan")
    with files.opened() as (images, given):
        reply = answer(message, *images, site=files.given.site, least_count=files.given.least_count, **given)
    reply.save(target)
    return message, reply


def begin_folder(announcements: Sequence[Path], folder: Path, request: Request, shared_units: str) -> Study:
    """Open a study in a new folder."""
    _check_new(folder)
    study = begin(announcements, **_asked(request, shared_units))
    folder.mkdir()
    save_round(study, folder)
    return study


def _check_new(folder: Path) -> None:
    if folder.exists():
        raise FileExistsError(f"{folder} exists; give the name of a new folder")


def _asked(request: Request, shared_units: str) -> dict[str, Any]:
    groups = request.groups
    grouping = groups if groups is None or groups == "band" else load_calibration(groups).grouping
    return {
        "risk_level": request.risk_level, "promises": _promises_of_sites(request.texts),
        "method": method_of(request.method, groups=grouping, k=request.k, n_fit=request.n_fit),
        "failure_prob": request.failure_prob, "bound": request.bound, "seed": request.seed,
        "unit_name": request.unit_name or "unit", "weighting": request.weighting, "max_images": request.max_images,
        "shared_units": shared_units,
    }  # fmt: skip


def _promises_of_sites(texts: Sequence[PromiseText]) -> list[Promise] | None:
    for text in texts:
        if text.region is not None:
            raise ValueError(
                f"a promise has within={text.within}, and regions are at the sites: give name= alone here, and "
                "--region REGION,name=NAME to `federated announce` and `answer`"
            )
    return [text.promise() for text in texts] or None


def merge_folder(folder: Path, answers: Sequence[Path]) -> Study | Calibration:
    """Add the answers of all sites: the next plan, or the calibration, in the folder."""
    merged = merge(folder / "study.safetensors", answers)
    if isinstance(merged, Calibration):
        merged.save(folder / "calibration.safetensors")
    else:
        save_round(merged, folder)
    return merged


def plan_file(study: Study, folder: Path) -> Path:
    """Where the plan of this round lies."""
    return folder / f"plan-{study.plan.text['round']}.safetensors"


def save_round(study: Study, folder: Path) -> None:
    """Write the plan and then the study: a merge that is stopped between the two can be done again."""
    study.plan.save(plan_file(study, folder))
    study.save(folder / "study.safetensors")


def question_in_words(plan: Message) -> str:
    """What a plan asks for."""
    return QUESTIONS[plan.text["statistic"]].words


_IMAGES = "images"  # id of the component by which `engine.SiteExecutor` opens the images of a site


def write_job(sites: Sequence[str], folder: Path, request: Request, shared_units: str) -> None:
    """A job for NVFlare in a new folder: its controller asks what `begin` and `merge` ask, its executors answer."""
    _check_new(folder)
    settings, tables = study_settings(**_asked(request, shared_units)).state()
    if tables:
        raise ValueError("a job holds no groups of another calibration; leave --groups out, or exchange files")
    if len(set(sites)) < len(sites):
        raise ValueError(f"--site names a site twice: {', '.join(sites)}; name each once")
    engine = "pixelbounds.federated.engine"
    controller = {"path": f"{engine}.StudyController", "args": {"sites": [*sites], "settings": settings}}
    executor = {"tasks": ["announce", "answer"], "executor": {"path": f"{engine}.SiteExecutor", "args": {}}}
    images = {"id": _IMAGES, "path": f"{__name__}.{SiteImages.__name__}", "args": {}}
    files: dict[str, dict[str, Any]] = {
        "meta.json": {
            "name": folder.name, "resource_spec": {}, "deploy_map": {"app": ["server", *sites]},
            "min_clients": len(sites), "mandatory_clients": [*sites],
        },
        "app/config/config_fed_server.json": {"format_version": 2, "workflows": [{"id": "study", **controller}]},
        "app/config/config_fed_client.json": {"format_version": 2, "executors": [executor], "components": [images]},
    }  # fmt: skip
    (folder / "app" / "config").mkdir(parents=True)
    for name, content in files.items():
        replace_file(folder / name, (json.dumps(content, indent=2) + "\n").encode())


_Pair = Annotated[list[float], Field(min_length=2, max_length=2)]


class _SiteSettings(TomlSection):
    """What a site says of its own images: options of `federated announce`."""

    truth: str
    bands: str
    region: list[str] = Field(default_factory=list)
    least_count: int = 1
    unit_key: str | None = None
    units: str | None = None
    kind: str | None = None
    truth_key: str | None = None
    window: _Pair | None = None
    raw: bool = False
    limits: _Pair | None = None


class SiteImages:
    """The images of a site, as its file pixelbounds-SITE.toml says, in the folder of its settings (`local`)."""

    @contextmanager
    def opened(self, site: str, folder: Path) -> Iterator[tuple[tuple[Any, Any], dict[str, Any]]]:
        """Truth and band, and what else is announced."""
        file = read_toml(folder / f"pixelbounds-{site}.toml", _SiteSettings)
        said = file.content
        window, limits = (None if x is None else (x[0], x[-1]) for x in (said.window, said.limits))
        units = said.units if said.units in (None, "each") else str(file.resolve(said.units))
        reading = Reading(
            units=units, kind=said.kind, truth_key=said.truth_key, raw=said.raw, window=window, limits=limits
        )
        here = SiteOptions(file.resolve(said.truth), file.resolve(said.bands), site, said.region, said.least_count)
        with SiteFiles(here, reading, Resources()).opened() as (images, given):
            key = None if said.unit_key is None else file.resolve(said.unit_key)
            yield images, {**given, "least_count": said.least_count, "unit_key": key}
