"""What sites and coordinator of a federated study do, on files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..calibration.calibration import Calibration, load_calibration
from ..calibration.methods import method_of
from ..calibration.promises import Promise
from ..execution.progress import Progress
from ..execution.runner import running
from ..federated import Message, Study, announce, answer, begin, merge
from ..federated.keys import key_of
from ..federated.messages import expect
from ..federated.questions import QUESTIONS
from ..formats.arrays import Reading
from ..formats.inputs import open_pair, open_units
from ..formats.opener import check_target
from .promise_regions import named_regions
from .promise_words import PromiseText
from .request import Request
from .resources import Resources


@dataclass(frozen=True, eq=False)
class SiteFiles:
    """Truth and bands of a site as they lie in files, its regions in words, and how they are read."""

    truth: Path
    bands: Path
    regions: Sequence[str]
    reading: Reading
    resources: Resources
    progress: Progress

    @contextmanager
    def opened(self, bands_out: Path | None = None) -> Iterator[tuple[tuple[Any, Any], dict[str, Any]]]:
        """Truth and band, and what else is announced. Every round reads them again, so bands must be bands."""
        with running(**vars(self.resources), progress=self.progress) as execution:
            images, made, limits = open_pair(self.truth, self.bands, self.reading, execution)
            if made.samples is not None and bands_out is None:
                raise ValueError(
                    f"{self.bands} holds samples, of which every round would make bands again; keep them once with "
                    "`federated announce --bands-out bands.zarr`, and give those"
                )
            if bands_out is not None and (made.samples is None or not bands_out.exists()):
                check_target(bands_out, (".zarr",), replace=False)
            band, _ = made.whole(execution, bands_out)
            given = {
                "units": open_units(images, self.reading),
                "limits": limits,
                "measure": images.measure or made.measure,
                "regions": named_regions(self.regions, images, self.reading) if self.regions else None,
            }
            yield (images.pixels, band), given


def announce_files(
    files: SiteFiles, site: str, target: Path, *, bands_out: Path | None, least_count: int, key: Any
) -> Message:
    """Announce the images of a site, into a file."""
    with files.opened(bands_out) as (images, given):
        message = announce(*images, site=site, least_count=least_count, key=key, **given)
    message.save(target)
    return message


def answer_files(
    files: SiteFiles, plan: Path, site: str, target: Path, *, least_count: int, key: Any
) -> tuple[Message, Message]:
    """Answer a plan at a site, into a file: the plan and the answer."""
    key = key_of(key)
    message = expect(plan, "plan", key)
    with files.opened() as (images, given):
        reply = answer(message, *images, site=site, least_count=least_count, key=key, **given)
    reply.save(target)
    return message, reply


def begin_folder(
    announcements: Sequence[Path], folder: Path, request: Request, *, shared_units: str, key: Any
) -> Study:
    """Open a study in a new folder; groups are a name, or a calibration file whose groups are used again."""
    if folder.exists():
        raise FileExistsError(f"{folder} exists; give the name of a new folder")
    groups = request.groups
    grouping = groups if groups is None or groups == "band" else load_calibration(groups).grouping
    method = method_of(request.method, groups=grouping, k=request.k, n_fit=request.n_fit)
    study = begin(
        announcements, promises=_promises_of_sites(request.texts), method=method, risk_level=request.risk_level,
        failure_prob=request.failure_prob, bound=request.bound, seed=request.seed,
        unit_name=request.unit_name or "unit", weighting=request.weighting, max_images=request.max_images,
        shared_units=shared_units, key=key,
    )  # fmt: skip
    folder.mkdir()
    save_round(study, folder)
    return study


def _promises_of_sites(texts: Sequence[PromiseText]) -> list[Promise] | None:
    """The promises; their regions are at the sites."""
    for text in texts:
        if text.region is not None:
            raise ValueError(
                f"a promise has within={text.within}, and regions are at the sites: give name= alone here, and "
                "--region REGION,name=NAME to `federated announce` and `answer`"
            )
    return [text.promise() for text in texts] or None


def merge_folder(folder: Path, answers: Sequence[Path], *, key: Any) -> Study | Calibration:
    """Add the answers of all sites: the next plan, or the calibration, in the folder."""
    merged = merge(folder / "study.safetensors", answers, key=key)
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
