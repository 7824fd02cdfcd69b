"""Any sampler -> samples -> bands: in memory, or as a run that goes on where it stopped.

A sampler is a function (observation, samples, seed) -> samples of one observation, (samples, *pixels). The promise of a
calibration holds for any of them, good or bad; a bad one makes long intervals.

protocol.py  what a sampler is, its name, the seed of each image, what it may return
tails.py     samples that stream by -> order statistics, mean and deviation, in bounded memory
loop.py      the one loop that fills a run, of a network or of a function, here or on a cluster
function.py  a user's function in that loop: `bands_from`
linear.py    a score network and a linear problem as a sampler
adapters.py  samplers of azula, MONAI, diffusers and deepinv
"""

from .function import bands_from, sample_function_to
from .linear import LinearSampler
from .protocol import Sampler, load_sampler

__all__ = ["LinearSampler", "Sampler", "bands_from", "load_sampler", "sample_function_to"]
