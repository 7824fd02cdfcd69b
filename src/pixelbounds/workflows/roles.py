"""What was given where: files that seem to be swapped, or in the place of others, told after a command failed on them.

A truth and its bands, a calibration and what it is applied to are easily given in the wrong order, and the error is
then about shapes, or about a file that cannot be read. Here each path is looked at: what it holds, where it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..formats.arrays import ARRAY_SUFFIXES, Arrays, is_store, told
from ..formats.maps import measure_of_maps
from ..monitoring.state_file import ANYTIME, MONITOR
from ..storage.files import sealed_parts, strict_json

_WORDS = {  # what a path holds, in words
    "calibration": "a calibration",
    ANYTIME: "an anytime calibration",
    MONITOR: "the state of a monitor",
    "message": "a message between sites",
    "network": "a network",
    "bands": "a band, lower and upper",
    "intervals": "intervals that are calibrated already",
    "page": "a page",
    "images": "images",
}
_FITS = {  # what each argument takes; images may be samples
    "truth": ("images", "several"),
    "bands": ("bands", "images", "several"),
    "intervals": ("intervals", "bands", "images", "several"),
    "calibration": ("calibration",),
}
_WANTED = {
    "truth": "the true images",
    "bands": "bands or samples",
    "intervals": "intervals, or bands with --calibration",
    "calibration": "a calibration file of `pixelbounds calibrate`",
}


def mistaken(given: Mapping[str, Any]) -> str | None:
    """What seems to be wrong with the paths that arguments were given, by name; None where they look right.

    >>> mistaken({"truth": "missing.npy", "bands": None})
    """
    roles = {name: role_of(Path(given[name])) for name in _FITS if isinstance(given.get(name), str | Path)}
    wrong = {name: role for name, role in roles.items() if role is not None and role not in _FITS[name]}
    if given.get("truth_key") is not None and roles.get("truth") == "bands":
        wrong.pop("truth", None)
    for name, role in wrong.items():
        for other, theirs in roles.items():
            if other == name or theirs is None or role not in _FITS[other] or theirs not in _FITS[name]:
                continue
            return (
                f"{name.upper()} is {given[name]}, which holds {_WORDS[role]}, and {other.upper()} is {given[other]}, "
                f"which holds {_WORDS.get(theirs, 'images')}: they seem to be swapped"
            )
    for name, role in wrong.items():
        if (name, role) == ("bands", "intervals"):
            continue  # its own error says what to give
        return f"{name.upper()} is {given[name]}, which holds {_WORDS[role]}; give {_WANTED[name]}{_also(name, role)}"
    return None


def _also(name: str, role: str) -> str:
    if role == "calibration":
        return ", and the calibration where it belongs: --calibration FILE, or first at `apply`"
    if role == "intervals" and name == "truth":
        return " first"
    return ""


def role_of(path: Path) -> str | None:
    """What a path seems to hold, by its name and names inside: a word of `_WORDS`, "several", or None for nothing."""
    try:
        if not path.exists():
            return None
        if path.suffix == ".safetensors":
            kind = sealed_kind(path.read_bytes(), str(path))
            return kind if kind in _WORDS else "network"
        if path.suffix == ".html":
            return "page"
        if path.suffix in ARRAY_SUFFIXES or is_store(path):
            return _of_arrays(path)
        if path.is_dir() and {"lower", "upper"} <= {x.name.split(".")[0] for x in path.iterdir()}:
            return "bands" if measure_of_maps(path) is None else "intervals"
    except Exception:  # what cannot be read holds nothing that could be told
        return None
    return "images"


def _of_arrays(path: Path) -> str:
    about = told(path)
    if about.get("kind") == "interval":
        return "intervals"
    arrays = set(Arrays(path))
    if not {"lower", "upper"} <= arrays:
        return "bands" if about.get("kind") == "bands" else "images"
    return "several" if "truth" in arrays else "bands"


def sealed_kind(data: bytes, name: str) -> str:
    """What a sealed file is: a calibration, a growing one, a monitor, a message, a network, a state of training."""
    try:
        entry = sealed_parts(data)[0]
        text = strict_json(entry if entry.startswith("{") else entry.partition(" ")[2], finite=False)
    except ValueError as error:
        raise ValueError(
            f"{name!r} is no file of pixelbounds ({error}); give a calibration, a network, a run or a message"
        ) from error
    if not isinstance(text, dict):
        raise ValueError(f"{name!r} is no file of pixelbounds; give a calibration, a network, a run or a message")
    if "what" in text:
        return str(text["what"])
    if text.get("kind") in (ANYTIME, MONITOR):
        return str(text["kind"])
    return "message" if "kind" in text else "calibration"
