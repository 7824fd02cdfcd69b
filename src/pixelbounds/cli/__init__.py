"""Strings and files become calls: `pixelbounds COMMAND`, or `python -m pixelbounds.cli COMMAND`.

Commands import what they need when they run, so that help comes at once and a machine without some package can use
the rest.
"""

from importlib import import_module

import typer

from .command import HelpCommand, HelpGroup, app, main

__all__ = ["app", "main"]

_PANELS = {  # files of commands; what a newcomer needs first comes first
    "Begin": ("demo", "plan", "info"),
    "From truth and bands to intervals": ("calibrate", "apply", "evaluate", "report", "card"),
    "Networks and samplers": ("sample", "train", "ensemble"),
    "After deployment": ("monitor", "anytime", "archive"),
    "Sites and protocols": ("federated", "pccp"),
}
_GROUPS = {
    "monitor": "After deployment: is the promise still kept?",
    "anytime": "Calibrate on images that keep arriving; valid at every look.",
    "pccp": "Fix a calibration before any image is seen, and check it afterwards.",
    "federated": "Calibrate across sites that keep their images.",
}
for _panel, _names in _PANELS.items():
    for _name in _names:
        _here, _where = app, _panel
        if _name in _GROUPS:
            _here, _where = typer.Typer(no_args_is_help=True, help=_GROUPS[_name]), "Commands"
            app.add_typer(_here, name={"pccp": "protocol"}.get(_name, _name), cls=HelpGroup, rich_help_panel=_panel)
        for _word, _function in vars(import_module(f".{_name}", __name__)).items():
            if _word.endswith("_command"):
                _here.command(cls=HelpCommand, rich_help_panel=_where)(_function)
