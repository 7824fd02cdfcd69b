"""Whole runs on files: train a network as a TOML file says, and sample observations into a store."""

from .drawing import SampleOptions
from .sampling import sample_to
from .training import train_from

__all__ = ["SampleOptions", "sample_to", "train_from"]
