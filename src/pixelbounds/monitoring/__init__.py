"""What arrives after deployment: is the promise still kept?

purse.py         bets on many times of a change at once: worth that is evidence at any time
running_mean.py  a mean held at all times at once
accounts.py      images with their truth as rounds of bets on every promise
urn.py           ranks among a reference that are independent while nothing changes
gauges.py        statistics of bands without truth, each with a purse
seen.py          digests: nothing is counted twice
history.py       how things went, in few rows
status.py        what is said
watch.py         `Monitor`: all of it
sealed.py        a monitor as a file
pooled.py        several sites together
"""

from .sealed import load_monitor, save_monitor
from .status import Status
from .watch import Monitor

__all__ = ["Monitor", "Status", "load_monitor", "save_monitor"]
