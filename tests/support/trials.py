"""Counting broken promises over simulated worlds: how many there are, and which counts are believable."""

import os
import zlib

import numpy as np
from scipy.stats import binom

WORLDS = int(os.environ.get("PIXELBOUNDS_WORLDS", "15"))  # few for `make test`, 1,000 for `make guarantees`
FALSE_ALARM = 1e-5


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
        record("failures", f"{failures} of {trials}; {name} would be refused with probability {likely:.3f}")
    assert likely >= (0.95 if WORLDS >= 1000 else 0.5), f"{trials} worlds see {name} with probability {likely:.2f} only"
    assert consistent(failures, trials, probability), f"{failures} failures in {trials} worlds"
