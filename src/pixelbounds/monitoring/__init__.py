"""What arrives after deployment: is the promise still kept, and can a new one be certified?

e_process.py         bets on many times of a change at once: worth that is evidence at any time
running_mean.py  a mean held at all times at once
promise_monitors.py      images with their truth as rounds of bets on every promise
conformal_ranks.py           ranks among a reference that are independent while nothing changes
drift_martingales.py        statistics of bands without truth, each with a purse
seen.py          digests: nothing is counted twice
history.py       how things went, in few rows
sentences.py     what is said, in words
status.py        how things stand
watch.py         `Monitor`: all of it
sealed.py        a monitor as a file
pooled.py        several sites together
horizons.py      bettors who do not know how many images will come
evidence.py      what an anytime calibration is about, and what its images have shown so far
first_images.py  what its first images settle
anytime.py         `AnytimeCalibration`: certified at any time that one cares to look
anytime_file.py    its file
shift.py         `recalibrate`: images of one source weighed as draws of another
"""

from .anytime import AnytimeCalibration
from .sealed import load_monitor, save_monitor
from .shift import recalibrate
from .status import Status
from .watch import Monitor

__all__ = ["AnytimeCalibration", "Monitor", "Status", "load_monitor", "recalibrate", "save_monitor"]
