"""Strings and files become calls: `pixelbounds COMMAND`, or `python -m pixelbounds.cli COMMAND` under torchrun.

Commands import what they need when they run, so that help comes at once and a machine without some package can use
the rest.
"""

from .anytime import anytime_commands
from .apply import apply_command
from .calibrate import calibrate_command
from .card import card_command
from .demo import demo_command
from .ensemble import ensemble_command
from .entry import HelpCommand, HelpGroup, app, main
from .evaluate import evaluate_command
from .federated import federated_commands
from .info import info_command
from .monitor import monitor_commands
from .plan import plan_command
from .report import report_command
from .sample import sample_command
from .train import train_command

__all__ = ["app", "main"]

_PANELS = {  # what a newcomer needs first comes first
    "Begin": (demo_command, plan_command, info_command),
    "From truth and bands to intervals": (
        calibrate_command,
        apply_command,
        evaluate_command,
        report_command,
        card_command,
    ),
    "Networks and samplers": (sample_command, train_command, ensemble_command),
}
_GROUPS = {
    "After deployment": {"monitor": monitor_commands, "anytime": anytime_commands},
    "Elsewhere": {"federated": federated_commands},
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        app.command(cls=HelpCommand, rich_help_panel=_panel)(_command)
for _panel, _groups in _GROUPS.items():
    for _name, _made in _groups.items():
        _group = _made()
        for _info in _group.registered_commands:
            _info.cls = HelpCommand
        app.add_typer(_group, name=_name, cls=HelpGroup, rich_help_panel=_panel)
