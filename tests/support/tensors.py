"""Tensors of torch where it is installed; `make test` needs none, and takes arrays in their place."""

import numpy as np
import pytest

try:
    import torch
except ImportError:
    torch = None
as_tensor = np.asarray if torch is None else torch.from_numpy
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")
