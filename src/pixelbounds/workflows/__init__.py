"""Whole runs on files: train a network as a TOML file says, and sample observations into a store."""

from .observations import SampleOptions
from .sample import sample_to
from .train import train_from

__all__ = ["SampleOptions", "sample_to", "train_from"]
