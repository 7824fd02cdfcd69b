"""What of the people behind images goes along into outputs: a pseudonym for each patient, by default.

Left out are names and numbers of patients, their dates, sex and age, physicians, institutions, descriptions and other
free text, names of files and folders, and what units are called. What stays is what a map needs to lie on its scan:
geometry, and for DICOM the unique identifiers of study, frame of reference and source images, which name nobody but
lead back to the source for whoever holds it. Pixels are never changed.

A pseudonym keeps patients apart in an archive. It is made of the identifiers of the patient's studies among the images
(of other files, of their values), so it tells no more than these do, and other studies give another one.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ..images.checks import check_choice
from .scans import Images, Scan

IDENTIFIERS = ("pseudonym", "keep", "drop")


def keeps(identifiers: str) -> bool:
    """Whether identifiers go along: `keep`, or not: `pseudonym` or `drop`."""
    return check_choice(identifiers, IDENTIFIERS, "identifiers") == "keep"


def scan_key(images: Images, scan: Scan) -> str:
    """What stands for a scan in identifiers: its series, or a digest of its values and place."""
    if scan.kind == "dicom":
        return scan.name
    values = np.ascontiguousarray(images.pixels[scan.start : scan.stop])
    return hashlib.sha256(values.tobytes() + scan.affine.tobytes()).hexdigest()


def patients_of(images: Images, identifiers: str) -> list[str | None]:
    """What stands for the patient of each scan: nothing, a pseudonym, or None where identifiers are kept."""
    scans = () if images.geometry is None else images.geometry.scans
    if identifiers != "pseudonym":
        return [None if identifiers == "keep" else ""] * len(scans)
    units = range(len(images)) if images.units is None else images.units
    studies: dict[Any, set[str]] = {}
    for scan in scans:
        study = scan.header[0].get("StudyInstanceUID") if scan.kind == "dicom" else None
        studies.setdefault(units[scan.start], set()).add(str(study or scan_key(images, scan)))
    texts = (" ".join(sorted(studies[units[scan.start]])) for scan in scans)
    return [f"PB-{hashlib.sha256(text.encode()).hexdigest()[:12].upper()}" for text in texts]
