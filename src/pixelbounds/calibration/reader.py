"""Read a calibration file: everything that it says is checked, and no code runs."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from ..images.checks import check_number
from ..images.library import Array
from ..images.measure import Measure
from ..images.source import Source
from ..storage.files import unseal
from .families import FAMILIES, Family
from .groups.contract import REMEDY, load_grouping, on_images
from .promises import CertifiedPromise
from .reference import Reference
from .result import FORMAT, NO_HASHES, Calibration, Record
from .sentence import EARLIER


def load_calibration(path: str | os.PathLike[str], *, family: Family | None = None) -> Calibration:
    """Read a calibration file; a user's own family must be given again, for a file holds no code."""
    path = FilePath(path)
    try:
        found = path.is_file()
    except OSError:  # a name that no file can have
        found = False
    if not found:
        raise ValueError(f"there is no calibration file at {str(path)!r}")
    return calibration_from_bytes(path.read_bytes(), str(path), family)


def calibration_from_bytes(data: bytes, name: str = "file", family: Family | None = None) -> Calibration:
    """The calibration that the content of a file holds."""
    remedy = "write it again with Calibration.save"
    text, tensors = unseal(data, name, what="calibration file", remedy=remedy, again="calibrate again")
    if text["format"] not in (1, FORMAT):
        raise ValueError(
            f"{name!r} has format {text['format']!r}, this version reads 1 and {FORMAT}; update pixelbounds"
        )
    try:
        return _calibration_of(text, tensors, name, family)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        if isinstance(error, ValueError) and str(error).startswith(repr(name)):
            raise
        why = f"{error!r} is missing" if isinstance(error, KeyError) else str(error)
        why = why.removesuffix(f"; {REMEDY}")
        raise ValueError(f"{name!r} holds no calibration that could be: {why}; {REMEDY}") from error


def _calibration_of(text: dict[str, Any], tensors: dict[str, Array], name: str, family: Family | None) -> Calibration:
    named = text["family"]
    if not isinstance(named, str):
        raise ValueError(f"the family is {named!r}, not a name")
    if family is None and named not in FAMILIES:
        raise ValueError(f"{name!r} uses your own family {named!r}; pass it: load_calibration(path, family=...)")
    if family is not None and family.name != named:
        raise ValueError(f"{name!r} was calibrated with family {named!r}, not {family.name!r}")
    groups = dict(text["groups"])
    arrays = {key.removeprefix("groups."): x for key, x in tensors.items() if key.startswith("groups.")}
    grouping = load_grouping(groups.pop("kind"), groups, arrays)
    low, high = (None if x is None else check_number(x, "a limit") for x in text["limits"])
    if text["format"] == 1:  # knows less of its bands, and nothing of its images and of what its numbers stand for
        text = {"measure": None, **text}
        tensors = {"image_hashes": NO_HASHES, "fitted_on": NO_HASHES, **tensors}
        text["record"] = {**text["record"], "settings": {**text["record"]["settings"], EARLIER: 1}}
    elif not text["record"].keys() >= {field.name for field in fields(Record)} - {"image_hashes"}:
        raise ValueError("its record is not complete")
    measure = text["measure"]
    return Calibration(
        text["method"], text["confidence"], family or FAMILIES[named], text["loss"], text["risk_level"],
        text["failure_prob"], (-np.inf if low is None else low, np.inf if high is None else high),
        on_images(grouping, tensors["fitted_on"]), tensors["widening"], text["risk"],
        tensors["curve"], text["chosen"], _record_of(text["record"], tensors),
        None if measure is None else Measure.from_state(measure),
        tuple(CertifiedPromise.from_state(state) for state in text.get("promises", ())),
        Reference.from_tensors(tensors),
    )  # fmt: skip


def _record_of(state: dict[str, Any], tensors: dict[str, Array]) -> Record:
    """The record of a file."""
    state = dict(state)
    state["pixels"] = tuple(state["pixels"])
    state["source"] = Source.from_state(state["source"])
    if "skipped" in state["settings"] and "skipped" not in state:
        state["skipped"] = len(state["settings"]["skipped"])
    return Record(**state, image_hashes=tensors["image_hashes"])
