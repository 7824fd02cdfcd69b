"""After deployment: is the promise still kept, and can a new one be certified?

promise_monitors.py  images with their truth: e-processes against every promise
drift.py             bands without truth: conformal ranks and test martingales for exchangeability
counted_batches.py   which calls were counted
history.py           the history in few rows
sentences.py         reports in words
status.py            the state of a monitor
monitor.py           `Monitor`: all of it
pooled.py            several sites together
reference.py         statistics of new bands and their conformal p-values
evidence.py          what an anytime calibration has seen
anytime.py           `AnytimeCalibration`: certified at any time
state_file.py        the format of state files
monitor_file.py      a monitor as such a file
anytime_file.py      an anytime calibration as such a file
recalibrate.py       `recalibrate`: images of one source weighed as draws of another
"""

from .anytime import AnytimeCalibration
from .monitor import Monitor
from .monitor_file import load_monitor, save_monitor
from .recalibrate import recalibrate
from .reference import conformal_p_values
from .status import Status

__all__ = [
    "AnytimeCalibration",
    "Monitor",
    "Status",
    "conformal_p_values",
    "load_monitor",
    "recalibrate",
    "save_monitor",
]
