"""The same steps over files larger than memory, in threads or on a Dask cluster; knows chunks, no statistics.

`running` says where passes over images run: everything that the core reads within it is read there. `bands_to` makes a
store of bands of a store of samples. Both give the same bits as arrays in memory do, however the work is cut.

runner.py       passes in threads, within bounds of memory, or on the workers of a cluster
transport.py    how a pass travels to a worker
blocks.py       what is made block by block, into a store or into memory; samples to bands
progress.py     what is told while work goes on
"""

from ..images import numbered
from ..storage.chunks import BadChunk, first_missing, guarded, rows_at
from ..storage.growth import BAD, DONE, MARKS, Blocks, growing, request_digest
from .blocks import (
    Maker,
    band_at,
    bands_to,
    block_rows,
    fill,
    gather,
    open_stored,
    pick,
    quantiles,
    readable,
    where,
)
from .runner import Execution, current, parse_memory, running

__all__ = [
    "BAD",
    "DONE",
    "MARKS",
    "BadChunk",
    "Blocks",
    "Execution",
    "Maker",
    "band_at",
    "bands_to",
    "block_rows",
    "current",
    "fill",
    "first_missing",
    "gather",
    "growing",
    "guarded",
    "numbered",
    "open_stored",
    "parse_memory",
    "pick",
    "quantiles",
    "readable",
    "request_digest",
    "rows_at",
    "running",
    "where",
]
