"""What a command does, as functions on files; one file per command, with the command's name.

agreement.py     numbers of new files stand for what those of the calibration stood for
roles.py         which files were given in the place of others, after an error
request.py       what a calibration must achieve and how, one object; promise_words.py, promise_regions.py: its promises
structure_table.py  the table of structures as a file
lengths.py       lengths of intervals seen through a window
settings.py      the sections of the TOML file of `train`; resources.py: where the work is done

Names are loaded when they are first used: whoever calibrates needs neither torch nor what draws a report.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .apply import apply_files
    from .calibrate import calibrate_files
    from .card import card_file
    from .ensemble import combine_networks
    from .evaluate import HeldOutFiles, evaluate_files
    from .report import report_files
    from .request import Request
    from .resources import Resources
    from .sample import SampleOptions, sample_to
    from .train import train_from

__all__ = [
    "HeldOutFiles",
    "Request",
    "Resources",
    "SampleOptions",
    "apply_files",
    "calibrate_files",
    "card_file",
    "combine_networks",
    "evaluate_files",
    "report_files",
    "sample_to",
    "train_from",
]


_HOMES = {  # of names that their files do not begin with
    "HeldOutFiles": "evaluate",
    "Request": "request",
    "Resources": "resources",
    "SampleOptions": "sample",
    "combine_networks": "ensemble",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, name.split('_')[0])}"), name)
