"""From an observation to posterior samples: the noise process, the score network, its training and its samplers.

torch lives in this folder only. Every file imports torch, numpy, safetensors, its neighbours,
`pixelbounds.storage.files` and `pixelbounds.problems.krylov`, nothing else, so that all also run alone on a GPU
machine.
"""

from .architecture import NetworkConfig, configuration
from .inverse import GUIDANCES, Guidance, sample_linear
from .lean import LeanUNet, network_of
from .members import Ensemble, compile_pays, compiled
from .network import NCSNpp
from .noise import gaussian
from .posterior import SAMPLERS, Draws, Reduction, automatic_batch, posterior_mean, sample
from .sde import VESDE

__all__ = [
    "GUIDANCES",
    "SAMPLERS",
    "VESDE",
    "Draws",
    "Ensemble",
    "Guidance",
    "LeanUNet",
    "NCSNpp",
    "NetworkConfig",
    "Reduction",
    "automatic_batch",
    "compile_pays",
    "compiled",
    "configuration",
    "gaussian",
    "network_of",
    "posterior_mean",
    "sample",
    "sample_linear",
]
