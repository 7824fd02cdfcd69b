"""The same steps over files larger than memory, in threads or on a Dask cluster; knows chunks, no statistics.

`running` says where passes over images run: everything that the core reads within it is read there. The results have
the same bits as those of arrays in memory, however the work is cut.
"""

import os

from ..storage.chunks import BadChunk, guarded, rows_at
from .runner import parse_memory, running

__all__ = ["BadChunk", "guarded", "let_threads_sleep", "parse_memory", "rows_at", "running"]


def let_threads_sleep() -> None:
    """Make OpenMP's threads sleep while they wait, not spin; too late once torch is imported.

    Where other programs use a core, threads that spin hold back the one that they wait for: a step of training takes
    longer than on one thread.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
