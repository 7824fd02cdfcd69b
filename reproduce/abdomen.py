"""AbdomenCT-1K as published: Case_00001_0000.nii.gz, ..., one CT scan of a patient each, in one or several folders."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from pixelbounds.execution.runner import Progress, silent
from pixelbounds.formats.nifti import find_scans, nifti_files, read_nifti
from pixelbounds.formats.scans import ABDOMEN, FormatError, Geometry, Images, Window, check_window, slice_name

from .cache import cached, central

_CASE = re.compile(r"(Case_\d+)_0000\.nii(\.gz)?")


def abdomen(
    folder: str | os.PathLike[str],
    *,
    cache: str | os.PathLike[str],
    window: Window | None = ABDOMEN,
    size: int | None = None,
    progress: Progress = silent,
) -> Images:
    """Axial slices (n, h, w) in [0, 1] of all scans, float32, the case as unit, read once into the zarr store `cache`.

    An interrupted call resumes at the scan it was at; labels (files without _0000) are not read.
    """
    folder = Path(folder)
    window = check_window(window)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; give the one that holds Case_00001_0000.nii.gz")
    files = {x: match[1] for x in nifti_files(folder) if (match := _CASE.fullmatch(x.name))}
    if not files:
        raise FormatError(f"{folder} holds no Case_*_0000.nii.gz; give the folder of AbdomenCT-1K's images")
    cases = sorted(files, key=lambda file: (files[file], file))
    names = [files[file] for file in cases]
    double = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if double:
        raise FormatError(f"{folder} holds {min(double)} twice; remove one")
    scans = find_scans(cases, names)
    counts = [scan.stop - scan.start for scan in scans]
    plane = scans[0].plane if size is None else (size, size)
    about = {
        "kind": "abdomen",
        "scans": [[name, count, file.stat().st_size] for name, count, file in zip(names, counts, cases, strict=True)],
        "window": None if window is None else list(window),
        "size": size,
    }
    pixels = cached(
        Path(cache), about, counts, plane, "float32",
        lambda part: central(read_nifti(cases[part], window=window).pixels, size), progress,
    )  # fmt: skip
    labels = tuple(slice_name(name, k) for name, count in zip(names, counts, strict=True) for k in range(count))
    return Images(pixels, labels, np.repeat(names, counts), Geometry(scans, window) if size is None else None)
