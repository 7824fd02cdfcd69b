"""The same steps over files larger than memory, in threads or on a Dask cluster; knows chunks, no statistics.

`running` says where passes over images run: everything that the core reads within it is read there. `bands_to` makes a
store of bands of a store of samples. Both give the same bits as arrays in memory do, however the work is cut.
"""

from ..storage.chunks import BadChunk, first_missing, guarded
from ..storage.growth import BAD, DONE, MARKS, Blocks, digest_of, growing
from ..storage.plain import rows_at
from .blocks import (
    Maker,
    band_at,
    bands_to,
    block_rows,
    fill,
    gather,
    numbered,
    open_stored,
    pick,
    quantiles,
    readable,
    watched,
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
    "digest_of",
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
    "rows_at",
    "running",
    "watched",
    "where",
]
