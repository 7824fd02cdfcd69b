"""After deployment: is the promise still kept, and can a new one be certified?

arrivals.py          which images of a call count
promise_monitors.py  images with their truth: e-processes against every promise
drift.py             bands without truth: conformal p-values, ranks and test martingales for exchangeability
status.py            the state of a monitor, in words; several sites together
monitor.py           `Monitor`: all of it
evidence.py          what an anytime calibration has seen
state_file.py        the file of a monitor or of an anytime calibration
anytime.py           `AnytimeCalibration`: certified at any time
recalibrate.py       `recalibrate`: images of one source weighed as draws of another
"""

from .anytime import AnytimeCalibration
from .drift import conformal_p_values
from .monitor import Monitor
from .recalibrate import recalibrate
from .state_file import load_monitor, save_monitor
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
