"""The protocol of a calibration, as TOML and under FDA's headings of a predetermined change control plan (PCCP)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..calibration.bounds import BOUNDS, least_images
from ..calibration.calibration_file import load_calibration
from ..calibration.methods import method_of
from ..calibration.promises import ALL_PIXELS, Promise, share
from ..calibration.sample_size import plan
from ..calibration.words import cap_in_words, confidence_in_words, level_in_words, plural
from ..formats.arrays import FilePath
from ..formats.opener import check_target
from ..images.checks import NoGuarantee
from ..storage.files import replace_file
from ..storage.toml import read_toml
from .request import Request


@dataclass(frozen=True)
class Protocol:
    """What is asked of a calibration, of how many images (units), and of how many it is tested and how watched."""

    request: Request
    images: int
    held_out: int
    false_alarm: float
    written: str

    @property
    def promises(self) -> list[Promise]:
        """What will be promised; regions are not there yet."""
        texts = self.request.texts
        return [one.promise() for one in texts] or [share(self.request.risk_level or 0.0)]


def write_protocol(out: FilePath, protocol: Protocol, *, replace: bool = False) -> tuple[Path, Path]:
    """Write a protocol, .toml, and its page, .md; too few images for what is promised are refused."""
    asked = protocol.request
    target = check_target(out, (".toml",), replace=replace, inputs=asked.files)
    page = check_target(target.with_suffix(".md"), (".md",), replace=replace)
    asked = dataclasses.replace(asked, n_fit=_fitting(protocol))
    needs = plan(
        promises=protocol.promises, failure_prob=asked.failure_prob, bound=asked.bound, method=asked.method,
        groups=asked.groups is not None, images=(protocol.images,),
    )  # fmt: skip
    least = max(promise.images for promise in needs.promises)
    if protocol.images < least:
        raise NoGuarantee(f"plan at least {least} images (units): {protocol.images} cannot certify what is promised")
    fixed = {name: x for name, x in asdict(protocol).items() if name != "request"}
    text = "\n".join(["[protocol]", *_lines(fixed), "", "[calibration]", *_lines(asdict(asked)), ""]).encode()
    given = [(x.name.replace("promises", "promise").replace("_", "-"), getattr(asked, x.name)) for x in fields(asked)
             if getattr(asked, x.name) != x.default]  # fmt: skip
    given += [("units", "UNITS")] if asked.unit_name else []
    options = [f"--{name} {shlex.quote(str(x))}" for name, xs in given for x in (xs if isinstance(xs, list) else [xs])]
    words: dict[str, Any] = fixed | {
        "units": plural(asked.unit_name or "image"), "least": least, "digest": hashlib.sha256(text).hexdigest(),
        "options": " ".join(options), "promises": ";\n- ".join(_in_words(protocol.promises, asked.weighting)),
        "confidence": confidence_in_words(asked.failure_prob), "fit": asked.n_fit or "none",
        "seed": asked.seed, "method": asked.method, "bound": asked.bound,
    }  # fmt: skip
    template = files("pixelbounds.report").joinpath("protocol.md").read_text(encoding="utf-8")
    replace_file(target, text)
    replace_file(page, template.format(**words).encode())
    return target, page


def _fitting(protocol: Protocol) -> int | None:
    """How many images (units) fit: fixed beforehand, as the method takes them where nobody asks; None where none do."""
    asked = protocol.request
    method = method_of(asked.method, groups=asked.groups, k=asked.k, n_fit=asked.n_fit)
    levels = [one.at_most / (one.cap or 1) for one in protocol.promises]
    least = max(least_images(level, asked.failure_prob, bound=BOUNDS[asked.bound]) for level in levels)
    fit = method.units_to_fit(protocol.images, least, labelled=bool(asked.labels or asked.features))
    if asked.n_fit and protocol.images - fit < least:
        raise NoGuarantee(f"{fit} of {protocol.images} images (units) fit, but {least} must certify: lower --n-fit")
    return fit or None


def _lines(values: dict[str, Any]) -> list[str]:  # TOML writes strings, numbers and lists as JSON does
    return [f"{key} = {json.dumps(x, default=str)}" for key, x in values.items() if x is not None]


def check_protocol(protocol: FilePath, calibration: FilePath) -> dict[str, str]:
    """In what a calibration differs from its protocol, and how."""
    planned = read_toml(
        protocol, lambda x: Protocol(Request(**x.get("calibration", {})), **x.get("protocol", {}))
    ).content
    made = load_calibration(calibration)
    asked, record = planned.request, made.record
    fit = asked.n_fit or 0
    used = record.units + fit if record.units else record.images + record.skipped
    pairs: dict[str, tuple[Any, Any]] = {
        "promises": tuple("; ".join(_in_words(x.promises, asked.weighting)) for x in (planned, made)),  # type: ignore
        "failure_prob": (asked.failure_prob, made.failure_prob), "method": (asked.method, made.method),
        "bound": (asked.bound, made.bound), "seed": (str(asked.seed), record.seed),
        "unit_name": (asked.unit_name, record.unit_name if record.units else None),
        "weighting": (asked.weighting, record.weighting), "images (units)": (planned.images, used),
        "max_images": (asked.max_images or record.max_images, record.max_images),
        "family": (asked.family or made.family.name, made.family.name),
        "groups": (asked.groups if asked.groups in ("band", "learned") else made.grouping.kind, made.grouping.kind),
    }  # fmt: skip
    pairs["fitting"] = (bool(fit), bool(record.fitting)) if record.units else (fit, record.fitting)
    differences = {name: f"{here} in the protocol, {there} in the calibration" for name, (here, there) in pairs.items()
                   if here != there}  # fmt: skip
    page = Path(protocol).with_suffix(".md")
    if page.exists() and hashlib.sha256(Path(protocol).read_bytes()).hexdigest() not in page.read_text("utf-8"):
        differences["page"] = f"{page.name} has another SHA-256: one of the two was edited"
    return differences


def _in_words(promises: Sequence[Any], weighting: str) -> list[str]:
    rows = []
    for one in promises:
        level, where = level_in_words(one.at_most), one.name or ALL_PIXELS
        row = f"on average at most {level} of {where} lie outside their intervals"
        if one.kind == "tail":
            row = f"at most {level} of future images miss more than {level_in_words(one.above)} of {where}"
        row += f", an image counting for at most {cap_in_words(one.cap)}" if (one.cap or 1) < 1 else ""
        rows.append(row + ("" if (one.weighting or weighting) == "units" else f", by {one.weighting or weighting}"))
    return rows
