"""Where passes over images run: threads of this process, or the workers of a Dask cluster.

A pass is a function of a range of images whose results are exact and come in order, so how it is cut changes no bit.
One over files is cut along their chunks and spread; one over arrays in memory stays in this process.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from zarr.storage import LocalStore

from ..images.library import (
    Array,
    Runner,
    current_runner,
    cut_rows,
    in_file,
    in_threads,
    itemsize,
    library_of,
    set_runner,
    size_of,
    sizes_of,
)
from ..storage.chunks import chunk_rows, is_mapped, offset_of
from ..storage.files import size_in_words
from ..storage.version import VERSION

T = TypeVar("T")
Progress = Callable[[int, int], None]  # called with what is done and the total
Tell = Callable[[str], None]  # called with a line for the user
PER_PIXEL = 128  # bytes that the work on a pixel takes beside what is read
_PER_TASK = 2**26  # bytes that a task on a cluster reads, so that a scheduler has few tasks to keep
_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def silent(done: int, total: int) -> None:
    """Report nothing."""


@contextmanager
def bar(what: str, *, of: str = "bytes") -> Iterator[Progress]:
    """A bar on a terminal, or in a notebook: what is done and the total, in bytes or counts `of` something else.

    Until it is called it only shows that work goes on; 0 begins another pass.
    """
    from rich import progress as parts
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    amount: list[parts.ProgressColumn] = [parts.DownloadColumn(), parts.TransferSpeedColumn()]
    amount = amount if of == "bytes" else [parts.MofNCompleteColumn(), parts.TextColumn(of)]
    times = parts.TimeElapsedColumn(), parts.TimeRemainingColumn()
    columns = parts.TextColumn("{task.description}"), parts.BarColumn(), *amount, *times
    with parts.Progress(
        *columns, console=console, transient=True, disable=not (console.is_terminal or console.is_jupyter)
    ) as bars:
        task = bars.add_task(what, total=None)

        def advance(done: int, total: int) -> None:
            if not done:
                bars.reset(task)
            bars.update(task, completed=done, total=total)
            if done >= total:  # what follows takes its time too
                bars.tasks[0].total = None

        yield advance


@dataclass(frozen=True)
class Execution(Runner):
    """How passes run now; `client` is None for threads."""

    client: Any
    threads: int
    memory: int
    progress: Progress
    scratch: Path | None = None

    @property
    def table_bytes(self) -> int:  # type: ignore[override]
        """What a table of losses may take in memory."""
        return self.memory // 4

    def over(self, function: Callable[[int, int], T], rows: int, block: int, reads: Sequence[Any] = ()) -> Iterator[T]:
        """A pass of the core: `function(start, stop)` over blocks of images, in order, cut along chunks of files."""
        files = [x for x in reads if in_file(x)]
        if not files or not rows:
            return in_threads(function, rows, block)
        pixels = [int(sizes_of(x).max()) for x in files]  # of an image
        row_bytes = sum(p * itemsize(x) for x, p in zip(files, pixels, strict=True))
        cost = 2 * row_bytes + PER_PIXEL * min(pixels)
        per_chunk = max((chunk_rows(x) for x in files if x.shape[0] == rows and x.ndim > 1), default=1)
        most = max(1, self.memory // (2 * cost))  # two blocks at least are under way
        step = -(-block // per_chunk) * per_chunk  # whole chunks where memory allows, so that none is read twice
        step = step if step <= most else max(1, min(block, most), most // per_chunk * per_chunk)
        return self.each(function, cut_rows(rows, step), step * cost, step * row_bytes, reads)

    def each(
        self, function: Callable[..., T], jobs: Sequence[tuple[Any, ...]], cost: int, size: int,
        reads: Sequence[Any] = (),
    ) -> Iterator[T]:  # fmt: skip
        """`function(*job)` for every job, in order; each needs `cost` bytes of memory and reads `size` bytes."""
        if cost > self.memory:
            raise ValueError(
                f"the least piece of work takes about {size_in_words(cost)}, more than the memory allowed, "
                f"{size_in_words(self.memory)}; allow more with --memory"
            )
        total = max(1, len(jobs) * size)
        here = self.client is None
        results = self._threaded(function, jobs, cost) if here else self._spread(pack(function, reads), jobs, size)
        self.progress(0, total)
        for done, result in enumerate(results, 1):
            yield result
            self.progress(done * size, total)

    def _threaded(self, function: Callable[..., T], jobs: Sequence[tuple[Any, ...]], cost: int) -> Iterator[T]:
        """One thread more than there are cores: while some compute, one reads or writes."""
        workers = max(1, min(self.threads + 1 if self.threads > 1 else 1, self.memory // max(1, cost), len(jobs)))
        waiting: deque[Any] = deque()
        with ThreadPoolExecutor(workers) as pool:
            try:
                for job in jobs:
                    if len(waiting) > workers:
                        yield waiting.popleft().result()
                    waiting.append(pool.submit(function, *job))
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def _spread(self, packed: bytes, jobs: Sequence[tuple[Any, ...]], size: int) -> Iterator[Any]:
        """On the cluster; tasks are sent a few ahead, and one whose worker dies runs again elsewhere."""
        from distributed import KilledWorker

        work = self.client.submit(_itself, packed, key=f"pixelbounds-{sha256(packed).hexdigest()}")
        threads = sum(self.client.nthreads().values())
        per_task = max(1, min(_PER_TASK // max(1, size), len(jobs) // max(1, 4 * threads)))
        tasks = [jobs[i : i + per_task] for i in range(0, len(jobs), per_task)]
        waiting: deque[Any] = deque()
        try:
            for task in tasks:
                if len(waiting) > max(32, 4 * threads):
                    yield from waiting.popleft().result()
                waiting.append(self.client.submit(_task, work, task, pure=False))
            while waiting:
                yield from waiting.popleft().result()
        except KilledWorker as error:
            raise RuntimeError(
                f"several workers died on the same task ({error.args[0]}); most likely memory: give workers more"
            ) from error
        finally:
            with suppress(Exception):  # the cluster may be gone
                self.client.cancel([*waiting, work])

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A temporary folder that workers see, too."""
        where = self.scratch or (Path.cwd() if self.client is not None else None)
        with tempfile.TemporaryDirectory(prefix=".pixelbounds." if where else "pixelbounds.", dir=where) as folder:
            yield Path(folder).resolve()


def _itself(packed: bytes) -> bytes:
    """A task that holds the packed function: a worker that dies does not take it along."""
    return packed


def _task(packed: bytes, jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
    import dask

    function = unpack(packed)
    with dask.config.set(scheduler="synchronous"):
        return [function(*job) for job in jobs]


@contextmanager
def running(
    scheduler: Any = None, *, memory: int | str | None = None, threads: int | None = None,
    scratch: str | os.PathLike[str] | None = None, progress: Progress = silent,
) -> Iterator[Execution]:  # fmt: skip
    """Run all passes over images within the block in threads, or on a cluster.

    scheduler      a `distributed.Client`, or the address of a scheduler; None: threads of this process
    memory         bytes, or a size such as "4G", for blocks under way, by default a quarter of the machine's; on a
                   cluster for one task, by default half of a worker's limit per thread
    threads        of this process; by default as many as there are cores
    scratch        folder for temporary stores, seen by all workers; by default the system's, with a scheduler this one

    >>> with running(memory="1G") as execution:
    ...     execution.memory
    1073741824
    """
    client, opened = _client(scheduler)
    memory = parse_memory(memory or _share(client))
    where = None if scratch is None else Path(scratch).absolute()
    execution = Execution(client, _cores() if threads is None else threads, memory, progress, where)
    reset = set_runner(execution)
    try:
        yield execution
    finally:
        reset()
        if opened:
            client.close()


def current() -> Execution:
    """How passes run now."""
    runner = current_runner()
    return runner if isinstance(runner, Execution) else Execution(None, _cores(), parse_memory(None), silent)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parse_memory(size: int | str | None) -> int:
    """Bytes of a size in words; None: a quarter of the machine's memory.

    >>> parse_memory("512M"), parse_memory("1.5 GiB")
    (536870912, 1610612736)
    """
    if size is None:
        known = "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ())
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 if known else 2**31
    parsed = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:I?B)?\s*", str(size).upper())
    if not parsed or not float(parsed[1]):
        raise ValueError(f"memory is {size!r}; give a size such as 512M or 4G")
    return int(float(parsed[1]) * 1024 ** _UNITS[parsed[2]])


def _client(scheduler: Any) -> tuple[Any, bool]:
    """The client of a cluster whose workers have this version, and whether it is ours to close."""
    if scheduler is None:
        return None, False
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError("a cluster needs distributed; pip install 'pixelbounds[cluster]'") from error
    by_address = isinstance(scheduler, str)
    if not by_address and not isinstance(scheduler, Client):
        raise TypeError(f"scheduler is {scheduler!r}; give a distributed.Client or an address such as tcp://host:8786")
    try:
        client = Client(scheduler, timeout="20s", set_as_default=False) if by_address else scheduler
    except (OSError, ValueError, TimeoutError) as error:
        raise ValueError(
            f"no scheduler answers at {scheduler!r} ({error}); give its address, tcp://host:8786"
        ) from error
    others = set(client.run(_version).values()) - {VERSION}
    if others:
        if by_address:
            client.close()
        raise ValueError(
            f"workers have pixelbounds {', '.join(sorted(others))}, this is {VERSION}; install one version"
        )
    return client, by_address


def _share(client: Any) -> int | None:
    """Half of the least memory that a thread of a cluster has; None where that is not known."""
    workers = [] if client is None else client.scheduler_info()["workers"].values()
    shares = [worker["memory_limit"] // (2 * worker["nthreads"]) for worker in workers if worker["memory_limit"]]
    return min(shares, default=None)


def _version() -> str:
    return VERSION


MOST_IN_MEMORY = 2**24  # bytes of an array that may travel with a function


def pack(function: Callable[..., Any], reads: Sequence[Any] = ()) -> bytes:
    """A function, and the arrays that it reads, as bytes for Dask's transport; files go by path."""
    for x in reads:
        if library_of(x) and not in_file(x) and size_of(x) > MOST_IN_MEMORY:
            raise ValueError(
                f"an array of shape {tuple(x.shape)}, {x.dtype}, lies in memory, but workers read files: save it as "
                ".npy or .zarr where all of them see it, and give that"
            )
    out = io.BytesIO()
    _Packer(out).dump(function)
    packed = out.getvalue()
    if len(packed) > 4 * MOST_IN_MEMORY:
        raise ValueError(f"{len(packed) / 1e6:.0f} MB would travel to every worker; give arrays as .npy or .zarr files")
    return packed


@lru_cache(maxsize=4)
def unpack(packed: bytes) -> Callable[..., Any]:
    """The function again, once per process."""
    function: Callable[..., Any] = cloudpickle.loads(packed)
    return function


class _Packer(cloudpickle.Pickler):
    def reducer_override(self, x: Any) -> Any:
        if is_mapped(x):
            return _mapped, (str(x.filename), x.dtype.str, x.shape, offset_of(x))
        if isinstance(x, LocalStore):
            return _opened, (str(Path(x.root).resolve()), x.read_only)
        return super().reducer_override(x)


def _mapped(path: str, dtype: str, shape: tuple[int, ...], offset: int) -> Array:
    return np.memmap(_seen(path), dtype, "r", offset, shape)


def _opened(path: str, read_only: bool) -> LocalStore:
    return LocalStore(_seen(path), read_only=read_only)


def _seen(path: str) -> str:
    if not Path(path).exists():
        raise FileNotFoundError(f"a worker does not see {path}; put it where all of them do")
    return path
