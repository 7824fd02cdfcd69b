"""What was given where: files that seem to be swapped, or in the place of others, named after a command failed on them.

The error is then about shapes, or a file that cannot be read; here each path is looked at: what it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..formats.arrays import ARRAY_SUFFIXES, Arrays, is_store, stated_by
from ..formats.maps import measure_of_maps
from ..monitoring.state_file import ANYTIME_STATE, MONITOR
from ..storage.files import sealed_parts, strict_json

_WORDS = {  # what a path holds, in words
    "calibration": "a calibration",
    ANYTIME_STATE: "an anytime calibration",
    MONITOR: "the state of a monitor",
    "message": "a message between sites",
    "network": "a network",
    "bands": "a band, lower and upper",
    "intervals": "intervals that are calibrated already",
    "page": "a page",
    "images": "images",
}
_TAKES = {  # what each argument takes, in words; images may be samples
    "truth": ("the true images", "images"),
    "bands": ("bands or samples", "bands", "images"),
    "intervals": ("intervals, or bands with --calibration", "intervals", "bands", "images"),
    "calibration": ("a calibration file of `pixelbounds calibrate`", "calibration"),
}


def mistaken(given: Mapping[str, Any]) -> str | None:
    """What seems to be wrong with the paths that arguments were given, by name; None where they look right.

    >>> mistaken({"truth": "missing.npy", "bands": None})
    """
    paths = {name: Path(given[name]) for name in _TAKES if isinstance(given.get(name), str | Path)}
    roles = {name: role for name, path in paths.items() if (role := role_of(path)) is not None}
    wrong = {name: role for name, role in roles.items() if role not in _TAKES[name][1:]}
    if given.get("truth_key") is not None and roles.get("truth") == "bands":
        wrong.pop("truth", None)

    def holds(name: str) -> str:
        return f"{name.upper()} is {given[name]}, which holds {_WORDS[roles[name]]}"

    for name, role in wrong.items():
        for other, theirs in roles.items():
            if other != name and role in _TAKES[other] and theirs in _TAKES[name]:
                return f"{holds(name)}, and {holds(other)}: they seem to be swapped"
    for name, role in wrong.items():
        if (name, role) != ("bands", "intervals"):  # its own error says what to give
            also = ", and the calibration as --calibration FILE, or first at `apply`" if role == "calibration" else ""
            return f"{holds(name)}; give {_TAKES[name][0]}{also}"
    return None


def role_of(path: Path) -> str | None:
    """What a path seems to hold, by its name and names inside: a word of `_WORDS`, or None for nothing."""
    try:
        if not (path.is_file() or path.is_dir()):  # nothing, a pipe or a device
            return None
        if path.suffix == ".safetensors":
            kind = sealed_kind(path.read_bytes(), str(path))
            return kind if kind in _WORDS else "network"
        if path.suffix == ".html":
            return "page"
        if path.suffix in ARRAY_SUFFIXES or is_store(path):
            held, arrays = stated_by(path).get("kind"), set(Arrays(path))
            if held == "interval":
                return "intervals"
            return "bands" if held == "bands" or ({"lower", "upper"} <= arrays and "truth" not in arrays) else "images"
        if measure_of_maps(path) is not None:
            return "intervals"
        if path.is_dir() and {"lower", "upper"} <= {x.name.split(".")[0] for x in path.iterdir()}:
            return "bands"
    except Exception:  # a file that cannot be read holds nothing that has a name
        return None
    return "images"


def sealed_kind(data: bytes, name: str) -> str:
    """What a sealed file is: a calibration, an anytime one, a monitor, a message, a network, a state of training."""
    try:
        entry = sealed_parts(data)[0]
        text = strict_json(entry.partition(" ")[2], finite=False)
        if not isinstance(text, dict):
            raise ValueError("its text is no table")
    except ValueError as error:
        raise ValueError(
            f"{name!r} is no file of pixelbounds ({error}); give a calibration, a network, a run or a message"
        ) from error
    if "what" in text:
        return str(text["what"])
    if text.get("kind") in (ANYTIME_STATE, MONITOR):
        return str(text["kind"])
    return "message" if "kind" in text else "calibration"
