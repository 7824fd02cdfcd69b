"""Counting broken promises over simulated worlds: how many there are, which counts are believable, and what is seen.

Seeds are fixed, so a correct package fails a check with probability FALSE_ALARM once, when it is first written, and
not at every run. A check is worth what it refuses: `check_failures` names a wrong procedure, how often it breaks the
promise (computed, or counted in the same worlds), and how likely so many worlds refuse it: at least 50% in `make test`,
95% in `make guarantees`, where PIXELBOUNDS_WORLDS is 1,000. Both sizes have a table: power.md and guarantees.md.
"""

import os
import zlib

import numpy as np
from scipy.stats import binom

WORLDS = int(os.environ.get("PIXELBOUNDS_WORLDS", "15"))
LARGE = WORLDS >= 200
FALSE_ALARM = 1e-5
DOUBLED = "delta doubled", 0.2  # of tests whose delta is 0.1


def consistent(failures, trials, probability, alarm=FALSE_ALARM):
    """Whether a count of failures is believable if each trial fails with at most this probability."""
    return bool(binom.sf(failures - 1, trials, probability) >= alarm)


def generator(*names, seed):
    """A generator of its own for every world of every test, the same in every run."""
    text = " ".join(getattr(name, "__name__", str(name)) for name in names)
    return np.random.default_rng([zlib.crc32(text.encode()), seed])


def refused_from(trials, probability, alarm=FALSE_ALARM):
    """The least count of failures that is not `consistent`."""
    return int(binom.isf(alarm, trials, probability)) + 1


def power(trials, probability, wrong, alarm=FALSE_ALARM):
    """How likely a procedure that fails with probability `wrong` is refused where `probability` is promised."""
    return float(binom.sf(refused_from(trials, probability, alarm) - 1, trials, wrong))


def check_failures(failures, trials, probability, wrong, record=None):
    """Failures are as few as promised, and as many as a `wrong` procedure's were likely refused: (its name, rate)."""
    name, rate = wrong
    likely = power(trials, probability, rate)
    if record:
        record("power", [int(failures), int(trials), probability, name, float(rate), likely])
    assert likely >= (0.95 if LARGE else 0.5), f"{trials} worlds see {name} ({rate:.2f}) with probability {likely:.2f}"
    assert consistent(failures, trials, probability), f"{failures} failures in {trials} worlds"
