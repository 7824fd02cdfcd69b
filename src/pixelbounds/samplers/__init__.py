"""Any sampler -> samples -> bands: in memory, or as a run that resumes when it was interrupted.

A sampler is a function (observation, samples, seed) -> samples of one observation, (samples, *pixels). The promise of a
calibration holds for any of them, good or bad; a bad one makes long intervals.

protocol.py         what a sampler is, the seed of each image, what it may return, what tells one from another
sample_bands.py     samples in files -> a store of bands
runs.py             a run: bands, mean and deviation of every image in one resumable store
observations.py     what is observed, with the numbers that seed its images
loop.py             the one loop that fills a run, of a network or of a function, here or on a cluster
network_backend.py  a network in that loop; a score network and a linear problem as a sampler
function.py         a user's function in that loop: `bands_from`
adapters.py         samplers of azula, MONAI, diffusers and deepinv
"""

from .function import bands_from, sample_function_to
from .network_backend import LinearSampler
from .protocol import Sampler, load_sampler
from .sample_bands import bands_to

__all__ = ["LinearSampler", "Sampler", "bands_from", "bands_to", "load_sampler", "sample_function_to"]
