"""Strings and files become calls: `pixelbounds COMMAND`, or `python -m pixelbounds.cli COMMAND` under torchrun.

Commands import what they need when they run, so that help comes at once and a machine without some package can use
the rest.
"""

from .apply import apply_command
from .calibrate import calibrate_command
from .card import card_command
from .command import app, main
from .demo import demo_command
from .evaluate import evaluate_command
from .federated import federated_commands
from .grow import grow_commands
from .info import info_command
from .join import join_command
from .monitor import monitor_commands
from .plan import plan_command
from .report import report_command
from .reproduce import reproduce_commands
from .sample import sample_command
from .train import train_command

__all__ = ["app", "main"]

app.command()(demo_command)
app.command()(plan_command)
app.command()(calibrate_command)
app.add_typer(grow_commands(), name="grow")
app.command()(apply_command)
app.command()(evaluate_command)
app.command()(report_command)
app.command()(info_command)
app.command()(card_command)
app.add_typer(monitor_commands(), name="monitor")
app.add_typer(federated_commands(), name="federated")
app.command()(train_command)
app.command()(join_command)
app.command()(sample_command)
app.add_typer(reproduce_commands(), name="reproduce")
