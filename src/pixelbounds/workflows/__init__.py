"""What a command does, as functions on files; one file per command, with the command's name.

request.py holds what is asked and where work is done (its promises: promise_words.py),
agreement.py whether new numbers mean what the calibration's did, roles.py which files were swapped, after an error.

Names are loaded when they are first used: whoever calibrates needs neither torch nor what draws a report.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "ApplyOptions": "request", "HeldOutFiles": "request", "Request": "request", "Resources": "request",
    "SampleOptions": "request", "apply_files": "apply", "calibrate_files": "calibrate", "combine_networks": "ensemble",
    "evaluate_files": "evaluate", "Inverse": "sample", "report_files": "report", "sample_files": "sample",
    "sample_to": "sample", "train_from": "train",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
