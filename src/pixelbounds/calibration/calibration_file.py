"""A calibration file, read: what it holds is checked as far as memory safety and plain use need it (SECURITY.md)."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

from ..images.checks import check_limits
from ..images.library import Array
from ..images.measure import Measure
from ..images.source import Source
from ..storage.files import read_file, unseal
from .calibration import CALIBRATION_FORMAT, Calibration, Record
from .families import FAMILIES, Family
from .groups.contract import REMEDY, unpacked
from .paths.path import NOT_DESCRIBED, BandStatistics
from .promises import CertifiedPromise


def load_calibration(path: str | os.PathLike[str], *, family: Family | None = None) -> Calibration:
    """Read a calibration file; a user's own family must be given again, for a file holds no code."""
    return calibration_from_bytes(read_file(path, "calibration file"), str(path), family)


def calibration_from_bytes(data: bytes, name: str = "file", family: Family | None = None) -> Calibration:
    """The calibration that the content of a file holds."""
    remedy = "write it again with Calibration.save"
    text, tensors = unseal(data, name, what="calibration file", remedy=remedy, again="calibrate again")
    if text["format"] != CALIBRATION_FORMAT:
        raise ValueError(
            f"{name!r} has format {text['format']!r}, this version reads {CALIBRATION_FORMAT}; calibrate again"
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
    if family is None and named not in FAMILIES:
        raise ValueError(f"{name!r} uses your own family {named!r}; pass it: load_calibration(path, family=...)")
    if family is not None and family.name != named:
        raise ValueError(f"{name!r} was calibrated with family {named!r}, not {family.name!r}")
    grouping = unpacked(text["groups"], tensors, "groups.")
    described = {key.removeprefix("reference."): x for key, x in tensors.items() if key.startswith("reference.")}
    record = dict(text["record"])
    record |= {"pixels": tuple(record["pixels"]), "source": Source.from_state(record["source"])}
    if not record.keys() >= {each.name for each in fields(Record)} - {"image_hashes"}:
        raise ValueError("its record is not complete")
    return Calibration(
        text["method"], text["bound"], family or FAMILIES[named], text["failure_prob"],
        check_limits(text["limits"]), grouping.on_images(tensors["fitted_on"]), tensors["widening"],
        tuple(CertifiedPromise.from_state(state) for state in text["promises"]), tensors["curve"], text["chosen"],
        Record(**record, image_hashes=tensors["image_hashes"]),
        None if text["measure"] is None else Measure.from_state(text["measure"]),
        BandStatistics(**described) if described else NOT_DESCRIBED,
    )  # fmt: skip
