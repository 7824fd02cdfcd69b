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
