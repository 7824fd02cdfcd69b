"""What of the people behind images goes along into outputs: nothing, by default.

Dropped are names and numbers of patients, their dates, sex and age, physicians, institutions, descriptions and other
free text, names of files and folders, and what units are called. What stays is what a map needs to lie on its scan:
geometry, and for DICOM the unique identifiers of study, frame of reference and source images, which name nobody but
lead back to the source for whoever holds it. Pixels are never changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..images.checks import check_choice
from ..images.library import Array

IDENTIFIERS = ("drop", "keep")


def keeps(identifiers: str) -> bool:
    """Whether identifiers go along: `keep` or `drop`."""
    return check_choice(identifiers, IDENTIFIERS, "identifiers") == "keep"


def numbered_units(units: Any) -> Array:
    """Units (n,) numbered in the order in which they come.

    >>> numbered_units(["Smith", "Jones", "Smith"]).tolist()
    [0, 1, 0]
    """
    _, first, number = np.unique(np.asarray(units), return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[number]
