"""The same steps over files larger than memory, in threads or on a Dask cluster; knows chunks, no statistics.

`running` says where passes over images run: everything that the core reads within it is read there. The results have
the same bits as those of arrays in memory, however the work is cut.

runner.py     passes in threads, within bounds of memory, or on the workers of a cluster
transport.py  how a pass travels to a worker
blocks.py     what is made block by block, into a store or into memory
progress.py   what is reported while work goes on
threads.py    how threads of other libraries wait
"""

from ..storage.chunks import BadChunk, guarded, rows_at
from .runner import parse_memory, running

__all__ = ["BadChunk", "guarded", "parse_memory", "rows_at", "running"]
