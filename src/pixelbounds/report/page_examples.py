"""Examples as the page holds them: small pictures, and data for the viewer.

What fits is inside the page, which then is one file. What does not lies in a folder beside it, one file for each image,
and is read when it is looked at. A page that is opened from disk may read no file, but it may run a script: each file
is a script of one call, with its data as text. Its name ends in the first digits of the text's SHA-256, which the page
compares: a folder of another page, or a file that was changed, is not shown as if it were this page's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ..images.checks import Limits
from ..storage.files import replace_file
from .example import Example
from .pack import add_samples, bytes_of, closed_length, small_pictures, viewer_data, widening_of

MOST_BYTES = 7_700_000  # of pictures and data inside a page, above which fewer samples are kept
MOST_INSIDE = 16_000_000  # of the same without samples, above which they lie beside the page
MOST_BESIDE = 500_000  # of the data of one image beside the page, above which fewer samples are kept
STRIPS_INSIDE = 6  # rows of small pictures that a page has inside in any case
_OURS = re.compile(r"\d{4,}-[a-z]+-[0-9a-f]{16}\.js")
_FULL = 0.995  # share of the pixels within the scale of a map


@dataclass(frozen=True)
class ShownExamples:
    """What the page shows of examples.

    pictures    name, small pictures and figures of each
    index       what the viewer knows of each before it reads its layers, with the file they are in
    layers      those inside the page, of each
    scales      where the colours of a map end
    folder      name of the folder beside the page; empty where all is inside
    files       names of its files
    """

    pictures: list[dict[str, Any]]
    index: list[dict[str, Any]]
    layers: list[dict[str, Any]]
    scales: dict[str, float]
    folder: str = ""
    files: set[str] = field(default_factory=set)

    @property
    def sampled(self) -> list[tuple[int, int]]:
        """How many samples are kept, of how many."""
        return sorted({(x["samples"], x["drawn"]) for x in self.index if x["drawn"]})

    @property
    def regions(self) -> list[str]:
        """Names of all regions that can be outlined."""
        return list(dict.fromkeys(name for x in self.index for name in x["regions"]))


def show_examples(page: Path, examples: Sequence[Example], limits: Limits, *, windowed: bool) -> ShownExamples:
    """Examples for a page of this path; files beside it are written, those of an earlier page are left.

    windowed       values were seen through a window, so that ends at its edges are open
    """
    scales = {"length": _scale([closed_length(x, windowed=windowed) for x in examples])}
    widenings = [x for x in (widening_of(example, limits) for example in examples) if x is not None]
    if widenings:
        scales["widening"] = _scale(widenings)
    pictures = [small_pictures(example, limits, scales, windowed=windowed) for example in examples]
    drawn = sum(len(uri) for picture in pictures for _, uri in picture["shown"])
    inside: list[dict[str, Any]] = []
    size = drawn
    for example in examples:
        inside.append(viewer_data(example, limits, windowed=windowed))
        size += bytes_of(inside[-1])
        if size > MOST_INSIDE:
            return _beside(page, examples, limits, windowed, pictures, scales)
    add_samples(inside, examples, MOST_BYTES - size)
    layers = [x.pop("layers") for x in inside]
    return ShownExamples(pictures, inside, layers, scales)


def _beside(
    page: Path, examples: Sequence[Example], limits: Limits, windowed: bool, pictures: list[dict[str, Any]],
    scales: dict[str, float],
) -> ShownExamples:  # fmt: skip
    folder = folder_beside(page)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{str(folder)!r} is a file, and the page needs a folder of that name; move it, or show fewer")
    folder.mkdir(exist_ok=True)
    index, files = [], set()
    for number, (example, picture) in enumerate(zip(examples, pictures, strict=True)):
        data = viewer_data(example, limits, windowed=windowed)
        add_samples([data], [example], MOST_BESIDE - bytes_of(data))
        data["file"] = write_data(folder, number, "image", data.pop("layers"))
        index.append(data)
        files.add(data["file"])
        if number >= STRIPS_INSIDE:
            strip = [[name, uri, f"{name} of {example.name}"] for name, uri in picture["shown"]]
            picture |= {"file": write_data(folder, number, "pictures", strip), "shown": []}
            files.add(picture["file"])
    return ShownExamples(pictures, index, [], scales, folder.name, files)


def _scale(maps: Sequence[Any]) -> float:
    """Where the colours of a map end: most pixels of all examples are within."""
    values = np.concatenate([x.reshape(-1) for x in maps]) if maps else np.empty(0)
    values = values[np.isfinite(values)]
    if not len(values):
        return 1.0
    return float(np.quantile(values, _FULL)) or float(values.max()) or 1.0


def folder_beside(page: Path) -> Path:
    """Where the files of a page lie; Windows moves a folder of this name together with the page.

    >>> folder_beside(Path("out/report.html")).name
    'report_files'
    """
    return page.with_name(f"{page.stem}_files")


def write_data(folder: Path, number: int, what: str, data: Any) -> str:
    """Write plain values as a file of a page and return its name without `.js`; equal data have equal names."""
    text = json.dumps(data, separators=(",", ":"))
    name = f"{number:04d}-{what}-{sha256(text.encode()).hexdigest()[:16]}"
    replace_file(folder / f"{name}.js", f"pixelbounds({json.dumps(name)}, {json.dumps(text)});\n".encode())
    return name


def sweep_data(folder: Path, kept: Set[str]) -> None:
    """Remove files of an earlier page that this one does not name, and the folder where nothing is left in it."""
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name) and path.stem not in kept:
            path.unlink(missing_ok=True)
    with suppress(OSError):  # it holds something
        folder.rmdir()
