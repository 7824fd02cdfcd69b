"""How much a file may unpack to: what `--memory` allows, and at least 64 MB.

Sizes that a file declares are compared with it before anything of that size is made.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..execution.runner import current
from ..storage.files import size_in_words
from .scans import Told

_LEAST = 2**26
_PER_CHUNK = 200  # bytes that the name of a chunk takes while a store is opened


def check_allowed(size: int, what: str) -> None:
    """Refuse what would take more bytes than are allowed; `what` begins the sentence."""
    most = max(_LEAST, current().memory)
    if size > most:
        raise Told(
            f"{what} to {size_in_words(size)}, more than the memory allowed, {size_in_words(most)}; allow more with "
            "--memory (in Python: pixelbounds.execution.running), or leave it out"
        )


def check_declared(x: Any, name: str) -> Any:
    """A zarr array of numbers whose chunks, and whose list of chunks, may be held in memory."""
    if np.dtype(x.dtype).kind not in "fiub":
        raise Told(f"{name} holds {x.dtype}; images are numbers, such as float32")
    chunk = x.shards or x.chunks
    if not all(chunk):
        raise Told(f"{name} has chunks of shape {tuple(chunk)}; write it again")
    check_allowed(prod(chunk) * int(x.dtype.itemsize), f"each chunk of {name} unpacks")
    check_allowed(
        _PER_CHUNK * prod(-(-n // c) for n, c in zip(x.shape, chunk, strict=True)), f"the chunks of {name} add up"
    )
    return x
